"""Pop consumption, as commands change it: leases, acknowledgements, limits, and what other commands do to them."""

from __future__ import annotations

import tracemalloc

import pytest

from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.broker_state import SWEPT_PER_COMMAND, BrokerState
from cluster.state.commands import (
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
from cluster.state.compact_bytes import Unreadable
from cluster.state.effects import PopMoved, decode_effect, encode_effect
from cluster.state.features import FEATURE_LEVEL
from cluster.state.pop import applying
from cluster.state.pop.grace import GRACE_MS_MAX, LeaseGrace
from cluster.state.pop.ops import INVISIBLE_MS_MAX, AckOutcome, Done, Extend, Extended, PopOps, Take, Taken
from cluster.state.pop.state import IN_FLIGHT_MAX, IN_FLIGHT_OF_QUEUE_MAX
from store.errors import IllegalMessage

PLACE = ("billing", "orders", 0)
OK, ALREADY, STALE = AckOutcome.ACKNOWLEDGED, AckOutcome.ALREADY_DONE, AckOutcome.STALE


def new_state() -> BrokerState:
    state = BrokerState()
    for command in (
        SetFeatureLevel(FEATURE_LEVEL),
        SetTopic(TopicConfig("orders")),
        SetGroup(GroupConfig("billing")),
        SetGroup(GroupConfig("other")),
    ):
        assert state.apply_command(command).is_done
    return state


def pop(state: BrokerState, time_ms: int, op):
    (result,) = state.apply_command(PopOps(time_ms, (op,))).pops
    return result


def take(state: BrokerState, time_ms: int, begin: int, end: int, again=(), *, epoch: int = 0, low: int = 0) -> Taken:
    """Take [begin, end) and `again` for 100 ms."""
    return pop(state, time_ms, Take(*PLACE, epoch, low, begin, end, 100, again, (), tuple(range(begin, end))))


def done(state: BrokerState, time_ms: int, serial: int, *offsets: int, epoch: int = 0):
    return pop(state, time_ms, Done(*PLACE, epoch, serial, offsets))


def floor(state: BrokerState) -> int | None:
    kept = state.offset(*PLACE)
    return None if kept is None else kept.offset


def test_message_is_given_again_at_its_deadline_and_not_before() -> None:
    state = new_state()
    assert take(state, 1_000, 0, 2) == Taken(1_000, [0, 1], [1, 1])
    assert take(state, 1_099, 2, 2, (0, 1)).offsets == []
    assert take(state, 1_100, 2, 2, (0, 1)) == Taken(1_100, [0, 1], [2, 2])


def test_acknowledgement_counts_after_the_deadline_until_another_consumer_has_the_message() -> None:
    state = new_state()
    lease = take(state, 1_000, 0, 3)
    assert done(state, 1_100, lease.serial, 0) == (OK,), "at the deadline"
    assert done(state, 5_000, lease.serial, 1) == (OK,), "no other consumer took it"
    again = take(state, 5_000, 3, 3, (2,))
    assert done(state, 5_001, lease.serial, 2) == (STALE,)
    assert done(state, 5_002, again.serial, 2) == (OK,)
    assert done(state, 5_003, again.serial, 2) == (ALREADY,)
    assert done(state, 5_004, lease.serial, 2) == (ALREADY,)
    assert floor(state) == 3


def test_floor_is_the_committed_offset_and_waits_for_the_first_message_that_is_not_done() -> None:
    state = new_state()
    lease = take(state, 1_000, 0, 5)
    assert floor(state) == 0
    done(state, 1_001, lease.serial, 1, 2, 4)
    assert floor(state) == 0
    done(state, 1_002, lease.serial, 0)
    assert floor(state) == 3
    done(state, 1_003, lease.serial, 3)
    assert (floor(state), state.pop.count, len(state.pop.queues)) == (5, 0, 0), "nothing in flight needs no memory"


def test_messages_that_a_filter_rejects_are_done_once_the_cursor_has_passed_them() -> None:
    state = new_state()
    assert pop(state, 1_000, Take(*PLACE, 0, 0, 0, 10, 100, (), (), (3, 7))).offsets == [3, 7]
    assert floor(state) == 3
    assert pop(state, 1_001, Take(*PLACE, 0, 0, 10, 20, 100)).offsets == [], "all of them are passed over"
    assert (floor(state), state.pop.queues[PLACE].cursor) == (3, 20)


def test_new_invisible_time_makes_a_new_handle_and_the_old_one_stale() -> None:
    state = new_state()
    lease = take(state, 1_000, 0, 2)
    found = pop(state, 1_050, Extend(*PLACE, 0, lease.serial, 0, 500))
    assert found == Extended(OK, 1_050)
    assert done(state, 1_060, lease.serial, 0, 1) == (STALE, OK)
    assert take(state, 1_549, 2, 2, (0,)).offsets == []
    assert take(state, 1_550, 2, 2, (0,)).attempts == [2]
    assert pop(state, 1_551, Extend(*PLACE, 0, found.serial, 0, 500)) == Extended(STALE), "no second life"


def test_message_given_back_without_counting_keeps_its_attempts() -> None:
    state = new_state()
    lease = take(state, 1_000, 0, 1)
    for is_counted, attempts in ((False, 1), (True, 2), (False, 2)):
        pop(state, 1_001, Extend(*PLACE, 0, lease.serial, 0, 0, is_counted))
        lease = take(state, 1_001, 1, 1, (0,))
        assert lease.attempts == [attempts]


def test_serials_are_unique_in_one_millisecond_and_when_the_clock_goes_back() -> None:
    state = new_state()
    serials = [take(state, time_ms, begin, begin + 1).serial for begin, time_ms in enumerate((5_000, 5_000, 1_400))]
    assert serials == [5_000, 5_001, 5_002]
    assert state.pop.time_ms == 5_000, "log time never decreases"


def test_of_two_leaders_that_chose_the_same_messages_the_first_entry_has_them() -> None:
    state = new_state()
    assert take(state, 1_000, 0, 3).offsets == [0, 1, 2]
    assert take(state, 1_000, 0, 3).offsets == []
    assert take(state, 1_000, 0, 5).offsets == [3, 4], "the rest of a longer choice"
    assert take(state, 1_000, 7, 9).offsets == [], "5 and 6 would be left out"


def test_group_begins_with_the_first_message_although_the_take_of_it_has_failed() -> None:
    state = new_state()
    assert not take(state, 1_000, 3, 6).offsets, "proposed after a take of 0 to 2, which is not in the log"
    assert floor(state) is None
    assert take(state, 1_000, 0, 3).offsets == [0, 1, 2]


def test_group_begins_where_an_empty_take_says() -> None:
    state = new_state()
    assert not take(state, 1_000, 7, 7).offsets
    assert floor(state) == 7
    assert take(state, 1_000, 7, 9).offsets == [7, 8]


def test_reset_makes_handles_stale_and_begins_at_the_new_offset() -> None:
    state = new_state()
    lease = take(state, 1_000, 0, 3)
    state.apply_command(ResetOffsets("billing", (QueueOffset("orders", 0, 1, 0),)))
    assert done(state, 1_001, lease.serial, 0, 1, 2) == (STALE, STALE, STALE)
    assert not take(state, 1_001, 1, 3).offsets, "chosen before the reset"
    assert take(state, 1_001, 1, 3, epoch=1) == Taken(1_001, [1, 2], [1, 1])
    assert floor(state) == 1


def test_topic_that_is_created_again_knows_no_handles_of_the_deleted_one() -> None:
    state = new_state()
    lease = take(state, 1_000, 0, 3)
    state.apply_command(DeleteTopic("orders"))
    assert state.pop.count == 0
    assert done(state, 1_000, lease.serial, 0) == (STALE,)
    assert take(state, 1_000, 0, 3).offsets == ()
    state.apply_command(SetTopic(TopicConfig("orders")))
    assert done(state, 1_000, lease.serial, 0) == (STALE,)
    assert take(state, 1_000, 0, 1).serial > lease.serial
    assert done(state, 1_000, lease.serial, 0) == (STALE,)


def test_another_group_cannot_acknowledge() -> None:
    state = new_state()
    lease = take(state, 1_000, 0, 1)
    assert pop(state, 1_001, Done("other", "orders", 0, 0, lease.serial, (0,))) == (STALE,)
    assert state.pop.count == 1


def test_commit_of_a_pull_consumer_raises_the_floor_and_drops_leases_before_it() -> None:
    state = new_state()
    lease = take(state, 1_000, 0, 6)
    done(state, 1_001, lease.serial, 4)
    state.apply_command(CommitOffsets("billing", (QueueOffset("orders", 0, 4, 0),)))
    assert floor(state) == 5, "4 is done already"
    assert done(state, 1_002, lease.serial, 3, 5) == (ALREADY, OK)
    state.apply_command(CommitOffsets("billing", (QueueOffset("orders", 0, 9, 0),)))
    assert take(state, 1_003, 6, 11).offsets == [9, 10]


def test_messages_that_the_log_has_deleted_are_dropped_and_counted() -> None:
    state = new_state()
    take(state, 1_000, 0, 4)
    assert take(state, 1_001, 10, 12, low=10).offsets == [10, 11]
    assert (state.pop.lost_count, floor(state)) == (4, 10)


def test_in_flight_messages_are_bounded_by_queue_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "IN_FLIGHT_OF_QUEUE_MAX", 3)
    monkeypatch.setattr(applying, "IN_FLIGHT_MAX", 5)
    monkeypatch.setattr(applying, "QUEUES_MAX", 2)
    state = new_state()
    assert take(state, 1_000, 0, 4) == Taken(1_000, [0, 1, 2], [1, 1, 1], is_full=True)
    assert take(state, 1_100, 3, 4, (0, 1, 2)).offsets == [0, 1, 2], "expired ones are given nevertheless"
    second = pop(state, 1_101, Take("billing", "orders", 1, 0, 0, 0, 9, 100, (), (), (5, 6, 7)))
    assert (list(second.offsets), second.is_full) == ([5, 6], True)
    assert state.pop.queues["billing", "orders", 1].cursor == 7, "what was not taken is not passed over"
    assert pop(state, 1_101, Take("billing", "orders", 2, 0, 0, 0, 9, 100, (), (), (5,))).is_full
    done(state, 1_102, 1_100, 0)
    assert take(state, 1_103, 3, 4).offsets == [3]


