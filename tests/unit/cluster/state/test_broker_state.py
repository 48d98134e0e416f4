"""Topics, groups and offsets: the effect of each command, and equal refusals on every replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state import broker_state
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
    encode_command,
)
from cluster.state.compact_bytes import Reader, Unreadable, Writer
from cluster.state.features import FEATURE_LEVEL
from cluster.state.verdicts import Applied, CommandVerdict, CommitOutcome
from cluster.state.waiting_commands import SetDelayOffsets
from cluster.v1 import broker_pb2
from commitlog.record.encoder import RecordEncoder
from commitlog.record.system_records import STATE_CHANNEL, MessageEntryCodec, system_body
from dledger.entries.format.entry import Entry
from store.errors import IllegalMessage
from store.model.message import LOOPBACK, Message
from tests.support.effects import with_effect

if TYPE_CHECKING:
    from dledger.node.state_machine import StateMachine

ORDERS = TopicConfig("orders")
BILLING = GroupConfig("billing")


def state_with(*commands) -> BrokerState:
    state = BrokerState()
    for command in (SetTopic(ORDERS), SetGroup(BILLING), *commands):
        assert state.apply_command(command).is_done
    return state


def commit(offset: int, reset_count: int = 0, queue_id: int = 3, topic: str = "orders") -> CommitOffsets:
    return CommitOffsets("billing", (QueueOffset(topic, queue_id, offset, reset_count),))


def reset(offset: int, reset_count: int = 0) -> ResetOffsets:
    return ResetOffsets("billing", (QueueOffset("orders", 3, offset, reset_count),))


def kept(state: BrokerState) -> tuple[int, int] | None:
    found = state.offset("billing", "orders", 3)
    return None if found is None else (found.offset, found.reset_count)


def test_entries_are_applied_in_order_each_with_its_result() -> None:
    state = BrokerState(command_of=lambda body: body[1:])
    commands = [SetTopic(ORDERS), SetTopic(ORDERS), DeleteGroup("billing"), SetGroup(BILLING), commit(7)]
    entries = [Entry(index, 1, 0, 1, 4, 0, 0, b"!" + encode_command(command)) for index, command in enumerate(commands)]

    results = state.apply(entries)

    verdicts = [result.verdict.value for result in results]
    assert verdicts == ["CHANGED", "UNCHANGED", "UNKNOWN_GROUP", "CHANGED", "CHANGED"]
    assert state.topics == {"orders": ORDERS}
    assert state.groups == {"billing": BILLING}
    assert kept(state) == (7, 0)


def test_commands_are_found_in_the_records_that_a_log_of_messages_holds() -> None:
    machine: StateMachine = BrokerState(command_of=system_body)
    codec = MessageEntryCodec(clock=lambda: 1_700_000_000_000)
    bodies = [codec.record(encode_command(command)) for command in (SetTopic(ORDERS), SetGroup(BILLING))]

    results = machine.apply([Entry(at, 1, 0, 1, STATE_CHANNEL, 0, 0, body) for at, body in enumerate(bodies)])

    assert [result.verdict for result in results] == [CommandVerdict.CHANGED] * 2
    assert isinstance(machine, BrokerState)
    assert (list(machine.topics), list(machine.groups)) == (["orders"], ["billing"])


def test_a_commit_never_decreases_an_offset() -> None:
    state = state_with(commit(7))

    for late in (commit(7), commit(6), commit(0)):
        result = state.apply_command(late)
        assert result == Applied(CommandVerdict.UNCHANGED, "", (CommitOutcome.NOT_AHEAD,))

    assert kept(state) == (7, 0)
    assert state.apply_command(commit(8)).outcomes == (CommitOutcome.COMMITTED,)


def test_a_reset_sets_any_offset_and_invalidates_earlier_commits() -> None:
    state = state_with(commit(700), reset(100))
    assert kept(state) == (100, 1)

    late = state.apply_command(commit(710))
    assert (late.verdict, late.outcomes) == (CommandVerdict.UNCHANGED, (CommitOutcome.WAS_RESET,))
    assert kept(state) == (100, 1)

    assert state.apply_command(commit(101, reset_count=1)).verdict is CommandVerdict.CHANGED
    assert kept(state) == (101, 1)


def test_a_repeated_reset_resets_once() -> None:
    state = state_with(commit(700), reset(100), commit(150, reset_count=1))

    assert state.apply_command(reset(100)).outcomes == (CommitOutcome.WAS_RESET,)

    assert kept(state) == (150, 1)


def test_the_first_offset_of_a_queue_may_be_zero_and_differs_from_none() -> None:
    state = state_with()
    assert kept(state) is None

    assert state.apply_command(commit(0)).outcomes == (CommitOutcome.COMMITTED,)

    assert kept(state) == (0, 0)


def test_a_commit_for_an_unknown_topic_or_group_stores_nothing() -> None:
    state = state_with()
    both = CommitOffsets("billing", (QueueOffset("orders", 3, 5), QueueOffset("unknown", 0, 5)))

    assert state.apply_command(both).verdict is CommandVerdict.UNKNOWN_TOPIC
    assert state.apply_command(CommitOffsets("nobody", both.offsets[:1])).verdict is CommandVerdict.UNKNOWN_GROUP

    assert kept(state) is None


def test_deleting_a_topic_or_group_deletes_its_offsets() -> None:
    events = SetTopic(TopicConfig("events"))
    state = state_with(events, commit(7), commit(9, topic="events"))

    assert state.apply_command(DeleteTopic("orders")).verdict is CommandVerdict.CHANGED
    assert [each.topic for each in state.offsets("billing")] == ["events"]
    assert state.apply_command(DeleteTopic("orders")).verdict is CommandVerdict.UNKNOWN_TOPIC

    assert state.apply_command(DeleteGroup("billing")).verdict is CommandVerdict.CHANGED
    assert list(state.offsets("billing")) == []
    # Nothing of before comes back with the name.
    assert state.apply_command(SetGroup(BILLING)).verdict is CommandVerdict.CHANGED
    assert state.offset("billing", "events", 3) is None


def test_creating_an_existing_topic_succeeds_only_with_equal_settings() -> None:
    state = state_with()

    assert state.apply_command(SetTopic(ORDERS, is_new=True)).verdict is CommandVerdict.UNCHANGED
    assert (
        state.apply_command(SetTopic(TopicConfig("orders", 4, 4), is_new=True)).verdict is CommandVerdict.TOPIC_EXISTS
    )
    assert state.apply_command(SetGroup(GroupConfig("billing", is_orderly=True), is_new=True)).verdict is (
        CommandVerdict.GROUP_EXISTS
    )
    assert state.apply_command(SetTopic(TopicConfig("orders", 4, 4))).verdict is CommandVerdict.CHANGED
    assert state.topics["orders"].read_queues == 4


def test_topics_version_counts_changes_of_topics_only() -> None:
    state = state_with()
    before = state.topics_version

    for command in (SetTopic(ORDERS), commit(5), SetGroup(GroupConfig("g2")), DeleteTopic("unknown")):
        state.apply_command(command)
    assert state.topics_version == before

    state.apply_command(SetTopic(TopicConfig("orders", 4, 4)))
    state.apply_command(DeleteTopic("orders"))
    assert state.topics_version == before + 2


def test_delay_progress_only_grows() -> None:
    state = state_with(SetDelayOffsets(((3, 42), (4, 7))))

    assert state.apply_command(SetDelayOffsets(((3, 41), (4, 8)))).verdict is CommandVerdict.CHANGED
    assert state.apply_command(SetDelayOffsets(((3, 42), (4, 8)))).verdict is CommandVerdict.UNCHANGED

    assert state.delay_offsets == {3: 42, 4: 8}


def copy_of(index: int, effect: str, *, is_marked: bool = True) -> Entry:
    """Return the entry of a message record with an effect."""
    message = with_effect(Message("orders", b"x"), b"KEYS\x01k\x02", effect)
    body = RecordEncoder(LOOPBACK).prepare([message], may_carry_effects=is_marked).encode_each([0], 1)[0]
    return Entry(index, 1, 0, 1, 0, 0, 0, body)


def test_copies_of_delayed_messages_move_their_level_on() -> None:
    state = BrokerState(command_of=system_body)
    state.apply_command(SetFeatureLevel(1))
    codec = MessageEntryCodec(clock=lambda: 1)
    skipped = Entry(2, 1, 0, 1, STATE_CHANNEL, 0, 0, codec.record(encode_command(SetDelayOffsets(((3, 9),)))))

    results = state.apply([copy_of(0, "d:3:7"), copy_of(1, "d:4:0"), skipped, copy_of(3, "d:3:9")])

    assert [result.verdict for result in results] == [CommandVerdict.CHANGED] * 4
    assert state.delay_offsets == {3: 10, 4: 1}
    assert state.unfit_effects_count == 0


def test_effect_that_does_not_fit_the_state_is_counted_and_changes_nothing() -> None:
    state = state_with(SetFeatureLevel(1), SetDelayOffsets(((3, 8),)))

    result = state.apply([copy_of(0, "d:3:7")])

    assert result == [Applied(CommandVerdict.UNCHANGED)]
    assert (state.delay_offsets, state.unfit_effects_count) == ({3: 8}, 1)


def test_effects_below_their_feature_level_are_those_of_clients_and_ignored() -> None:
    state = state_with()

    assert state.apply([copy_of(0, "d:3:7"), copy_of(1, "anything")]) == [Applied(CommandVerdict.UNCHANGED)] * 2

    assert (state.delay_offsets, state.unfit_effects_count) == ({}, 0)


@pytest.mark.parametrize(
    "effect",
    ["", "d", "d:3", "d:0:1", "d:19:1", "d:3:-1", "d:3:07", "d:3:9223372036854775808", "d:3:1:1", "e:3:1", "d:٣:1"],
)
def test_effect_of_a_newer_version_stops_the_node(effect: str) -> None:
    with pytest.raises(Unreadable, match="effect"):
        state_with(SetFeatureLevel(1)).apply([copy_of(0, effect)])


def test_feature_level_only_grows_and_is_in_snapshots_that_older_programs_refuse() -> None:
    state = state_with(SetFeatureLevel(1))

    assert state.apply_command(SetFeatureLevel(1)).verdict is CommandVerdict.UNCHANGED
    loaded = BrokerState()
    loaded.snapshot_load(b"".join(state.snapshot_save()))

    assert (loaded.feature_level, loaded.topics) == (1, state.topics)
    assert b"".join(loaded.snapshot_save())[:5] == b"DLBS\x04"
    assert b"".join(state_with().snapshot_save())[:5] == b"DLBS\x02"


def test_everything_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_with(commit(1), commit(1, queue_id=4))
    for name, value in (("TOPICS_MAX", 1), ("GROUPS_MAX", 1), ("OFFSETS_MAX", 2)):
        monkeypatch.setattr(broker_state, name, value)

    for command in (SetTopic(TopicConfig("t2")), SetGroup(GroupConfig("g2")), commit(1, queue_id=5)):
        assert state.apply_command(command).verdict is CommandVerdict.TOO_MUCH_STATE
    assert state.apply_command(commit(2)).verdict is CommandVerdict.CHANGED
    state.apply_command(DeleteTopic("orders"))
    state.apply_command(SetTopic(ORDERS))
    assert state.apply_command(commit(1, queue_id=5)).verdict is CommandVerdict.CHANGED


def test_topic_whose_name_is_too_long_for_puts_may_be_read() -> None:
    state = state_with(SetTopic(TopicConfig("t" * 128, permission=4)))

    assert state.topics["t" * 128].is_readable
    refused = state.apply_command(SetTopic(TopicConfig("t" * 128, permission=6)))
    assert refused.verdict is CommandVerdict.ILLEGAL_REQUEST
    assert "only names of at most 127 characters accept messages, found 6, a name of 128" in refused.detail


BAD = [
    SetTopic(TopicConfig("")),
    SetTopic(TopicConfig("a/b")),
    SetTopic(TopicConfig("t" * 128)),
    SetTopic(TopicConfig("t" * 256, permission=4)),
    SetTopic(TopicConfig("t", read_queues=-1)),
    SetTopic(TopicConfig("t", write_queues=65_537)),
    SetTopic(TopicConfig("t", permission=16)),
    SetTopic(TopicConfig("t", attributes=(("b", ""), ("a", "")))),
    SetTopic(TopicConfig("t", attributes=(("a", "x\n"),))),
    SetGroup(GroupConfig("g" * 121)),
    SetGroup(GroupConfig("g", retry_max_times=-2)),
    DeleteTopic("../x"),
    DeleteGroup(""),
    CommitOffsets("billing", ()),
    CommitOffsets("billing", (QueueOffset("orders", 0, 1), QueueOffset("orders", 0, 2))),
    commit(-1),
    commit(1 << 63),
    commit(1, queue_id=-1),
    commit(1, reset_count=-1),
    CommitOffsets("b/c", (QueueOffset("orders", 0, 1),)),
    SetDelayOffsets(((0, 1),)),
    SetDelayOffsets(((19, 1),)),
    SetDelayOffsets(((3, 1), (3, 2))),
    SetFeatureLevel(0),
    SetFeatureLevel(FEATURE_LEVEL + 1),
]


@pytest.mark.parametrize("command", BAD, ids=lambda command: repr(command)[:60])
def test_invalid_commands_are_neither_encoded_nor_applied(command) -> None:
    state = state_with()
    before = b"".join(state.snapshot_save())

    with pytest.raises(IllegalMessage):
        encode_command(command)
    assert state.apply_command(command).verdict is CommandVerdict.ILLEGAL_REQUEST

    assert b"".join(state.snapshot_save()) == before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01",
        b"\x02\x01",
        b"\x01\x11",
        b"\x01\x10\x00",
        b"\x01\x10\x7f",
        b"\x01\x00",
        b"\x01\x02\x05ab",
        b"\x01\x02\x02\xff\xfe",
        b"\x01\x02\x01ab",
    ],
    ids=[
        "nothing",
        "no kind",
        "version",
        "newer kind",
        "feature level 0",
        "newer feature level",
        "kind 0",
        "cut",
        "no UTF-8",
        "more after it",
    ],
)
def test_bytes_without_a_command_of_this_version_stop_the_node(body: bytes) -> None:
    with pytest.raises(Unreadable, match="at byte"):
        BrokerState().apply([Entry(0, 1, 0, 1, 4, 0, 0, body)])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"DLB",
        b"XXXX\x01\x00",
        b"DLBS\x02\x00\x00\x00\x00\x00",
        b"DLBS\x01\x00\x00\x00\x00\x00!",
        b"DLBS\x01\x00\x01",
    ],
    ids=["nothing", "cut magic", "magic", "version", "more after it", "cut"],
)
def test_an_unreadable_snapshot_leaves_the_state_unchanged(content: bytes) -> None:
    state = state_with(commit(7))

    with pytest.raises(Unreadable):
        state.snapshot_load(content)

    assert kept(state) == (7, 0)


def test_numbers_have_one_encoding() -> None:
    for value in (0, 1, 127, 128, 300, (1 << 63) - 1, (1 << 64) - 1):
        writer = Writer()
        writer.number(value)
        reader = Reader(bytes(writer.data), "a number")
        assert reader.number() == value
        reader.end()
    for bad in (b"\x80\x00", b"\x80", b"\xff" * 9 + b"\x02", b"\xff" * 11):
        with pytest.raises(Unreadable):
            Reader(bad, "a number").number()


def test_names_and_numbers_are_those_of_the_wire() -> None:
    assert {f"COMMIT_OUTCOME_{each.name}": each.value for each in CommitOutcome} == dict(
        broker_pb2.CommitOutcome.items()
    )
