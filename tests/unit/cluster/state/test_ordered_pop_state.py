"""Pop consumption in order, as commands change it: message groups, attempts, limits; and the owners of queue locks."""

from __future__ import annotations

import pytest

from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.broker_state import BrokerState
from cluster.state.commands import (
    DeleteGroup,
    DeleteTopic,
    SetFeatureLevel,
    SetGroup,
    SetTopic,
    decode_command,
    encode_command,
)
from cluster.state.compact_bytes import Unreadable
from cluster.state.features import FEATURE_LEVEL
from cluster.state.order import owners as owners_module
from cluster.state.order.owners import OwnQueues
from cluster.state.pop import ordered_applying
from cluster.state.pop.ops import AckOutcome, Done, Extend, PopOps, Take
from cluster.state.pop.ordered_take import Fresh, OrderedTake
from cluster.state.verdicts import CommandVerdict
from store.errors import IllegalMessage
from store.model.message import QueueKey

PLACE = ("g", "t", 0)
T0 = 1_000_000
INVISIBLE_MS = 10_000
A, B = 1, 2


@pytest.fixture
def state():
    found = BrokerState()
    for command in (
        SetFeatureLevel(FEATURE_LEVEL),
        SetTopic(TopicConfig("t")),
        SetGroup(GroupConfig("g", is_orderly=True)),
    ):
        assert found.apply_command(command).is_done
    return found


def pop(state, op, time_ms=T0):
    command = PopOps(time_ms, (op,))
    assert decode_command(encode_command(command)) == command
    (result,) = state.apply_command(command).pops
    return result


def take(state, *keys, begin=0, time_ms=T0, **fields):
    """Take messages with these keys from `begin` on; all are wanted."""
    fresh = tuple(Fresh(begin + number, key, is_wanted=True) for number, key in enumerate(keys))
    return pop(state, OrderedTake(*PLACE, 0, 0, begin, begin + len(keys), INVISIBLE_MS, fresh=fresh, **fields), time_ms)


def again(state, *offsets, time_ms=T0, **fields):
    end = state.pop.queues[PLACE].cursor
    return pop(state, OrderedTake(*PLACE, 0, 0, end, end, INVISIBLE_MS, again=offsets, **fields), time_ms)


def reloaded(state):
    found = BrokerState()
    found.snapshot_load(b"".join(state.snapshot_save()))
    return found


def test_only_the_first_message_of_each_message_group_is_taken(state):
    taken = take(state, A, A, B, A, B)
    assert (taken.offsets, taken.attempts) == ([0, 2], [1, 1])
    assert again(state, 1, 3, 4).offsets == [], "whatever a leader proposes"
    assert take(state, B, 3, begin=5).offsets == [6]
    assert (state.pop.count, state.pop.ordered_count) == (7, 7)
    assert state.offset(*PLACE).offset == 0


def test_acknowledgement_lets_the_next_message_of_its_group_follow_and_no_other_one(state):
    serial = take(state, A, A, B, B).serial
    assert pop(state, Done(*PLACE, 0, serial, (0,))) == (AckOutcome.ACKNOWLEDGED,)
    assert state.offset(*PLACE).offset == 1, "what waits is not done"
    later = again(state, 1, 3)
    assert (later.offsets, later.attempts) == ([1], [1])
    assert later.serial > serial


def test_message_whose_lease_has_ended_comes_before_the_next_one(state):
    take(state, A, A)
    assert again(state, 0, time_ms=T0 + INVISIBLE_MS - 1).offsets == []
    second = again(state, 0, 1, time_ms=T0 + INVISIBLE_MS)
    assert (second.offsets, second.attempts) == ([0], [2])


def test_repeated_attempt_gets_the_same_lease_for_a_new_time_and_nothing_else(state):
    first = take(state, A, B, A, attempt=77)
    second = take(state, 3, begin=3, attempt=77, time_ms=T0 + 5_000)
    assert second == first
    assert state.pop.queues[PLACE].cursor == 3, "the new message is not taken"
    assert again(state, 0, 1, time_ms=T0 + 5_000 + INVISIBLE_MS - 1, attempt=78).offsets == []
    assert again(state, 0, 1, time_ms=T0 + 5_000 + INVISIBLE_MS, attempt=77).attempts == [2, 2], "its lease has ended"


def test_repeated_attempt_leaves_out_what_is_done_or_has_another_time(state):
    first = take(state, A, B, 3, attempt=77)
    pop(state, Done(*PLACE, 0, first.serial, (0,)))
    pop(state, Extend(*PLACE, 0, first.serial, 2, 60_000))
    assert again(state, attempt=77).offsets == [1]
    pop(state, Done(*PLACE, 0, first.serial, (1,)))
    assert again(state, attempt=77).offsets == []


def test_snapshot_has_what_waits_and_the_leases_of_attempts(state):
    first = take(state, A, A, B, A, attempt=77)
    pop(state, Done(*PLACE, 0, first.serial, (0,)))
    loaded = reloaded(state)
    assert loaded.pop.ordered_count == 3
    assert again(loaded, attempt=77).offsets == [2], "the attempt's lease"
    assert again(loaded, 1, 3).offsets == [1]
    pop(state, Done(*PLACE, 0, first.serial, (2,)))
    assert [again(each, 1).offsets for each in (reloaded(state), state)] == [[1], [1]]


