"""The entries of the last file are never skipped silently, however they are damaged or lost: the evidence of them is
the checkpoint, the index files and the consume queues (`pipeline.log.evidence`)."""

import itertools
import re
import shutil
from types import SimpleNamespace

import pytest

from dledger.entries.format.entry import INDEX_UNIT, INDEX_UNIT_SIZE
from dledger.storage.checkpoint import CheckpointFile
from pipeline.archive.archive import Archive
from pipeline.common.errors import CorruptRecord, DataLost, PipelineError
from pipeline.log.entry_count import check_entries, entries_in
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.log.slices import plan
from pipeline.log.stores import Tail, open_store
from pipeline.reading.corrupt_policy import SKIP
from pipeline.reading.read_slice import read_slice
from pipeline.report.partial import REPORT_COLUMNS
from pipeline.report.summary import summarise
from pipeline.sink.options import LakeTarget
from pipeline.source.options import parse_source_options
from pipeline.source.parts import Part, ReadSettings
from pipeline.source.plan import batch_parts
from pipeline.spark.jobs import partial_of
from store.fs.linux.files import OsFiles
from tests.support.pipeline_stores import make_plain, make_replicated, run_here
from tests.unit.pipeline.conftest import described

# Where a byte of an entry (or record) is changed.
DAMAGES = {
    "replicated": {
        "entry magic": 0, "entry size": 6, "entry index": 12, "entry position": 30, "record size": 50, "record": 52,
        "body": 48 + 95, "zeros": None,
    },
    "plain": {"record magic": 4, "record size": 2, "offset": 30, "body": 95, "zeros": None},
}  # fmt: skip
# All evidence of the entries of the last file.
EVIDENCE = {
    "replicated": ("dledger-n0/checkpoint", "consumequeue", "dledger-n0/index"),
    "plain": ("checkpoint", "consumequeue"),
}


def log_files(folder):
    return sorted([*folder.glob("commitlog/*"), *folder.glob("dledger-*/data/*")])


def with_count_in_last_file(maker, root, wanted):
    """Make stores of about as many messages as needed until the last file holds as many of them as wanted."""
    count = 600
    for attempt in range(9):
        folder = maker(root / str(attempt), count)
        messages = described(folder)
        begin = int(log_files(folder)[-1].name)
        found = sum(message.entry_offset >= begin for message in messages)
        if found == wanted:
            return folder, messages
        count += wanted - found
    raise AssertionError(found)


@pytest.fixture(scope="module", params=[("plain", 1), ("plain", 2), ("replicated", 1), ("replicated", 6)], ids=str)
def whole(request, tmp_path_factory):
    kind, wanted = request.param
    maker = {"plain": make_plain, "replicated": lambda root, count: make_replicated(root, count, batch=1)}[kind]
    folder, messages = with_count_in_last_file(maker, tmp_path_factory.mktemp("last"), wanted)
    return SimpleNamespace(kind=kind, folder=folder, messages=messages, count=wanted)


@pytest.fixture
def damaged(whole, tmp_path):
    def damage(name, number=-1):
        at, hit = DAMAGES[whole.kind][name], whole.messages[number]
        folder = copy_of(whole, tmp_path, f"{name.replace(' ', '-')}{number}")
        path = log_files(folder)[-1]
        content = bytearray(path.read_bytes())
        position, size = hit.entry_offset - int(path.name), hit.offset + hit.size - hit.entry_offset
        if at is None:
            content[position : position + size] = bytes(size)
        else:
            content[position + at] ^= 0x10
        path.write_bytes(content)
        return folder

    return damage


def copy_of(whole, tmp_path, name):
    folder = tmp_path / name
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(whole.folder, folder)


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def rows_of(folder, *, tail=Tail.AUTO, selection=None, **options):
    with open_store(str(folder), tail=tail) as store:
        parts = plan(store, selection or Selection())
    options = {"verify_crc": True} | options
    return [
        offset
        for part in parts
        for batch in read_slice(part, ["physicalOffset"], selection=selection or Selection(), **options)
        for offset in batch.column(0).to_pylist()
    ]


def each_damage(whole):
    return DAMAGES[whole.kind]


