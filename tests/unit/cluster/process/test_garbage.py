"""Garbage collections block the event loop: a bound on the objects that one examines."""

import gc
import time
from contextlib import contextmanager

from cluster.process.serving import tune_garbage_collector
from cluster.protocol.topic_config import TopicConfig
from cluster.state.broker_state import TOPICS_MAX, BrokerState
from cluster.state.commands import SetTopic
from tests.support.network.hostile_requests import TURN_S_MAX, slowness

# A search through 25,000 objects takes some 10 ms, on a busy machine 25 ms; an iteration of the loop may take 50 ms.
OBJECTS_MAX = 25_000


@contextmanager
def as_in_a_serving_process():
    thresholds = gc.get_threshold()
    tune_garbage_collector()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def test_garbage_collection_examines_few_objects_while_many_live():
    looked_at = []

    def note(phase, info):
        if phase == "start":
            generations = range(info["generation"] + 1)
            looked_at.append(sum(len(gc.get_objects(generation)) for generation in generations))

    with as_in_a_serving_process():
        gc.callbacks.append(note)
        try:
            # As many as 2,048 calls make that have sent only their headers, and more.
            kept = [[number] for number in range(150_000)]
        finally:
            gc.callbacks.remove(note)

    assert len(kept) == 150_000
    assert looked_at
    assert max(looked_at) < OBJECTS_MAX, max(looked_at)


def test_full_collection_with_the_maximum_of_topics_blocks_the_loop_briefly():
    """In CPU time, so that other processes do not count; all topics were created after the start."""
    state, seconds = BrokerState(), []
    with as_in_a_serving_process():
        for number in range(TOPICS_MAX):
            assert state.apply_command(SetTopic(TopicConfig(f"topic{number}"))).is_done
        for _ in range(5):
            begin_s = time.thread_time()
            gc.collect()
            seconds.append(time.thread_time() - begin_s)

    assert len(state.topics) == TOPICS_MAX
    assert min(seconds) < TURN_S_MAX * slowness(), seconds
