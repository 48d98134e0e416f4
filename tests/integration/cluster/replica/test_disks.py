"""Full and failing disks of a broker's nodes: answers are correct, and no acknowledged message is lost."""

import asyncio
from dataclasses import replace

import pytest

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.replica.port import ReadMode
from cluster.state.commands import SetTopic
from store.errors import Certainty, StorageFailed
from store.fs.linux.files import OsFiles
from store.model.message import Message, QueueKey
from store.model.queue_ends import QueueEnds
from tests.support.brokers.bootstrap_nodes import DIVIDE, group_with_base_log
from tests.support.brokers.replicated import FILE_SIZE, STORE, configs_in, numbered, put, read_queue, running_group
from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import PATIENCE_S, run, until


async def put_until_no_disk_has_space(group, first, size=20_000):
    """Put messages one by one until no node has space; return (the leader then, the number refused, the refusal).

    A leader without space transfers its leadership to a node that may have some, until all are known to be full.
    """
    number, refusals = first, []
    while not any("disk" in refusal.message for refusal in refusals):
        assert number < first + 1000, "nothing was refused"
        assert len(refusals) < 1000, refusals[-1]
        leader = await group.leader()
        try:
            await put(leader, *numbered([number], size=size))
            number += 1
        except RequestFailed as refusal:
            refusals.append(refusal)
            await asyncio.sleep(0.005)
    assert all(each.is_worth_trying and each.certainty is Certainty.NOT_APPENDED for each in refusals), refusals
    return leader, number, refusals[-1]


@pytest.mark.slow
def test_full_disk_refuses_puts_while_reads_continue_and_recovers_automatically(tmp_path):
    async def scenario():
        disk = FaultyDisk()
        configs = configs_in(tmp_path)
        async with running_group(configs, files={config.node.self_id: disk for config in configs}) as group:
            await group.start()
            await group.put(*numbered(range(3)))
            async with group.steady_leader():
                await group.level()
                disk.is_full = True
                leader, count, refusal = await put_until_no_disk_has_space(group, 3)
                # RocketMQ's status; the text names what is full.
                assert (refusal.reason, refusal.certainty) == (Reason.SERVICE_NOT_AVAILABLE, Certainty.NOT_APPENDED)
                # Another node may have space, or a smaller message fit: so each put is tried, and refused alone.
                status = leader.status()
                assert status.is_serving_puts == (not status.reason)
                await until(lambda: leader.status().is_serving_puts)
                assert count > 3
                expected = [(number, b"%d" % number) for number in range(count)]
                for replica in group.open.values():
                    await replica.confirm(ReadMode.LINEARIZABLE)
                    assert read_queue(replica) == expected
                disk.is_full = False
                await until(lambda: not leader.node.status().is_disk_full)
                _, (place,) = await group.put(*numbered([count]))
                assert place.queue_offset == count
                await group.level()
                for replica in group.open.values():
                    assert read_queue(replica) == [*expected, (count, b"%d" % count)]

    run(scenario())


