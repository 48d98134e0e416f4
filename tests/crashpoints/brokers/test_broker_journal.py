"""The state of a standalone broker, crashed before each file operation: acknowledged changes are there after it.

The state that a start finds is that after some number of the changes, at least the acknowledged ones, in their order;
and what is appended then follows them.
"""

import asyncio
from random import Random

import pytest

from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.replica.local_state import LocalState
from cluster.replica.record_effects import RecordEffects
from cluster.replica.saved_state import load_state
from cluster.state.broker_state import BrokerState
from cluster.state.commands import (
    CommitOffsets,
    DeleteTopic,
    QueueOffset,
    SetFeatureLevel,
    SetGroup,
    SetTopic,
    encode_command,
)
from cluster.state.features import FEATURE_LEVEL
from dledger.storage.snapshot_store import SnapshotStore
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from tests.crashpoints.crashes import IS_LONG, Crashes, nothing
from tests.crashpoints.workload import files_on
from tests.support.brokers.empty_log import EmptyLog
from tests.support.brokers.inline_worker import InlineWorker
from tests.support.waiting import run

ROOT = "/s"
# Two sectors: batches cross their border, and some twenty commands fill it.
SEGMENT_SIZE = 1_024
SECOND_CRASH_STRIDE = 7 if IS_LONG else 31
AGAIN = SetTopic(TopicConfig("again", 1, 1))


def bytes_of(state):
    return b"".join(state.snapshot_save())


class Workload:
    """Changes of a state on a simulated disk; before each file operation all possible disks after a crash are opened.

    Attributes:
        states: bytes of the state before the first change, and after each one.
        acknowledged_count: changes that were acknowledged.
    """

    def __init__(self, stride):
        self.crashes = Crashes(SECOND_CRASH_STRIDE, stride=stride)
        self.disk = SimDisk(Random(1), FaultCounts())
        self.model = BrokerState()
        # Before the first start has ended: no state at all.
        self.states = [None]
        self.acknowledged_count = 0
        self.step = "open"
        self.local = None

    def begin_with(self, state):
        """Begin with the state of a program without a journal."""
        files = files_on(self.disk)
        files.make_directory(f"{ROOT}/config/broker")
        SnapshotStore.open(files, f"{ROOT}/config/broker").save(7, 0, bytes_of(state))
        self.model.snapshot_load(bytes_of(state))
        self.states = [bytes_of(state)]

    def open(self):
        self.step = "open"
        if self.local is None and len(self.states) == 1:
            self.model.apply_command(SetFeatureLevel(FEATURE_LEVEL))
            self.states.append(bytes_of(self.model))
        self.local = self.opened(files_on(self.disk, self.see))
        self.acknowledged_count = len(self.states) - 1

    @staticmethod
    def opened(files):
        return LocalState.open(files, ROOT, EmptyLog(), new_worker=InlineWorker, segment_size=SEGMENT_SIZE)

    async def change(self, *commands):
        """Make changes at the same time; all but the first one share a batch."""
        self.step = f"change {len(self.states)}"

        async def one(command):
            # Here, before the state changes: a batch that is written at once is expected, too.
            self.model.apply_command(command)
            self.states.append(bytes_of(self.model))
            count = len(self.states) - 1
            await self.local.change(command)
            self.acknowledged_count = max(self.acknowledged_count, count)

        await asyncio.gather(*map(one, commands))

    async def stop(self):
        self.step = "stop"
        await self.local.stop()

    async def kill(self):
        """Abandon the state; the page cache is kept."""
        for worker in (self.local._writer, self.local._saver, self.local._writer):
            await worker.stop()

    def see(self, number):
        owed = (len(self.states), self.acknowledged_count)
        self.crashes.see(f"{self.step}, operation {number}", self.disk, self.judge, owed=owed)

    def judge(self, disk, before_operation):
        files = files_on(disk, before_operation)
        saved = load_state(files, ROOT)
        found = None
        if saved is not None:
            RecordEffects(EmptyLog(), saved.state).replay(saved.changes(), 0)
            found = bytes_of(saved.state)
        assert found in self.states[self.acknowledged_count :], "neither acknowledged nor later"
        local = self.opened(files)
        if found is not None and saved.journal is not None:
            assert bytes_of(local.state) == found
        assert local.state.feature_level == FEATURE_LEVEL
        if before_operation is nothing:
            self._continue(local, disk)

    @staticmethod
    def _continue(local, disk):
        """Make another change, which the worker writes at once."""
        if not local._journal.has_space(len(encode_command(AGAIN))):
            return
        local.state.apply_command(AGAIN)
        local._journal.append(0, encode_command(AGAIN))
        saved = load_state(files_on(disk), ROOT)
        RecordEffects(EmptyLog(), saved.state).replay(saved.changes(), 0)
        assert bytes_of(saved.state) == bytes_of(local.state)


def topic(number, queues=1):
    return SetTopic(TopicConfig(f"t{number}", queues, queues))


def commit(number, offset):
    return CommitOffsets("g", (QueueOffset(f"t{number}", 0, offset),))


# ---------------------------------------------------------------------------------------------------- the workloads


async def alone_and_together(work):
    work.open()
    await work.change(SetGroup(GroupConfig("g")))
    await work.change(*(topic(number) for number in range(6)))
    await work.change(*(topic(number, 9) for number in range(3)), DeleteTopic("t1"))
    await work.stop()


async def segments_and_snapshots(work):
    work.open()
    for number in range(40):
        await work.change(topic(number), topic(number, 2))
    await work.stop()


async def large_batches(work):
    work.open()
    await work.change(SetGroup(GroupConfig("g")))
    for begin in range(4):
        await work.change(*(topic(number, begin + 1) for number in range(17)))
    await work.change(*(commit(number, 1 << number) for number in range(17)))
    await work.stop()


async def stops_and_kills(work):
    for number in range(0, 60, 6):
        work.open()
        await work.change(topic(number))
        await work.change(*(topic(number + other, 2) for other in range(1, 5)))
        await (work.stop() if number % 4 else work.kill())


async def old_directory(work):
    state = BrokerState()
    for number in range(3):
        state.apply_command(topic(number))
    state.apply_command(SetFeatureLevel(1))
    work.begin_with(state)
    work.open()
    await work.change(*(topic(number, 3) for number in range(4)))
    await work.kill()
    work.open()
    await work.change(topic(9))
    await work.stop()


WORKLOADS = {alone_and_together: 1, segments_and_snapshots: 5, large_batches: 3, stops_and_kills: 5, old_directory: 1}


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_acknowledged_changes_survive_a_crash_at_every_operation(workload, capsys):
    work = Workload(1 if IS_LONG else WORKLOADS[workload])

    async def scenario():
        await workload(work)
        work.step = "end"
        work.see(0)

    run(scenario())
    with capsys.disabled():
        print(f"\ncrash points of the journal, {workload.__name__}: {dict(work.crashes.counts)}")
    assert work.crashes.counts["images"] > work.crashes.counts["operations"]
    assert work.acknowledged_count == len(work.states) - 1
