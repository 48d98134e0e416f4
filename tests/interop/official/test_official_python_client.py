"""The official Python client of RocketMQ 5, unchanged, with a broker of ours; also when its leader is killed."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cluster.client.broker_calls import BrokerCalls
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.group import BrokerGroup
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S

PROGRAM = Path(__file__).with_name("official_python_client.py")


@pytest.fixture
def python():
    """Return the interpreter that has the client; without it the test is skipped, with a reason."""
    path = os.environ.get("DLEDGER_INTEROP_ROCKETMQ_PYTHON")
    if not path:
        missing = os.environ.get("DLEDGER_INTEROP_ROCKETMQ_PYTHON_MISSING")
        pytest.skip(missing or "needs the package rocketmq-python-client: `make interop` installs it")
    return path


@pytest.fixture
def group(tmp_path):
    """Return a broker of three nodes, with a topic of each type."""
    soon = {"transaction_timeout_ms": 1_000, "transaction_check_interval_ms": 1_000}
    with BrokerGroup(tmp_path / "group", has_rocketmq=True, **soon) as started:
        with BrokerCalls(",".join(started.addresses), PATIENCE_S) as calls:
            for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"):
                topic = pb.Topic(name=kind, read_queues=4, write_queues=4, permission=6)
                topic.attributes["message.type"] = kind
                calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
        yield started


def started(python, tmp_path, endpoints, scenario):
    """Start a scenario; the client writes its log below HOME."""
    return subprocess.Popen(
        [python, str(PROGRAM), endpoints, scenario],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def observed(process):
    """End the input of a scenario, and return what it printed last."""
    output, _ = process.communicate(timeout=SCENARIO_LIMIT_S)
    assert process.returncode == 0, output
    return json.loads(output.splitlines()[-1])


def test_messages_of_all_kinds_are_sent_and_received(python, group, tmp_path):
    leader, _ = group.leader()
    follower = next(name for name in group.ids if name != leader)
    found = observed(started(python, tmp_path, group.cluster.rocketmq_endpoint_of(follower), "kinds"))
    assert found["found"]["NORMAL"] == ["normal"]
    assert found["details"] == ["A", ["k1", "k2"], {"a": "b"}, True]
    assert sorted(found["found"]["FIFO"]) == ["0", "1", "2", "3", "4"]
    assert found["found"]["DELAY"] == ["delay"]
    assert found["is_late"]
    assert sorted(found["found"]["TRANSACTION"]) == ["committed", "orphan"]
    assert "orphan" in found["asked"]


def test_messages_are_given_again_to_simple_and_to_push_consumers(python, group, tmp_path):
    found = observed(started(python, tmp_path, group.cluster.rocketmq_endpoint_of("n0"), "redelivery"))
    assert found["simple"] == [1, 2]
    assert found["push"][:2] == [["again", 1], ["again", 2]]


def test_nothing_acknowledged_is_lost_when_the_leader_to_which_the_client_is_connected_is_killed(
    python, group, tmp_path
):
    leader, _ = group.leader()
    names = sorted(group.ids, key=lambda name: name != leader)
    endpoints = ";".join(map(group.cluster.rocketmq_endpoint_of, names))
    process = started(python, tmp_path, endpoints, "load")
    assert process.stdout.readline().strip() == "sending"
    group.kill(leader)
    found = observed(process)
    print(found)
    assert found["lost"] == []
    assert found["sent"] >= 40
