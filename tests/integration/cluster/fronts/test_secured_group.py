"""RocketMQ's clients at each node of a secured group: mutual TLS between our own, users with access keys."""

import asyncio
import ssl
from datetime import UTC, datetime

import grpc
import pytest

from cluster.access.access_keys import signature_of
from cluster.client.broker_calls import BrokerCalls
from cluster.local.brokers import LocalBrokers
from cluster.local.secured import ADMINISTRATOR
from cluster.protocol.errors import RequestFailed
from cluster.remoting.command import RemotingCode
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.v1 import access_pb2, broker_pb2
from tests.support.brokers.group import SETTINGS
from tests.support.brokers.remoting_peer import RemotingPeer
from tests.support.brokers.rocketmq_stub import RocketMQStub, message, resource
from tests.support.waiting import PATIENCE_S, run, wait_until

pytestmark = pytest.mark.slow

NODES = ("n0", "n1", "n2")
SECRETS = {"AK1": "SK123456", "AK2": "SK-of-the-reader"}
SMALL = {name: value for name, value in SETTINGS.items() if name != "broker"}


class Group:
    """The group: `alice` may send to T and consume it as any group; `bob` may only read its route."""

    def __init__(self, folder):
        self.brokers = LocalBrokers.create(folder, name_servers=0, options=SMALL, is_secured=True, has_rocketmq=True)
        (self.cluster,) = self.brokers.clusters.values()
        self.authority = (self.brokers.secrets.folder / "certs" / "authority.crt").read_bytes()

    def start(self):
        self.brokers.start(PATIENCE_S)
        self.cluster.wait_for_leader(PATIENCE_S)
        with BrokerCalls(
            self.brokers.endpoints, PATIENCE_S, security=self.brokers.secrets.client(ADMINISTRATOR)
        ) as calls:
            topic = broker_pb2.Topic(name="T", read_queues=1, write_queues=1, permission=6)
            wait_until(lambda: done(calls.ask, lambda stub: stub.SetTopic, broker_pb2.SetTopicRequest(topic=topic)))
            for name, policies in (("alice", [("Topic:T", 3), ("Group:*", 2)]), ("bob", [("Topic:T", 2)])):
                user = access_pb2.AccessUser(name=name)
                for text, actions in policies:
                    user.policies.add(resource=text, actions=actions)
                request = access_pb2.SetUserRequest(user=user)
                wait_until(lambda request=request: done(calls.ask_access, lambda stub: stub.SetUser, request))
            for name, key in (("alice", "AK1"), ("bob", "AK2")):
                request = access_pb2.AddAccessKeyRequest(user=name, id=key, secret=SECRETS[key])
                wait_until(lambda request=request: done(calls.ask_access, lambda stub: stub.AddAccessKey, request))

    def stub(self, node_id, key="", *, is_plain=False):
        """Return a client of gRPC that signs with an access key."""
        made = RocketMQStub(self.cluster.rocketmq_endpoint_of(node_id), authority=None if is_plain else self.authority)
        date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        signed = signature_of(SECRETS.get(key, ""), date.encode()).hex()
        value = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signed}"
        made.metadata += [("authorization", value), ("x-mq-date-time", date)]
        return made

    def peer(self, node_id, key="", *, is_plain=False):
        """Return a client of the remoting protocol that signs with an access key."""
        place = self.brokers.remoting_endpoints.split(";")[NODES.index(node_id)]
        context = ssl.create_default_context(cadata=self.authority.decode())
        return RemotingPeer(place, key, SECRETS.get(key, ""), tls=None if is_plain else context)


def done(ask, method, request):
    """Return whether a change was made; it is repeated while a leader is elected or a node is of an older level."""
    try:
        ask(method, request)
    except RequestFailed:
        return False
    return True


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Return the group, shared by the tests of the module."""
    made = Group(tmp_path_factory.mktemp("fronts") / "run")
    try:
        made.start()
        yield made
    finally:
        made.brokers.stop()
        for node_id in NODES:
            tail = made.cluster.log_of(node_id).read_text(errors="replace").splitlines()[-15:]
            print(f"--- end of {node_id}'s log", *tail, sep="\n")


def known(group, node_id):
    """Wait until a node knows the access keys, and the leader."""

    def is_served():
        with group.stub(node_id, "AK1") as stub:
            return stub.send(message("T", f"first-{node_id}")).status.code == mq.OK

    wait_until(is_served, f"{node_id} serves")


@pytest.mark.parametrize("node_id", NODES)
def test_any_node_serves_official_clients_over_tls_in_the_name_of_their_users(group, node_id):
    known(group, node_id)
    with group.stub(node_id, "AK1") as alice, group.stub(node_id, "AK2") as bob, group.stub(node_id) as nobody:
        alice.sent(message("T", f"m-{node_id}", b"by grpc"))
        assert b"by grpc" in {each.body for each in alice.receive("T", f"G-{node_id}")}
        assert bob.send(message("T", "refused")).status.code == mq.FORBIDDEN
        assert nobody.send(message("T", "refused")).status.code == mq.UNAUTHORIZED


@pytest.mark.parametrize("node_id", NODES)
def test_any_node_serves_clients_of_the_remoting_protocol_over_tls_in_the_name_of_their_users(group, node_id):
    known(group, node_id)

    async def scenario():
        async with (
            group.peer(node_id, "AK1") as alice,
            group.peer(node_id, "AK2") as bob,
            group.peer(node_id) as nobody,
        ):
            sent = await alice.send("T", b"by remoting")
            assert sent.code == RemotingCode.SUCCESS, sent
            found = await alice.pull("T", "G", int(sent.fields["queueOffset"]))
            assert (found.code, b"by remoting" in found.body) == (RemotingCode.SUCCESS, True)
            for each in (bob, nobody):
                assert (await each.send("T")).code == RemotingCode.NO_PERMISSION

    run(scenario())


def test_neither_port_serves_a_plain_connection(group):
    with group.stub("n0", "AK1", is_plain=True) as stub, pytest.raises(grpc.RpcError):
        stub.call("QueryRoute", mq.QueryRouteRequest(topic=resource("T")), timeout=5)

    async def scenario():
        async with group.peer("n0", "AK1", is_plain=True) as peer:
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await peer.send("T")

    run(scenario())
