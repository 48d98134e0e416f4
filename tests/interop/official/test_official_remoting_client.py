"""The classic Java client of RocketMQ, 4.9 and 5.3, unchanged, with a broker of ours, whose leader is killed, too."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cluster.client.broker_calls import BrokerCalls
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.group import BrokerGroup
from tests.support.brokers.remoting_peer import RemotingPeer
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S, run

TOPICS = (
    *("Normal", "Ordered", "Delay", "Transaction", "Request", "Broadcast", "Filter", "Retry", "Rebalance"),
    *("LitePull", "Pull", "Large", "Restart", "Trace", "Failover", "FailoverOrder"),
)
SENDING = ("sends", "created", "delays", "transactions", "requests", "large", "trace")
CONSUMING = ("order", "broadcast", "filters", "retries", "rebalance", "litepull", "pull", "restart")
VERSIONS = ("4.9.8", "5.3.3")


@pytest.fixture(params=VERSIONS)
def client(request):
    """Return the folder of one version of the client; without it the test is skipped, with a reason."""
    folder = os.environ.get("DLEDGER_INTEROP_REMOTING")
    if not folder:
        names = ("DLEDGER_INTEROP_REMOTING_MISSING", "DLEDGER_INTEROP_MISSING")
        missing = next((os.environ[name] for name in names if name in os.environ), "")
        pytest.skip(missing or "needs the jars of rocketmq-client: `make interop` gets them")
    return Path(folder) / request.param


@pytest.fixture
def group(tmp_path):
    """Return a broker of three nodes with empty topics."""
    settings = {
        "transaction_timeout_ms": 1_000,
        "transaction_check_interval_ms": 1_000,
        "trace_topic_enable": True,
        # For bodies of 4 MB.
        "mapped_file_size_for_entry_data": 16 << 20,
    }
    with BrokerGroup(tmp_path / "group", has_rocketmq=True, auto_create_topic_enable=True, **settings) as started:
        with BrokerCalls(",".join(started.addresses), PATIENCE_S) as calls:
            for name in TOPICS:
                topic = pb.Topic(name=name, read_queues=4, write_queues=4, permission=6)
                calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
        yield started


def started(client, group, tmp_path, *scenarios):
    """Start scenarios in one process; the client writes its log below user.home."""
    endpoints = group.cluster.remoting_endpoints
    program = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Duser.home={tmp_path}")
    classes = ("-cp", os.pathsep.join((str(client / "classes"), f"{client / 'lib'}/*")), "RemotingClient")
    return subprocess.Popen(
        [*program, *classes, endpoints, "", *scenarios], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def observed(process):
    """End the input of a process; return the figures of each scenario that succeeded, by its name."""
    output, _ = process.communicate(timeout=2 * SCENARIO_LIMIT_S)
    print(output)
    lines = [line.split(" ", 2) for line in output.splitlines() if line.startswith("ok ")]
    return {name: dict(part.split("=", 1) for part in text.split(" ") if "=" in part) for _, name, text in lines}


@pytest.mark.parametrize("scenarios", [SENDING, CONSUMING], ids=["sending", "consuming"])
def test_messages_of_all_kinds_are_sent_and_consumed(client, group, tmp_path, scenarios):
    found = observed(started(client, group, tmp_path, *scenarios))
    assert set(found) == set(scenarios)


async def first_of_route(endpoints):
    """Return the place of the node under id 0 of a route."""
    async with RemotingPeer(endpoints.split(";")[0]) as peer:
        route = json.loads((await peer.ask(105, topic="Failover")).body)
    return route["brokerDatas"][0]["brokerAddrs"]["0"]


def test_consumers_continue_at_once_when_the_follower_stops_from_which_they_pull(client, group, tmp_path):
    process = started(client, group, tmp_path, "failover")
    assert process.stdout.readline().strip() == "running"
    endpoints = group.cluster.remoting_endpoints
    first = endpoints.split(";").index(run(first_of_route(endpoints)))
    group.cluster.stop_node(group.cluster.node_ids[first])
    found = observed(process)["failover"]
    assert (found["failed"], found["lost"]) == ("0", "0")
    # Without the last answers of that node it would be the time to the next route, up to 30 s.
    assert int(found["received_gap_ms"]) < 15_000


@pytest.mark.parametrize("scenario", ["failover", "failover-threads", "failover-order"])
def test_no_send_fails_and_nothing_acknowledged_is_lost_when_the_leader_is_killed(client, group, tmp_path, scenario):
    process = started(client, group, tmp_path, scenario)
    assert process.stdout.readline().strip() == "running"
    leader, _ = group.leader()
    group.kill(leader)
    group.leader()
    group.cluster.start_node(leader)
    found = observed(process)[scenario]
    assert (found["failed"], found["lost"]) == ("0", "0")
    # Clients ask for a new route after 30 s; neither producers nor consumers need one.
    assert int(found["received_gap_ms"]) < 15_000
