"""A broker of three node processes: client, command line, status and name server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from cluster import Consumer, Producer
from cluster.client.broker_calls import BrokerCalls
from cluster.local.brokers import LocalBrokers
from cluster.protocol.errors import Reason, RequestFailed
from cluster.server import broker
from cluster.v1 import broker_pb2 as pb
from cluster.v1.nameserver_pb2 import ListBrokersRequest, RouteRequest
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from dledger import LogClient, NotAppended
from store.errors import Certainty
from tests.integration.cluster.local_brokers.conftest import set_topic
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.local.cluster import LocalCluster


def dledger(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cluster.cli", *arguments],
        capture_output=True,
        text=True,
        errors="replace",  # bodies
        check=False,
        timeout=PATIENCE_S,
    )


def create_topic(cluster: LocalCluster, *options: str) -> None:
    """Create `orders` by command; retry if another node was elected meanwhile."""

    def is_created() -> bool:
        done = dledger("topic", "create", "orders", "--if-not-exists", *options, "--broker", cluster.endpoints)
        assert done.returncode == 0 or "another node leads now" in done.stderr, done
        return done.returncode == 0

    wait_until(is_created, "the topic is created")


def status_of(cluster: LocalCluster, node_id: str) -> pb.BrokerStatusResponse:
    with BrokerCalls(cluster.endpoint_of(node_id), PATIENCE_S) as calls:
        return calls.ask(lambda stub: stub.Status, pb.BrokerStatusRequest())


def status_of_log(cluster: LocalCluster) -> Any:
    with LogClient(cluster.endpoints, group=cluster.group) as log:
        return log.status()


def registered(address: str) -> Any:
    """Return a name server's entry of the one broker; None when it has none, or does not answer."""
    with grpc.insecure_channel(address) as channel:
        try:
            brokers = NameServerStub(channel).ListBrokers(ListBrokersRequest(), timeout=1.0).brokers
        except grpc.RpcError:
            return None
    return brokers[0] if brokers else None