def test_two_million_messages_in_flight_need_at_most_64_mb() -> None:
    state = new_state()
    tracemalloc.start()
    for begin in range(0, IN_FLIGHT_OF_QUEUE_MAX, 32):
        take(state, 1_000 + begin, begin, min(begin + 32, IN_FLIGHT_OF_QUEUE_MAX))
    size_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert state.pop.count == IN_FLIGHT_OF_QUEUE_MAX
    assert size_bytes / IN_FLIGHT_OF_QUEUE_MAX * IN_FLIGHT_MAX <= 64e6
    assert len(b"".join(state.snapshot_save())) / IN_FLIGHT_OF_QUEUE_MAX * IN_FLIGHT_MAX <= 10e6


def test_acknowledgements_in_any_order_free_the_memory() -> None:
    state = new_state()
    serials = {each: take(state, 1_000, each, each + 1).serial for each in range(1_000)}
    for each in sorted(range(1_000), key=lambda number: number * 7_919 % 1_000):
        assert done(state, 1_001, serials[each], each) == (OK,)
    assert (state.pop.count, floor(state)) == (0, 1_000)


def moved(state: BrokerState, serial: int, offset: int) -> bool:
    """Apply the record that moves a message; return whether it changed the state."""
    before = state.unfit_effects_count
    state.apply_effect(encode_effect(PopMoved(*PLACE, offset, serial)), b"")
    assert state.unfit_effects_count in (before, before + 1)
    return state.unfit_effects_count == before


