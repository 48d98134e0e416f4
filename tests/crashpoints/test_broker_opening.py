"""A node of a broker crashes while it opens.

After every file operation and every class of lost writes the next opening ends in the same state as an uninterrupted
one, and has all acknowledged messages.

The three cases of `commitlog.conversion.divide`: entries, a plain store to convert, nothing.
"""

from copy import deepcopy
from random import Random

import pytest

from commitlog.conversion.divide import CASES, OpeningCase, has_entries, was_written_by_java
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from tests.crashpoints.crashes import IS_LONG, Crashes
from tests.crashpoints.opening import CONFIG, NODE, OpenedBroker, check_queues, contents, identity_on, write_plain
from tests.crashpoints.workload import files_on
from tests.support.message_stores import Clock, numbered

# One in this many of these crashes again while it is opened.
SECOND_CRASH_STRIDE = 29 if IS_LONG else 23


def nothing(disk, clock):
    """An empty directory: the log begins at 0."""
    del disk, clock
    return []


def plain_closed(disk, clock):
    """A plain store that was closed cleanly."""
    return write_plain(disk, clock, is_closed=True)


def plain_killed(disk, clock):
    """A plain store whose process was killed while queues and index lagged."""
    return write_plain(disk, clock, is_closed=False)


def _entries(disk, clock, messages):
    broker = OpenedBroker(files_on(disk), clock)
    broker.lead(1)
    new = [numbered(number, "A", 2, 250) for number in range(100, 112)]
    for number, message in enumerate(new):
        clock.pass_s(4)
        broker.put(message)
        broker.commit()
        if number in (3, 8):
            broker.set_topic(f"T{number}", 2)
            broker.save_progress()
    messages += new
    return broker


def entries_closed(disk, clock):
    """Entries after a plain store, closed cleanly."""
    messages = write_plain(disk, clock, is_closed=True)
    _entries(disk, clock, messages).close()
    return messages


def entries_killed(disk, clock):
    """Entries from the start, whose process was killed while queues and index lagged."""
    messages = []
    _entries(disk, clock, messages)
    return messages


def entries_killed_after_a_base_log(disk, clock):
    """Entries after a plain store, whose process was killed while queues and index lagged."""
    messages = write_plain(disk, clock, is_closed=False)
    _entries(disk, clock, messages)
    return messages


def entries_of_java(disk, clock):
    """Entries written by Java, closed cleanly, with an incomplete queue and index."""
    messages = write_plain(disk, clock, is_closed=True)
    _entries(disk, clock, messages).close()
    places = CONFIG.places
    ours = disk.directories[places.node_directory]
    for name in [*ours.cached]:
        ours.cached.pop(name)
        ours.durable.pop(name, None)
    assert was_written_by_java(files_on(disk), places.node_directory)
    queue = disk.directories["/s/consumequeue/A/1"]
    inode = queue.cached[max(queue.cached)]
    end = len(inode.cache.rstrip(b"\0"))
    assert end > 3 * 20
    inode.cache[:] = inode.durable[:] = inode.cache[: end - end % 20 - 40].ljust(len(inode.cache), b"\0")
    for names in (disk.directories["/s/index"].cached, disk.directories["/s/index"].durable):
        names.pop(max(names))
    return messages


# With the case, and of how many images of an operation one is opened.
STORES = {
    each.__name__: (each, case, 1 if IS_LONG else stride)
    for each, case, stride in (
        (nothing, OpeningCase.NOTHING, 1),
        (plain_closed, OpeningCase.BASE_LOG, 1),
        (plain_killed, OpeningCase.BASE_LOG, 29),
        (entries_closed, OpeningCase.ENTRIES, 5),
        (entries_of_java, OpeningCase.ENTRIES, 61),
        (entries_killed, OpeningCase.ENTRIES, 17),
        (entries_killed_after_a_base_log, OpeningCase.ENTRIES, 17),
    )
}


class Opening:
    """Opens one store, and every possible disk after a crash meanwhile.

    Attributes:
        acknowledged: messages that every image must have.
    """

    def __init__(self, write, stride):
        self.crashes = Crashes(SECOND_CRASH_STRIDE, stride=stride, second_stride=37 if IS_LONG else max(7, stride))
        self.clock = Clock()
        self.disk = SimDisk(Random(1), FaultCounts())
        self.acknowledged = write(self.disk, self.clock)
        self.is_adopting = write is entries_of_java
        # What the same disk holds when nothing interrupts its opening.
        self.expected = self.finish(deepcopy(self.disk))

    def run(self):
        """Crash between any two operations of the opening."""
        files = files_on(self.disk, self.see)
        self.open(files, self.disk, self.clock)
        self.see(0)

    def open(self, files, disk, clock):
        """Open a disk; what is done once it is open makes no crash points."""

        def end():
            files.crash_point = files_on(disk).crash_point

        return OpenedBroker(files, clock, end, is_adopting=self.is_adopting)

    def see(self, number):
        self.crashes.see(f"operation {number}", self.disk, self.judge, is_end=number == 0, owed=self.expected)

    def judge(self, disk, before_operation):
        assert self.finish(disk, before_operation) == self.expected

    def finish(self, disk, before_operation=lambda _: None):
        """Open a disk, check its content, append, close cleanly; return its files."""
        *_, directory_id, starts = identity_on(disk)
        clock = deepcopy(self.clock)
        broker = self.open(files_on(disk, before_operation), disk, clock)
        broker.lead(7)
        assert [each.body for each in broker.found()] == [each.body for each in self.acknowledged]
        check_queues(broker, self.acknowledged)
        clock.pass_s(5)
        more = [numbered(200 + number, "A", 2) for number in range(3)]
        broker.put(*more)
        broker.close()
        check_closed = OpenedBroker(files_on(disk), clock)
        assert check_closed.parts.messages.derived.notes == []
        check_queues(check_closed, [*self.acknowledged, *more])
        check_closed.close()
        *whose, directory_id_after, starts_after = identity_on(disk)
        assert whose == [NODE.self_id, NODE.group]
        assert starts_after == starts + 2
        assert directory_id in (None, directory_id_after)
        return contents(disk)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_opening_that_was_interrupted_anywhere_ends_in_the_same_state(name, capsys):
    write, _, stride = STORES[name]
    opening = Opening(write, stride)
    opening.run()

    with capsys.disabled():
        print(f"\ncrash points of opening a broker, {name}: {dict(opening.crashes.counts)}")
    assert opening.crashes.counts["images of a second crash"] > 0


@pytest.mark.parametrize("name", STORES)
def test_store_is_of_the_case_that_its_crash_points_are_meant_for(name):
    write, case, _ = STORES[name]
    disk, clock = SimDisk(Random(1), FaultCounts()), Clock()
    write(disk, clock)
    files, places = files_on(disk), CONFIG.places
    is_of = (has_entries(files, places.node_directory), bool(files.list_directory(places.base_directory)))
    assert {(row.has_entries, row.has_records) for row in CASES if row.case is case} & {is_of, (is_of[0], None)}
