"""The official Node client of RocketMQ 5, unchanged, with a broker of ours."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cluster.client.broker_calls import BrokerCalls
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.group import BrokerGroup
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S

PROGRAM = Path(__file__).with_name("official_node_client.js")


@pytest.fixture
def modules():
    """Return the folder that has the client; without it the test is skipped, with a reason."""
    path = os.environ.get("DLEDGER_INTEROP_ROCKETMQ_NODE")
    if not path:
        missing = os.environ.get("DLEDGER_INTEROP_ROCKETMQ_NODE_MISSING")
        pytest.skip(missing or "needs Node and the package rocketmq-client-nodejs: `make interop` installs it")
    return path


@pytest.fixture
def group(tmp_path):
    """Return a broker of three nodes, with a topic of each type."""
    soon = {
        "transaction_timeout_ms": 1_000,
        "transaction_check_interval_ms": 1_000,
        # For bodies of 4 MB.
        "mapped_file_size_for_entry_data": 16 << 20,
    }
    with BrokerGroup(tmp_path / "group", has_rocketmq=True, **soon) as started:
        with BrokerCalls(",".join(started.addresses), PATIENCE_S) as calls:
            for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"):
                topic = pb.Topic(name=kind, read_queues=4, write_queues=4, permission=6)
                topic.attributes["message.type"] = kind
                calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
        yield started


def observed(modules, group, tmp_path, scenario):
    """Run a scenario at a follower; return what it printed last."""
    leader, _ = group.leader()
    follower = next(name for name in group.ids if name != leader)
    endpoints = group.cluster.rocketmq_endpoint_of(follower)
    ended = subprocess.run(
        ["node", str(PROGRAM), endpoints, scenario],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "NODE_PATH": modules},
        capture_output=True,
        text=True,
        timeout=SCENARIO_LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_messages_of_all_kinds_are_sent_and_received(modules, group, tmp_path):
    found = observed(modules, group, tmp_path, "kinds")
    assert found["found"]["NORMAL"] == ["normal"]
    assert found["details"] == ["A", ["k1", "k2"], [["a", "b"]], True]
    assert sorted(found["found"]["FIFO"]) == ["0", "1", "2", "3", "4"]
    assert found["found"]["DELAY"] == ["delay"]
    assert found["isLate"]
    assert sorted(found["found"]["TRANSACTION"]) == ["committed", "orphan"]
    assert "orphan" in found["asked"]
    assert found["large"]


def test_messages_are_given_again_to_simple_and_to_push_consumers(modules, group, tmp_path):
    found = observed(modules, group, tmp_path, "redelivery")
    assert found["simple"] == [1, 2]
    assert found["push"][:2] == [["again", 1], ["again", 2]]


def test_what_is_refused_is_an_error_with_its_reason(modules, group, tmp_path):
    found = observed(modules, group, tmp_path, "errors")
    assert "nothere" in found["unknown"]
    assert found["type"]
    assert found["large"]
