"""Topics, groups and offsets of an old store are imported once, through the log."""

import json
import shutil

import pytest

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.replica.local_state import LocalState
from cluster.state.commands import DeleteTopic, QueueOffset, ResetOffsets, SetGroup, SetTopic
from cluster.state.rocketmq_config import UnreadableConfig
from dledger.storage.snapshot_store import SnapshotDamaged
from store.fs.linux.files import OsFiles
from tests.support.brokers.empty_log import EmptyLog
from tests.support.brokers.replicated import configs_in, numbered, running_group
from tests.support.waiting import run, until

TOPICS = {"topicConfigTable": {"T": {"topicName": "T", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}}}


def write_rocketmq_config(root, topics=TOPICS):
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text(json.dumps(topics))
    offsets = {"offsetTable": {"T@g": {"0": 17}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))


async def has_all(group):
    await until(lambda: all(each.state.is_imported for each in group.open.values()))
    for each in group.open.values():
        assert each.state.topics["T"].write_queues == 3
        assert "g" in each.state.groups
        assert each.state.offset("g", "T", 0).offset == 17


@pytest.mark.slow
def test_rocketmq_configuration_is_imported_before_any_client_is_served_and_only_once(tmp_path):
    async def scenario():
        configs = configs_in(tmp_path)
        for config in configs:
            write_rocketmq_config(tmp_path / config.node.self_id)
        async with running_group(configs) as group:
            for name in group.configs:
                replica = group.open_node(name)
                replica.when_status_changes(
                    lambda replica=replica: served.append(
                        replica.status().is_serving_puts and not replica.state.is_imported
                    )
                )
                await replica.start()
            await has_all(group)
            await group.put(*numbered([0]))
            assert not any(served)
            leader, _ = await group.of_leader(lambda leader: leader.change(DeleteTopic("T")))
            first = group.name_of(leader)
            await group.stop(first)
            await group.leader()
            await group.start(first)
            await group.level()
            assert all("T" not in each.state.topics for each in group.open.values())

    served = []
    run(scenario())


@pytest.mark.slow
def test_one_node_of_three_has_the_old_state_and_later_decisions_of_the_group_are_kept(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            change = SetTopic(TopicConfig("T", 3, 3, is_ordered=True))
            await group.of_leader(lambda leader: leader.change(change))
            await group.stop("n2")
            write_rocketmq_config(tmp_path / "n2")
            async with group.steady_leader():
                await group.start("n2")
                leader = await group.level()
                assert not leader.state.is_imported
            await group.lead("n2")
            await group.level()
            await has_all(group)
            assert group.open["n0"].state.topics["T"].is_ordered

    run(scenario())


@pytest.mark.slow
def test_state_of_a_standalone_broker_is_imported(tmp_path):
    async def write_local():
        local = LocalState.open(OsFiles(), str(tmp_path / "n0"), EmptyLog())
        await local.change(SetTopic(TopicConfig("T", 3, 3)))
        await local.change(SetGroup(GroupConfig("g")))
        await local.change(ResetOffsets("g", (QueueOffset("T", 0, 17),)))
        await local.stop()

    async def scenario():
        (tmp_path / "n0").mkdir()
        await write_local()
        for name in ("n1", "n2"):
            shutil.copytree(tmp_path / "n0", tmp_path / name)
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            await group.leader()
            await has_all(group)

    run(scenario())


@pytest.mark.slow
def test_leader_with_unreadable_configuration_stops_with_the_reason(tmp_path):
    async def scenario():
        write_rocketmq_config(tmp_path / "n0", {"topicConfigTable": {"T": {"topicName": "T", "perm": "many"}}})
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await group.start()
            replica = group.open["n0"]
            with pytest.raises(RequestFailed) as refused:
                await replica.change(SetTopic(TopicConfig("T", 1, 1)))
            assert refused.value.reason in (Reason.LEADER_NOT_READY, Reason.NOT_LEADER)
            error = await replica.failure
            assert isinstance(error, UnreadableConfig)
            assert "topics.json" in str(error)
            with pytest.raises(UnreadableConfig):
                await replica.stop()
            del group.open["n0"]

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("is_imported", [True, False])
def test_damaged_snapshot_of_a_standalone_broker_stops_only_the_node_that_imports_it(tmp_path, is_imported):
    snapshot = tmp_path / "n0" / "config" / "broker" / "snapshot" / f"{7:020d}"

    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            if is_imported:
                write_rocketmq_config(tmp_path / "n0")
                await group.start()
                await has_all(group)
                await group.stop("n0")
            snapshot.parent.mkdir(parents=True)
            snapshot.write_bytes(b"no snapshot")
            await group.start("n0")
            if is_imported:
                await group.leader()
                await has_all(group)
                return
            assert isinstance(await group.open["n0"].failure, SnapshotDamaged)
            with pytest.raises(SnapshotDamaged):
                await group.open.pop("n0").stop()

    run(scenario())