def test_record_that_moves_a_message_finishes_it_and_raises_the_floor() -> None:
    state = new_state()
    lease = take(state, 1_000, 0, 3)
    assert moved(state, lease.serial, 0)
    assert (floor(state), state.pop.count) == (1, 2)
    assert done(state, 1_001, lease.serial, 0, 1) == (ALREADY, OK)
    assert moved(state, lease.serial, 2)
    assert (floor(state), state.pop.count, len(state.pop.queues)) == (3, 0, 0)


def test_record_that_moves_a_message_of_another_lease_changes_nothing_and_is_a_defect() -> None:
    state = new_state()
    lease = take(state, 1_000, 0, 1)
    take(state, 1_100, 1, 1, (0,))
    assert not moved(state, lease.serial, 0)
    assert (floor(state), state.pop.count) == (0, 1)


def test_record_that_moves_a_forgotten_message_is_no_defect() -> None:
    for forget in (
        DeleteTopic("orders"),
        DeleteGroup("billing"),
        ResetOffsets("billing", (QueueOffset("orders", 0, 0, 0),)),
        CommitOffsets("billing", (QueueOffset("orders", 0, 2, 0),)),
    ):
        state = new_state()
        lease = take(state, 1_000, 0, 2)
        assert state.apply_command(forget).is_done
        before = b"".join(state.snapshot_save())
        assert moved(state, lease.serial, 1)
        assert b"".join(state.snapshot_save()) == before


@pytest.mark.parametrize("text", ["p:", "p:g:t:1:2", "p:g:t:1:2:3:4", "p::t:1:2:3", "p:g::1:2:3", "p:g:t:01:2:3"])
def test_texts_that_are_no_move_stop_the_node(text) -> None:
    assert decode_effect("p:%g-|:%RETRY%a_b:1:2:3") == PopMoved("%g-|", "%RETRY%a_b", 1, 2, 3)
    with pytest.raises(Unreadable):
        decode_effect(text)


