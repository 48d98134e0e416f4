"""Queues as `verify` and `rebuild` read them."""

from store.check.queue_view import QueueFile, QueueView
from store.fs.forwarding import ForwardingFile
from store.fs.linux.files import OsFiles
from store.model.message import QueueKey
from store.queues.unit import UNIT, UNIT_SIZE

COUNT = 300_000  # units of a file of RocketMQ's size


class CountingFile(ForwardingFile):
    """Counts the bytes that are read."""

    read_bytes = 0

    def read(self, position, size):
        self.read_bytes += size
        return super().read(position, size)


class CountingFiles:
    """Opens one file, once."""

    def __init__(self, path):
        self.file = CountingFile(OsFiles().open(str(path)))

    def get(self, path):
        del path
        return self.file


def test_end_of_a_sparse_queue_is_found_without_reading_its_holes(tmp_path):
    """2,008 such files took 21 s and more."""
    path = tmp_path / f"{0:020d}"
    with path.open("wb") as file:
        file.truncate(COUNT * UNIT_SIZE)
        for offset in range(10):
            file.write(UNIT.pack(offset * 100, 100, offset))
    files = CountingFiles(path)

    view = QueueView(files, QueueKey("orders", 0), str(tmp_path), [QueueFile(str(path), 0, COUNT)])

    assert view.end == 10
    assert 0 < files.file.read_bytes <= 64 << 10
    files.file.close()
