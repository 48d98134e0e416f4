"""Queues of files: loading, space, writes, truncations."""

import os

import pytest

from store.errors import DiskFull, ForeignFile, MissingFile, WrongFileSize
from store.fs.mapped.mapped_file_queue import MappedFileQueue

SIZE = 4096


@pytest.fixture
def queue(tmp_path, faulty_files):
    return MappedFileQueue(faulty_files, str(tmp_path), SIZE)


def make_files(directory, *bases, size=SIZE, content=b""):
    for base in bases:
        (directory / f"{base:020d}").write_bytes(content + bytes(size - len(content)))


def names(directory):
    return sorted(int(path.name) for path in directory.iterdir())


def test_files_are_found_in_order_whatever_their_first_position(tmp_path, queue):
    make_files(tmp_path, 3 * SIZE, SIZE, 2 * SIZE)

    assert queue.load() == []
    assert (queue.begin_offset, queue.end_offset) == (SIZE, 4 * SIZE)
    assert queue.find(SIZE - 1) is None
    assert queue.find(2 * SIZE).begin_offset == 2 * SIZE
    assert queue.find(3 * SIZE - 1).begin_offset == 2 * SIZE
    assert queue.find(4 * SIZE) is None


@pytest.mark.parametrize("size", [0, 100, SIZE - 1])
def test_last_file_that_was_cut_short_at_its_creation_is_removed(tmp_path, queue, size):
    make_files(tmp_path, 0)
    make_files(tmp_path, SIZE, size=size)

    notes = queue.load()

    assert len(notes) == 1
    assert f"{SIZE:020d}" in notes[0]
    assert names(tmp_path) == [0, SIZE], "its owner has not said yet that the others are good"
    queue.remove_cut_short()
    assert names(tmp_path) == [0]
    queue.reserve(SIZE, SIZE + 1)
    assert names(tmp_path) == [0, SIZE]


def test_file_that_is_too_long_is_refused_with_the_command_to_cut_it(tmp_path, queue):
    make_files(tmp_path, 0, SIZE)
    path = next(each for each in tmp_path.rglob(f"{SIZE:020d}"))
    with path.open("ab") as file:
        file.write(b"more")

    with pytest.raises(WrongFileSize, match=f"then cut it with `truncate -s {SIZE} {path}`"):
        queue.load()
    queue.close()
    os.truncate(path, SIZE)

    assert queue.load() == []


@pytest.mark.parametrize(
    ("base", "size", "content"),
    [(0, 0, b""), (0, 100, b""), (SIZE, 100, b"x"), (SIZE, SIZE + 1, b""), (0, 2 * SIZE, b"")],
)
def test_any_other_wrong_size_is_an_error_that_names_both_sizes(tmp_path, queue, base, size, content):
    make_files(tmp_path, 0, SIZE)
    make_files(tmp_path, base, size=size, content=content)

    with pytest.raises(WrongFileSize, match=f"{base:020d}.*{SIZE} bytes, found {size}"):
        queue.load()
    queue.close()
    assert names(tmp_path) == [0, SIZE]


@pytest.mark.parametrize("name", ["notes.txt", "00000000000000004096.bak", "4096", "0000000000000000409x"])
def test_foreign_name_is_an_error(tmp_path, queue, name):
    make_files(tmp_path, 0)
    (tmp_path / name).write_bytes(bytes(SIZE))

    with pytest.raises((ForeignFile, MissingFile), match=name):
        queue.load()
    queue.close()


def test_name_that_is_no_multiple_of_the_size_is_an_error(tmp_path, queue):
    make_files(tmp_path, 100)

    with pytest.raises(ForeignFile, match="multiple of the file size 4096"):
        queue.load()
    queue.close()


def test_gap_is_an_error_that_names_the_missing_file(tmp_path, queue):
    make_files(tmp_path, 0, 2 * SIZE)

    with pytest.raises(MissingFile, match=f"{SIZE:020d}"):
        queue.load()
    queue.close()


def test_space_is_allocated_in_whole_files_and_the_first_begins_where_asked(tmp_path, queue):
    queue.load()

    queue.reserve(5 * SIZE + 100, 7 * SIZE)

    assert names(tmp_path) == [5 * SIZE, 6 * SIZE]
    queue.reserve(5 * SIZE + 200, 7 * SIZE + 1)
    assert names(tmp_path) == [5 * SIZE, 6 * SIZE, 7 * SIZE]


def test_full_disk_during_allocation_leaves_whole_files(tmp_path, queue, faulty_files):
    queue.load()
    faulty_files.files_left = 2

    with pytest.raises(DiskFull):
        queue.reserve(0, 3 * SIZE)
    assert names(tmp_path) == [0, SIZE]
    faulty_files.files_left = 1
    queue.reserve(0, 3 * SIZE)
    assert names(tmp_path) == [0, SIZE, 2 * SIZE]


def test_sparse_file_gets_blocks_before_it_is_written(tmp_path, queue):
    with (tmp_path / f"{0:020d}").open("wb") as stream:
        stream.truncate(SIZE)
    queue.load()

    queue.reserve(0, 10)

    assert (tmp_path / f"{0:020d}").stat().st_blocks > 0


def test_dirty_files_are_returned_once(queue):
    queue.load()
    queue.reserve(0, 3 * SIZE)
    assert queue.take_dirty() == []
    queue.write(SIZE + 5, b"x")
    queue.write(5, b"x")
    queue.write(SIZE + 6, b"y")

    assert [file.path[-4:] for file in queue.take_dirty()] == ["4096", "0000"]
    assert queue.take_dirty() == []
    assert queue.read(SIZE + 5, 2) == b"xy"


def test_cut_zeroes_all_data_after_it_and_removes_later_files(tmp_path, queue):
    queue.load()
    queue.reserve(0, 4 * SIZE)
    for base in range(4):
        queue.write(base * SIZE, b"x" * SIZE)

    queue.truncate(SIZE + 100, 4 * SIZE, is_durable=True)

    assert names(tmp_path) == [0, SIZE]
    assert queue.read(0, SIZE) == b"x" * SIZE
    assert queue.read(SIZE, SIZE) == b"x" * 100 + bytes(SIZE - 100)


def test_cut_at_the_beginning_keeps_the_first_file(tmp_path, queue):
    queue.load()
    queue.reserve(SIZE, 3 * SIZE)
    queue.write(SIZE, b"x" * 100)

    queue.truncate(SIZE, SIZE + 100, is_durable=True)

    assert names(tmp_path) == [SIZE]
    assert queue.read(SIZE, SIZE) == bytes(SIZE)


def test_old_files_are_removed_but_never_the_last(tmp_path, queue):
    queue.load()
    queue.reserve(0, 3 * SIZE)

    queue.remove_before(2 * SIZE - 1)
    assert names(tmp_path) == [SIZE, 2 * SIZE]
    queue.remove_before(9 * SIZE)
    assert names(tmp_path) == [2 * SIZE]
    queue.write(2 * SIZE, b"x")


def test_data_is_found_across_chunks(queue, tmp_path, faulty_files):
    large = MappedFileQueue(faulty_files, str(tmp_path), 1 << 20)
    large.load()
    large.reserve(0, 1 << 20)
    file = large.find(0)
    assert file.find_data(0) == 1 << 20
    assert file.find_data_end(77) == 77
    large.write(300_000, b"\0x\0y\0")

    assert file.find_data(0) == 300_001
    assert file.find_data(300_001) == 300_001
    assert file.find_data(300_002) == 300_003
    assert file.find_data_end(5) == 300_004