def test_damage_in_the_last_file_is_an_error_that_names_its_position(whole, damaged):
    offsets = [message.offset for message in whole.messages]
    assert rows_of(whole.folder) == offsets
    for number in {-1, -whole.count}:
        hit = whole.messages[number]
        for name in each_damage(whole):
            folder = damaged(name, number)
            for tail in (Tail.AUTO, Tail.ALL, Tail.COMMITTED):
                with pytest.raises(CorruptRecord) as caught:
                    rows_of(folder, tail=tail)
                path = str(log_files(folder)[-1])
                assert (caught.value.path, caught.value.offset) == (path, hit.entry_offset), (name, number)
                assert caught.value.position == hit.entry_offset - int(log_files(folder)[-1].name)
            kept = [offset for offset in offsets if offset != hit.offset]
            assert rows_of(folder, on_corrupt=SKIP) == kept, (name, number)


def test_a_report_counts_a_damaged_last_entry_as_skipped(whole, damaged):
    how = ReadSettings(REPORT_COLUMNS, on_corrupt=SKIP, verify_crc=True)
    for name, number in itertools.product(each_damage(whole), {-1, -whole.count}):
        with open_store(str(damaged(name, number))) as store:
            parts = [Part(part, EVERYTHING) for part in plan(store, EVERYTHING)]

        summary = summarise(partial_of(parts, keys_kept=1 << 20, level=0, how=how), "it")

        assert summary.messages == len(whole.messages) - 1, name
        assert summary.skipped >= 1, name


def test_each_evidence_alone_shows_that_the_last_entry_is_damaged(whole, damaged):
    for name, kept in itertools.product(each_damage(whole), EVIDENCE[whole.kind]):
        if kept == "consumequeue" and not whole.messages[-1].is_queued:
            continue
        folder = damaged(name)
        for other in EVIDENCE[whole.kind]:
            if other != kept:
                remove(folder / other)
        try:
            found = rows_of(folder)
        except PipelineError:
            found = None
        # Without an index nothing contradicts a header that names another entry: its message is still complete.
        assert found is None or (name == "entry index" and len(found) == len(whole.messages)), (name, kept)


def each_loss(whole, tmp_path):
    """Yield stores whose last file is missing, empty or cut, or was never written, and the only evidence left."""
    for loss, kept in itertools.product(("missing", "empty", "cut", "zeros"), EVIDENCE[whole.kind]):
        if kept == "consumequeue" and not any(message.is_queued for message in whole.messages[-whole.count :]):
            continue
        folder = copy_of(whole, tmp_path, "lost")
        path = log_files(folder)[-1]
        path.unlink()
        if loss != "missing":
            path.write_bytes(bytes({"empty": 0, "cut": 100, "zeros": 65536}[loss]))
        for other in EVIDENCE[whole.kind]:
            if other != kept:
                remove(folder / other)
        yield f"{loss}, only {kept}", folder


def test_a_lost_last_file_is_an_error_by_each_evidence_alone(whole, tmp_path):
    for case, folder in each_loss(whole, tmp_path):
        with pytest.raises((DataLost, CorruptRecord)) as caught:
            rows_of(folder)
        if isinstance(caught.value, CorruptRecord):
            # Zeros in a file are damage of what is named there; bytes that are in no file are lost.
            assert case.startswith("zeros")
            assert caught.value.path == str(log_files(folder)[-1])
            assert caught.value.position == 0
        else:
            assert re.search(
                r"lost (entries|log) \[\d+, \d+\): .*(consumequeue|checkpoint|index)", str(caught.value)
            ), case
        with open_store(str(folder)) as store:
            kept = plan(store, fail_on_data_loss=False)
        rows = [
            offset
            for part in kept
            for batch in read_slice(part, ["physicalOffset"], on_corrupt=SKIP)
            for offset in batch.column(0).to_pylist()
        ]
        assert rows == [message.offset for message in whole.messages[: -whole.count]], case


def test_queries_reports_and_archives_refuse_a_lost_last_file(whole, tmp_path):
    for case, folder in each_loss(whole, tmp_path):
        if case.startswith("zeros"):
            continue
        with pytest.raises(DataLost):
            batch_parts(parse_source_options({"path": str(folder)}))
        root = tmp_path / "lake" / case.replace(" ", "-").replace("/", "-")
        archive = Archive(LakeTarget(str(root), "parquet"), "n0")
        with open_store(str(folder), tail=Tail.ALL) as store, pytest.raises(DataLost):
            archive.run(store, run_here)
        assert archive.write_mark() is None


