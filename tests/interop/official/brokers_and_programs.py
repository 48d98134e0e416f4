"""What the tests of official clients have in common: the broker, and the processes of clients."""

import json
import subprocess
import time

from cluster.client.broker_calls import BrokerCalls
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.group import BrokerGroup
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S

# Producers are soon asked about their transactions; files are large enough for bodies of 4 MiB.
_SETTINGS = {
    "transaction_timeout_ms": 1_000,
    "transaction_check_interval_ms": 1_000,
    "mapped_file_size_for_entry_data": 16 << 20,
}
# Name, whether in order, deliveries after the first one.
_GROUPS = (("Gfifo", True, 16), ("Gdead", False, 1), ("Gdeadfifo", True, 1))


def started_broker(folder):
    """Return a broker of three nodes for `with`."""
    return BrokerGroup(folder, has_rocketmq=True, **_SETTINGS)


def prepare(group):
    """Create a topic of each type, and the consumer groups that need settings."""
    with BrokerCalls(",".join(group.addresses), PATIENCE_S) as calls:
        for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"):
            topic = pb.Topic(name=kind, read_queues=4, write_queues=4, permission=6)
            topic.attributes["message.type"] = kind
            calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
        for name, is_orderly, retries in _GROUPS:
            made = pb.Group(
                name=name,
                is_consume_enabled=True,
                is_from_min_enabled=True,
                is_orderly=is_orderly,
                retry_queues=1,
                retry_max_times=retries,
            )
            calls.ask(lambda stub: stub.SetGroup, pb.SetGroupRequest(group=made))


def endpoints(group, *, leader_first=False):
    """Return the address for a client: of a follower; or of all nodes, the leader first."""
    leader, _ = group.leader()
    names = sorted(group.ids, key=lambda name: (name != leader) is leader_first)
    found = [group.cluster.rocketmq_endpoint_of(name) for name in names]
    return ";".join(found) if leader_first else found[0]


def started(command, environment):
    """Start a client."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def observed(process):
    """End the input of a client, and return what it printed last; a client that does not end is killed."""
    try:
        output, errors = process.communicate(timeout=SCENARIO_LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, errors[-4_000:]
    return json.loads(output.splitlines()[-1])


def check_load_while_the_leader_is_killed(group, process):
    """Kill the leader while a client sends; check that nothing acknowledged is lost, and that the order holds."""
    assert process.stdout.readline().strip() == "sending"
    group.kill(group.leader()[0])
    killed = time.monotonic()
    group.leader()
    found = observed(process)
    print(f"new leader after {time.monotonic() - killed:.2f} s", found)
    assert found["lost"] in ({}, [])
    assert found["disordered"] == {}
    assert found["sent"] >= 160
    return found
