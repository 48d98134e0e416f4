"""Out of file descriptors: files of queues are closed and the operation is retried; the store does not stop."""

import errno
import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest

from store.errors import DiskFull, OutOfDescriptors, StorageFailed
from store.fs import descriptors
from store.fs.descriptors import Reserve, raise_limit, with_descriptor
from store.fs.linux.files import OsFiles
from store.fs.mapped.file_pool import FilePool
from store.model.message import QueueKey
from store.queues.consume_queues import ConsumeQueues
from tests.support.dispatch_batches import batch_of

FILE_SIZE = 1040


@pytest.fixture
def limit():
    """Return a function that lowers the limit of descriptors of this process; it is restored at the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda soft: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def use_up(limit):
    """Return a function that leaves a number of descriptors."""
    held = []

    def leave(count):
        limit(max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 64)
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(held.pop())

    yield leave
    for descriptor in held:
        os.close(descriptor)


def test_soft_limit_is_raised_to_the_hard_one_and_the_parts_follow_it(limit, caplog):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit(1024)
    assert (descriptors.queue_files_max(), descriptors.connections_max()) == (256, 256)

    with caplog.at_level("INFO"):
        assert raise_limit() == hard == descriptors.limit()

    assert f"limit={hard} before=1024" in caplog.text


def test_files_of_a_pool_are_closed_when_no_descriptor_is_left(tmp_path, use_up):
    pool = FilePool(OsFiles(), 1000)
    files = [pool.create(f"{tmp_path}/{number}", FILE_SIZE, is_sparse=True) for number in range(40)]
    for number, file in enumerate(files):
        file.write(bytes([number + 1]), 0)
    use_up(0)

    more = [pool.create(f"{tmp_path}/{number}", FILE_SIZE, is_sparse=True) for number in range(40, 60)]

    assert len(pool._open) <= 40
    assert [file.read(0, 1)[0] for file in files] == list(range(1, 41))
    assert [file.read(0, 1)[0] for file in more] == [0] * 20


def test_queues_accept_messages_while_hardly_any_descriptor_is_left(tmp_path, use_up):
    queues = ConsumeQueues(OsFiles(), str(tmp_path), FILE_SIZE)
    keys = [QueueKey("orders", number) for number in range(100)]
    use_up(6)

    for offset in range(3):
        queues.append(batch_of([(*key, offset, (offset * 100 + key.queue_id) * 10, 10, 0) for key in keys]))
    queues.flush()

    assert [queues.get(key).unit_tuples(0, 9)[-1][0] for key in keys] == [(200 + number) * 10 for number in range(100)]
    queues.close()


def test_open_without_a_descriptor_takes_one_of_the_reserve(use_up, monkeypatch):
    reserve = Reserve(2)
    monkeypatch.setattr(descriptors, "RESERVE", reserve)
    reserve.fill()
    use_up(0)
    opened = [with_descriptor("a", "open", lambda: os.open(os.devnull, os.O_RDONLY)) for _ in range(2)]

    with pytest.raises(OutOfDescriptors, match=r"^a: open changed nothing: no file descriptor is left: \d+ for"):
        with_descriptor("a", "open", lambda: os.open(os.devnull, os.O_RDONLY))

    assert reserve.is_short
    for descriptor in opened:
        os.close(descriptor)
    reserve.fill()
    assert not reserve.is_short
    assert reserve.release()
    assert reserve.release()
    assert not reserve.release()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_lack_of_descriptors_is_no_failure_of_the_disk(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(descriptors, "RESERVE", Reserve(0))
    files = OsFiles()
    (tmp_path / "a").write_bytes(bytes(10))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        patch.setattr(os, "scandir", refuse)
        for call in (
            lambda: files.open(f"{tmp_path}/a"),
            lambda: files.create(f"{tmp_path}/b", 10),
            lambda: files.list_directory(str(tmp_path)),
        ):
            with pytest.raises(OutOfDescriptors) as caught:
                call()
            assert isinstance(caught.value, DiskFull)
            assert not isinstance(caught.value, StorageFailed)
    assert files.open(f"{tmp_path}/a").read(0, 10) == bytes(10)
