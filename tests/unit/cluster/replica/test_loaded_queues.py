"""A loaded snapshot with thousands of queues is applied in steps, without dispatch meanwhile."""

from types import SimpleNamespace

import pytest

from cluster.replica.loaded_queues import LoadedQueues
from store.errors import OutOfDescriptors
from store.model.message import QueueKey
from store.model.queue_ends import QueueEnds
from tests.support.message_stores import numbered, open_small

COUNT = 20


@pytest.fixture
def store(tmp_path):
    opened = open_small(tmp_path)
    for number in range(COUNT):
        opened.messages.put(numbered(number, queues=COUNT))
    opened.flush()
    yield opened
    opened.close()


@pytest.fixture
def following(store):
    """Return (the loaded queues, the machine that loads snapshots, the counter of dropped stranded files)."""
    machine, dropped = SimpleNamespace(loaded=None, is_loading=False), []
    log = SimpleNamespace(drop_stranded_files=lambda: dropped.append(True))
    return LoadedQueues(store.messages.derived, log, machine), machine, dropped


def ends(offset, end):
    return QueueEnds(offset, {QueueKey("TopicTest", number): end for number in range(COUNT)})


def test_dispatch_continues_only_after_all_queues_are_restored_in_steps(store, following):
    loaded_queues, machine, dropped = following
    machine.loaded = ends(0, 7)
    assert loaded_queues.step(0.0)  # none is superseded
    steps = 1
    while not loaded_queues.step(0.0):
        steps += 1
        assert machine.loaded is not None, "it counts only when all of them are as long"
    assert steps == COUNT + 1
    assert machine.loaded is None
    assert set(store.messages.derived.queues.next_offsets().values()) == {7}
    assert dropped == [True]


def test_nothing_is_dispatched_while_the_snapshot_is_being_loaded(store, following):
    loaded_queues, machine, dropped = following
    machine.is_loading = True
    assert not loaded_queues.step(float("inf"))
    assert dropped == []
    machine.loaded, machine.is_loading = ends(0, 7), False
    while machine.loaded is not None:
        loaded_queues.step(float("inf"))
    assert set(store.messages.derived.queues.next_offsets().values()) == {7}


def test_queues_of_a_deleted_range_are_dropped_in_steps(store, following, monkeypatch):
    loaded_queues, machine, _ = following
    monkeypatch.setattr(type(store.log), "begin_offset", property(lambda log: log.end_offset))
    machine.loaded = ends(1 << 40, 7)
    steps = 1
    while not loaded_queues.step(0.0):
        steps += 1
    assert steps == COUNT + 1
    assert set(store.messages.derived.queues.next_offsets().values()) == {0}
    assert machine.loaded is not None, "the ends are restored when that range is dispatched"


def test_queues_are_all_dropped_though_one_could_not_be_at_first(store, following, monkeypatch):
    """Found by review: dispatch continued with queues of the deleted range."""
    loaded_queues, machine, _ = following
    monkeypatch.setattr(type(store.log), "begin_offset", property(lambda log: log.end_offset))
    derived, failures = store.messages.derived, [OutOfDescriptors("a queue", "open", 1024)]
    in_steps = derived.drop_superseded_queues_in_steps

    def failing(loaded):
        for number, _ in enumerate(in_steps(loaded)):
            if number == COUNT // 2 and failures:
                raise failures.pop()
            yield

    monkeypatch.setattr(derived, "drop_superseded_queues_in_steps", failing)
    machine.loaded = ends(1 << 40, 7)
    with pytest.raises(OutOfDescriptors):
        loaded_queues.step(float("inf"))

    assert loaded_queues.step(float("inf"))
    assert failures == []
    assert set(derived.queues.next_offsets().values()) == {0}


def test_dispatch_waits_for_a_flush_while_too_much_is_in_memory(store, following, monkeypatch):
    monkeypatch.setattr("store.queues.consume_queues.PENDING_BYTES_MAX", 20 * 20)
    loaded_queues, machine, _ = following
    machine.loaded = ends(0, 7)
    assert loaded_queues.step(float("inf"))
    assert not loaded_queues.step(float("inf"))
    assert store.messages.derived.queues.is_full
    while not loaded_queues.step(float("inf")):
        assert store.messages.derived.queues.pending_bytes <= 30 * 20
        store.messages.derived.flush()
    assert machine.loaded is None


def test_snapshot_that_is_loaded_meanwhile_is_applied_from_its_begin(store, following):
    loaded_queues, machine, dropped = following
    machine.loaded = ends(0, 7)
    assert loaded_queues.step(0.0)
    assert not loaded_queues.step(0.0)
    machine.loaded = ends(0, 9)
    while machine.loaded is not None:
        loaded_queues.step(0.0)
    assert set(store.messages.derived.queues.next_offsets().values()) == {9}
    assert dropped == [True, True]


def test_node_that_stops_drops_surpassed_queues_and_leaves_the_rest_to_its_next_start(store, following):
    loaded_queues, machine, _ = following
    machine.loaded = ends(0, 7)
    loaded_queues.drop_superseded()
    loaded_queues.drop_superseded()
    assert machine.loaded is None or loaded_queues._is_restoring
