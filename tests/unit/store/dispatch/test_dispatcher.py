"""Dispatch: missing units are built, once; unreadable records are skipped and reported, and change no offset."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from store.dispatch import dispatcher as dispatcher_module
from store.dispatch.dispatcher import Dispatcher
from store.dispatch.long_polls import MessageWaiters
from store.errors import CorruptData
from store.model.dispatch_batch import DispatchBatch, first_rows, rows_from
from store.queues.unit import BLANK_SIZE
from tests.support.message_stores import (
    SMALL,
    Clock,
    derived_files,
    numbered,
    numbers,
    open_small,
    rebuilt_files,
    with_store,
)


def damage(root, position):
    """Change the magic of the record at this place of the first file."""
    with (root / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(position + 4)
        file.write(b"\xff")


class EndlessLog:
    """A log without messages, of which every step takes as much as it may; `size_bytes` is what the last one took."""

    begin_offset, end_offset, size_bytes = 0, 1 << 40, 0

    def scan(self, offset, size_bytes):
        self.size_bytes = size_bytes
        none, small = np.empty(0, np.int64), np.empty(0, np.int32)
        columns = none, small, none, none, none, [], small, np.empty(0, np.bool_), small, none
        return DispatchBatch(offset, offset + size_bytes, *columns)


class NoQueues:
    def append(self, _batch):
        return ()


def test_steps_follow_processor_time_and_become_smaller_after_one_that_blocks_the_loop(monkeypatch):
    """Goal: a busy machine does not make steps small."""
    log = EndlessLog()
    dispatcher = Dispatcher(log, NoQueues(), None, MessageWaiters(1), 4 << 20)
    sizes = []
    for used_s, took_s in (
        (0.001, 0.04),
        (0.001, 0.04),
        (0.003, 0.04),
        (0.009, 0.009),
        (0.001, 0.06),
        (0.001, 0.04),
    ):
        clocks = {"monotonic": iter((1.0, 1.0 + took_s)), "thread_time": iter((1.0, 1.0 + used_s))}
        for name, readings in clocks.items():
            monkeypatch.setattr(dispatcher_module, name, readings.__next__)
        assert dispatcher.step()
        sizes.append(log.size_bytes >> 10)
    monkeypatch.undo()
    dispatcher.step()

    assert [*sizes, log.size_bytes >> 10] == [256, 512, 1024, 1024, 512, 256, 512]


def test_unreadable_record_is_skipped_and_reported_and_offsets_stay_right(tmp_path):
    store = open_small(tmp_path, clock=Clock())
    places = store.messages.put_many([numbered(number, queues=1) for number in range(9)]).outcome.places
    damage(tmp_path, places[4].physical_offset)

    store.dispatch()

    dispatcher = store.messages.derived.dispatcher
    (skipped,) = dispatcher.skipped
    assert (dispatcher.skipped_count, skipped.offset, skipped.size) == (1, places[4].physical_offset, places[4].size)
    assert skipped.path.endswith("commitlog/00000000000000000000")
    assert "magic" in skipped.expected
    assert numbers(store.messages.get("TopicTest", 0, 0)) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert store.messages.get("TopicTest", 0, 6, 1).messages[0].queue_offset == 6
    assert store.messages.derived.queues.get(("TopicTest", 0)).units(4, 1).sizes.tolist() == [BLANK_SIZE]
    assert store.messages.put(numbered(9, queues=1)).outcome.places[0].queue_offset == 9
    store.lifecycle.abandon()


def test_store_with_a_corrupt_record_opens_only_with_the_option_to_continue_after_it(tmp_path):
    clock = Clock()
    store = open_small(tmp_path, clock=clock)
    places = []
    for number in range(9):
        clock.pass_s(10)
        places += store.messages.put(numbered(number, queues=1)).outcome.places
    store.close()
    damage(tmp_path, places[4].physical_offset)

    with pytest.raises(CorruptData, match="magic") as caught:
        open_small(tmp_path)
    assert caught.value.position == places[4].physical_offset + 4

    store = open_small(tmp_path, replace(SMALL, is_corruption_skipped=True), clock=clock)
    assert any("data skipped" in note for note in store.notes)
    result = store.messages.get("TopicTest", 0, 0)
    assert numbers(result) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert [skipped.record.offset for skipped in result.skipped] == [places[4].physical_offset]
    assert store.messages.put(numbered(9, queues=1)).outcome.places[0].queue_offset == 9
    store.close()


@pytest.mark.parametrize(("queues_at", "index_at"), [(3, 7), (7, 3), (0, 9), (9, 0), (5, 5)])
def test_queues_and_index_each_get_the_messages_that_they_lack(tmp_path, queues_at, index_at):
    root = tmp_path / "store"
    store = open_small(root, with_store(SMALL, dispatch_size_bytes=500), clock=Clock())
    places = store.messages.put_many([numbered(number) for number in range(9)]).outcome.places
    ends = [*(place.physical_offset for place in places), store.log.written_offset]
    derived = store.messages.derived
    batch = store.log.scan(0, 1 << 20)
    cut = _until(batch, ends[queues_at])
    if len(cut):
        derived.queues.append(cut)
    cut = _until(batch, ends[index_at])
    if len(cut):
        derived.index.append(cut)
    derived.dispatcher.begin_at(ends[queues_at], ends[index_at])

    store.dispatch()

    assert derived.dispatcher.dispatched_count == 9 - queues_at
    assert derived.dispatcher.out_of_order_count == 0
    store.close()
    assert derived_files(root) == rebuilt_files(root, tmp_path / "again")


def _until(batch, offset):
    """Return the part of a batch on the records before `offset`."""
    count = int((batch.physical_offsets < offset).sum())
    keys = int((batch.key_rows < count).sum())
    return replace(
        batch,
        next_offset=offset,
        physical_offsets=batch.physical_offsets[:count],
        sizes=batch.sizes[:count],
        queue_offsets=batch.queue_offsets[:count],
        tags_codes=batch.tags_codes[:count],
        store_timestamps=batch.store_timestamps[:count],
        queue_numbers=batch.queue_numbers[:count],
        is_queued=batch.is_queued[:count],
        key_hashes=batch.key_hashes[:keys],
        key_rows=batch.key_rows[:keys],
    )


def test_last_rows_of_a_batch_equal_a_read_of_the_log_from_there(tmp_path):
    store = open_small(tmp_path, clock=Clock())
    places = store.messages.put_many(
        [numbered(number, sys_flag=4 * (number == 5)) for number in range(9)]
    ).outcome.places
    batch = store.log.scan(0, 1 << 20)

    for place in places:
        part, expected = rows_from(batch, place.physical_offset), store.log.scan(place.physical_offset, 1 << 20)
        keys = [part.queues[number] for number in part.queue_numbers]
        assert keys == [expected.queues[number] for number in expected.queue_numbers]
        for name in ("physical_offsets", "sizes", "queue_offsets", "tags_codes", "is_queued", "key_hashes", "key_rows"):
            assert getattr(part, name).tolist() == getattr(expected, name).tolist(), name
        assert (part.begin_offset, part.next_offset) == (expected.begin_offset, expected.next_offset)
    store.close()


def test_work_of_a_turn_is_bounded(tmp_path):
    store = open_small(tmp_path, with_store(SMALL, dispatch_size_bytes=1000), clock=Clock())
    store.messages.put_many([numbered(number) for number in range(50)])
    turns = 0
    while store.messages.dispatch_step():
        turns += 1
        assert store.messages.derived.dispatcher.dispatched_count <= 7 * turns

    assert turns >= 50 // 7
    assert store.messages.derived.dispatcher.behind_bytes == 0
    store.close()


def test_first_rows_of_a_batch_equal_a_read_of_the_log_up_to_there(tmp_path):
    store = open_small(tmp_path, clock=Clock())
    places = store.messages.put_many(
        [numbered(number, sys_flag=4 * (number == 5)) for number in range(9)]
    ).outcome.places
    batch = store.log.scan(0, 1 << 20)

    for count in range(1, 9):
        part, expected = first_rows(batch, count), _until(batch, places[count].physical_offset)
        keys = [part.queues[number] for number in part.queue_numbers]
        assert keys == [expected.queues[number] for number in expected.queue_numbers]
        assert set(part.queues) == set(keys)
        for name in ("physical_offsets", "sizes", "queue_offsets", "tags_codes", "is_queued", "key_hashes", "key_rows"):
            assert getattr(part, name).tolist() == getattr(expected, name).tolist(), name
        assert (part.begin_offset, part.next_offset) == (batch.begin_offset, places[count].physical_offset)
    store.close()


def test_range_with_many_queues_is_dispatched_in_pieces(tmp_path):
    root = tmp_path / "store"
    config = replace(SMALL, log=replace(SMALL.log, mapped_file_size=1 << 20))
    store = open_small(root, config, clock=Clock())
    queues = 1100
    for _ in range(3):
        store.messages.put_many([numbered(number, queues=queues) for number in range(queues)])
    counts = [0]
    while store.messages.dispatch_step():
        counts.append(store.messages.derived.dispatcher.dispatched_count)

    assert store.messages.derived.dispatcher.dispatched_count == 3 * queues
    assert max(after - before for before, after in pairwise(counts)) <= 512
    store.close()
    assert derived_files(root) == rebuilt_files(root, tmp_path / "again", config)