def test_leases_end_later_by_the_time_without_a_leader_and_what_had_ended_stays_ended() -> None:
    state = new_state()
    take(state, 1_000, 0, 1)
    take(state, 1_090, 1, 2)
    take(state, 1_120, 2, 3)
    # Message 0 had ended; the leader was lost at 1,120, and the next one leads at 1,620.
    assert state.apply_command(LeaseGrace(1_620, 500)).is_done
    assert take(state, 1_620, 3, 3, (0, 1, 2)).offsets == [0]
    assert take(state, 1_689, 3, 3, (1, 2)).offsets == []
    assert take(state, 1_690, 3, 3, (1, 2)).offsets == [1]
    assert take(state, 1_720, 3, 3, (0, 2)).offsets == [0, 2], "a lease of after that ends as always"


def test_grace_is_no_longer_than_the_time_since_the_last_command() -> None:
    state = new_state()
    take(state, 1_000, 0, 1)
    state.apply_command(LeaseGrace(1_050, GRACE_MS_MAX))
    state.apply_command(LeaseGrace(1_050, GRACE_MS_MAX))
    state.apply_command(LeaseGrace(900, GRACE_MS_MAX))
    assert (state.pop.time_ms, state.pop.pause_ms) == (1_050, 50)
    assert take(state, 1_149, 1, 1, (0,)).offsets == []
    assert take(state, 1_150, 1, 1, (0,)).offsets == [0]


def test_grace_is_in_a_snapshot_and_in_the_encoding_of_its_command() -> None:
    state, loaded = new_state(), BrokerState()
    take(state, 1_000, 0, 1)
    command = LeaseGrace(1_080, 60)
    assert decode_command(encode_command(command)) == command
    state.apply_command(command)
    loaded.snapshot_load(b"".join(state.snapshot_save()))
    for each in (state, loaded):
        assert take(each, 1_159, 1, 1, (0,)).offsets == []
        assert take(each, 1_160, 1, 1, (0,)).offsets == [0]
    for wrong in (LeaseGrace(-1, 0), LeaseGrace(0, -1), LeaseGrace(0, GRACE_MS_MAX + 1)):
        with pytest.raises(IllegalMessage):
            encode_command(wrong)


def test_deleting_a_topic_takes_one_step_for_each_group_and_its_memory_is_freed_in_portions() -> None:
    state, count = new_state(), 1_000
    for group in ("billing", "other"):
        for begin in range(0, count, 500):
            ops = [Take(group, "orders", each, 0, 0, 0, 2, 100, (), (), (0, 1)) for each in range(begin, begin + 500)]
            state.apply_command(PopOps(1_000, tuple(ops)))
    queues = state.pop.queues
    assert (len(queues), state.pop.count) == (2 * count, 4 * count)
    state.apply_command(DeleteGroup("other"))
    assert (len(queues), state.pop.count) == (count, 2 * count)
    assert {key.group for key in queues} == {"billing"}
    state.apply_command(DeleteTopic("orders"))
    assert (len(queues), state.pop.count, list(queues)) == (0, 0, [])
    kept = [sum(map(len, queues._removed))]
    while kept[-1]:
        state.apply_command(SetGroup(GroupConfig("any")))
        kept.append(sum(map(len, queues._removed)))
        assert 0 < kept[-2] - kept[-1] <= SWEPT_PER_COMMAND, "in portions"
    assert kept[0] > count, "not at once"


@pytest.mark.parametrize(
    "op",
    [
        Take(*PLACE, 0, 5, 4, 6, 100),
        Take(*PLACE, 0, 0, 4, 3, 100),
        Take(*PLACE, 0, 0, 4, 6, INVISIBLE_MS_MAX + 1),
        Take(*PLACE, 0, 0, 4, 6, 100, (), (), (3,)),
        Take(*PLACE, 0, 0, 4, 6, 100, (4,)),
        Take(*PLACE, 0, 0, 4, 6, 100, (), (2, 1)),
        Done(*PLACE, 0, 1, (1, 1)),
        Done(*PLACE, 0, -1, (1,)),
        Done("bil ling", "orders", 0, 0, 1, (1,)),
        Done("billing", "or ders", 0, 0, 1, (1,)),
        Done("billing", "orders", -1, 0, 1, (1,)),
        Extend(*PLACE, 0, 1, 1, -1),
    ],
)
def test_invalid_operations_are_not_encoded(op) -> None:
    with pytest.raises(IllegalMessage):
        encode_command(PopOps(1, (op,)))


def test_bytes_of_a_newer_kind_of_operation_or_an_endless_run_stop_the_node() -> None:
    body = encode_command(PopOps(1, (Take(*PLACE, 0, 0, 0, 3, 100, (), (), (0, 1, 2)),)))
    assert decode_command(body) == PopOps(1, (Take(*PLACE, 0, 0, 0, 3, 100, (), (), (0, 1, 2)),))
    for changed in (body.replace(b"orders\x01\x01", b"orders\x01\x04"), body[:-1] + b"\x7f"):
        assert changed != body
        with pytest.raises(Unreadable):
            decode_command(changed)