def test_units_of_a_crashed_plain_store_prove_nothing(whole, tmp_path):
    """Its consume queues may have reached the disk before its log; its checkpoint has a seal, which proves."""
    if whole.kind != "plain":
        pytest.skip("the consume queues of a node hold only committed messages")
    folder = copy_of(whole, tmp_path, "crashed")
    (folder / "abort").write_bytes(b"1")
    log_files(folder)[-1].unlink()
    with pytest.raises(DataLost, match="checkpoint calls it durable"):
        rows_of(folder)
    (folder / "checkpoint").unlink()
    assert len(rows_of(folder)) == len(whole.messages) - whole.count


def test_index_units_of_a_crashed_node_and_of_truncated_entries_prove_nothing(whole, tmp_path):
    if whole.kind == "plain":
        pytest.skip("a plain log has no index files")
    folder = copy_of(whole, tmp_path, "crashed")
    before = whole.messages[: -whole.count]
    log_files(folder)[-1].unlink()
    remove(folder / "dledger-n0/checkpoint")
    remove(folder / "consumequeue")
    with pytest.raises(DataLost, match="index files"):
        rows_of(folder)
    (folder / "abort").write_bytes(b"1")
    assert len(rows_of(folder)) == len(before)
    (folder / "abort").unlink()
    # RocketMQ leaves units of truncated entries in place; those that replaced them have a higher term.
    with open_store(str(folder), tail=Tail.ALL) as store:
        first_lost = store.lost.begin
    path = sorted(folder.glob("dledger-n0/index/*"))[first_lost // 512]
    content = bytearray(path.read_bytes())
    at = first_lost % 512 * INDEX_UNIT_SIZE
    magic, position, size, index, term = INDEX_UNIT.unpack_from(content, at)
    INDEX_UNIT.pack_into(content, at, magic, position, size, index, term - 1)
    path.write_bytes(content)
    assert len(rows_of(folder)) == len(before)


def test_an_archive_counts_entries_by_headers_before_it_writes_a_mark(whole, tmp_path, monkeypatch):
    if whole.kind == "plain":
        pytest.skip("a plain log has no entries")
    with open_store(str(whole.folder), tail=Tail.COMMITTED) as store:
        begin, end = store.begin_offset, store.end_offset
        assert entries_in(store, begin, end) == store.end_index - store.begin_index
        assert entries_in(store, begin + 1, end) == store.end_index - store.begin_index - 1
        assert entries_in(store, whole.messages[-1].entry_offset, end) == 1
        assert entries_in(store, end, end) == 0
        slices = plan(store)
        check_entries(store, slices, begin, end)
        with pytest.raises(DataLost, match=r"by their headers, and \d+ by the index"):
            check_entries(store, [slices[0]._replace(begin_index=slices[0].begin_index + 1), *slices[1:]], begin, end)
        # A slice whose bytes are complete, with a wrong number of entries.
        archive = Archive(LakeTarget(str(tmp_path / "lake"), "parquet"), "n0")
        monkeypatch.setattr("pipeline.archive.archive.check_entries", lambda *_: None)
        wrong = [slices[0]._replace(end_index=slices[0].end_index + 1), *slices[1:]]
        monkeypatch.setattr("pipeline.archive.archive.plan", lambda *_: wrong)
        with pytest.raises(DataLost, match=r"entries were read, the index files have"):
            archive.run(store, run_here)
        assert archive.write_mark() is None


def test_an_archive_marks_only_what_it_read_as_archived(whole, damaged, tmp_path):
    for name, number in itertools.product(each_damage(whole), {-1, -whole.count}):
        folder, hit = damaged(name, number), whole.messages[number]
        root = tmp_path / f"lake-{name.replace(' ', '-')}{number}"
        archive = Archive(LakeTarget(str(root), "parquet"), "n0")
        with pytest.raises(PipelineError), open_store(str(folder), tail=Tail.COMMITTED) as store:
            archive.run(store, run_here)
        mark = archive.write_mark()
        assert mark is None or mark.end <= hit.entry_offset, (name, mark)


def test_a_checkpoint_older_than_the_log_hides_no_entry(whole, tmp_path):
    if whole.kind == "plain":
        pytest.skip("a plain log has no such checkpoint")
    folder = tmp_path / "early"
    shutil.copytree(whole.folder, folder)
    checkpoint = CheckpointFile(OsFiles(), f"{folder}/dledger-n0")
    (folder / "dledger-n0" / "checkpoint").unlink()
    assert checkpoint.load().committed_index == -1
    assert rows_of(folder) == [message.offset for message in whole.messages]
