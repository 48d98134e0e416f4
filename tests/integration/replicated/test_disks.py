"""Disks of a broker's nodes fill up, fail, are made room on: what is said is true, nothing acknowledged is lost."""

import asyncio

import pytest

from cluster.broker_commands import SetTopic
from cluster.errors import Reason, RequestFailed
from cluster.topic_config import TopicConfig
from store.commit_log import Certainty
from store.errors import StorageFailed
from store.message import Message
from store.os_files import OsFiles
from tests.faulty_disk import FaultyDisk
from tests.old_files_nodes import DIVIDE, group_with_old_files
from tests.replicated_brokers import (
    configs_in,
    numbered,
    put,
    read_queue,
    run,
    running_group,
    until,
)


async def put_until_refused(leader, first, size=20_000):
    """Put messages one by one until one is refused; return (the number of that one, the refusal)."""
    for number in range(first, first + 1000):
        try:
            await put(leader, *numbered([number], size=size))
        except RequestFailed as refusal:
            return number, refusal
    raise AssertionError("nothing was refused")


@pytest.mark.slow
def test_full_disk_refuses_puts_while_reads_go_on_and_takes_them_again_by_itself(tmp_path):
    async def story():
        disk = FaultyDisk()
        configs = configs_in(tmp_path)
        async with running_group(configs, files={config.node.self_id: disk for config in configs}) as group:
            await group.start()
            await group.put(*numbered(range(3)))
            leader = await group.level()
            disk.is_full = True
            count, refusal = await put_until_refused(leader, 3)
            # RocketMQ's word for it; what is full is said beside it.
            assert (refusal.reason, refusal.certainty) == (Reason.SERVICE_NOT_AVAILABLE, Certainty.NOT_APPENDED)
            assert "disk" in refusal.message
            # Another one may find room, or a smaller message does: so puts are taken, and refused each by itself.
            standing = leader.standing()
            assert standing.is_serving_puts == (not standing.reason)
            await until(lambda: leader.standing().is_serving_puts)
            assert count > 3
            expected = [(number, b"%d" % number) for number in range(count)]
            for replica in group.open.values():
                await replica.confirm(0)
                assert read_queue(replica) == expected
            disk.is_full = False
            await until(lambda: not leader.node.status().is_disk_full)
            _, (place,) = await group.put(*numbered([count]))
            assert place.queue_offset == count
            await group.level()
            for replica in group.open.values():
                assert read_queue(replica) == [*expected, (count, b"%d" % count)]

    run(story())


@pytest.mark.slow
def test_queues_that_find_no_room_hold_up_reading_and_lose_nothing(tmp_path):
    async def story():
        disk = FaultyDisk()
        async with running_group(configs_in(tmp_path, count=1), files={"n0": disk}) as group:
            await group.start()
            await group.put(*numbered(range(50), size=10))
            leader = await group.level()
            disk.is_full = True
            # A file of the queue holds a hundred: the log has room for the next one, the queue has not.
            await put(leader, *numbered(range(50, 150), size=10))
            confirming = asyncio.create_task(leader.confirm(0))
            await until(lambda: leader.store.derived.dispatcher.offset < leader.parts.log.end_offset)
            assert leader.store.max_offset("T", 0) <= 100
            assert not confirming.done()
            assert not leader.failure.done()
            disk.is_full = False
            await confirming
            assert read_queue(leader) == [(number, b"%d" % number) for number in range(150)]
            # Nor is it an error to end while there is no room.
            disk.is_full = True
            await put(leader, *numbered(range(150, 250), size=10))
            await group.stop("n0")
            disk.is_full = False
            await group.start("n0")
            await group.level()
            assert read_queue(group.open["n0"]) == [(number, b"%d" % number) for number in range(250)]

    run(story())


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "/consumequeue/"], ids=["all files", "queues"])
def test_failing_sync_stops_the_node_and_the_others_go_on_with_all_that_was_acknowledged(tmp_path, part):
    async def story():
        configs = configs_in(tmp_path)
        disks = {config.node.self_id: FaultyDisk() for config in configs}
        async with running_group(configs, files=disks) as group:
            await group.start()
            leader, places = await group.put(*numbered(range(5)))
            sick = group.name_of(leader)
            disks[sick].broken_part, disks[sick].is_broken = part, True
            # The others may have it before the sync fails, or not.
            outcome = await leader.begin_put(numbered([5]))
            assert outcome.certainty in (Certainty.APPENDED, Certainty.UNKNOWN)
            assert isinstance(await leader.failure, StorageFailed)
            assert not leader.standing().is_serving_puts
            with pytest.raises(RequestFailed) as refused:
                leader.begin_put(numbered([6]))
            assert refused.value.reason is Reason.STORE_STOPPED
            with pytest.raises(StorageFailed):
                await leader.stop()
            del group.open[sick]
            _, (place,) = await group.put(*numbered([7]))
            is_there = outcome.certainty is Certainty.APPENDED or place.queue_offset == 6
            assert place.queue_offset == len(places) + is_there
            disks[sick].is_broken = False
            await group.start(sick)
            await group.level()
            bodies = [b"%d" % number for number in ([0, 1, 2, 3, 4, 5, 7] if is_there else [0, 1, 2, 3, 4, 7])]
            for replica in group.open.values():
                assert read_queue(replica) == list(enumerate(bodies))

    run(story())


