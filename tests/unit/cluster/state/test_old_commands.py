"""Parts of an old store: in pieces they are the same state; repeated, or beside newer facts, they change nothing."""

from random import Random

import pytest

from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetFeatureLevel, SetGroup, SetTopic, decode_command, encode_command
from cluster.state.compact_bytes import Unreadable
from cluster.state.effects import Ending, Renewed, Returned, encode_effect
from cluster.state.features import FEATURE_LEVEL
from cluster.state.old.commands import PIECE_SIZE_BYTES_MAX, ImportPart, imports_of
from cluster.state.pop import state as pop_state
from cluster.state.pop.ops import PopOps, Take
from cluster.state.waiting_commands import CountChecks
from store.errors import IllegalMessage
from tests.unit.cluster.state.test_transactions import apply, final, half, op

QUEUES = 40


def new_state():
    state = BrokerState()
    commands = [SetFeatureLevel(FEATURE_LEVEL), SetTopic(TopicConfig("T", 64, 64))]
    commands += [SetGroup(GroupConfig(f"g{number}")) for number in range(QUEUES)]
    for command in commands:
        assert state.apply_command(command).is_done
    return state


def renew(state, number, queue_offset):
    return apply(state, Renewed(number), queue_offset=queue_offset, physical_offset=10_000 + number)


def filled(seed):
    """Return a state with transactions in all conditions, returned messages, and messages in flight."""
    random, state = Random(seed), new_state()
    for number in range(3_000):
        half(state, number)
        if random.random() < 0.4:
            final(state, number)
        elif random.random() < 0.2:
            op(state, (number, Ending.ROLLED_BACK))
        elif random.random() < 0.1:
            renew(state, number, 5_000 + number)
            state.apply_command(CountChecks(7, ((number, 1 + number % 5),)))
    for number in range(5_000):
        state.apply_effect(encode_effect(Returned(number.to_bytes(16, "big"), is_dead=number % 3 == 0)), b"")
    for number in range(QUEUES):
        fresh = tuple(range(random.randrange(1, 300)))
        state.apply_command(
            PopOps(1_000 + number, (Take(f"g{number}", "T", number, 0, 0, 0, 300, 100, (), (), fresh),))
        )
    return state


def parts_of(state):
    return [command.content for command in imports_of(state.movable_parts)]


@pytest.mark.parametrize("seed", range(3))
def test_pieces_of_the_parts_of_a_standalone_broker_are_its_parts(seed, monkeypatch):
    monkeypatch.setattr(pop_state, "_PIECE_MESSAGES", 500)
    old, state = filled(seed), new_state()
    commands = [decode_command(encode_command(command)) for command in imports_of(old.movable_parts)]
    assert len(commands) > 10
    assert max(len(command.content) for command in commands) < PIECE_SIZE_BYTES_MAX / 4

    assert all(state.apply_command(command).is_done for command in commands)

    assert parts_of(state) == parts_of(old)
    table, other = state.transactions, old.transactions
    assert (table.open_count, dict(table.without_op)) == (other.open_count, dict(other.without_op))
    assert [table.renewed(number) for number in range(3_000)] == [other.renewed(number) for number in range(3_000)]
    assert state.pop.count == old.pop.count > 500
    before = b"".join(state.snapshot_save())
    for command in commands:
        state.apply_command(command)
    assert b"".join(state.snapshot_save()) == before


def test_what_the_group_has_decided_since_stays():
    old, state = new_state(), new_state()
    for number in range(4):
        half(old, number)
    final(old, 3)
    for number in range(3):
        half(state, number)
    final(state, 0)
    op(state, (0, Ending.COMMITTED))
    state.apply_command(CountChecks(5, ((1, 4),)))

    for command in imports_of(old.movable_parts):
        state.apply_command(command)

    table = state.transactions
    assert [number for number, _ in table.open_from(0, 10)] == [1, 2]
    assert (table.ended(0).ending, table.ended(3).ending) == (Ending.COMMITTED, Ending.COMMITTED)
    assert table.find(1).checks == 4
    assert dict(table.without_op) == {3: Ending.COMMITTED}


def test_messages_in_flight_of_the_group_win():
    old, state = new_state(), new_state()
    old.apply_command(PopOps(900, (Take("g1", "T", 1, 0, 0, 0, 10, 100, (), (), tuple(range(10))),)))
    state.apply_command(PopOps(500, (Take("g1", "T", 1, 0, 0, 0, 3, 100, (), (), (0, 1, 2)),)))

    for command in imports_of(old.movable_parts):
        state.apply_command(command)

    assert state.pop.count == 3
    # Log time never decreases.
    assert state.pop.time_ms == 900


@pytest.mark.parametrize(
    "command", [ImportPart(1, b"\0"), ImportPart(99, b""), ImportPart(3, b"\xff"), ImportPart(2, b"\1")]
)
def test_part_that_is_not_known_or_not_readable_stops_the_node(command):
    with pytest.raises(Unreadable):
        new_state().apply_command(command)


def test_piece_that_is_too_large_is_refused():
    with pytest.raises(IllegalMessage, match="bytes of a part"):
        encode_command(ImportPart(2, bytes(PIECE_SIZE_BYTES_MAX + 1)))


def test_a_half_message_is_put_again_only_while_its_transaction_is_open():
    state = new_state()
    half(state, 1)
    assert renew(state, 1, 7).is_done
    assert renew(state, 1, 9).is_done
    place = state.transactions.renewed(1)
    assert (place.queue_offset, place.physical_offset, place.times) == (9, 10_001, 2)
    # It is known by its first record.
    assert state.transactions.find(1).physical_offset == 1_000
    final(state, 1)
    assert state.transactions.renewed(1) is None
    assert state.unfit_effects_count == 0
    renew(state, 1, 11)
    assert state.unfit_effects_count == 1
    assert state.transactions.renewed(1) is None
