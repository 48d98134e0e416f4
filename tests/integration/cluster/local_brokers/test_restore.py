"""A drill with real nodes: a broker is backed up, and restored into another group, whole and to a point in time."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import Producer
from cluster.client.broker_calls import BrokerCalls
from cluster.local.cluster import LocalCluster
from dledger import LogClient
from tests.integration.cluster.local_brokers.conftest import SMALL, set_topic
from tests.integration.cluster.local_brokers.test_local_brokers import dledger
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def running(cluster: LocalCluster) -> Iterator[LocalCluster]:
    try:
        cluster.start(PATIENCE_S)
        cluster.wait_for_leader(PATIENCE_S)
        yield cluster
    finally:
        cluster.stop()


def messages_in(cluster: LocalCluster) -> list[dict[str, Any]]:
    """Return all messages of the topic, with what the broker stored of each."""

    def consumed() -> list[str] | None:
        done = dledger("consume", "orders", "--broker", cluster.endpoints, "--from", "begin", "--format", "jsonl")
        return sorted(done.stdout.splitlines()) if done.returncode == 0 else None

    return [json.loads(line) for line in wait_until(consumed, "the messages are read")]


def offsets_of(cluster: LocalCluster) -> list[dict[str, Any]]:
    def asked() -> str | None:
        done = dledger("offsets", "orders", "--group", "billing", "--broker", cluster.endpoints, "--json")
        return done.stdout if done.returncode == 0 else None

    return [json.loads(line) for line in wait_until(asked, "the offsets are read").splitlines()]


def send(cluster: LocalCluster, first: int, end: int) -> None:
    with Producer(cluster.endpoints, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer:
        for number in range(first, end):
            producer.send("orders", b"%d" % number * 50, keys=[f"k{number}"], tags="a")


def back_up(cluster: LocalCluster, folder: Path) -> dict[str, Any]:
    """Make a backup; return the row that `list` prints of it."""
    options = ("--endpoints", cluster.endpoints, "--group", cluster.group)

    def is_made() -> bool:
        return dledger("backup", "create", str(folder), *options).returncode == 0

    wait_until(is_made, "a backup")
    return dict(json.loads(dledger("backup", "list", str(folder), "--json").stdout.splitlines()[-1]))


def restored(folder: Path, backup: Path, *options: str) -> LocalCluster:
    """Restore all nodes of a new group, of another name; return it, not started."""
    cluster = LocalCluster.create(folder, options={"broker": "restored", **SMALL})
    for node_id in cluster.node_ids:
        config = str(cluster.config_of(node_id))
        done = dledger("restore", str(backup), "--config", config, "--run", folder.name, *options)
        assert 0 == done.returncode, done.stderr
    return cluster


def test_restored_group_has_each_message_topic_and_offset_and_the_state_at_a_time(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with running(LocalCluster.create(tmp_path / "source", options={"broker": "orders", **SMALL})) as source:
        with BrokerCalls(source.endpoints, PATIENCE_S) as calls:
            set_topic(calls, "orders", 4)
        send(source, 0, 100)
        consumed = dledger("consume", "orders", "--group", "billing", "--broker", source.endpoints, "--limit", "30")
        assert 0 == consumed.returncode, consumed.stderr
        half = back_up(source, backup)
        assert half["lastTimeMs"] is not None
        first_messages, first_offsets = messages_in(source), offsets_of(source)
        send(source, 100, 150)
        back_up(source, backup)
        all_messages, all_offsets = messages_in(source), offsets_of(source)

        # The restored groups run beside the group that was backed up.
        with running(restored(tmp_path / "whole", backup)) as whole:
            assert all_messages == messages_in(whole)
            assert all_offsets == offsets_of(whole)
            # It is writable, and its log is a new one.
            send(whole, 150, 160)
            assert 160 == len(messages_in(whole))
            # A new member gets the whole log, with the memberships of the old group.
            whole.add_node(PATIENCE_S)
            assert half["groupId"] != back_up(whole, tmp_path / "of restored")["groupId"]

        with running(restored(tmp_path / "in time", backup, "--until", f"@{half['lastTimeMs']}")) as in_time:
            assert first_messages == messages_in(in_time)
            assert first_offsets == offsets_of(in_time)
        assert all_messages == messages_in(source)

    assert (100, 150) == (len(first_messages), len(all_messages))


def test_restored_nodes_of_different_restores_form_no_group(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with running(LocalCluster.create(tmp_path / "source", options={"broker": "orders", **SMALL})) as source:
        back_up(source, backup)
    target = LocalCluster.create(tmp_path / "target", options={"broker": "restored", **SMALL})
    for node_id in target.node_ids[:2]:
        options = ("--config", str(target.config_of(node_id)), "--run", node_id)
        assert 0 == dledger("restore", str(backup), *options).returncode
    assert 1 == dledger("restore", str(backup), *options).returncode

    try:
        for node_id in target.node_ids[:2]:
            target._launch(node_id)
        refused = "to another of this name"
        wait_until(lambda: any(refused in target.log_of(each).read_text() for each in target.node_ids[:2]), refused)
    finally:
        target.stop()


def test_broker_that_lost_two_of_three_nodes_continues_on_the_third(tmp_path: Path) -> None:
    with running(LocalCluster.create(tmp_path / "source", options={"broker": "orders", **SMALL})) as cluster:
        with BrokerCalls(cluster.endpoints, PATIENCE_S) as calls:
            set_topic(calls, "orders", 4)
        send(cluster, 0, 50)
        messages = messages_in(cluster)
        *lost, survivor = cluster.node_ids
        # Each node has all messages before the others are lost.
        with LogClient(cluster.endpoints, group=cluster.group, deadline_s=PATIENCE_S) as log:
            end = log.status().commit_index
            wait_until(lambda: log.status(cluster.endpoint_of(survivor)).commit_index >= end, "the last commit")
        for node_id in cluster.node_ids:
            cluster.kill(node_id)
        for node_id in lost:
            cluster.wipe(node_id)

        config = ("recover", "--config", str(cluster.config_of(survivor)))
        plan = dledger(*config)
        (group_id,) = re.findall(r"group id +([0-9a-f]{16})", plan.stdout)
        assert re.search(r"last message +stored at \d{4}-\d\d-\d\dT", plan.stdout)
        assert 0 == dledger(*config, "--unsafe", "--group-id", group_id).returncode
        cluster.start_node(survivor, PATIENCE_S)

        assert messages == messages_in(cluster)
        send(cluster, 50, 60)
        assert 60 == len(messages_in(cluster))
