"""Archives contain every message of a log once, and the mark covers archived messages only."""

from pathlib import Path

import pytest

from pipeline.archive.archive import ARCHIVE_COLUMNS, Archive
from pipeline.columns.record_builder import build_records
from pipeline.columns.schema import arrow_schema
from pipeline.common.errors import BadOption, CorruptRecord, DataLost
from pipeline.lake.lake import Lake
from pipeline.log.stores import open_store
from pipeline.sink.options import LakeTarget
from store.fs.linux.files import OsFiles
from store.maintenance.archive_mark import ArchiveFloor, decode_mark, mark_path
from tests.support.message_stores import SMALL, numbered, open_small, with_log
from tests.support.pipeline_stores import run_here

# Files of 64 KiB: about 200 messages in each.
CONFIG = with_log(SMALL, mapped_file_size=65536)


def fill(root, begin, end):
    """Put messages, in order, and close the store."""
    store = open_small(root, CONFIG)
    for number in range(begin, end):
        store.messages.put(numbered(number, body_size=100 + number % 50, tag=f"t{number % 5}"))
    store.close()


def records_of(root):
    """Return all records, by the bytes of the log's files."""
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        content, position = path.read_bytes(), 0
        while position < len(content) and (size := int.from_bytes(content[position : position + 4], "big")):
            if content[position + 4 : position + 8] == b"\xcb\xd4\x31\x94":
                break
            found.append(content[position : position + size])
            position += size
    return found


def archived(lake):
    tables = [lake.read(file) for file in lake.files()]
    records = [
        record for table in tables for record in build_records(table.combine_chunks().to_batches()[0]).to_pylist()
    ]
    return sorted(records, key=lambda record: int.from_bytes(record[28:36], "big"))


def run(root, lake, **options):
    with open_store(str(root)) as store:
        return Archive(LakeTarget(str(lake)), "n0").run(store, run_here, **options)


def mark_of(lake):
    return decode_mark(Path(mark_path(str(lake), "n0")).read_bytes())


def test_archive_continues_where_it_ended_and_holds_every_record_byte_for_byte(tmp_path):
    root, lake = tmp_path / "store", tmp_path / "lake"
    fill(root, 0, 700)

    first = run(root, lake, piece_size_bytes=50_000)
    fill(root, 700, 1_000)
    second = run(root, lake, piece_size_bytes=50_000)
    third = run(root, lake)

    assert (first.rows, second.rows, third.rows) == (700, 300, 0)
    assert first.pieces > 3
    assert (second.begin, third.begin) == (first.end, second.end)
    assert archived(Lake.open(str(lake))) == records_of(root)
    assert mark_of(lake) == ("n0", 0, second.end)


class Killed(Exception):
    """The driver ends here."""


@pytest.mark.parametrize("place", ["before the commit", "after the commit", "before the mark"])
def test_killed_archive_continues_and_duplicates_nothing(tmp_path, place, monkeypatch):
    root, lake = tmp_path / "store", tmp_path / "lake"
    fill(root, 0, 700)
    real = Lake.extend

    def extend(self, covers, files):
        if covers.begin and place == "before the commit":
            raise Killed
        done = real(self, covers, files)
        if covers.begin and place == "after the commit":
            raise Killed
        return done

    def sync(_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "extend", extend)
        if place == "before the mark":
            patch.setattr(Lake, "sync", sync)
        with pytest.raises(Killed):
            run(root, lake, piece_size_bytes=50_000)
    marked = mark_of(lake).end if place != "before the mark" else 0
    run(root, lake, piece_size_bytes=80_000)

    assert marked < mark_of(lake).end
    assert archived(Lake.open(str(lake))) == records_of(root)


def test_two_archives_of_one_log_at_the_same_time_store_each_message_once(tmp_path):
    """The other one archives a larger piece after this one has written its files; this one continues after it."""
    root, lake = tmp_path / "store", tmp_path / "lake"
    fill(root, 0, 700)
    others = [lambda: run(root, lake, piece_size_bytes=80_000)]

    def overtaken(groups, task):
        files = run_here(groups, task)
        while others:
            others.pop()()
        return files

    with open_store(str(root)) as store:
        done = Archive(LakeTarget(str(lake)), "n0").run(store, overtaken, piece_size_bytes=50_000)

    assert archived(Lake.open(str(lake))) == records_of(root)
    assert (done.rows, done.size_bytes) == (0, 0)
    assert mark_of(lake) == ("n0", 0, done.end)


def test_the_log_of_the_table_is_durable_before_the_mark_allows_a_broker_to_delete(tmp_path, monkeypatch):
    root, lake = tmp_path / "store", tmp_path / "lake"
    fill(root, 0, 50)
    steps = []
    for name in ("sync_tree", "replace"):
        real = getattr(OsFiles, name)

        def noted(self, path, *rest, real=real, **named):
            steps.append(str(path).rpartition("/")[2])
            return real(self, path, *rest, **named)

        monkeypatch.setattr(OsFiles, name, noted)
    run(root, lake)

    assert steps[:2] == ["_delta_log", "n0.json"]


def test_after_a_gap_the_mark_allows_only_logs_that_begin_there_to_be_deleted(tmp_path):
    """Messages were deleted before they were archived: the archive stops, or continues if that is allowed."""
    root, lake = tmp_path / "store", tmp_path / "lake"
    fill(root, 0, 300)
    end = run(root, lake).end
    fill(root, 300, 900)
    gone = sorted((root / "commitlog").iterdir())[:2]
    for path in gone:
        path.unlink()

    with pytest.raises(DataLost, match=f"{end}, 131072"):
        run(root, lake)
    run(root, lake, fail_on_data_loss=False)

    covered = Lake.open(str(lake)).covered("n0")
    assert covered.begin == 131_072
    assert mark_of(lake) == ("n0", 131_072, covered.end)
    floor = ArchiveFloor(OsFiles(), mark_path(str(lake), "n0"), "n0")
    floor.check()
    assert floor.lowered(1 << 40, 131_072) == covered.end
    for begin in (0, end, 131_071):
        assert floor.lowered(1 << 40, begin) == begin
        assert "are not archived" in floor.fault


def test_corrupt_record_stops_the_archive_before_it(tmp_path):
    root, lake = tmp_path / "store", tmp_path / "lake"
    fill(root, 0, 400)
    path = sorted((root / "commitlog").iterdir())[1]
    content = bytearray(path.read_bytes())
    content[98] ^= 1  # in a body
    path.write_bytes(content)

    with pytest.raises(CorruptRecord):
        run(root, lake, piece_size_bytes=65_536)

    assert mark_of(lake).end == 65_536


def test_a_lake_of_a_query_is_no_archive(tmp_path):
    root, lake = tmp_path / "store", tmp_path / "lake"
    fill(root, 0, 50)
    Lake.create(str(lake), arrow_schema(ARCHIVE_COLUMNS))

    with pytest.raises(BadOption, match="a lake of a query"):
        run(root, lake)


def test_two_logs_share_a_lake(tmp_path):
    lake = tmp_path / "lake"
    for log in ("n0", "n1"):
        fill(tmp_path / log, 0, 50)
        with open_store(str(tmp_path / log)) as store:
            Archive(LakeTarget(str(lake)), log).run(store, run_here)

    opened = Lake.open(str(lake))
    assert sum(file.rows for file in opened.files()) == 100
    assert {file.log: file.rows for file in opened.files()} == {"n0": 50, "n1": 50}
    assert opened.covered("n1").end == opened.covered("n0").end
    with pytest.raises(BadOption, match="log"):
        Archive(LakeTarget(str(lake)), "a/b")
