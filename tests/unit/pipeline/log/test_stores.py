"""The readable end of a store: closed, in use, written to meanwhile, one of several replicas."""

import shutil

import pytest

from dledger.entries.store import EntryStore, EntryStoreConfig
from pipeline.common.errors import BadOption, CorruptRecord, NoStore
from pipeline.log.replicas import choose_replicas
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.log.slices import plan
from pipeline.log.stores import Tail, open_store
from pipeline.reading.read_slice import read_slice
from store.fs.linux.files import OsFiles
from tests.support.message_stores import Clock, open_small
from tests.support.pipeline_stores import TOPICS, append_uncommitted, make_plain, make_replicated, message


def read(parts, selection=EVERYTHING, column="physicalOffset"):
    batches = [batch for part in parts for batch in read_slice(part, [column], selection=selection)]
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def test_a_plain_store_in_use_is_read_up_to_its_end_at_planning(tmp_path):
    clock = Clock()
    store = open_small(tmp_path, clock=clock)
    put = []
    for number in range(700):
        clock.pass_s(0.01)
        put.append(store.messages.put(message(number)).outcome.places[0].physical_offset)
        if number == 400:
            # Queues lag behind: the log is read instead.
            store.dispatch()
        if number == 500:
            view = open_store(str(tmp_path))
            parts = plan(view)
            by_topic = Selection(topics=TOPICS[:2])
            topic_parts = plan(view, by_topic)
    with view:
        assert view.is_live
        assert view.end_offset == put[501]
    assert read(parts) == put[:501]
    own = [put[number] for number in range(501) if message(number).topic in TOPICS[:2] and not message(number).sys_flag]
    assert sorted(read(topic_parts, by_topic)) == own
    store.close()


def test_an_incomplete_record_is_not_read(tmp_path):
    make_plain(tmp_path / "s", 50)
    (tmp_path / "s/abort").write_bytes(b"1")
    with open_store(str(tmp_path / "s")) as view:
        end, whole = view.end_offset, read(plan(view))
    path = tmp_path / "s/commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[end - 150 : end] = bytes(150)
    path.write_bytes(content)
    # As after a crash: the checkpoint is older than the record.
    (tmp_path / "s/checkpoint").unlink()

    with open_store(str(tmp_path / "s")) as view:
        assert view.end_offset == whole[-1]
        assert read(plan(view)) == whole[:-1]


def test_only_committed_entries_of_a_log_in_use_are_read(tmp_path):
    folder = make_replicated(tmp_path / "s", 100)
    last = append_uncommitted(folder, 5, 9)
    lock = OsFiles().lock(f"{folder}/dledger-n0/lock")
    try:
        with open_store(str(folder)) as view:
            assert view.is_live
            assert view.end_index == last - 4
            assert len(read(plan(view))) == 100
    finally:
        lock.release()
    for tail, count in ((Tail.AUTO, 105), (Tail.COMMITTED, 100), (Tail.ALL, 105)):
        with open_store(str(folder), tail=tail) as view:
            assert len(read(plan(view))) == count


@pytest.mark.parametrize("is_cut", [True, False])
def test_old_bytes_of_truncated_entries_are_not_read(tmp_path, is_cut):
    """Java overwrites what it truncates, as far as new entries reach; the bytes after them are of an older term."""
    folder = make_replicated(tmp_path / "s", 100)
    with open_store(str(folder)) as view:
        end, count = view.end_offset, view.end_index
    append_uncommitted(folder, 6, 9)
    (folder / "abort").write_bytes(b"1")
    with open_store(str(folder)) as view:
        places = [view.places.place(index).position for index in range(count, count + 6)]
    path = folder / "dledger-n0/data" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[places[0] : places[0] + 60] = b"x" * 60
    for place in places[1:] if is_cut else ():
        content[place + 16 : place + 24] = (1).to_bytes(8, "big")
    path.write_bytes(content)
    (folder / "dledger-n0/checkpoint").unlink()
    for index in folder.glob("dledger-n0/index/*"):
        index.unlink()

    with open_store(str(folder)) as view:
        assert view.end_index == (count if is_cut else count + 6)
        assert (view.end_offset == end) == is_cut
        if not is_cut:
            with pytest.raises(CorruptRecord):
                read(plan(view))