@pytest.mark.slow
def test_queues_on_a_full_disk_delay_reads_and_lose_nothing(tmp_path):
    async def scenario():
        disk = FaultyDisk()
        async with running_group(configs_in(tmp_path, count=1), files={"n0": disk}) as group:
            await group.start()
            await group.put(*numbered(range(50), size=10))
            leader = await group.level()
            disk.is_full = True
            # A file of the queue holds a hundred: the log has space for the next one, the queue has not.
            await put(leader, *numbered(range(50, 150), size=10))
            confirming = asyncio.create_task(leader.confirm(ReadMode.LINEARIZABLE))
            await until(lambda: leader.store.derived.dispatcher.offset < leader.parts.log.end_offset)
            assert leader.store.max_offset("T", 0) <= 100
            assert not confirming.done()
            assert not leader.failure.done()
            disk.is_full = False
            await confirming
            assert read_queue(leader) == [(number, b"%d" % number) for number in range(150)]
            # Nor is a stop without free space an error.
            disk.is_full = True
            await put(leader, *numbered(range(150, 250), size=10))
            await group.stop("n0")
            disk.is_full = False
            await group.start("n0")
            await group.level()
            assert read_queue(group.open["n0"]) == [(number, b"%d" % number) for number in range(250)]

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("waiting_bytes_max", [1 << 20, 100], ids=["in memory", "too many for memory"])
def test_no_offset_is_assigned_again_while_the_disk_is_full_for_the_ends_of_queues(
    tmp_path, caplog, monkeypatch, waiting_bytes_max
):
    """Blanks for expired messages are pending as a count, whatever the bound of units in memory; no put waits for them.

    The first message of such a queue must not get offset 0.
    """
    monkeypatch.setattr("store.queues.consume_queue._BLANKS_PENDING_BYTES_MAX", waiting_bytes_max)

    async def scenario():
        disk = FaultyDisk()
        async with running_group(configs_in(tmp_path, count=1), files={"n0": disk}) as group:
            await group.start()
            await group.put(*numbered(range(5)))
            await group.stop("n0")
            replica = group.open_node("n0")
            # As of a snapshot: all messages of that queue have expired.
            replica.parts.machine.loaded = QueueEnds(0, {QueueKey("T", 1): 510})
            disk.is_full = True
            await replica.start()
            _, (place,) = await group.put(*numbered([5], queue_id=1))
            assert place.queue_offset == 510
            assert not any("cannot_dispatch" in line for line in caplog.messages)
            await until(lambda: disk.counts["refused"] > 3)
            assert sum("cannot_flush_queues" in line for line in caplog.messages) == 1
            # The node stops before a file records it: then the log does.
            _, (place,) = await group.put(*numbered([6], queue_id=1))
            assert place.queue_offset == 511
            await group.stop("n0")
            assert not list((tmp_path / "n0/consumequeue/T").glob("1/*"))
            disk.is_full = False
            await group.start("n0")
            _, (place,) = await group.put(*numbered([7], queue_id=1))
            assert place.queue_offset == 512
            await group.durable()
            assert read_queue(group.open["n0"], queue_id=1) == [(505 + number, b"%d" % number) for number in (5, 6, 7)]

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "/consumequeue/"], ids=["all files", "queues"])
def test_failing_sync_stops_the_node_and_the_others_continue_with_all_acknowledged_messages(tmp_path, part):
    async def scenario():
        configs = configs_in(tmp_path)
        disks = {config.node.self_id: FaultyDisk() for config in configs}
        async with running_group(configs, files=disks) as group:
            await group.start()
            async with group.steady_leader() as leader:
                places = await put(leader, *numbered(range(5)))
                broken = group.name_of(leader)
                disks[broken].broken_part, disks[broken].is_broken = part, True
                # The others may receive it before the sync fails, or not.
                outcome = await leader.serving_puts().begin_put(numbered([5]))
                assert outcome.certainty in (Certainty.APPENDED, Certainty.UNKNOWN)
            assert isinstance(await leader.failure, StorageFailed)
            assert not leader.status().is_serving_puts
            with pytest.raises(RequestFailed) as refused:
                leader.serving_puts().begin_put(numbered([6]))
            assert refused.value.reason is Reason.STORE_STOPPED
            with pytest.raises(StorageFailed):
                await leader.stop()
            del group.open[broken]
            _, (place,) = await group.put(*numbered([7]))
            is_there = outcome.certainty is Certainty.APPENDED or place.queue_offset == 6
            assert place.queue_offset == len(places) + is_there
            disks[broken].is_broken = False
            await group.start(broken)
            await group.level()
            bodies = [b"%d" % number for number in ([0, 1, 2, 3, 4, 5, 7] if is_there else [0, 1, 2, 3, 4, 7])]
            for replica in group.open.values():
                assert read_queue(replica) == list(enumerate(bodies))

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("is_indexed", [True, False])
def test_base_log_is_deleted_soon_after_a_snapshot_has_the_ends_of_its_queues(tmp_path, is_indexed):
    """A node that is re-synced later has no other source: as a leader it would assign offsets again.

    Its messages have no keys, and no message follows it: the entries after it must count as dispatched nevertheless.
    """

    async def scenario():
        store = replace(STORE, message_index_enable=is_indexed)
        (config, *_) = await group_with_base_log(tmp_path, count=1, store=store)
        disk = FaultyDisk()
        disk.used_ratio = 0.87
        async with running_group([config], files={"n0": disk}) as group:
            replica = group.open_node("n0")
            log, retention = replica.parts.log, replica.parts.lifecycle.retention
            retention.run()
            assert log.begin_offset == 0
            await replica.start()
            await until(lambda: log.begin_offset > 0)
            assert replica.node.snapshot is not None
            await until(lambda: not log.has_base_log)
            ends = replica.parts.machine.retention_offset(replica.node.snapshot)
            assert ends >= DIVIDE

    run(scenario())


@pytest.mark.slow
def test_full_disk_requests_snapshots_early_to_delete_entries(tmp_path):
    """A snapshot is due after a hundred thousand entries, but large entries fill the disk before."""

    async def scenario():
        disk = FaultyDisk()
        disk.used_ratio = 0.87
        async with running_group(configs_in(tmp_path, count=1), files={"n0": disk}) as group:
            await group.start()
            for first in range(0, 20_000, 50):
                await group.put(*numbered(range(first, first + 50)))
                replica = await group.level()
                replica.node._event_batches.soon(lambda _, node=replica.node: node._retention.check())
                if replica.parts.entries.begin_index > 0:
                    break
            assert replica.parts.entries.begin_index > 0
            kept = replica.parts.machine.retention_offset(replica.node.snapshot)
            assert replica.parts.log.begin_offset <= kept

    run(scenario())