@pytest.mark.slow
def test_old_files_go_first_and_then_entries_and_queue_offsets_go_on(tmp_path):
    async def story():
        configs = await group_with_old_files(tmp_path, snapshot_threshold=100)
        disks = {config.node.self_id: FaultyDisk() for config in configs}
        async with running_group(configs, files=disks) as group:
            await group.start()
            await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("T", 2, 2))))
            # In a queue of its own, of which nothing will be left.
            await group.put(Message("T", b"silent", 1))
            for first in range(600, 1400, 100):
                await group.put(*numbered(range(first, first + 100)))
            await group.level()
            for replica in group.open.values():
                log = replica.parts.log
                await until(lambda log=log, replica=replica: replica.store.derived.durable_offset >= log.end_offset)
                assert replica.store.min_offset("T", 0) == 0
            for disk in disks.values():
                disk.removed.clear()
                # Young files go, too.
                disk.used_ratio = 0.87
            for name, replica in group.open.items():
                await until(lambda replica=replica: is_begun_later(replica))
                gone = [path for path in disks[name].removed if "/commitlog/" in path or "/data/" in path]
                old = [path for path in gone if "/commitlog/" in path]
                assert len(old) == 6
                assert gone[:6] == old == sorted(old)
                assert replica.divided_offset == -1
                begin = replica.parts.log.begin_offset
                assert begin == replica.parts.entries.begin_position > DIVIDE
            for disk in disks.values():
                disk.used_ratio = 0.1
            _, places = await group.put(*numbered([1400]), Message("T", b"again", 1))
            assert [place.queue_offset for place in places] == [1400, 1]
            await group.level()
            for replica in group.open.values():
                # Queues follow the log's begin a moment later.
                await until(lambda replica=replica: replica.store.min_offset("T", 0) == read_queue(replica)[0][0])
                found = read_queue(replica)
                assert found == [(number, b"%d" % number) for number in range(found[0][0], 1401)]
                assert found[0][0] > 600
            # And all of it over a restart, which knows the divide from the entries alone.
            for name in list(group.open):
                await group.stop(name)
                await group.start(name)
                await group.level()
            for replica in group.open.values():
                assert replica.store.max_offset("T", 0) == 1401
                assert read_queue(replica)[-1] == (1400, b"1400")
                assert read_queue(replica, queue_id=1) == [(1, b"again")]

    def is_begun_later(replica):
        replica.node._turns.soon(lambda _: replica.node._parts.retention.look())
        return replica.parts.entries.begin_index > 0 and not replica.parts.log.has_old_files

    assert OsFiles().disk_used_ratio(str(tmp_path)) < 0.85, "this test needs room on the disk"
    run(story())
