"""The last entries of a log are never skipped silently, however they are damaged: the evidence of them is
the node's checkpoint, the index files and the consume queues."""

import shutil
from types import SimpleNamespace

import pytest

from dledger.storage.checkpoint import CheckpointFile
from pipeline.archive.archive import Archive
from pipeline.common.errors import DataLost, PipelineError
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.log.slices import plan
from pipeline.log.stores import Tail, open_store
from pipeline.reading.corrupt_policy import SKIP
from pipeline.reading.read_slice import read_slice
from pipeline.report.partial import REPORT_COLUMNS
from pipeline.report.summary import summarise
from pipeline.sink.options import LakeTarget
from pipeline.source.parts import Part, ReadSettings
from pipeline.spark.jobs import partial_of
from store.fs.linux.files import OsFiles
from tests.support.pipeline_stores import make_plain, make_replicated, run_here
from tests.unit.pipeline.conftest import described

# Where a byte of the last entry (or record) is changed.
DAMAGES = {
    "replicated": {"entry magic": 0, "entry size": 4, "entry index": 12, "record": 52, "body": 48 + 95, "zeros": None},
    "plain": {"record magic": 4, "record size": 2, "body": 95, "zeros": None},
}
CASES = [(kind, damage) for kind, damages in DAMAGES.items() for damage in damages]


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
    if kind == "plain" and not messages[-1].is_queued:
        pytest.skip("nothing in a plain store proves a last message that is in no queue")
    return SimpleNamespace(kind=kind, folder=folder, messages=messages)


@pytest.fixture
def damaged(whole, tmp_path):
    def damage(name):
        at, last = DAMAGES[whole.kind][name], whole.messages[-1]
        folder = tmp_path / name.replace(" ", "-")
        shutil.copytree(whole.folder, folder)
        path = log_files(folder)[-1]
        content = bytearray(path.read_bytes())
        position, size = last.entry_offset - int(path.name), last.offset + last.size - last.entry_offset
        if at is None:
            content[position : position + size] = bytes(size)
        else:
            content[position + at] ^= 0x10
        path.write_bytes(content)
        return folder

    return damage


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


def test_damage_of_the_last_entry_is_an_error_not_the_end_of_the_log(whole, damaged):
    assert rows_of(whole.folder) == [message.offset for message in whole.messages]
    for name in each_damage(whole):
        folder = damaged(name)
        for tail in (Tail.AUTO, Tail.ALL, Tail.COMMITTED):
            with pytest.raises(PipelineError):
                rows_of(folder, tail=tail)
        assert rows_of(folder, on_corrupt=SKIP) == [message.offset for message in whole.messages[:-1]]


def test_a_report_counts_a_damaged_last_entry_as_skipped(whole, damaged):
    how = ReadSettings(REPORT_COLUMNS, on_corrupt=SKIP, verify_crc=True)
    for name in each_damage(whole):
        with open_store(str(damaged(name))) as store:
            parts = [Part(part, EVERYTHING) for part in plan(store, EVERYTHING)]

        summary = summarise(partial_of(parts, keys_kept=1 << 20, level=0, how=how), "it")

        assert summary.messages == len(whole.messages) - 1, name
        assert summary.skipped >= 1, name


def test_the_last_entry_is_not_silently_left_out_without_queues_or_index(whole, damaged):
    if whole.kind == "plain":
        pytest.skip("only its queues show the end of a plain log")
    for name in each_damage(whole):
        for gone in (("consumequeue",), ("dledger-n0/index",), ("consumequeue", "dledger-n0/index")):
            folder = damaged(name)
            for part in gone:
                shutil.rmtree(folder / part)
            try:
                found = rows_of(folder)
            except PipelineError:
                found = None
            # Without an index nothing contradicts a header that names another entry: its message is still complete.
            assert found is None or (name == "entry index" and len(found) == len(whole.messages)), (name, gone)
            shutil.rmtree(folder)


def test_a_missing_last_file_is_reported_by_name(whole, damaged, tmp_path):
    if whole.kind == "plain":
        pytest.skip("nothing in a plain log counts its records")
    folder = tmp_path / "gone"
    shutil.copytree(whole.folder, folder)
    log_files(folder)[-1].unlink()
    with pytest.raises(DataLost, match=r"entries \["), open_store(str(folder)) as store:
        plan(store)
    with open_store(str(folder)) as store:
        assert plan(store, fail_on_data_loss=False)


def test_an_archive_marks_only_what_it_read_as_archived(whole, damaged, tmp_path):
    last = whole.messages[-1]
    for name in each_damage(whole):
        folder = damaged(name)
        root = tmp_path / f"lake-{name.replace(' ', '-')}"
        archive = Archive(LakeTarget(str(root), "parquet"), "n0")
        with pytest.raises(PipelineError), open_store(str(folder), tail=Tail.COMMITTED) as store:
            archive.run(store, run_here)
        mark = archive.write_mark()
        assert mark is None or mark.end <= last.entry_offset, (name, mark)


def test_a_checkpoint_older_than_the_log_hides_no_entry(whole, tmp_path):
    if whole.kind == "plain":
        pytest.skip("a plain log has no such checkpoint")
    folder = tmp_path / "early"
    shutil.copytree(whole.folder, folder)
    checkpoint = CheckpointFile(OsFiles(), f"{folder}/dledger-n0")
    (folder / "dledger-n0" / "checkpoint").unlink()
    assert checkpoint.load().committed_index == -1
    assert rows_of(folder) == [message.offset for message in whole.messages]
