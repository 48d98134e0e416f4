"""Offsets of groups: cheap removal of many offsets, and unchanged frozen copies."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.broker_state import SWEPT_PER_COMMAND, BrokerState
from cluster.state.commands import (
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteTopic,
    QueueOffset,
    SetGroup,
    SetTopic,
)
from cluster.state.offsets import CommittedOffsets, FrozenOffsets
from cluster.state.verdicts import CommandVerdict

MANY = 100_000
NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.builds(QueueOffset, NAMES, st.integers(0, 2), st.integers(0, 9))),
        st.tuples(st.just("topic"), NAMES),
        st.tuples(st.just("group"), NAMES),
        st.tuples(st.just("sweep"), st.integers(0, 4)),
        st.tuples(st.just("freeze")),
    ),
    max_size=60,
)


def rows_of(frozen: FrozenOffsets) -> list[tuple[str, QueueOffset]]:
    found = [(group, topic, rows) for group, topics in frozen.groups() for topic, rows in topics]
    assert [row[:2] for row in found] == sorted(row[:2] for row in found)
    assert all(row.topic == topic for _, topic, rows in found for row in rows.values())
    return sorted((group, row) for group, _, rows in found for row in rows.values())


@given(STEPS)
@settings(max_examples=300)
def test_offsets_behave_like_a_dictionary_and_frozen_copies_stay_unchanged(steps: list[tuple]) -> None:
    kept, model = CommittedOffsets(), {}
    frozen: list[tuple[FrozenOffsets, list[tuple[str, QueueOffset]]]] = []
    for step in steps:
        match step:
            case ("put", group, row):
                kept.put(group, row)
                model[group, row.topic, row.queue_id] = row
            case ("topic", name):
                kept.remove_topic(name)
                model = {key: row for key, row in model.items() if key[1] != name}
            case ("group", name):
                kept.remove_group(name)
                model = {key: row for key, row in model.items() if key[0] != name}
            case ("sweep", work):
                kept.sweep(work)
            case ("freeze",):
                frozen.append((kept.frozen(), sorted((key[0], row) for key, row in model.items())))
        assert kept.count == len(model)
        for group in "abc":
            assert sorted(kept.of_group(group)) == sorted(row for key, row in model.items() if key[0] == group)
            for topic in "abc":
                assert [kept.get(group, topic, queue) for queue in range(3)] == [
                    model.get((group, topic, queue)) for queue in range(3)
                ]
    for found, expected in frozen:
        assert rows_of(found) == expected
    kept.sweep(10_000)
    assert rows_of(kept.frozen()) == sorted((key[0], row) for key, row in model.items())
    # Nothing that was removed is held any more, by whatever name.
    held = [row for group in kept._groups.values() for part in group.parts.values() for row in part.rows]
    assert len(held) == len(model)
    assert not kept._removed_parts
    assert not kept._removed_topics


def filled(groups: int, topics: int) -> BrokerState:
    """Return a state with `MANY` offsets, evenly distributed over all groups and topics."""
    state = BrokerState()
    for topic in range(topics):
        assert state.apply_command(SetTopic(TopicConfig(f"t{topic}"))).is_done
    queues = MANY // groups // topics
    for group in range(groups):
        assert state.apply_command(SetGroup(GroupConfig(f"g{group}"))).is_done
        for topic in range(topics):
            rows = tuple(QueueOffset(f"t{topic}", queue, 1_000 + queue) for queue in range(queues))
            for begin in range(0, queues, 1_000):
                assert state.apply_command(CommitOffsets(f"g{group}", rows[begin : begin + 1_000])).is_done
    return state


def lines_run(state: BrokerState, command: Command) -> int:
    """Apply a command; return the number of executed lines of Python."""
    counts: Counter[str] = Counter()

    def trace(_frame, event, _value):
        counts[event] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        applied = state.apply_command(command)
    finally:
        sys.settrace(before)
    assert applied.verdict is CommandVerdict.CHANGED
    return counts["line"]


@pytest.mark.parametrize(("groups", "topics"), [(10, 10), (10_000, 1), (1, 10_000)])
def test_deleting_a_topic_costs_the_same_for_any_number_of_offsets_and_a_group_a_step_for_each_topic(
    groups: int, topics: int
) -> None:
    state = filled(groups, topics)

    assert lines_run(state, DeleteTopic("t0")) < 250
    assert lines_run(state, DeleteGroup("g0")) < 250 + 10 * topics

    assert not list(state.offsets("g0"))
    assert all(row.topic != "t0" for group in range(groups) for row in state.offsets(f"g{group}"))


@pytest.mark.parametrize("last", [DeleteTopic("t0"), DeleteGroup("g0")], ids=["topic", "group"])
def test_memory_of_many_removed_offsets_is_freed_in_small_portions(last: Command) -> None:
    groups, topics = (10_000, 1) if isinstance(last, DeleteTopic) else (1, 10_000)
    state = filled(groups, topics)
    # What a snapshot shared for a while is freed in portions, too.
    b"".join(state.snapshot_save())
    gc.collect()
    gc.disable()
    try:
        blocks = [sys.getallocatedblocks()]
        state.apply_command(last)
        blocks.append(sys.getallocatedblocks())
        for _ in range(2 * MANY // SWEPT_PER_COMMAND):
            state.apply_command(SetGroup(GroupConfig("other")))
            blocks.append(sys.getallocatedblocks())
    finally:
        gc.enable()

    freed = [before - after for before, after in pairwise(blocks)]
    assert max(freed) < 20 * SWEPT_PER_COMMAND + topics
    assert blocks[0] - blocks[-1] > MANY