def test_number_of_messages_of_all_queues_is_bounded(state, monkeypatch):
    monkeypatch.setattr(ordered_applying, "ORDERED_MAX", 3)
    taken = take(state, A, A, B, 3, 4)
    assert (taken.offsets, taken.is_full) == ([0, 2], True)
    assert state.pop.queues[PLACE].cursor == 3, "the others are taken later"
    pop(state, Done(*PLACE, 0, taken.serial, (0,)))
    assert take(state, 3, 4, begin=3).offsets == [3]


def test_queue_is_taken_in_one_way_at_a_time(state):
    unordered = pop(state, Take(*PLACE, 0, 0, 0, 2, INVISIBLE_MS, fresh=(0, 1)))
    assert not take(state, A, begin=2).offsets
    pop(state, Done(*PLACE, 0, unordered.serial, (0, 1)))
    assert take(state, A, begin=2).offsets == [2]
    assert pop(state, Take(*PLACE, 0, 0, 3, 4, INVISIBLE_MS, fresh=(3,))).offsets == ()


def test_deleted_topic_and_group_leave_nothing(state):
    take(state, A, A)
    state.apply_command(DeleteTopic("t"))
    assert (state.pop.count, state.pop.ordered_count) == (0, 0)
    assert take(state, A).offsets == ()
    state.apply_command(SetTopic(TopicConfig("t")))
    take(state, A, A)
    state.apply_command(DeleteGroup("g"))
    assert (state.pop.count, state.pop.ordered_count) == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"again": (3, 2)},
        {"again": (1,), "passed": (1,)},
        {"fresh": (Fresh(4, A, is_wanted=True),)},
        {"fresh": (Fresh(12, A, is_wanted=True),)},
        {"fresh": (Fresh(5, 1 << 63, is_wanted=True),)},
        {"attempt": 1 << 63},
        {"invisible_ms": -1},
        {"end": 4},
    ],
)
def test_invalid_take_is_refused(state, fields):
    op = OrderedTake(*PLACE, 0, 0, 5, 10, INVISIBLE_MS)._replace(**fields)
    with pytest.raises(IllegalMessage):
        encode_command(PopOps(T0, (op,)))
    assert state.apply_command(PopOps(T0, (op,))).verdict is CommandVerdict.ILLEGAL_REQUEST


def test_damaged_take_is_refused():
    op = OrderedTake(*PLACE, 0, 0, 5, 10, INVISIBLE_MS, 1, (1,), (2,), (Fresh(6, A, is_wanted=True),))
    body = encode_command(PopOps(T0, (op,)))
    for size in range(2, len(body)):
        with pytest.raises(Unreadable):
            decode_command(body[:size])


# ------------------------------------------------------------------------------------------------------------- owners


def own(state, client_id, *numbers, is_owner=True, topic="t", group="g"):
    command = OwnQueues(group, client_id, tuple(QueueKey(topic, number) for number in numbers), is_owner)
    assert decode_command(encode_command(command)) == command
    return state.apply_command(command).verdict


def owners(state, *numbers):
    return [state.owners.owner("g", QueueKey("t", number)) for number in numbers]


def test_queue_has_the_owner_that_was_noted_last_until_that_one_releases_it(state):
    assert own(state, "a", 0, 1) is CommandVerdict.CHANGED
    assert own(state, "a", 0, 1) is CommandVerdict.UNCHANGED
    assert own(state, "b", 1) is CommandVerdict.CHANGED
    assert own(state, "a", 0, 1, is_owner=False) is CommandVerdict.CHANGED
    assert (owners(state, 0, 1, 2), len(state.owners)) == (["", "b", ""], 1)
    assert own(state, "a", 1, is_owner=False) is CommandVerdict.UNCHANGED
    assert own(state, "a", 0, group="other") is CommandVerdict.UNKNOWN_GROUP


def test_snapshot_has_the_owners_and_is_not_affected_by_later_ones(state):
    own(state, "a", 0, 1)
    chunks = state.snapshot_save()
    own(state, "b", 0, 1, 2)
    loaded = BrokerState()
    loaded.snapshot_load(b"".join(chunks))
    assert (owners(loaded, 0, 1, 2), len(loaded.owners)) == (["a", "a", ""], 2)
    assert (owners(state, 0, 1, 2), len(state.owners)) == (["b", "b", "b"], 3)


def test_number_of_owners_is_bounded_and_those_of_deleted_topics_make_space(state, monkeypatch):
    monkeypatch.setattr(owners_module, "OWNERS_MAX", 2)
    state.apply_command(SetTopic(TopicConfig("old")))
    own(state, "a", 0, 1, topic="old")
    assert own(state, "a", 0) is CommandVerdict.TOO_MUCH_STATE
    state.apply_command(DeleteTopic("old"))
    assert own(state, "a", 0, 1) is CommandVerdict.CHANGED
    assert len(state.owners) == 2
    state.apply_command(DeleteGroup("g"))
    assert len(state.owners) == 0


@pytest.mark.parametrize(
    ("client_id", "queue"),
    [("", QueueKey("t", 0)), ("c" * 256, QueueKey("t", 0)), ("c", QueueKey("t", -1)), ("c", QueueKey("", 0))],
)
def test_invalid_owner_is_refused(state, client_id, queue):
    command = OwnQueues("g", client_id, (queue,))
    assert state.apply_command(command).verdict is CommandVerdict.ILLEGAL_REQUEST
    assert state.apply_command(OwnQueues("g", "c", ())).verdict is CommandVerdict.ILLEGAL_REQUEST