@pytest.mark.slow
def test_files_of_an_idle_group_are_deleted_up_to_the_end(tmp_path):
    async def scenario():
        disk = FaultyDisk()
        async with running_group(configs_in(tmp_path, count=1), files={"n0": disk}) as group:
            await group.start()
            await group.put(*numbered(range(5)))
            replica = await group.level()
            node, log = replica.node, replica.parts.log
            # One snapshot of the beginning, and one of the end, which knows queues only as they were before.
            node.request_snapshot()
            await until(lambda: node.snapshot is not None)
            for first in range(0, 500, 50):
                await group.put(*numbered(range(first, first + 50)))
            await group.level()
            queues = replica.store.derived.queue_ends()
            for first in range(500, 1000, 50):
                await group.put(*numbered(range(first, first + 50)))
            await group.level()
            replica.parts.machine._queue_ends = lambda: queues
            node.request_snapshot()
            await until(lambda: node.snapshot.index == node.applied_index)
            replica.parts.machine._queue_ends = replica.store.derived.queue_ends

            disk.used_ratio = 0.87
            last = (log.end_offset - 1) // FILE_SIZE * FILE_SIZE
            assert queues.offset < last > 3 * FILE_SIZE

            def is_last_alone():
                node._event_batches.soon(lambda _: node._retention.check())
                return log.begin_offset >= last

            await until(is_last_alone)

    run(scenario())


@pytest.mark.slow
def test_many_queues_follow_the_log_in_steps_between_which_others_run(tmp_path, monkeypatch):
    monkeypatch.setattr("store.maintenance.background.STEP_S", 0.0)

    async def scenario():
        queues = 40
        async with running_group(configs_in(tmp_path, count=1, snapshot_threshold=100)) as group:
            await group.start()
            for first in range(0, 600, queues):
                await group.put(*(numbered([first + at], queue_id=at)[0] for at in range(queues)))
            replica = await group.level()
            store = replica.store
            # The end of the last snapshot depends on when each of them ended.
            while replica.parts.machine.retention_offset(replica.node.snapshot) <= FILE_SIZE:
                await group.put(*(numbered([at], queue_id=at)[0] for at in range(queues)))
                await group.level()
            counts = set()

            async def check_each_iteration():
                while queues not in counts:
                    counts.add(sum(store.min_offset("T", at) > 0 for at in range(queues)))
                    await asyncio.sleep(0)

            checking = asyncio.create_task(check_each_iteration())
            replica.node._event_batches.soon(
                lambda driver: driver.delete_before(replica.parts.entries.index_before(FILE_SIZE) + 1)
            )
            async with asyncio.timeout(PATIENCE_S):
                await checking
            assert len(counts) > 3, "all at once"
            for at in range(queues):
                assert read_queue(replica, queue_id=at)[0][0] == store.min_offset("T", at)

    run(scenario())


@pytest.mark.slow
def test_base_log_is_deleted_first_then_entries_and_queue_offsets_continue(tmp_path):
    async def scenario():
        configs = await group_with_base_log(tmp_path, snapshot_threshold=100)
        disks = {config.node.self_id: FaultyDisk() for config in configs}
        async with running_group(configs, files=disks) as group:
            await group.start()
            await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("T", 2, 2))))
            # In a separate queue, all of which will expire.
            await group.put(Message("T", b"silent", 1))
            for first in range(600, 1400, 100):
                await group.put(*numbered(range(first, first + 100)))
                # A snapshot keeps what was not dispatched when it was saved, and here none follows the last.
                await group.level()
            await group.durable()
            assert [replica.store.min_offset("T", 0) for replica in group.open.values()] == [0] * 3
            for disk in disks.values():
                disk.removed.clear()
                # Recent files are deleted, too.
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
                # Queues are truncated to the log's start shortly after.
                await until(lambda replica=replica: replica.store.min_offset("T", 0) == read_queue(replica)[0][0])
                found = read_queue(replica)
                assert found == [(number, b"%d" % number) for number in range(found[0][0], 1401)]
                assert found[0][0] > 600
            # And after a restart, which reads the divide from the entries alone.
            for name in list(group.open):
                await group.stop(name)
                await group.start(name)
                await group.level()
            for replica in group.open.values():
                assert replica.store.max_offset("T", 0) == 1401
                assert read_queue(replica)[-1] == (1400, b"1400")
                assert read_queue(replica, queue_id=1) == [(1, b"again")]

    def is_begun_later(replica):
        replica.node._event_batches.soon(lambda _: replica.node._retention.check())
        return replica.parts.entries.begin_index > 0 and not replica.parts.log.has_base_log

    assert OsFiles().disk_used_ratio(str(tmp_path)) < 0.85, "this test needs space on the disk"
    run(scenario())
