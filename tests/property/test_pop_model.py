"""Pop consumption beside an obvious model: one dictionary for each queue, of offset to lease.

Invariants: what was acknowledged is not given again (P1); no message is given while a lease of it is valid (P2); the
floor is the first message that is not done (P4); attempts never fall (P6); replicas are equal byte for byte (P7); a
snapshot and the later commands give the same state as all commands (P8). A message that was moved is not given again,
and a grace gives each valid lease the same time, and no other one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    DeleteTopic,
    QueueOffset,
    ResetOffsets,
    SetFeatureLevel,
    SetGroup,
    SetTopic,
    decode_command,
    encode_command,
)
from cluster.state.effects import PopMoved, encode_effect
from cluster.state.features import FEATURE_LEVEL
from cluster.state.pop import applying
from cluster.state.pop import queue as pop_queue
from cluster.state.pop.grace import LeaseGrace
from cluster.state.pop.ops import AckOutcome, Done, Extend, Extended, PopOps, Take, Taken

if TYPE_CHECKING:
    from cluster.state.verdicts import Applied

GROUPS, TOPICS = ("g1", "g2"), ("a", "b")
QUEUE_MAX, ALL_MAX = 6, 14
OFFSETS = st.sets(st.integers(0, 25), max_size=6).map(sorted)
PLACES = st.tuples(st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.integers(0, 1))


@dataclass
class Lease:
    serial: int
    deadline_ms: int
    attempts: int
    is_counted: bool = True


@dataclass
class ModelQueue:
    """`open_`: messages that were taken and are not done."""

    cursor: int
    epoch: int
    open_: dict[int, Lease] = field(default_factory=dict)
    done_floor: int = 0

    @property
    def floor(self) -> int:
        return min(self.open_, default=self.cursor)


class Pops(RuleBasedStateMachine):
    """Commands to three replicas, one of which is loaded from snapshots, and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(applying, "IN_FLIGHT_OF_QUEUE_MAX", QUEUE_MAX)
        self.patch.setattr(applying, "IN_FLIGHT_MAX", ALL_MAX)
        self.patch.setattr(pop_queue, "_REMOVED_MIN", 2)
        self.states = [BrokerState(), BrokerState()]
        self.model: dict[tuple[str, str, int], ModelQueue] = {}
        self.time_ms, self.log_time_ms, self.pause_ms = 1_000, 0, 0
        # Of the current epoch of a queue: what was acknowledged, and the attempts of each message.
        self.acknowledged: dict[tuple[str, str, int], set[int]] = {}
        self.attempts: dict[tuple[str, str, int], dict[int, int]] = {}
        self.apply(SetFeatureLevel(FEATURE_LEVEL))
        for name in TOPICS:
            self.apply(SetTopic(TopicConfig(name)))
        for name in GROUPS:
            self.apply(SetGroup(GroupConfig(name)))

    def teardown(self) -> None:
        self.patch.undo()

    def apply(self, command: Command) -> Applied:
        body = encode_command(command)
        assert decode_command(body) == command
        results = [state.apply_command(decode_command(body)) for state in self.states]
        assert results[0] == results[1]
        return results[0]

    def pop(self, *ops) -> list:
        self.log_time_ms = max(self.log_time_ms, self.time_ms)
        return list(self.apply(PopOps(self.time_ms, ops)).pops)

    @property
    def lease_time_ms(self) -> int:
        return self.log_time_ms - self.pause_ms

    def forget(self, place) -> None:
        self.acknowledged.pop(place, None)
        self.attempts.pop(place, None)

    # ----------------------------------------------------------------------------------------------------- operations

    @rule(
        place=PLACES,
        begins=st.tuples(st.integers(0, 3), st.integers(-2, 2)),
        length=st.integers(0, 8),
        fresh=st.sets(st.integers(0, 7)),
        again=OFFSETS,
        passed=OFFSETS,
        invisible_ms=st.sampled_from([0, 10, 50]),
        other_epoch=st.integers(0, 9),
    )
    def take(self, place, begins, length, fresh, again, passed, invisible_ms, other_epoch):
        low, later = begins
        kept = self.model.get(place)
        epoch = 0 if kept is None else kept.epoch
        cursor = 0 if kept is None else kept.cursor
        # Most leaders know the cursor; others are late.
        begin = max(cursor + (later if abs(later) == 2 else 0), low)
        op = Take(
            *place,
            epoch + (other_epoch == 9),
            low,
            begin,
            begin + length,
            invisible_ms,
            tuple(each for each in again if each < begin),
            tuple(each for each in passed if each < begin),
            tuple(sorted(begin + each for each in fresh if each < length)),
        )
        (taken,) = self.pop(op)
        assert isinstance(taken, Taken)
        if op.epoch != epoch or not self.exists(place):
            assert not taken.offsets
            return
        expected = self.model_take(place, op, taken.serial)
        assert list(zip(taken.offsets, taken.attempts, strict=True)) == expected, op
        for offset, attempts in expected:
            assert offset not in self.acknowledged.get(place, ()), "P1"
            assert attempts >= self.attempts.setdefault(place, {}).get(offset, 0), "P6"
            self.attempts[place][offset] = attempts

    def exists(self, place) -> bool:
        state = self.states[0]
        return place[0] in state.groups and place[1] in state.topics

    def model_take(self, place, op: Take, serial: int) -> list[tuple[int, int]]:
        if place not in self.model and op.low < op.begin < op.end:
            return []
        queue = self.model.setdefault(place, ModelQueue(op.begin, 0))
        now = self.lease_time_ms
        for offset in [each for each in queue.open_ if each < op.low]:
            del queue.open_[offset]
        queue.cursor = max(queue.cursor, op.low)
        given = []
        for offset in op.again:
            lease = queue.open_.get(offset)
            if lease is not None and lease.deadline_ms <= now:
                attempts = lease.attempts + lease.is_counted
                queue.open_[offset] = Lease(serial, now + op.invisible_ms, attempts)
                given.append((offset, attempts))
        for offset in op.passed:
            if offset in queue.open_ and queue.open_[offset].deadline_ms <= now:
                del queue.open_[offset]
        if op.begin <= queue.cursor:
            for offset in range(queue.cursor, op.end):
                if offset in op.fresh:
                    in_all = sum(len(each.open_) for each in self.model.values())
                    if len(queue.open_) >= QUEUE_MAX or in_all >= ALL_MAX:
                        break
                    queue.open_[offset] = Lease(serial, now + op.invisible_ms, 1)
                    given.append((offset, 1))
                queue.cursor = offset + 1
        return given

    @rule(
        place=PLACES,
        choice=st.randoms(use_true_random=False),
        other=OFFSETS,
        other_serial=st.integers(0, 5),
        old_epoch=st.integers(0, 5),
    )
    def done(self, place, choice, other, other_serial, old_epoch):
        queue = self.model.get(place, ModelQueue(0, 0))
        serials = sorted({each.serial for each in queue.open_.values()})
        serial = choice.choice(serials) if serials and other_serial else 999
        offsets = sorted({each for each, lease in queue.open_.items() if lease.serial == serial} | set(other))
        epoch = queue.epoch + (old_epoch == 5)
        (outcomes,) = self.pop(Done(*place, epoch, serial, tuple(offsets)))
        is_valid = place in self.model and epoch == queue.epoch and self.exists(place)
        expected = [
            self.model_done(place, queue, offset, serial) if is_valid else AckOutcome.STALE for offset in offsets
        ]
        assert list(outcomes) == expected

    def model_done(self, place, queue: ModelQueue, offset: int, serial: int) -> AckOutcome:
        if offset in queue.open_:
            if queue.open_[offset].serial != serial:
                return AckOutcome.STALE
            del queue.open_[offset]
            self.acknowledged.setdefault(place, set()).add(offset)
            return AckOutcome.ACKNOWLEDGED
        return AckOutcome.ALREADY_DONE if offset < queue.cursor else AckOutcome.STALE

    @rule(
        place=PLACES,
        offset=st.integers(0, 25),
        is_right=st.booleans(),
        invisible_ms=st.sampled_from([0, 30]),
        is_counted=st.booleans(),
    )
    def extend(self, place, offset, is_right, invisible_ms, is_counted):
        queue = self.model.get(place, ModelQueue(0, 0))
        lease = queue.open_.get(offset)
        serial = lease.serial if lease is not None and is_right else 998
        (found,) = self.pop(Extend(*place, queue.epoch, serial, offset, invisible_ms, is_counted))
        assert isinstance(found, Extended)
        if place not in self.model or not self.exists(place):
            assert found.outcome is AckOutcome.STALE
        elif lease is None:
            assert found.outcome is (AckOutcome.ALREADY_DONE if offset < queue.cursor else AckOutcome.STALE)
        elif lease.serial != serial:
            assert found.outcome is AckOutcome.STALE
        else:
            assert found.outcome is AckOutcome.ACKNOWLEDGED
            assert found.serial > lease.serial, "the old handle is stale"
            lease.serial, lease.deadline_ms = found.serial, self.lease_time_ms + invisible_ms
            lease.is_counted = lease.is_counted and is_counted

    @rule(place=PLACES, choice=st.randoms(use_true_random=False), offset=st.integers(0, 25), is_right=st.booleans())
    def move(self, place, choice, offset, is_right):
        """The record of a dead letter, or of a message for the retry topic, is applied."""
        queue = self.model.get(place, ModelQueue(0, 0))
        if is_right and queue.open_:
            offset = choice.choice(sorted(queue.open_))
        lease = queue.open_.get(offset)
        serial = lease.serial if lease is not None and is_right else 997
        before = self.states[0].unfit_effects_count
        for state in self.states:
            state.apply_effect(encode_effect(PopMoved(*place, offset, serial)), b"")
        is_defect = self.states[0].unfit_effects_count > before
        assert is_defect == (lease is not None and lease.serial != serial)
        if lease is not None and not is_defect:
            del queue.open_[offset]
            self.acknowledged.setdefault(place, set()).add(offset)

    @rule(grace_ms=st.sampled_from([0, 5, 40, 2_000]))
    def grace(self, grace_ms):
        valid = {
            (place, offset)
            for place, queue in self.model.items()
            for offset, lease in queue.open_.items()
            if lease.deadline_ms > self.lease_time_ms
        }
        left = {each: self.left_ms(each) for each in valid}
        before = self.log_time_ms
        self.apply(LeaseGrace(self.time_ms, grace_ms))
        self.log_time_ms = max(before, self.time_ms)
        passed_ms = self.log_time_ms - before
        self.pause_ms += min(grace_ms, passed_ms)
        for each in valid:
            assert self.left_ms(each) == left[each] - max(passed_ms - grace_ms, 0)

    def left_ms(self, message):
        place, offset = message
        return self.model[place].open_[offset].deadline_ms - self.lease_time_ms

    # ----------------------------------------------------------------------------------------------- everything else

    @rule(by_ms=st.sampled_from([1, 10, 60, -1_000]))
    def time_passes(self, by_ms):
        """The clock of a later leader may be slow."""
        self.time_ms = max(self.time_ms + by_ms, 0)

    @rule(place=PLACES, offset=st.integers(0, 30))
    def commit(self, place, offset):
        queue = self.model.get(place)
        epoch = 0 if queue is None else queue.epoch
        applied = self.apply(CommitOffsets(place[0], (QueueOffset(place[1], place[2], offset, epoch),)))
        if not applied.is_done or (queue is not None and offset <= queue.floor):
            return
        if queue is None:
            queue = self.model[place] = ModelQueue(offset, 0)
        queue.open_ = {each: lease for each, lease in queue.open_.items() if each >= offset}
        queue.cursor = max(queue.cursor, offset)

    @rule(place=PLACES, offset=st.integers(0, 20))
    def reset(self, place, offset):
        queue = self.model.get(place)
        epoch = 0 if queue is None else queue.epoch
        if self.apply(ResetOffsets(place[0], (QueueOffset(place[1], place[2], offset, epoch),))).is_done:
            self.model[place] = ModelQueue(offset, epoch + 1)
            self.forget(place)

    @rule(name=st.sampled_from(TOPICS), is_made_again=st.booleans())
    def delete_topic(self, name, is_made_again):
        if self.apply(DeleteTopic(name)).is_done:
            for place in [each for each in self.model if each[1] == name]:
                del self.model[place]
                self.forget(place)
        if is_made_again:
            self.apply(SetTopic(TopicConfig(name)))

    @rule(name=st.sampled_from(GROUPS), is_made_again=st.booleans())
    def delete_group(self, name, is_made_again):
        if self.apply(DeleteGroup(name)).is_done:
            for place in [each for each in self.model if each[0] == name]:
                del self.model[place]
                self.forget(place)
        if is_made_again:
            self.apply(SetGroup(GroupConfig(name)))

    @rule()
    def load_a_snapshot(self):
        """P8: the loaded replica is compared with the other one after every later command."""
        content = b"".join(self.states[0].snapshot_save())
        self.states[1] = BrokerState()
        self.states[1].snapshot_load(content)

    @invariant()
    def state_is_that_of_the_model(self):
        state = self.states[0]
        for place, queue in self.model.items():
            kept = state.offset(*place)
            assert kept is not None
            assert (kept.offset, kept.reset_count) == (queue.floor, queue.epoch), "P4"
            found = state.pop.queues.get(place)
            rows = {} if found is None else {each[0] + i: each[2:4] for each in found.runs() for i in range(each[1])}
            assert rows == {each: (lease.serial, lease.deadline_ms) for each, lease in queue.open_.items()}
            if found is not None:
                now = self.lease_time_ms
                free = [each for each, lease in sorted(queue.open_.items()) if lease.deadline_ms <= now]
                assert list(found.free_offsets(now)) == free
                assert found.leased_count(now) == len(rows) - len(free)
                deadlines = [each.deadline_ms for each in queue.open_.values() if each.deadline_ms > now]
                bound = found.next_deadline_ms(now)
                assert (bound is None) <= (not deadlines), "a wait must not miss a deadline"
                assert bound is None or now < bound <= min(deadlines, default=bound)
        assert state.pop.count == sum(len(each.open_) for each in self.model.values())

    @invariant()
    def replicas_are_equal(self):
        first, second = (b"".join(state.snapshot_save()) for state in self.states)
        assert first == second, "P7"


def test_pop_state_is_that_of_an_obvious_model() -> None:
    run_state_machine_as_test(
        Pops,
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
