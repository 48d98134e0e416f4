"""Stores of Java are archived and restored byte for byte, except for physical offsets."""

import shutil

from commitlog.plain.commit_log import CommitLogConfig
from commitlog.record.record import decode
from pipeline.archive.archive import Archive
from pipeline.archive.archived_rows import lake_rows, store_rows
from pipeline.archive.restore_store import restore_store
from pipeline.lake.lake import Lake
from pipeline.log.stores import open_store
from pipeline.sink.options import LakeTarget
from tests.support.message_stores import SMALL, open_small, queued, with_log
from tests.support.pipeline_stores import run_here

FILE_SIZE = 65536


def records_in(folder):
    """Return the records of a plain log, by what its files hold."""
    found = []
    for path in sorted((folder / "commitlog").iterdir()):
        view, position = memoryview(path.read_bytes()), 0
        while position < len(view) - 8 and bytes(view[position + 4 : position + 8]) != b"\xcb\xd4\x31\x94":
            size = int.from_bytes(view[position : position + 4], "big")
            if not size:
                break
            record = decode(view, position)
            assert record.check() is None
            assert record.physical_offset == int(path.name) + position
            found.append(record)
            position += size
    return found


def without_place(raw):
    """Return a record without its physical offset and the checksum of it."""
    place, crc = slice(28, 36), raw.rfind(b"__CRC32#\x01")
    raw = raw[: place.start] + bytes(8) + raw[place.stop :]
    return raw if crc < 0 else raw[: crc + 9]


def test_archive_and_restore_return_every_message(java_store, tmp_path):
    lake, new, copy = tmp_path / "lake", tmp_path / "new", tmp_path / "copy"
    with open_store(str(java_store.folder)) as store:
        done = Archive(LakeTarget(str(lake)), "java").run(store, run_here, piece_size_bytes=100_000)
        restore_store(store_rows(store), str(copy), mapped_file_size=FILE_SIZE)

    restored = restore_store(lake_rows(Lake.open(str(lake))), str(new), mapped_file_size=FILE_SIZE)

    assert done.rows == restored.rows == len(java_store.messages)
    by_base = {file.base: file for file in java_store.files}
    expected = []
    for offset, message in sorted(java_store.messages.items()):
        file = by_base[max(base for base in by_base if base <= offset)]
        expected.append(file.content[offset - file.base : offset - file.base + message["size"]])
    records = records_in(new)
    found = [bytes(record.view[record.position : record.position + record.size]) for record in records]
    assert list(map(without_place, found)) == list(map(without_place, expected))
    names = [path.name for path in sorted((new / "commitlog").iterdir())]
    assert [(copy / "commitlog" / name).read_bytes() for name in names] == [
        (new / "commitlog" / name).read_bytes() for name in names
    ]


def test_restored_store_opens_and_has_the_queues_of_the_old_one(java_store, tmp_path):
    new = tmp_path / "new"
    with open_store(str(java_store.folder)) as store:
        restore_store(store_rows(store), str(new), mapped_file_size=FILE_SIZE)
        queues = {tuple(key): tuple(bounds) for key, bounds in store.queues.items()}

    opened = open_small(new, with_log(SMALL, mapped_file_size=FILE_SIZE))
    try:
        found = queued(opened)
    finally:
        opened.close()

    assert {key: (rows[0].queue_offset, rows[-1].queue_offset + 1) for key, rows in found.items()} == queues
    assert CommitLogConfig().mapped_file_size > FILE_SIZE
    shutil.rmtree(new)