def test_terms_and_bounds_are_those_of_the_log(tmp_path):
    with open_store(str(make_replicated(tmp_path / "s", 100))) as view:
        assert sorted({view.term_at(index) for index in range(view.begin_index, view.end_index)}) == [1, 2, 3, 4]
        assert (view.begin_index, view.end_index) == (0, 104)
        assert view.committed_index == 103
        assert view.certain_offset == view.end_offset


def test_times_are_found_by_bisection(tmp_path):
    with open_store(str(make_replicated(tmp_path / "s", 1000))) as view:
        times = read(plan(view), column="storeTimestamp")
        offsets = read(plan(view))
        for number in (5, 6, 400, 995):
            moment = int(times[number].timestamp() * 1000)
            first = next(at for at, other in enumerate(times) if other >= times[number])
            assert view.offset_at_time(moment) == offsets[first] - 48
        assert view.offset_at_time(int(times[-1].timestamp() * 1000) + 1) == view.end_offset
        key = next(iter(view.queues))
        assert view.queue_offset_at_time(key, 0) == view.queues[key].begin
        assert view.queue_offset_at_time(key, 1 << 50) == view.queues[key].end


@pytest.mark.parametrize("found", ["nothing", "file", "empty", "raw"])
def test_a_directory_without_messages_is_refused_by_name(tmp_path, found):
    path = tmp_path / "there"
    if found == "file":
        path.write_bytes(b"")
    elif found != "nothing":
        path.mkdir()
    if found == "raw":
        node = EntryStore.open(OsFiles(), f"{path}/dledger-n0", EntryStoreConfig(65536, 32 * 512))
        node.append([b"no message"], 0, 1)
        node.close(0)
    with pytest.raises(NoStore, match=str(path)):
        open_store(str(path))


def test_a_store_without_messages_gives_no_rows(tmp_path):
    make_plain(tmp_path / "s", 0)
    with open_store(str(tmp_path / "s")) as view:
        assert (plan(view), view.queues, view.topics) == ([], {}, {})


@pytest.fixture
def replicas(tmp_path):
    """Three replicas of one log of 300 messages; the first one has the most."""
    first = make_replicated(tmp_path / "a", 300)
    for name in ("b", "c"):
        shutil.copytree(first, tmp_path / name)
    return [str(tmp_path / name) for name in "abc"]


def test_entries_that_only_a_minority_has_are_not_read(replicas):
    append_uncommitted(replicas[0], 5, 7)
    with choose_replicas(replicas) as view:
        assert len(read(plan(view))) == 300
        assert view.end_index == 304
    # The same entries on two of three are committed.
    shutil.rmtree(replicas[1])
    shutil.copytree(replicas[0], replicas[1])
    with choose_replicas(replicas) as view:
        assert len(read(plan(view))) == 305


def test_tails_of_different_terms_do_not_agree(replicas):
    for number, term in enumerate((7, 8, 9)):
        append_uncommitted(replicas[number], 3, term)
    with choose_replicas(replicas) as view:
        assert view.end_index == 304


def test_entries_that_a_checkpoint_calls_committed_are_read_from_one_replica(replicas):
    append_uncommitted(replicas[2], 5, 7, committed=308)
    with choose_replicas(replicas) as view:
        assert view.path == replicas[2]
        assert len(read(plan(view))) == 305


def test_a_replica_that_cannot_be_opened_counts_as_empty(replicas, tmp_path):
    shutil.rmtree(replicas[0])
    with choose_replicas(replicas) as view:
        assert len(read(plan(view))) == 300
    for path in replicas[1:]:
        shutil.rmtree(path)
    with pytest.raises(NoStore):
        choose_replicas(replicas)


def test_directories_of_two_logs_are_refused(replicas, tmp_path):
    plain = str(make_plain(tmp_path / "plain", 50))
    with pytest.raises(BadOption, match="replicas of one log"):
        choose_replicas([replicas[0], plain])
    other = str(make_plain(tmp_path / "other", 50, body_size=90))
    with pytest.raises(BadOption, match="replicas of one log"):
        choose_replicas([plain, other])


def test_the_longest_of_plain_replicas_is_read(tmp_path):
    longest = make_plain(tmp_path / "a", 50)
    shorter = make_plain(tmp_path / "b", 30)
    with choose_replicas([str(shorter), str(longest)]) as view:
        assert len(read(plan(view))) == 50