def test_messages_survive_the_leader_and_routes_follow_the_new_one(brokers: LocalBrokers) -> None:
    cluster, server = brokers.clusters["broker-a"], brokers.name_servers
    create_topic(cluster, "--queues", "2")
    wait_until(lambda: (found := registered(server)) and found.topics_count == 1 and len(found.nodes) == 3)

    with Producer(name_servers=server, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer:
        before = [producer.send("orders", b"%d" % number, keys=[f"k{number}"]) for number in range(40)]
        victim = cluster.wait_for_leader(PATIENCE_S)
        cluster.kill(victim)
        after = [producer.send("orders", b"%d" % number, keys=[f"k{number}"]) for number in range(40, 80)]

    found = wait_until(lambda: (each := registered(server)) and each.leader_id != victim and each)
    assert found.leader_id in set(cluster.node_ids) - {victim}
    for queue_id in (0, 1):
        offsets = [sent.queue_offset for sent in (*before, *after) if sent.queue_id == queue_id]
        assert offsets == list(range(len(offsets)))
    with Consumer(name_servers=server, group="audit", topics={"orders": "*"}, start="first") as consumer:
        bodies = [message.body for message in islice(consumer, 80)]
    assert sorted(bodies, key=int) == [b"%d" % number for number in range(80)]
    queried = dledger("query", "key", "orders", "k41", "--broker", cluster.endpoints)
    assert '"body": "41"' in queried.stdout, queried


def test_every_node_has_a_status_and_raw_appends_are_refused(brokers: LocalBrokers) -> None:
    cluster = brokers.clusters["broker-a"]

    def at_rest() -> dict[str, pb.BrokerStatusResponse] | None:
        """Return the statuses of all nodes when they agree on a leader that accepts puts."""
        found = {node_id: status_of(cluster, node_id) for node_id in cluster.node_ids}
        leaders = {status.leader.id for status in found.values()}
        return found if len(leaders) == 1 and any(status.is_serving_puts for status in found.values()) else None

    found = wait_until(at_rest, "all nodes agree on a leader, which takes puts")
    (leader,) = {status.leader.id for status in found.values()}
    assert leader in cluster.node_ids
    for node_id, status in found.items():
        assert (status.broker, status.self_id, status.leader.id) == ("broker-a", node_id, leader)
        assert status.is_serving_puts == (node_id == leader)
        assert bool(status.not_serving_reason) == (node_id != leader)
        assert status.divided_offset == -1
    with LogClient(cluster.endpoints, group=cluster.group) as log:
        with pytest.raises(NotAppended, match="this log contains messages"):
            log.append(b"raw")
        assert len(log.statuses()) == 3
    where = ("--group", cluster.group, "--endpoints", cluster.endpoints)
    create_topic(cluster)
    assert "entry 0 is a membership entry that the leader of term " in dledger("get", "0", *where).stderr
    kinds = [
        json.loads(dledger("get", str(index), "--format", "jsonl", *where).stdout)["kind"]
        for index in range(status_of_log(cluster).commit_index + 1)
    ]
    assert {"member", "state"} <= set(kinds) <= {"member", "state", "no-op"}
    assert dledger("tail", *where).stdout == ""


def test_status_shows_which_node_accepts_puts(brokers: LocalBrokers) -> None:
    cluster = brokers.clusters["broker-a"]
    status = ("status", "--group", cluster.group, "--endpoints", cluster.endpoints)
    wait_until(lambda: "taken" in dledger(*status).stdout, "puts are taken")

    def shown_of_leader() -> tuple[str, dict[str, Any]] | None:
        """Return the leader and the output when only the leader accepts puts."""
        leader = cluster.wait_for_leader(PATIENCE_S)
        found = {
            each["self_id"]: each["broker"] for each in map(json.loads, dledger(*status, "--json").stdout.splitlines())
        }
        serving = {name: each["is_serving_puts"] for name, each in found.items()}
        return (leader, found) if serving == {name: name == leader for name in cluster.node_ids} else None

    leader, found = wait_until(shown_of_leader, "puts are taken at the leader, and nowhere else")
    assert {each["divided_offset"] for each in found.values()} == {-1}

    context = ("context", "add", "all", "--name-servers", brokers.name_servers, "--replace", "--use")
    assert dledger(*context).returncode == 0
    wait_until(lambda: registered(brokers.name_servers), "the broker has registered")
    for command in (("status",), ("status", "--context", "all", "--group", "broker-a"), ("members", "list")):
        shown = dledger(*command).stdout
        assert "group broker-a" in shown
        assert all(f" {name} " in shown for name in cluster.node_ids)
    assert dledger("context", "remove", "all").returncode == 0

    cluster.kill(leader)
    shown = dledger(*status).stdout
    assert "broker broker-a" in shown
    # Its name is known while there is a leader; its address always.
    assert cluster.endpoint_of(leader) in shown.partition("broker broker-a")[0]


def test_name_server_that_was_killed_gets_all_topics_with_the_next_change(brokers: LocalBrokers) -> None:
    server, cluster = brokers.name_servers, brokers.clusters["broker-a"]
    wait_until(lambda: registered(server), "the broker is registered")

    brokers.kill_name_server(server)
    assert registered(server) is None
    brokers.start_name_server(server)
    create_topic(cluster)

    def is_true_again() -> bool:
        found, leader = registered(server), status_of(cluster, cluster.wait_for_leader(PATIENCE_S))
        known = found and (found.broker, found.leader_id, found.term, found.topics_count)
        return known == ("broker-a", leader.self_id, leader.term, 1)

    wait_until(is_true_again, lambda: f"it knows everything again, not {registered(server)}")


def test_name_servers_have_a_topic_when_its_creation_is_acknowledged(brokers: LocalBrokers) -> None:
    with (
        BrokerCalls(brokers.endpoints, PATIENCE_S) as calls,
        grpc.insecure_channel(brokers.name_servers) as channel,
        Producer(name_servers=brokers.name_servers, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer,
    ):
        server = NameServerStub(channel)
        for number in range(10):
            topic = f"t{number}"
            is_known = lambda topic=topic: bool(server.Route(RouteRequest(topics=[topic])).routes)  # noqa: E731
            begin = time.monotonic()
            set_topic(calls, topic, 1)
            check_reported(begin, is_known)
            assert producer.send(topic, b"x").queue_offset == 0
            if number % 2:
                begin = time.monotonic()
                delete_topic(calls, topic)
                check_reported(begin, lambda is_known=is_known: not is_known())


def delete_topic(calls: BrokerCalls, topic: str) -> None:
    """Delete a topic; retry if another node was elected meanwhile and the outcome is unknown."""
    has_doubt = False

    def is_deleted() -> bool:
        nonlocal has_doubt
        try:
            calls.ask(lambda stub: stub.DeleteTopic, pb.DeleteTopicRequest(topic=topic))
        except RequestFailed as failure:
            is_gone = has_doubt and failure.reason is Reason.UNKNOWN_TOPIC
            if failure.certainty is not Certainty.UNKNOWN and not is_gone:
                raise
            has_doubt = True
            return is_gone
        return True

    wait_until(is_deleted, f"topic {topic} is deleted")


def check_reported(begin: float, is_true: Callable[[], bool]) -> None:
    """Check that name servers have what was acknowledged since `begin`, unless they took longer than the broker's wait.

    Only calls that ended within that limit are checked; in any other call the broker may have stopped waiting.
    """
    was_in_time = time.monotonic() - begin < broker._ANNOUNCE_LIMIT_S
    assert not was_in_time or is_true()
    wait_until(is_true, "the name server knows")


@pytest.mark.parametrize("by", ["name servers", "endpoints"])
def test_topics_of_a_restarted_broker_are_never_unknown(brokers: LocalBrokers, by: str) -> None:
    cluster = brokers.clusters["broker-a"]
    create_topic(cluster, "--queues", "1")
    (server,) = brokers.name_servers.split(",")
    for node_id in cluster.node_ids:
        cluster.kill(node_id)
    brokers.kill_name_server(server)
    brokers.start_name_server(server)
    where = {"name_servers": server} if by == "name servers" else {"endpoints": cluster.endpoints}

    with (
        ThreadPoolExecutor(1) as other_thread,
        Producer(**where, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer,
    ):
        sending = other_thread.submit(producer.send, "orders", b"x")
        cluster.start(PATIENCE_S)
        assert sending.result(PATIENCE_S).queue_offset == 0


def test_brokers_are_found_and_stopped_by_a_later_program(brokers: LocalBrokers) -> None:
    attached = LocalBrokers.attach(brokers.folder)

    assert (attached.endpoints, attached.name_servers) == (brokers.endpoints, brokers.name_servers)
    assert attached.running_count == 4
    attached.stop()
    assert brokers.running_count == 0
