"""After every file operation and every class of lost writes, queues and index are recovered to match the log.

Flushed units exist without another dispatch; after them there are no invalid units.
"""

from random import Random

import pytest

from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from store.index.key_index import KeyIndex
from store.index.layout import IndexLayout
from store.queues.consume_queues import ConsumeQueues
from tests.crashpoints.images import crash_images, killed
from tests.crashpoints.workload import files_on
from tests.support.dispatch_batches import batch_of

ROOT = "/store"
LAYOUT = IndexLayout(slots=20, items=12)
QUEUE_FILE_SIZE = 20 * 30  # a sector border is within a unit
NOON = 1_700_000_000_000


def messages(begin, end):
    """Return messages of the log; three of four are in one queue, which begins within a file."""
    for number in range(begin, end):
        place = ("t", int(number % 4 == 3), number // 4 if number % 4 == 3 else 20 + number - number // 4)
        yield (*place, number * 1000, 990, number, NOON + number * 700, [number % 5, number])


def files_of(disk):
    names = {(path, name): inode for path, found in disk.directories.items() for name, inode in found.cached.items()}
    return {f"{path}/{name}": bytes(inode.cache) for (path, name), inode in names.items()}


class Derived:
    """The open queues and index of one process."""

    def __init__(self, disk, before_operation=lambda _: None):
        self.files = files_on(disk, before_operation)
        self.queues = ConsumeQueues(self.files, ROOT, QUEUE_FILE_SIZE)
        self.index = KeyIndex(self.files, ROOT, LAYOUT)
        self.queues.load()
        self.index.load()

    def append(self, begin, end):
        if begin < end:
            batch = batch_of(list(messages(begin, end)))
            assert self.queues.append(batch) == []
            self.index.append(batch)

    def flush(self):
        self.queues.flush()
        self.index.flush()

    def truncate(self, queues_end, index_end):
        """Truncate both; return the offset at which dispatch must continue."""
        self.queues.truncate(queues_end, lambda *unit: unit in UNITS)
        return min(queues_end, self.index.truncate(index_end, lambda offset: NOON + offset // 1000 * 700))


UNITS = {((topic, number), *place) for topic, number, *place in (message[:5] for message in messages(0, 200))}


class Work:
    """A process that writes derived files; at each operation every crash is tested."""

    def __init__(self):
        self.disk = SimDisk(Random(1), FaultCounts())
        self.count = 0  # messages in the log
        self.images = 0
        self.is_looking = True
        self.derived = None
        self.derived = Derived(self.disk, self.look)

    def look(self, _):
        if self.derived is None or not self.is_looking:
            return
        queues_end, index_end = self.derived.queues.flushed.offset, self.derived.index.flushed.offset
        expected = built(self.count)
        for image in [killed(self.disk), *crash_images(self.disk)]:
            self.images += 1
            again = Derived(image.disk)
            begin = again.truncate(queues_end, index_end)
            assert again.queues.max_physical_offset <= queues_end, image.label
            again.append(begin // 1000, self.count)
            again.flush()
            assert files_of(image.disk) == expected, image.label

    def append(self, count):
        begin, self.count = self.count, self.count + count
        self.derived.append(begin, self.count)

    def reopen(self):
        """Kill the process and recover; every crash during recovery is tested too."""
        queues_end, index_end = self.derived.queues.flushed.offset, self.derived.index.flushed.offset
        self.derived = Derived(self.disk, lambda _: self.look_at_recovery(queues_end, index_end))
        begin = self.derived.truncate(queues_end, index_end)
        self.derived.files.crash_point = files_on(self.disk, self.look).crash_point
        self.is_looking = False  # nothing is durable until the next flush
        self.derived.append(begin // 1000, self.count)
        self.derived.flush()
        self.is_looking = True

    def look_at_recovery(self, queues_end, index_end):
        expected = built(self.count)
        for image in [killed(self.disk), *crash_images(self.disk)]:
            self.images += 1
            again = Derived(image.disk)
            begin = again.truncate(queues_end, index_end)
            again.append(begin // 1000, self.count)
            again.flush()
            assert files_of(image.disk) == expected, image.label


BUILT = {}


def built(count):
    """Return the files that are built from the first `count` messages."""
    if count not in BUILT:
        disk = SimDisk(Random(0), FaultCounts())
        derived = Derived(disk)
        derived.append(0, count)
        derived.flush()
        BUILT[count] = files_of(disk)
    return BUILT[count]


@pytest.mark.slow
def test_derived_files_agree_with_the_log_after_any_crash():
    work = Work()
    work.append(3)
    work.append(2)
    work.derived.flush()
    work.append(9)  # over the end of a queue's file and of an index file
    work.append(1)
    work.derived.flush()
    work.append(16)
    work.reopen()
    work.append(4)
    work.derived.flush()
    work.look(0)

    assert work.images > 1000
