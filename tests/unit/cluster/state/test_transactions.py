"""The table of transactions: a model of halves, ends, ops, counts and snapshots; and the texts of their effects."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.state import transactions
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetFeatureLevel, decode_command, encode_command
from cluster.state.compact_bytes import Unreadable
from cluster.state.effects import Ended, Ending, GivenUp, Prepared, decode_effect, encode_effect
from cluster.state.features import WITH_TRANSACTIONS
from cluster.state.transactions import TransactionTable
from cluster.state.waiting_commands import CountChecks
from commitlog.record.encoder import RecordEncoder
from store.errors import IllegalMessage
from store.model.message import LOOPBACK, Message
from store.model.sys_flag import TRANSACTION_COMMIT_TYPE
from tests.support.effects import with_effect

C, R, G = Ending.COMMITTED, Ending.ROLLED_BACK, Ending.GIVEN_UP
HALVES = st.integers(0, 12)
EVENT = st.one_of(
    st.tuples(st.just("half"), st.just(0)),
    st.tuples(st.sampled_from(["final", "give up"]), HALVES),
    st.tuples(st.just("op"), st.lists(st.tuples(HALVES, st.sampled_from([*Ending])), min_size=1, max_size=4)),
    st.tuples(st.just("check"), st.tuples(HALVES, st.integers(1, 5))),
    st.tuples(st.sampled_from(["snapshot", "freeze"]), st.just(0)),
)


def record(effect, *, queue_offset=0, physical_offset=0, sys_flag=0):
    """Return the bytes of a record with an effect."""
    message = with_effect(Message("T", b"x", sys_flag=sys_flag), b"", encode_effect(effect))
    prepared = RecordEncoder(LOOPBACK).prepare([message], may_carry_effects=True)
    return bytes(prepared.encode(physical_offset, [queue_offset], 1_000))


def apply(state, effect, **fields):
    return state.apply_effect(encode_effect(effect), record(effect, **fields))


def new_state():
    state = BrokerState()
    state.apply_command(SetFeatureLevel(WITH_TRANSACTIONS))
    return state


def half(state, number):
    return apply(state, Prepared(number % 3_600, 7, 8), queue_offset=number, physical_offset=1_000 * number)


def final(state, number):
    return apply(state, Ended(((number, C),)), sys_flag=TRANSACTION_COMMIT_TYPE)


def op(state, *ends):
    return apply(state, Ended(tuple(sorted(ends))))


def content(state):
    return b"".join(state.snapshot_save())


def copied(state):
    found = BrokerState()
    found.snapshot_load(content(state))
    return found


class Model:
    """What the table must be, by a dictionary."""

    def __init__(self):
        self.open, self.ended, self.without_op, self.next, self.unfit = {}, {}, {}, 0, 0

    def close(self, number, ending):
        if number not in self.open:
            return False
        del self.open[number]
        self.ended[number] = ending
        return True

    def note(self, number, ending):
        if ending is R and self.close(number, R):
            return True
        if self.without_op.get(number) is ending:
            del self.without_op[number]
        return self.ended.get(number) is ending

    def apply(self, kind, what):
        if kind == "half":
            self.open[self.next] = 0
            self.next += 1
        elif kind in ("final", "give up"):
            ending = C if kind == "final" else G
            if self.close(what, ending):
                self.without_op[what] = ending
            else:
                self.unfit += 1
        elif kind == "op":
            fits = [self.note(number, ending) for number, ending in sorted(dict(what).items())]
            self.unfit += not all(fits)
        elif kind == "check" and what[0] in self.open:
            self.open[what[0]] = max(what[1], self.open[what[0]])


@settings(max_examples=300)
@given(st.lists(EVENT, max_size=60))
def test_each_transaction_ends_once_and_the_table_equals_its_replay(events) -> None:
    """T1 to T5: ends are final, counts never fall, a snapshot at any place has the same future as the history."""
    state, model, frozen = new_state(), Model(), []
    replayed = new_state()
    for kind, what in events:
        model.apply(kind, what)
        if kind == "snapshot":
            unfit = state.unfit_effects_count
            state = copied(state)
            state.unfit_effects_count = unfit
            continue
        if kind == "freeze":
            frozen.append((state.snapshot_save(), content(state)))
            continue
        for each in (state, replayed):
            if kind == "half":
                half(each, model.next - 1)
            elif kind == "final":
                final(each, what)
            elif kind == "give up":
                apply(each, GivenUp(what))
            elif kind == "op":
                op(each, *dict(what).items())
            else:
                each.apply_command(CountChecks(5_000, (what,)))
        table = state.transactions
        assert {number: table.find(number).checks for number, _ in table.open_from(0, 100)} == model.open
        assert {number: table.ended(number).ending for number in model.ended} == model.ended
        assert dict(table.without_op) == model.without_op
        assert table.open_count == len(model.open)
        assert state.unfit_effects_count == replayed.unfit_effects_count == model.unfit
    assert content(state) == content(replayed)
    for chunks, expected in frozen:
        assert b"".join(chunks) == expected


def test_half_message_is_found_with_the_fields_of_its_record() -> None:
    state = new_state()
    half(state, 3)
    row = state.transactions.find(3)
    assert (row.physical_offset, row.store_timestamp, row.immunity_s, row.group_hash, row.key_hash) == (
        3_000,
        1_000,
        3,
        7,
        8,
    )
    assert row.size == len(record(Prepared(3, 7, 8)))
    assert (row.checks, row.checked_ms) == (0, 0)


def test_op_message_alone_commits_nothing() -> None:
    state = new_state()
    half(state, 0)
    op(state, (0, C))
    assert (state.transactions.open_count, state.unfit_effects_count) == (1, 1)


def test_second_half_message_at_the_same_place_changes_nothing() -> None:
    state = new_state()
    half(state, 0)
    half(state, 0)
    final(state, 0)
    half(state, 0)
    assert (state.transactions.open_count, state.unfit_effects_count) == (0, 2)


def test_last_two_hundred_thousand_ends_are_kept_and_older_ones_forgotten(monkeypatch) -> None:
    assert (transactions._BLOCKS_MAX - 1) * transactions._BLOCK_ENDS == 200_000
    monkeypatch.setattr(transactions, "_BLOCK_ENDS", 5)
    state = new_state()
    for number in range(250):
        half(state, number)
        op(state, (number, R))
        if number % 7 == 0:
            state = copied(state)
    known = [number for number in range(250) if state.transactions.ended(number) is not None]
    assert known == list(range(45, 250))
    assert state.unfit_effects_count == 0


def test_frozen_table_is_not_affected_by_later_changes() -> None:
    state = new_state()
    for number in range(3_000):
        half(state, number)
    chunks, expected = state.snapshot_save(), content(state)
    for number in range(0, 3_000, 2):
        op(state, (number, R))
    state.apply_command(CountChecks(1, ((1, 1), (2_001, 3))))
    assert b"".join(chunks) == expected
    assert content(state) != expected
    assert content(copied(state)) == content(state)


def test_open_transactions_are_listed_from_an_offset_on() -> None:
    state = new_state()
    for number in (0, 1, 5, 1_023, 1_024, 5_000):
        half(state, number)
    assert [number for number, _ in state.transactions.open_from(1, 4)] == [1, 5, 1_023, 1_024]
    assert [number for number, _ in state.transactions.open_from(1_024, 4)] == [1_024, 5_000]
    assert state.transactions.open_from(5_001, 4) == []


def test_blocks_say_that_they_changed_and_vanish_when_they_are_empty() -> None:
    state = new_state()
    half(state, 0)
    (before,) = state.transactions.block_changes()
    state.apply_command(CountChecks(1, ((0, 1),)))
    (after,) = state.transactions.block_changes()
    assert (before[0], after[0]) == (0, 0)
    assert before[1] != after[1]
    op(state, (0, R))
    assert list(state.transactions.block_changes()) == []
    assert list(state.transactions.open_in(0)) == []
    half(state, 1)
    (again,) = state.transactions.block_changes()
    assert again[1] > after[1]


def test_open_transaction_takes_less_than_two_hundred_bytes() -> None:
    table, count = TransactionTable(), 20_000
    for number in range(count):
        table.apply(Prepared(0, 7, 8), record(Prepared(0, 7, 8), queue_offset=number, physical_offset=number << 30))
    size = 0
    for block in table._blocks.values():
        size += sys.getsizeof(block) + sys.getsizeof(block.rows)
        size += sum(sys.getsizeof(key) + sys.getsizeof(row) for key, row in block.rows.items())
    assert size / count < 200


@pytest.mark.parametrize(
    "effect",
    [
        Prepared(0, 0, 0),
        Prepared(3_600, (1 << 32) - 1, 9),
        Ended(((0, C),)),
        Ended(((0, C), (7, R), ((1 << 63) - 1, G))),
        GivenUp(12),
    ],
)
def test_effect_is_its_text(effect) -> None:
    assert decode_effect(encode_effect(effect)) == effect


@pytest.mark.parametrize(
    "text",
    [
        *("h:1:2", "h:3601:1:1", "h:1:4294967296:1", "h:1:1:01", "h:1:1:1:1", "h:a:1:1", "h:"),
        *("e:", "e:1", "e:1:x", "e:1:c,", "e:2:c,1:c", "e:1:c,1:c", "e:01:c", "e:-1:c", "e:1:c:r"),
        *("g:", "g:1:1", "g:9223372036854775808", "g:\u0661"),
        "e:" + ",".join(f"{number}:c" for number in range(257)),
    ],
)
def test_text_of_no_effect_stops_the_node(text) -> None:
    with pytest.raises(Unreadable, match="effect"):
        decode_effect(text)


@pytest.mark.parametrize("command", [CountChecks(0, ((0, 1),)), CountChecks(9 << 40, ((3, 1), (9, 255)))])
def test_counts_are_encoded_and_decoded(command) -> None:
    assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize(
    "command",
    [
        CountChecks(0, ()),
        CountChecks(-1, ((0, 1),)),
        CountChecks(0, ((0, 0),)),
        CountChecks(0, ((0, 256),)),
        CountChecks(0, ((-1, 1),)),
        CountChecks(0, ((1, 1), (0, 1))),
        CountChecks(0, ((1, 1), (1, 2))),
        CountChecks(0, tuple((number, 1) for number in range(4_097))),
    ],
)
def test_invalid_counts_are_neither_encoded_nor_applied(command) -> None:
    state = new_state()
    half(state, 0)
    before = content(state)
    with pytest.raises(IllegalMessage):
        encode_command(command)
    state.apply_command(command)
    assert content(state) == before


@pytest.mark.parametrize("cut", [1, 3])
def test_damaged_part_of_a_snapshot_is_refused(cut) -> None:
    state = new_state()
    half(state, 0)
    half(state, 1)
    final(state, 1)
    data = content(state)
    with pytest.raises(Unreadable):
        BrokerState().snapshot_load(data[:-cut])
    with pytest.raises(Unreadable):
        BrokerState().snapshot_load(data[:-1] + b"\x04")
