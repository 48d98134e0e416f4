"""Compares the state of a standalone broker with a history of commands and effects: kills, power cuts, full disks.

Here effects create and delete topics, as commands do, so that their order matters.
"""

import asyncio
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from cluster.protocol.errors import RequestFailed
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.replica.local_state import LocalState
from cluster.replica.record_effects import RecordEffects
from cluster.replica.saved_state import load_state
from cluster.state.broker_state import BrokerState
from cluster.state.commands import (
    CommitOffsets,
    DeleteGroup,
    DeleteTopic,
    QueueOffset,
    ResetOffsets,
    SetFeatureLevel,
    SetGroup,
    SetTopic,
)
from cluster.state.features import FEATURE_LEVEL
from commitlog.record.effects import MarkedRecord
from dledger.testing.disk.disk import UNLIMITED_BYTES, SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts, SimulatedCrash
from store.errors import Certainty
from tests.support.brokers.inline_worker import InlineWorker

ROOT = "/s"
SEGMENT_SIZE = 1_024
RECORD_SIZE = 10
NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(0, 3)


def _offsets(names, numbers):
    return st.builds(QueueOffset, names, numbers, numbers, numbers).map(lambda each: (each,))


COMMANDS = st.one_of(
    st.builds(lambda name, queues: SetTopic(TopicConfig(name, queues + 1, 1)), NAMES, NUMBERS),
    st.builds(DeleteTopic, NAMES),
    st.builds(lambda name: SetGroup(GroupConfig(name)), NAMES),
    st.builds(DeleteGroup, NAMES),
    st.builds(CommitOffsets, NAMES, _offsets(NAMES, NUMBERS)),
    st.builds(ResetOffsets, NAMES, _offsets(NAMES, NUMBERS)),
)


class CrashingWorker(InlineWorker):
    """Its process dies where a job does.

    Args:
        died: an event, set then.
    """

    def __init__(self, died):
        super().__init__("")
        self._died = died

    def run(self, job, finished):
        if self._died.is_set():
            return
        try:
            super().run(job, finished)
        except SimulatedCrash:
            self._died.set()


class EffectsLog:
    """A log of marked records; synced."""

    begin_offset = 0

    def __init__(self):
        self.effects = []

    @property
    def end_offset(self):
        return RECORD_SIZE * len(self.effects)


def effects_of_log(self, end_offset):
    """Replace `RecordEffects._marked`."""
    begin = self._state.effects_offset // RECORD_SIZE
    for number, effect in enumerate(self._log.effects[begin : end_offset // RECORD_SIZE], begin):
        yield MarkedRecord(RECORD_SIZE * number, effect, b"")
    self._state.effects_applied(end_offset)


def apply_topic(self, effect, _record=b""):
    """Replace `BrokerState.apply_effect`."""
    kind, name = effect
    self.apply_command(SetTopic(TopicConfig(name, 9, 9)) if kind == "+" else DeleteTopic(name))


def bytes_of(state):
    return b"".join(state.snapshot_save())


class OneState(RuleBasedStateMachine):
    """The model is the history of effects and commands; of the newest commands a crash may take those not acknowledged.

    Attributes:
        history: (is it a command, the command or effect), in order.
        acknowledged: position in the history after the last acknowledged command.
    """

    @initialize(seed=st.integers(0, 2**32 - 1))
    def start(self, seed):
        self.random = Random(seed)
        self.disk = SimDisk(self.random, FaultCounts())
        self.log = EffectsLog()
        self.history = []
        self.acknowledged = 0
        self.open()

    def open(self):
        self.files = SimFiles(self.disk, self.random, FaultCounts())

        async def opened():
            self.died = asyncio.Event()
            return LocalState.open(
                self.files, ROOT, self.log, new_worker=lambda _: CrashingWorker(self.died), segment_size=SEGMENT_SIZE
            )

        self.runner = asyncio.Runner()
        self.local = self.runner.run(opened())

    def teardown(self):
        if hasattr(self, "runner"):
            self.runner.close()

    # ------------------------------------------------------------------------------------------------- operations

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=12), dies_in=st.sampled_from([0, 0, 0, 0, 1, 2, 3, 5, 9]))
    def change(self, commands, dies_in):
        async def one(command):
            position = len(self.history)
            self.history.append((True, command))
            try:
                await self.local.change(command)
            except RequestFailed as refused:
                certainties.add(refused.certainty)
                self.history[position] = (True, None)
                return
            self.acknowledged = max(self.acknowledged, position + 1)

        async def all_of_them():
            ends = [asyncio.gather(*map(one, commands)), asyncio.ensure_future(self.died.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not self.died.is_set():
                ends[0].result()
            for end in ends:
                end.cancel()
            await asyncio.wait(ends)

        certainties = set()

        if dies_in:
            self.files.crash_point.arm(dies_in)
        self.runner.run(all_of_them())
        self.files.crash_point.disarm()
        assert certainties <= {Certainty.NOT_APPENDED}
        if self.died.is_set():
            self.crash()

    @rule(effect=st.tuples(st.sampled_from("+-"), NAMES))
    def dispatch(self, effect):
        self.log.effects.append(effect)
        self.history.append((False, effect))
        self.local.state.apply_effect(effect, b"")
        self.local.state.effects_applied(self.log.end_offset)

    @rule()
    def stop_and_start(self):
        self.runner.run(self.local.stop())
        self.runner.close()
        self.open()

    @rule()
    def crash(self):
        """Kill the process, with or without a power cut, and open what it left."""
        self.runner.close()
        if self.random.random() < 0.5:
            self.disk.cut_power()
        self.open()
        found = bytes_of(self.local.state)
        # The largest number of commands first: equal states may come from different numbers.
        for kept in range(len(self.history), self.acknowledged - 1, -1):
            history = [each for at, each in enumerate(self.history) if at < kept or not each[0]]
            if found == bytes_of(expected(history, self.log.end_offset)):
                self.history, self.acknowledged = history, len(history)
                return
        raise AssertionError("a state with all acknowledged commands was expected")

    @rule(is_full=st.booleans())
    def fill_disk(self, is_full):
        self.disk.capacity_bytes = self.disk.used_bytes + 500 if is_full else UNLIMITED_BYTES

    # -------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def state_is_that_of_the_history(self):
        if not hasattr(self, "local"):
            return
        history = expected(self.history, self.log.end_offset)
        assert bytes_of(self.local.state) == bytes_of(history)

    @invariant()
    def a_start_would_find_the_state(self):
        if not hasattr(self, "local") or self.local._journal.durable_index < self.local._journal.last_index:
            return
        saved = load_state(SimFiles(self.disk, self.random, FaultCounts()), ROOT)
        RecordEffects(self.log, saved.state).replay(saved.changes(), self.log.end_offset)
        assert bytes_of(saved.state) == bytes_of(self.local.state)


def expected(history, effects_offset):
    state = BrokerState()
    state.apply_command(SetFeatureLevel(FEATURE_LEVEL))
    for is_command, what in history:
        if what is not None:
            (state.apply_command if is_command else state.apply_effect)(what)
    state.effects_applied(effects_offset)
    return state


@pytest.mark.slow
def test_state_is_that_of_the_commands_and_effects_in_their_order(monkeypatch):
    monkeypatch.setattr(RecordEffects, "_marked", effects_of_log)
    monkeypatch.setattr(BrokerState, "apply_effect", apply_topic)
    run_state_machine_as_test(
        OneState,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
