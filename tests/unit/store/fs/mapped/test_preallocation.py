"""Files created before their use, by any thread."""

import threading

import pytest

from store.errors import DiskFull, StorageFailed
from store.fs.mapped.mapped_file_queue import MappedFileQueue

SIZE = 4096


@pytest.fixture
def queue(tmp_path, faulty_files):
    queue = MappedFileQueue(faulty_files, str(tmp_path), SIZE)
    queue.load()
    queue.reserve(0, 1)
    return queue


def test_preallocated_file_is_used_when_it_is_needed(queue, faulty_files):
    job = queue.prepare_next()
    assert queue.prepare_next() is None
    worker = threading.Thread(target=job.make)
    worker.start()
    worker.join()
    assert (queue.end_offset, faulty_files.counts["create"]) == (SIZE, 2)

    queue.reserve(SIZE - 1, SIZE + 1)

    assert (queue.end_offset, faulty_files.counts["create"]) == (2 * SIZE, 2)
    queue.write(SIZE, b"x")
    assert queue.prepare_next() is not None


def test_file_can_be_adopted_before_it_is_needed(queue):
    queue.adopt_next()
    job = queue.prepare_next()
    queue.adopt_next()
    assert queue.end_offset == SIZE
    job.make()
    queue.adopt_next()
    assert queue.end_offset == 2 * SIZE


def test_file_that_is_needed_before_it_was_preallocated_is_made_at_once(queue, faulty_files):
    job = queue.prepare_next()

    queue.reserve(SIZE, SIZE + 1)

    assert job.is_made
    assert job.make() is queue.mapped_files[1].file
    assert (queue.end_offset, faulty_files.counts["create"]) == (2 * SIZE, 2)


def test_caller_that_needs_the_file_waits_for_its_creation(queue, faulty_files):
    begun, may_end = threading.Event(), threading.Event()
    create = faulty_files.create

    def create_slowly(path, size):
        begun.set()
        assert may_end.wait(60)
        return create(path, size)

    faulty_files.create = create_slowly
    maker = threading.Thread(target=queue.prepare_next().make)
    maker.start()
    assert begun.wait(60)
    user = threading.Thread(target=queue.reserve, args=(SIZE, SIZE + 1))
    user.start()
    assert queue.end_offset == SIZE
    may_end.set()
    maker.join()
    user.join()

    assert (queue.end_offset, faulty_files.counts["create"]) == (2 * SIZE, 2)


def test_full_disk_is_reported_to_the_caller_that_needs_the_file(queue, faulty_files):
    faulty_files.files_left = 0
    assert queue.prepare_next().make() is None
    queue.adopt_next()

    with pytest.raises(DiskFull):
        queue.reserve(SIZE, SIZE + 1)
    faulty_files.files_left = 1
    assert queue.prepare_next().make() is not None
    queue.reserve(SIZE, SIZE + 1)
    assert queue.end_offset == 2 * SIZE


def test_failure_is_raised_to_both_callers(queue, tmp_path):
    job = queue.prepare_next()
    (tmp_path / f"{SIZE:020d}").write_bytes(b"another file")

    with pytest.raises(StorageFailed):
        job.make()
    with pytest.raises(StorageFailed):
        queue.reserve(SIZE, SIZE + 1)


@pytest.mark.parametrize("cut_at", [0, 10])
def test_cut_also_removes_the_file_created_ahead(queue, tmp_path, cut_at):
    queue.write(0, b"x" * 100)
    queue.prepare_next().make()

    queue.truncate(cut_at, 100, is_durable=True)

    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020d}"]
    assert queue.end_offset == SIZE
    queue.prepare_next().make()
    queue.reserve(SIZE, SIZE + 1)
    assert queue.end_offset == 2 * SIZE


def test_remove_all_also_removes_the_file_created_ahead(queue, tmp_path):
    queue.prepare_next().make()

    queue.remove_all()

    assert list(tmp_path.iterdir()) == []
    assert queue.prepare_next() is None


def test_preallocated_file_is_used_when_the_queue_is_reopened(queue, tmp_path, faulty_files):
    queue.prepare_next().make()
    queue.close()

    again = MappedFileQueue(faulty_files, str(tmp_path), SIZE)
    assert again.load() == []
    assert again.end_offset == 2 * SIZE
    again.close()


def test_reading_only_leaves_a_file_alone_whose_creation_was_cut_short(queue, tmp_path, faulty_files):
    queue.close()
    (tmp_path / f"{SIZE:020d}").write_bytes(bytes(7))

    reading = MappedFileQueue(faulty_files, str(tmp_path), SIZE)
    notes = reading.load(is_read_only=True)

    assert "left out" in notes[0]
    assert reading.end_offset == SIZE
    assert (tmp_path / f"{SIZE:020d}").stat().st_size == 7
    reading.close()
