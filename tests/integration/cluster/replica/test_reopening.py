"""Nodes are opened again: after a clean stop nothing is done; queues beyond or before the log's end are corrected."""

import asyncio
import re
import shutil
from dataclasses import replace
from itertools import count, islice

import pytest

from cluster.protocol.topic_config import TopicConfig
from cluster.state.commands import SetTopic
from dledger.errors import ResponseCode
from store.errors import Certainty
from store.model.commit_log import PutStatus
from tests.support.brokers.replicated import STORE, WallClock, configs_in, numbered, read_queue, running_group, units_of
from tests.support.message_stores import derived_files
from tests.support.waiting import run, until


@pytest.mark.slow
def test_cleanly_stopped_nodes_dispatch_and_change_nothing_when_they_are_reopened(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            await group.put(*numbered(range(150)))
            await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("T", 2, 2))))
            await group.level()
            units = {name: units_of(replica) for name, replica in group.open.items()}
            await group.stop()
            before = {name: derived_files(tmp_path / name) for name in group.configs}
            for name in group.configs:
                replica = group.open_node(name)
                assert replica.notes == ()
                assert replica.store.derived.dispatcher.dispatched_count == 0
                assert units_of(replica) == units[name]
                await replica.start()
            await group.level()
            await group.stop()
            assert {name: derived_files(tmp_path / name) for name in group.configs} == before

    run(scenario())


async def write_and_copy(group, root, copy):
    """Have a single node write 300 messages; copy its store after 120."""
    await group.start()
    await group.put(*numbered(range(120)))
    await group.level()
    await group.stop()
    shutil.copytree(root, copy)
    await group.start()
    await group.put(*numbered(range(120, 300)))
    await group.level()


@pytest.mark.slow
@pytest.mark.parametrize("is_clean", [True, False], ids=["closed cleanly", "killed"])
def test_queues_and_index_ahead_of_the_log_are_cut_and_their_offsets_assigned_again(tmp_path, is_clean):
    """As after the restore of an older copy of the log beside newer queues."""

    async def scenario():
        root, copy = tmp_path / "n0", tmp_path / "copy"
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await write_and_copy(group, root, copy)
            await group.stop()
            shutil.rmtree(root / "dledger-n0")
            shutil.copytree(copy / "dledger-n0", root / "dledger-n0")
            if not is_clean:
                (root / "abort").write_text("1")
            replica = group.open_node("n0")
            assert any("consume queues: cut" in note for note in replica.notes)
            assert any("index: cut" in note for note in replica.notes)
            assert replica.store.max_offset("T", 0) <= 120
            await replica.start()
            _, (place,) = await group.put(*numbered([1000]))
            assert place.queue_offset == 120
            await group.level()
            assert read_queue(replica) == [(number, b"%d" % number) for number in range(120)] + [(120, b"1000")]
            assert not replica.store.query_by_key("T", "key-200").messages
            (found,) = replica.store.query_by_key("T", "key-1000").messages
            assert found.physical_offset == place.physical_offset

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("is_clean", [True, False], ids=["closed cleanly", "killed"])
def test_queues_and_index_that_lag_catch_up_with_the_log_before_any_client_is_served(tmp_path, is_clean):
    """As after the restore of an older copy of queues and index, or the loss of their last writes."""

    async def scenario():
        root, copy = tmp_path / "n0", tmp_path / "copy"
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await write_and_copy(group, root, copy)
            await group.put(*numbered(range(7), queue_id=1))
            await group.level()
            expected = units_of(group.open["n0"])
            await group.stop()
            newest = derived_files(root)
            for name in ("consumequeue", "index", "checkpoint"):
                old = copy / name
                shutil.rmtree(root / name) if old.is_dir() else (root / name).unlink()
                shutil.copytree(old, root / name) if old.is_dir() else shutil.copy2(old, root / name)
            if not is_clean:
                (root / "abort").write_text("1")
            replica = group.open_node("n0")
            assert units_of(replica) == expected
            await replica.start()
            _, (place,) = await group.put(*numbered([300]))
            assert place.queue_offset == 300
            assert len(replica.store.query_by_key("T", "key-250").messages) == 1
            await group.stop()
            assert {path for path, data in derived_files(root).items() if newest.get(path) != data} <= {
                # Only the new messages.
                *(path for path in newest if "/T/0/" in path or path.startswith("index/")),
                *(path for path in derived_files(root) if path not in newest),
            }

    run(scenario())


