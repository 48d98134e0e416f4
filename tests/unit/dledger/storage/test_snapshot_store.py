"""Snapshots: saved atomically, three are kept, sent and received in chunks, refused if damaged."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from dledger.storage.snapshot_file import HEADER_SIZE
from dledger.storage.snapshot_store import SnapshotDamaged, SnapshotGone, SnapshotStore
from dledger.testing.faults import SimulatedCrash
from dledger.types import SnapshotInfo
from store.errors import DiskFull
from store.fs.linux.files import OsFiles
from tests.support.waiting import PATIENCE_S

STATE = Random(5).randbytes(10_000)


@pytest.fixture
def open_store(tmp_path):
    stores = []

    def make(name="n0"):
        stores.append(SnapshotStore.open(OsFiles(), f"{tmp_path}/{name}"))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store):
    return open_store()


def send(source, target, info, chunk_size=1024, until=None):
    """Send the rest of a snapshot; return whether the target has all of it."""
    coming = target.incoming()
    offset = coming[1] if coming is not None and coming[0] == info else 0
    while offset < (info.size_bytes if until is None else until):
        offset = target.write_chunk(info, offset, source.read_chunk(info, offset, chunk_size))
    return offset == info.size_bytes and target.finish(info)


def test_new_store_has_nothing(store):
    assert store.latest() is None
    assert store.snapshots == store.damaged == ()
    assert store.incoming() is None


@pytest.mark.parametrize("content", [STATE, [STATE[:1], b"", STATE[1:7000], STATE[7000:]], b"", []])
def test_saved_state_comes_back_also_in_a_new_process(store, open_store, content):
    expected = content if isinstance(content, bytes) else b"".join(content)

    info = store.save(41, 7, iter(content) if isinstance(content, list) else content)

    assert (info.index, info.term, info.size_bytes) == (41, 7, HEADER_SIZE + len(expected))
    for opened in (store, open_store()):
        assert opened.latest() == info
        assert opened.load(info) == expected


def test_header_is_as_documented(store, tmp_path):
    store.save(41, 7, b"123456789")

    content = (tmp_path / "n0/snapshot/00000000000000000041").read_bytes()
    assert content[:44].hex() == (
        b"dlsnaps\n".hex() + "00000001" + "00000030" + f"{41:016x}" + f"{7:016x}" + f"{9:016x}" + "e3069283"
    )
    assert content[48:] == b"123456789"


def test_newest_three_are_kept(store, open_store, tmp_path):
    saved = [store.save(index, 1, b"%d" % index) for index in (3, 10, 20, 100, 1000)]

    for opened in (store, open_store()):
        assert opened.snapshots == tuple(saved[:1:-1])
    assert sorted(int(path.name) for path in (tmp_path / "n0/snapshot").iterdir()) == [20, 100, 1000]
    with pytest.raises(SnapshotGone, match="newer snapshots"):
        store.load(saved[0])


def test_failed_save_leaves_the_older_snapshot(store, open_store):
    info = store.save(3, 1, b"old")

    with pytest.raises(ZeroDivisionError):
        store.save(4, 1, (b"%d" % (1 // number) for number in (1, 0)))

    assert store.save(5, 1, b"new").index == 5
    assert open_store().load(info) == b"old"


def test_a_flipped_bit_in_any_byte_is_detected_and_the_older_one_is_used(store, open_store, tmp_path):
    older, newer = store.save(3, 1, b"old"), store.save(9, 2, b"new")
    path = tmp_path / "n0/snapshot" / f"{9:020d}"
    good = path.read_bytes()

    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1 << position % 8]) + good[position + 1 :])
        opened = open_store()
        if opened.latest() == newer:
            assert opened.read_chunk(newer, 0, 1) is None
            opened = open_store()
            with pytest.raises(SnapshotDamaged):
                opened.load(newer)
        assert opened.snapshots == (older,)
        assert [fault.path for fault in opened.damaged] == [str(path)]
    assert opened.load(older) == b"old"
    opened.save(10, 2, b"newest")
    assert not path.exists()


@pytest.mark.parametrize("size", [0, 1, 47, 48, 50])
def test_snapshot_that_is_too_short_is_damaged(store, open_store, tmp_path, size):
    store.save(9, 2, b"new")
    path = tmp_path / "n0/snapshot" / f"{9:020d}"
    path.write_bytes(path.read_bytes()[:size])

    opened = open_store()

    assert opened.latest() is None
    assert "give the node an empty one" in str(opened.damaged[0])


@pytest.mark.parametrize("chunk_size", [1, 1000, 10_047, 10_048, 1 << 20])
def test_snapshot_is_sent_in_chunks(store, open_store, chunk_size):
    info, target = store.save(41, 7, STATE[:500] if chunk_size == 1 else STATE), open_store("n1")

    assert send(store, target, info, chunk_size)

    assert target.incoming() is None
    for opened in (target, open_store("n1")):
        assert opened.latest() == info
        assert opened.load(info) == store.load(info)


def test_transfer_continues_after_a_restart(store, open_store, monkeypatch):
    monkeypatch.setattr("dledger.storage.snapshot_store._SYNC_EVERY_BYTES", 4000)
    info, target = store.save(41, 7, STATE), open_store("n1")
    send(store, target, info, until=7000)
    assert target.incoming() == (info, 7168)

    target.close()
    target = open_store("n1")

    assert target.incoming() == (info, 4096)
    assert send(store, target, info)
    assert target.load(info) == STATE


def test_chunk_out_of_order_changes_nothing(store, open_store):
    info, target = store.save(41, 7, STATE), open_store("n1")
    send(store, target, info, until=3000)

    assert target.write_chunk(info, 0, store.read_chunk(info, 0, 1000)) == 3072
    assert not target.finish(store.save(99, 9, b"another one"))
    send(store, target, info, until=3000)
    assert target.write_chunk(info, 5000, store.read_chunk(info, 5000, 1000)) == 3072
    assert target.write_chunk(info, 3072, bytes(info.size_bytes)) == 3072
    assert target.write_chunk(info, 2000, store.read_chunk(info, 2000, 2000)) == 4000
    assert send(store, target, info)
    assert target.load(info) == STATE


def test_another_snapshot_replaces_the_one_being_received(store, open_store):
    first, second, target = store.save(41, 7, STATE), store.save(42, 7, STATE[::-1]), open_store("n1")
    send(store, target, first, until=3000)

    assert send(store, target, second)

    assert target.snapshots == (second,)
    assert target.incoming() is None


def test_damage_in_transfer_is_found_at_the_end(store, open_store):
    info, target = store.save(41, 7, STATE), open_store("n1")
    send(store, target, info, until=3000)
    target.write_chunk(info, 3072, bytes(1000))

    assert not send(store, target, info)

    assert target.incoming() is target.latest() is None
    assert send(store, target, info)


def test_snapshot_that_is_being_sent_can_be_read_to_its_end_though_deleted(store, open_store):
    info, target = store.save(1, 7, STATE), open_store("n1")
    send(store, target, info, until=3000)
    for index in range(2, 6):
        store.save(index, 7, b"")

    assert send(store, target, info)
    assert store.read_chunk(info, 0, 1) is None


def test_chunks_of_older_snapshots_are_read_while_one_is_saved(store):
    older = [store.save(index, 1, b"%d" % index * 1_000) for index in range(1, 4)]
    read = []

    def content():
        for info in older:
            yield b"new"
            read.append([store.read_chunk(info, at, 500) for at in range(0, info.size_bytes, 500)])

    with ThreadPoolExecutor(1) as saving:
        saved = saving.submit(store.save, 4, 1, content()).result(PATIENCE_S)
    assert [len(b"".join(chunks)) for chunks in read] == [info.size_bytes for info in older]
    assert store.read_chunk(older[0], 0, 1) is None, "it is the fourth, which was deleted"
    assert store.load(saved) == b"newnewnew"


@pytest.mark.parametrize("other_index", [5, 15])
def test_snapshot_that_replaced_a_damaged_one_is_not_deleted_with_it(store, tmp_path, other_index):
    damaged = store.save(10, 1, STATE)
    path = tmp_path / "n0/snapshot" / f"{10:020d}"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert store.read_chunk(damaged, 0, 1) is None
    replaced = store.save(10, 1, STATE)

    store.save(other_index, 1, b"another")

    assert replaced in store.snapshots
    assert store.load(replaced) == STATE


class FilesWithReader(OsFiles):
    """Calls `read` in another thread before and after each rename, removal and sync of a directory."""

    def __init__(self, reader):
        super().__init__()
        self.read = None
        self._reader = reader

    def _read(self):
        if self.read is not None:
            self._reader.submit(self.read).result(PATIENCE_S)

    def rename(self, path, new_path):
        self._read()
        super().rename(path, new_path)
        self._read()

    def remove(self, path):
        self._read()
        super().remove(path)
        self._read()

    def sync_directory(self, path):
        self._read()
        super().sync_directory(path)
        self._read()


@pytest.mark.parametrize(("index", "are_left"), [(3, (True, True, False)), (4, (False, True, True))])
def test_file_operations_of_a_save_delay_no_reader(tmp_path, index, are_left):
    """Found by simulation (shell): a reader, which is the event loop, waited for the rename."""
    with ThreadPoolExecutor(1) as reader:
        files = FilesWithReader(reader)
        store = SnapshotStore.open(files, f"{tmp_path}/n0")
        older = [store.save(index, 1, b"old") for index in range(1, 4)]
        seen = []
        files.read = lambda: seen.append(tuple(store.read_chunk(info, 0, 100) is not None for info in older))

        saved = store.save(index, 1, b"new")

    assert list(dict.fromkeys(seen)) == [(True, True, True), are_left]
    assert store.damaged == ()
    assert store.load(saved) == b"new"
    store.close()


def test_snapshot_in_transfer_starts_again_when_it_is_saved_again(store, open_store):
    info, target = store.save(1, 7, STATE), open_store("n1")
    send(store, target, info, until=3000)
    repeated = store.save(1, 7, STATE[::-1])

    assert store.read_chunk(info, 3000, 1000) is None
    assert send(store, target, repeated)
    assert target.load(repeated) == STATE[::-1]


def crashes_in(machine, operation):
    """Yield the store as the next process finds it, after a crash in each file operation of `operation`."""
    for number in range(1, 60):
        for is_power_cut in (False, True):
            fresh = type(machine)()
            fresh.random.seed(number)
            files = fresh.process()
            store = SnapshotStore.open(files, "/n0")
            store.save(5, 1, b"old" * 400)
            files.crash_point.arm(number)
            try:
                operation(store)
            except SimulatedCrash:
                if is_power_cut:
                    fresh.disk.cut_power()
            else:
                assert number > 4
                return
            yield SnapshotStore.open(fresh.process(), "/n0")


def test_save_that_crashes_anywhere_is_complete_or_absent(machine):
    found = set()
    for store in crashes_in(machine, lambda store: store.save(8, 2, [b"new", b"er"] * 300)):
        assert store.damaged == ()
        content = store.load(store.latest())
        assert content == {5: b"old" * 400, 8: b"newer" * 300}[store.latest().index]
        found.add(store.latest().index)
        assert store.save(9, 2, b"newest") == store.latest()
    assert found == {5, 8}


def test_transfer_that_crashes_anywhere_can_be_resumed(machine, open_store, monkeypatch):
    monkeypatch.setattr("dledger.storage.snapshot_store._SYNC_EVERY_BYTES", 600)
    source = open_store("source")
    info = source.save(8, 2, STATE[:2000])
    starts = set()

    for store in crashes_in(machine, lambda store: send(source, store, info, 250)):
        assert store.damaged == ()
        starts.add(store.incoming()[1] if store.incoming() else -1)
        assert store.latest() == info or send(source, store, info, 250)
        assert store.load(info) == STATE[:2000]

    assert {-1, 0, 750, 1500} <= starts


def test_no_space_for_an_incoming_snapshot_leaves_nothing(machine):
    store = SnapshotStore.open(machine.process(), "/n0")
    info = SnapshotInfo(5, 1, 1 << 20, 7)
    machine.disk.capacity_bytes = machine.disk.used_bytes + 10_000

    assert store.write_chunk(info, 0, b"x") == 0

    assert store.incoming() is None
    assert not store.finish(info)
    assert store.save(3, 1, b"x" * 100).index == 3
    with pytest.raises(DiskFull):
        store.save(4, 1, bytes(20_000))
    assert store.latest().index == 3
