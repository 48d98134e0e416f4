"""The configuration of an old store reaches all nodes before they take part, so that any leader can import it."""

import asyncio
import json
import logging
import shutil
from dataclasses import replace

import pytest

from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.replica import bootstrap, bootstrap_peers
from cluster.replica.local_base_log import places_of
from cluster.replica.local_state import LocalState
from cluster.state.commands import QueueOffset, ResetOffsets, SetGroup, SetTopic
from cluster.state.rocketmq_config import _FILES
from commitlog.conversion.base_log_files import ChunkRequest
from commitlog.conversion.old_config import config_from_json, find_config, own_config_size, read_config, save_config
from commitlog.conversion.origin import BaseLogOrigin, load_origin
from dledger.peer.bootstrap import BootstrapServer
from dledger.peer.origin import BootstrapMessage
from store.fs.linux.files import OsFiles
from tests.support.brokers.bootstrap_nodes import bootstrap_all, bootstrapped, contents, nodes_in, old_root, write_plain
from tests.support.brokers.empty_log import EmptyLog
from tests.support.brokers.replicated import configs_in, running_group
from tests.support.waiting import run, until

TOPICS = json.dumps({"topicConfigTable": {"T": {"topicName": "T", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}}})
OFFSETS = json.dumps({"offsetTable": {"T@g": {"0": 17}}})
CONFIG = {"topics.json": TOPICS.encode(), "consumerOffset.json.bak": OFFSETS.encode()}

pytestmark = pytest.mark.slow


def write_config(config, contents=CONFIG):
    save_config(OsFiles(), config.store_base_dir, places_of(config).node_directory, contents)


def config_of(config):
    files, root = OsFiles(), config.store_base_dir
    return {
        each.name: read_config(files, root, ChunkRequest(each.name, 0, 1 << 20)) for each in find_config(files, root)
    }


@pytest.mark.parametrize("has_base_log", [True, False], ids=["with a base log", "alone"])
def test_every_node_gets_the_configuration_of_the_one_that_has_it(tmp_path, has_base_log, caplog):
    caplog.set_level("INFO")

    async def scenario():
        configs = nodes_in(tmp_path)
        if has_base_log:
            write_plain(old_root(configs[1]))
        write_config(configs[1])
        await bootstrap_all(configs)
        assert [config_of(each) for each in configs] == [CONFIG] * 3
        assert contents(configs[0]) == contents(configs[1]) == contents(configs[2])
        # Each node, once, and the same on all.
        lines = [text for text in caplog.messages if text.startswith("old_store_conversion")]
        assert len(lines) == (3 if has_base_log else 0)
        assert len({text.partition("equal_on_all_nodes: ")[2] for text in lines}) == len(lines) / 3
        assert all("mapped_file_size_for_entry_data = " in text for text in lines)

    run(scenario())


def test_the_first_leader_imports_the_configuration_of_one_old_store(tmp_path):
    async def scenario():
        configs = configs_in(tmp_path)
        write_plain(old_root(configs[2].node))
        write_config(configs[2].node)
        await bootstrap_all([config.node for config in configs])
        async with running_group(configs) as group:
            await group.start()
            await has_taken_over(group)

    run(scenario())


async def has_taken_over(group):
    """Return whether one node, whichever it is, has imported it."""
    commands = [each.parts.old_state.commands for each in group.open.values()]
    assert commands[0]
    assert commands == [commands[0]] * 3
    await group.leader()
    for each in group.open.values():
        await until(lambda each=each: each.state.is_imported)
        assert (each.state.topics["T"].write_queues, each.state.offset("g", "T", 0).offset) == (3, 17)


def test_state_of_a_standalone_broker_reaches_all_nodes(tmp_path):
    async def scenario():
        configs = configs_in(tmp_path)
        root = old_root(configs[0].node)
        write_plain(root)
        local = LocalState.open(OsFiles(), root, EmptyLog())
        await local.change(SetTopic(TopicConfig("T", 3, 3)))
        await local.change(SetGroup(GroupConfig("g")))
        await local.change(ResetOffsets("g", (QueueOffset("T", 0, 17),)))
        await local.stop()
        await bootstrap_all([config.node for config in configs])
        async with running_group(configs) as group:
            await group.start()
            await has_taken_over(group)

    run(scenario())


