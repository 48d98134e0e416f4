"""Pop consumption in order beside an obvious model: a list of messages for each queue, which is scanned from its floor.

The leader is simulated by its slowest possible form, which looks at every message. Invariants: messages of one message
group are given in their order, one at a time (O1); a message group never blocks another one (O2); what was acknowledged
is not given again (P1); what is not is given again after its lease (P3); a repeated attempt gets what the first one
got (O3); replicas are equal byte for byte, also after a snapshot (P7, P8); rows are bounded.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.broker_state import BrokerState
from cluster.state.commands import (
    Command,
    CommitOffsets,
    DeleteGroup,
    QueueOffset,
    ResetOffsets,
    SetFeatureLevel,
    SetGroup,
    SetTopic,
    decode_command,
    encode_command,
)
from cluster.state.features import FEATURE_LEVEL
from cluster.state.pop import applying
from cluster.state.pop import queue as pop_queue
from cluster.state.pop.ops import AckOutcome, Done, Extend, Extended, PopOps, Take, Taken
from cluster.state.pop.ordered_take import Fresh, OrderedTake

if TYPE_CHECKING:
    from cluster.state.verdicts import Applied

GROUP, TOPIC = "g", "t"
PLACE = (GROUP, TOPIC, 0)
QUEUE_MAX = 8
# The message groups of the messages of a queue, by offset; 0: none.
KEYS = [1, 1, 2, 0, 1, 3, 2, 0, 1, 2, 1, 1, 3, 0, 1, 2, 3, 1, 1, 2, 0, 3, 1, 2]


@dataclass
class Message:
    """A message that is not done; `serial` 0: it was never taken."""

    key: int
    serial: int = 0
    deadline_ms: int = 0
    attempts: int = 0
    is_counted: bool = True
    attempt: int = 0


class OrderedPops(RuleBasedStateMachine):
    """Commands to two replicas, one of which is loaded from snapshots, and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(applying, "IN_FLIGHT_OF_QUEUE_MAX", QUEUE_MAX)
        self.patch.setattr(pop_queue, "_REMOVED_MIN", 2)
        self.states = [BrokerState(), BrokerState()]
        self.time_ms, self.log_time_ms = 1_000, 0
        self.apply(SetFeatureLevel(FEATURE_LEVEL))
        self.apply(SetTopic(TopicConfig(TOPIC)))
        self.apply(SetGroup(GroupConfig(GROUP, is_orderly=True)))
        self.clear(0, 0, is_known=False)

    def clear(self, offset: int, epoch: int, *, is_known: bool) -> None:
        self.epoch, self.is_known = epoch, is_known
        # What was looked at, and of that what is not done.
        self.cursor = offset
        self.messages: dict[int, Message] = {}
        # In the order of the takes, of this epoch.
        self.given: dict[int, list[int]] = defaultdict(list)
        self.acknowledged: set[int] = set()

    def teardown(self) -> None:
        self.patch.undo()

    def apply(self, command: Command) -> Applied:
        body = encode_command(command)
        assert decode_command(body) == command
        results = [state.apply_command(decode_command(body)) for state in self.states]
        assert results[0] == results[1]
        return results[0]

    def pop(self, op):
        self.log_time_ms = max(self.log_time_ms, self.time_ms)
        (result,) = self.apply(PopOps(self.time_ms, (op,))).pops
        return result

    # ----------------------------------------------------------------------------------------------------- operations

    def is_first(self, offset: int) -> bool:
        key = self.messages[offset].key
        return offset == min(each for each, message in self.messages.items() if message.key == key)

    def may_be_taken(self, offset: int) -> bool:
        message = self.messages[offset]
        return message.serial == 0 or message.deadline_ms <= self.log_time_ms

    def live(self, attempt: int) -> list[int]:
        return [
            offset
            for offset, message in sorted(self.messages.items())
            if attempt and message.attempt == attempt and message.deadline_ms > self.log_time_ms
        ]

    @rule(
        again=st.sets(st.integers(0, 25), max_size=5).map(sorted),
        is_greedy=st.booleans(),
        passed=st.sets(st.integers(0, 25), max_size=1).map(sorted),
        sizes=st.tuples(st.integers(0, 7), st.sampled_from([0, 0, 0, 1, -2])),
        unwanted=st.sets(st.integers(0, 25), max_size=3),
        rejected=st.sets(st.integers(0, 25), max_size=2),
        invisible_ms=st.sampled_from([0, 10, 50]),
        attempt=st.sampled_from([0, 0, 7, 8]),
    )
    def take(self, again, is_greedy, passed, sizes, unwanted, rejected, invisible_ms, attempt):
        length, late = sizes
        begin = max(self.cursor + late, 0)
        end = min(max(begin, begin + length), len(KEYS))
        if is_greedy:
            again = sorted(self.messages)
        wanted = [each for each in range(begin, end) if each not in rejected]
        op = OrderedTake(
            *PLACE,
            self.epoch,
            0,
            begin,
            max(begin, end),
            invisible_ms,
            attempt,
            tuple(each for each in again if each < begin and each not in passed),
            tuple(each for each in passed if each < begin),
            tuple(Fresh(each, KEYS[each], each not in unwanted) for each in wanted),
        )
        taken = self.pop(op)
        assert isinstance(taken, Taken)
        expected = self.model_take(op, taken.serial)
        assert list(zip(taken.offsets, taken.attempts, strict=True)) == expected, op

    def model_take(self, op: OrderedTake, serial: int) -> list[tuple[int, int]]:
        if not self.is_known:
            # The first take of all decides where the queue begins.
            self.is_known, self.cursor = True, op.begin
        now = self.log_time_ms
        repeated = self.live(op.attempt)
        if repeated:
            for offset in repeated:
                message = self.messages[offset]
                assert message.serial == serial, "O3: the same lease"
                message.deadline_ms = max(message.deadline_ms, now + op.invisible_ms)
            return [(offset, self.messages[offset].attempts) for offset in repeated]
        given = []
        for offset in op.again:
            if offset in self.messages and self.is_first(offset) and self.may_be_taken(offset):
                given.append(self.lease(offset, serial, op))  # noqa: PERF401  (it changes what is first)
        for offset in op.passed:
            if offset in self.messages and self.may_be_taken(offset):
                del self.messages[offset]
        if op.begin <= self.cursor:
            fresh = {each.offset: each for each in op.fresh}
            for offset in range(self.cursor, op.end):
                if offset in fresh:
                    if len(self.messages) >= QUEUE_MAX:
                        break
                    self.messages[offset] = Message(KEYS[offset])
                    if fresh[offset].is_wanted and self.is_first(offset):
                        given.append(self.lease(offset, serial, op))
                self.cursor = offset + 1
        return given

    def lease(self, offset: int, serial: int, op: OrderedTake) -> tuple[int, int]:
        message = self.messages[offset]
        others = [each for each in self.messages.values() if each.key == message.key and each is not message]
        assert all(each.deadline_ms <= self.log_time_ms for each in others), "O1: one at a time"
        assert offset not in self.acknowledged, "P1"
        earlier = self.given[message.key]
        assert all(each <= offset for each in earlier), "O1: in order"
        earlier.append(offset)
        message.attempts += message.is_counted or not message.attempts
        message.is_counted = True
        message.serial, message.deadline_ms = serial, self.log_time_ms + op.invisible_ms
        message.attempt = op.attempt
        for each in self.messages.values():
            # An earlier lease of the attempt has ended.
            if op.attempt and each.attempt == op.attempt and each.serial != serial:
                each.attempt = 0
        return offset, message.attempts

    @rule(choice=st.randoms(use_true_random=False), is_stale=st.booleans())
    def done(self, choice, is_stale):
        leased = sorted(offset for offset, message in self.messages.items() if message.serial)
        if not leased:
            return
        first = choice.choice(leased)
        serial = self.messages[first].serial + (is_stale and 1_000_000)
        offsets = [each for each in leased if self.messages[each].serial == serial or each == first]
        offsets = [each for each in offsets if each == first or choice.random() < 0.5]
        outcomes = self.pop(Done(*PLACE, self.epoch, serial, tuple(offsets)))
        if is_stale:
            assert set(outcomes) == {AckOutcome.STALE}
            return
        assert set(outcomes) == {AckOutcome.ACKNOWLEDGED}
        for offset in offsets:
            del self.messages[offset]
            self.acknowledged.add(offset)

    @rule(choice=st.randoms(use_true_random=False), invisible_ms=st.sampled_from([0, 30]), is_counted=st.booleans())
    def extend(self, choice, invisible_ms, is_counted):
        leased = sorted(offset for offset, message in self.messages.items() if message.serial)
        if not leased:
            return
        offset = choice.choice(leased)
        message = self.messages[offset]
        op = Extend(*PLACE, self.epoch, message.serial, offset, invisible_ms, is_counted)
        found = self.pop(op)
        assert isinstance(found, Extended)
        assert found.outcome is AckOutcome.ACKNOWLEDGED
        message.serial, message.deadline_ms = found.serial, self.log_time_ms + invisible_ms
        message.is_counted = message.is_counted and is_counted
        message.attempt = 0

    @rule(by_ms=st.sampled_from([1, 10, 60, -1_000]))
    def time_passes(self, by_ms):
        self.time_ms = max(self.time_ms + by_ms, 0)

    @rule(offset=st.integers(0, 25))
    def take_without_order(self, offset):
        """Only a queue without messages in flight may be taken in another way than before."""
        if self.messages:
            op = Take(*PLACE, self.epoch, 0, self.cursor, self.cursor + 1, 10, tuple({offset} & set(self.messages)))
            if offset < self.cursor:
                assert not self.pop(op).offsets

    # ----------------------------------------------------------------------------------------------- everything else

    @rule(offset=st.integers(0, 25))
    def commit(self, offset):
        floor = min(self.messages, default=self.cursor)
        self.apply(CommitOffsets(GROUP, (QueueOffset(TOPIC, 0, offset, self.epoch),)))
        if self.is_known and offset <= floor:
            return
        self.is_known = True
        self.messages = {each: message for each, message in self.messages.items() if each >= offset}
        self.cursor = max(self.cursor, offset)

    @rule(offset=st.integers(0, 20))
    def reset(self, offset):
        self.apply(ResetOffsets(GROUP, (QueueOffset(TOPIC, 0, offset, self.epoch),)))
        self.clear(offset, self.epoch + 1, is_known=True)

    @rule()
    def delete_group(self):
        self.apply(DeleteGroup(GROUP))
        self.apply(SetGroup(GroupConfig(GROUP, is_orderly=True)))
        self.clear(0, 0, is_known=False)

    @rule()
    def load_a_snapshot(self):
        """P8: the loaded replica is compared with the other one after every later command."""
        content = b"".join(self.states[0].snapshot_save())
        self.states[1] = BrokerState()
        self.states[1].snapshot_load(content)

    @rule()
    def save_a_snapshot_slowly(self):
        """Later changes do not affect a snapshot that is being written."""
        chunks = self.states[0].snapshot_save()
        content = b"".join(self.states[0].snapshot_save())
        self.pop(Done(*PLACE, self.epoch, 999_999_999, ()))
        assert b"".join(chunks) == content or self.states[0].pop.time_ms == 0

    @invariant()
    def state_is_that_of_the_model(self):
        state = self.states[0]
        kept = state.offset(*PLACE)
        assert (kept is not None) == self.is_known
        if kept is not None:
            assert kept.offset == min(self.messages, default=self.cursor), "P4"
        queue = state.pop.queues.get(PLACE)
        assert (queue is None) == (not self.messages)
        assert state.pop.count == state.pop.ordered_count == len(self.messages) <= QUEUE_MAX
        if queue is None:
            return
        assert queue.ordered is not None
        expected = [(offset, message.attempts) for offset, message in sorted(self.messages.items())]
        assert queue.offsets_and_attempts() == expected
        waiting = {message.key: offset for offset, message in sorted(self.messages.items(), reverse=True)}
        ready = {key for key, offset in waiting.items() if not self.messages[offset].serial}
        assert set(queue.ordered.ready) == ready, "O2: a take finds each message group that may continue"
        assert all(queue.ordered.first_of(key) == offset for key, offset in waiting.items())
        now = self.log_time_ms
        free = [each for each, m in sorted(self.messages.items()) if m.serial and m.deadline_ms <= now]
        assert list(queue.free_offsets(now)) == free, "P3, O2"

    @invariant()
    def replicas_are_equal(self):
        first, second = (b"".join(state.snapshot_save()) for state in self.states)
        assert first == second, "P7"


def test_ordered_pop_state_is_that_of_an_obvious_model() -> None:
    run_state_machine_as_test(
        OrderedPops,
        settings=settings(
            max_examples=80,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
            report_multiple_bugs=False,
        ),
    )