@pytest.mark.slow
def test_killed_node_repeats_no_more_dispatches_than_its_bound(tmp_path):
    bound = 20_000
    # Without the bound nothing would be flushed for a minute.
    store = replace(
        STORE,
        redispatch_max_bytes=bound,
        flush_interval_consume_queue_ms=10,
        flush_consume_queue_thorough_interval_ms=60_000,
        checkpoint_interval_ms=60_000,
    )

    async def scenario():
        clocks, root, killed = WallClock(), tmp_path / "n0", tmp_path / "killed" / "n0"
        async with running_group(configs_in(tmp_path, count=1, store=store), clocks=clocks) as group:
            await group.start()
            for first in range(0, 300, 10):
                clocks.wall_s += 4
                await group.put(*numbered(range(first, first + 10)))
                replica = await group.level()
                derived = replica.store.derived
                await until(lambda derived=derived: derived.dispatcher.offset - derived.durable_offset < bound)
            stored_time = lambda: replica.parts.root._checkpoint.checkpoint.index_msg_timestamp  # noqa: E731
            log = replica.parts.log
            await until(lambda: log.offset_at_timestamp(stored_time()) >= derived.durable_offset - 10_000)
            end = log.end_offset
            shutil.copytree(root, killed)
        (config,) = configs_in(killed.parent, count=1, store=store)
        async with running_group([config], clocks=clocks) as group:
            replica = group.open_node("n0")
            (note,) = [note for note in replica.notes if "dispatched again" in note]
            dispatched, begin = (int(word) for word in re.findall(r"\d+", note))
            assert end - 3 * bound < begin <= begin + dispatched <= end
            await replica.start()
            await group.level()
            assert read_queue(replica) == [(number, b"%d" % number) for number in range(300)]

    run(scenario())


@pytest.mark.slow
def test_puts_that_a_leader_refuses_late_leave_no_gap_and_no_message(tmp_path):
    """It accepts them, and loses the leadership before it has appended them."""

    async def scenario():
        refused, numbers, acknowledged = set(), count(), []
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            while not refused:
                await group.level()
                async with group.steady_leader() as leader:
                    target = next(name for name in group.open if group.open[name] is not leader)
                    transfer = leader.node.transfer_leadership(target)
                    pending = [
                        (number, leader.serving_puts().begin_put(numbered([number]))) for number in islice(numbers, 5)
                    ]
                    for number, future in pending:
                        outcome = await future
                        assert outcome.certainty is not Certainty.UNKNOWN, outcome
                        if outcome.certainty is Certainty.NOT_APPENDED:
                            assert outcome.status is PutStatus.SERVICE_NOT_AVAILABLE
                            refused.add(b"%d" % number)
                        else:
                            acknowledged.append((outcome.places[0].queue_offset, b"%d" % number))
                if (await transfer).code is ResponseCode.SUCCESS:
                    await until(lambda leader=leader: not leader.status().is_serving_puts)
            _, places = await group.put(*numbered([last := next(numbers)]))
            acknowledged.append((places[0].queue_offset, b"%d" % last))
            await group.level()
            for replica in group.open.values():
                assert read_queue(replica) == acknowledged
            assert [offset for offset, _ in acknowledged] == list(range(len(acknowledged)))
            assert not refused & {body for _, body in acknowledged}

    run(scenario())


@pytest.mark.slow
def test_leader_accepts_puts_only_when_it_knows_all_acknowledged_topics(tmp_path, monkeypatch):
    """Otherwise it would refuse messages permanently: clients do not retry for a topic that does not exist."""
    monkeypatch.setattr("dledger.node.state_machine._SPARSE_STEP_SIZE_BYTES", 1000)

    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await group.start()
            for begin in range(0, 400, 50):
                await group.put(*numbered(range(begin, begin + 50)))
            await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("late", 2, 2))))
            await group.level()
            await group.stop()
            replica = group.open_node("n0")
            replica.when_status_changes(lambda: known.append("late" in replica.state.topics))
            known = []
            await replica.start()
            await until(lambda: replica.node.is_leader)
            while not replica.status().is_serving_puts:
                assert "late" in replica.state.topics or not replica.readiness().is_ready
                await asyncio.sleep(0)
            assert "late" in replica.state.topics
            assert known[-1]

    run(scenario())