def test_configuration_of_a_node_is_not_replaced(tmp_path):
    async def scenario():
        configs = nodes_in(tmp_path)
        write_plain(old_root(configs[0]))
        write_config(configs[0])
        own = {"topics.json": b"{}"}
        write_config(configs[1], own)
        await bootstrap_all(configs)
        assert [config_of(each) for each in configs[:2]] == [CONFIG, own]
        # The first node may have agreed, and not answer as a member yet, when the third one asks.
        assert config_of(configs[2]) in (CONFIG, own)

    run(scenario())


def test_node_that_joins_gets_the_configuration_that_its_group_has(tmp_path):
    async def scenario():
        configs = configs_in(tmp_path)
        write_config(configs[0].node)
        await bootstrap_all([config.node for config in configs])
        (lone,) = nodes_in(tmp_path / "new", 1)
        peers = (*configs[0].node.peers, replace(lone.peers[0], id="n9"))
        newcomer = replace(lone, self_id="n9", peers=peers, is_joining=True)
        async with running_group(configs) as group:
            await group.start("n1")
            await bootstrapped(newcomer)
        assert config_of(newcomer) == CONFIG

    run(scenario())


def damaged(answer):
    return BootstrapMessage(answer.body, answer.payload[:-1] + b"?") if answer.payload else answer


def nonsense(_answer):
    return BootstrapMessage(b'{"config": [["../../etc/passwd", 3, 0]]}')


@pytest.mark.parametrize("fault", [damaged, nonsense])
def test_configuration_that_arrives_damaged_is_fetched_again_and_discarded(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(bootstrap, "_PAUSE_S", 0.01)
    faults = []

    class Spoiling(BaseLogOrigin):
        async def answer(self, peer_id, question):
            answer = await super().answer(peer_id, question)
            if b"config" in question.body and b"statement" not in question.body and len(faults) < 3:
                assert config_of(newcomer) == {}
                faults.append(question.body)
                return fault(answer)
            return answer

    async def scenario():
        write_config(source)
        await bootstrap_all([source, newcomer, third])
        shutil.rmtree(newcomer.store_base_dir)
        places = places_of(source)
        origin = Spoiling(
            OsFiles(), places.base_directory, places.node_directory, load_origin(OsFiles(), places).manifest
        )
        server = BootstrapServer(source, origin)
        await server.start()
        await bootstrapped(newcomer)
        await server.stop()
        assert len(faults) >= 2
        assert config_of(newcomer) == CONFIG

    source, newcomer, third = nodes_in(tmp_path)
    run(scenario())


def test_too_large_configuration_is_not_fetched(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    for module in (bootstrap, bootstrap_peers):
        monkeypatch.setattr(module, "CONFIG_SIZE_BYTES_MAX", 50)

    async def scenario():
        configs = nodes_in(tmp_path)
        write_config(configs[1])
        await bootstrap_all(configs)
        assert [config_of(each) for each in configs] == [{}, CONFIG, {}]

    run(scenario())
    assert "config_too_large from=n1" in caplog.text


def test_only_configuration_files_are_served(tmp_path):
    (config,) = nodes_in(tmp_path, count=1)
    write_config(config)
    (tmp_path / "n0" / "config" / "secret.json").write_text("secret")

    async def scenario():
        await bootstrapped(config)
        origin = load_origin(OsFiles(), places_of(config))
        for name in ("secret.json", "../secret", "/etc/passwd", "topics.json/../secret.json", "", "topics.json\n"):
            question = {"ask": "config chunk", "name": name, "position": 0, "size": 100}
            assert (await origin.answer("n1", BootstrapMessage(json.dumps(question).encode()))).payload == b""
        question = {"ask": "config chunk", "name": "topics.json", "position": -5, "size": 100}
        with pytest.raises(ValueError, match="position"):
            await origin.answer("n1", BootstrapMessage(json.dumps(question).encode()))
        assert origin.statement().config_size_bytes == own_config_size(OsFiles(), str(tmp_path / "n0"), "") > 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "value",
    [None, {}, [[]], [["topics.json", 0, 0]], [["topics.json", 1, -1]], [["x", 1, 1]], [["topics.json", 1]] * 65],
)
def test_invalid_list_of_files_is_refused(value):
    with pytest.raises(ValueError, match="expected"):
        config_from_json(value)


def test_every_imported_file_is_fetched(tmp_path):
    (config,) = nodes_in(tmp_path, count=1)
    names = [name + end for name in _FILES for end in ("", ".bak")]
    write_config(config, dict.fromkeys(names, b"{}"))
    assert sorted(each.name for each in find_config(OsFiles(), str(tmp_path / "n0"))) == sorted(names)
