"""A node that resets its log after retention on the others: queues, index and queue offsets follow."""

import shutil
import threading

import pytest

from cluster.protocol.topic_config import TopicConfig
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetTopic
from store.model.message import QueueKey
from tests.support.brokers.replicated import FILE_SIZE, configs_in, numbered, put, read_queue, running_group
from tests.support.waiting import run, until

COUNT = 900


async def delete_all_that_may_go(replica):
    """Have the node delete all files that its retention may delete, as on a full disk."""
    node, log = replica.node, replica.parts.entries
    retention = node._retention
    # A live follower still needs the entries that it has not acknowledged.
    await until(lambda: log.position_of(min(retention._floor.index(), log.last_index)) > 5 * FILE_SIZE)

    def is_deleted():
        # Repeatedly: a node that has just been elected keeps all files for a moment.
        node._event_batches.soon(lambda driver: driver.delete_before(retention._floor.index()))
        return log.begin_index > 0

    await until(is_deleted)


def begin_of(replica):
    """Return the start of the log, and the checksum of the chain of entries before it."""
    return replica.parts.log.begin_offset, replica.parts.entries.begin_chain_crc


async def fill(group):
    """Put messages into three queues; one of them gets no more, so that all of its messages expire."""
    await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("T", 4, 4))))
    await group.put(*numbered(range(30), queue_id=2))
    for begin in range(0, COUNT, 100):
        await group.put(*numbered(range(begin, begin + 100)))
        await group.put(*numbered(range(begin, begin + 100), queue_id=1))
        # A snapshot keeps what was not dispatched when it was saved, and here none follows the last.
        await group.level()


async def make_one_lag(group):
    """Stop one node until the others have deleted what it needs; return its name."""
    await group.start()
    await group.put(*numbered(range(5)))
    leader = await group.level()
    away = next(name for name in group.open if group.open[name] is not leader)
    await group.stop(away)
    await fill(group)
    await group.durable()
    for each in group.open.values():
        await until(lambda each=each: each.parts.machine.retention_offset(each.node.snapshot) > 0)
        await delete_all_that_may_go(each)
    return away


@pytest.mark.slow
@pytest.mark.parametrize("is_wiped", [False, True], ids=["lagging", "wiped"])
def test_node_that_resets_its_log_keeps_the_ends_of_queues_and_reuses_no_offset(tmp_path, is_wiped):
    async def scenario():
        async with running_group(configs_in(tmp_path, snapshot_threshold=200)) as group:
            away = await make_one_lag(group)
            if is_wiped:
                shutil.rmtree(tmp_path / away)
            await group.start(away)
            late = group.open[away]
            await group.level()
            # From the leader of that time; the others' snapshots, and so the begins of their logs, may differ.
            others = [each for each in group.open.values() if each is not late]
            (source, *_) = (each for each in others if begin_of(each) == begin_of(late))
            assert begin_of(late)[0] > 0
            assert begin_of(late)[1] != -1
            await until(lambda: late.parts.machine.loaded is None)
            for queue_id in range(3):
                assert late.store.max_offset("T", queue_id) == source.store.max_offset("T", queue_id)
            assert read_queue(late, queue_id=1) == read_queue(source, queue_id=1) != []
            assert late.store.min_offset("T", 2) == late.store.max_offset("T", 2) == 30
            assert late.store.derived.dispatcher.out_of_order_count == 0
            assert late.state.topics == source.state.topics
            async with group.steady_leader(away):
                for queue_id, offset in ((0, COUNT + 5), (1, COUNT), (2, 30), (3, 0)):
                    (place,) = await put(late, *numbered([7], queue_id=queue_id))
                    assert place.queue_offset == offset
            await group.level()
            # And again after a restart, when only the snapshot has the idle queue.
            await group.stop(away)
            shutil.rmtree(tmp_path / away / "consumequeue")
            await group.start(away)
            again = group.open[away]
            await group.level()
            await until(lambda: again.parts.machine.loaded is None)
            queues = again.store.derived.queues
            assert [queues.get(QueueKey("T", number)).max_offset for number in range(4)] == [
                COUNT + 6,
                COUNT + 1,
                31,
                1,
            ]

    run(scenario())


@pytest.mark.slow
def test_node_that_is_stopped_while_it_loads_a_snapshot_loads_it_when_it_starts_again(tmp_path, monkeypatch):
    """It stops without dispatch; after the restart, its queues are equal to those of the other nodes."""
    whole = BrokerState.snapshot_loading

    def without_end(state, content):
        while not may_load.is_set():
            yield
        yield from whole(state, content)

    async def scenario():
        async with running_group(configs_in(tmp_path, snapshot_threshold=200)) as group:
            away = await make_one_lag(group)
            await group.start(away)
            late = group.open[away]
            await until(lambda: late.parts.machine.is_loading)
            assert late.parts.entries.begin_index > 0
            end = late.store.derived.dispatcher.offset
            # Other iterations come in between, also those that dispatch.
            await group.put(*numbered(range(3)))
            assert late.parts.machine.is_loading
            assert late.store.derived.dispatcher.offset == end
            assert not late.status().is_serving_puts
            await group.stop(away)
            may_load.set()
            await group.start(away)
            late = group.open[away]
            leader = await group.level()
            await until(lambda: late.parts.machine.loaded is None)
            for queue_id in range(3):
                assert late.store.max_offset("T", queue_id) == leader.store.max_offset("T", queue_id)
            assert late.state.topics == leader.state.topics != {}

    may_load = threading.Event()
    monkeypatch.setattr(BrokerState, "snapshot_loading", without_end)
    run(scenario())
