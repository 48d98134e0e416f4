"""Timelines: nothing is lost when steps widen, and merged ones equal a single one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.report.timeline import STEPS_MAX, Timeline

MESSAGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 10**9) | st.integers(0, 10**13), st.integers(1, 500)), max_size=20
)


def filled(messages):
    timeline = Timeline()
    if messages:
        topics, times, sizes = (np.array(column, np.int64) for column in zip(*messages, strict=True))
        timeline.add(topics, 3, times, sizes)
    return timeline


@given(st.lists(MESSAGES, min_size=1, max_size=4))
def test_merged_timelines_equal_a_single_one(parts):
    merged, messages = Timeline(), [message for part in parts for message in part]
    for part in parts:
        merged.merge(filled(part), np.arange(3), 3)
    whole = filled(messages)

    assert merged.steps <= STEPS_MAX
    if messages:
        assert merged.width_ms >= whole.width_ms
        for topic in range(3):
            mine = [size for number, _, size in messages if number == topic]
            assert merged.values[topic].sum(axis=0).tolist() == [len(mine), sum(mine)]


@given(MESSAGES.filter(bool))
def test_each_message_is_counted_in_its_step(messages):
    timeline = filled(messages)
    for topic, time, _ in messages:
        step = time // timeline.width_ms - timeline.first
        inside = [
            message
            for message in messages
            if message[0] == topic and message[1] // timeline.width_ms == time // timeline.width_ms
        ]
        assert timeline.values[topic, step].tolist() == [len(inside), sum(size for *_, size in inside)]


@given(MESSAGES)
def test_a_timeline_survives_json(messages):
    timeline = filled(messages)
    again = Timeline.from_dict(timeline.to_dict(), len(timeline.values))

    assert (again.width_ms, again.first) == (timeline.width_ms, timeline.first)
    assert again.values.tolist() == timeline.values.tolist()
