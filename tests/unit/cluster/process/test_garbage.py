"""Searches for garbage stop the event loop: how much one of them may look at."""

import gc
from contextlib import contextmanager

from cluster.process.serving import calm_garbage_collector

# A search through 25,000 objects takes some 10 ms, on a busy machine 25 ms; a turn may take 50 ms.
OBJECTS_MAX = 25_000


@contextmanager
def as_in_a_serving_process():
    thresholds = gc.get_threshold()
    calm_garbage_collector()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def test_search_for_garbage_looks_at_few_objects_while_many_stay():
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
