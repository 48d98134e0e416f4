"""RocketMQ's clients at each node of a secured group: mutual TLS between our own, users with access keys."""

import asyncio

import grpc
import pytest

from cluster.access.model import Action
from cluster.remoting.command import RemotingCode
from cluster.rocketmq_v2 import messaging_pb2 as mq
from tests.support.brokers.rocketmq_stub import message, resource
from tests.support.brokers.secured_group import NODES, KeyUser, SecuredGroup
from tests.support.waiting import run, wait_until

pytestmark = pytest.mark.slow

# `alice` may send to T and consume it as any group; `bob` may only read its route.
USERS = (
    KeyUser("alice", "AK1", "SK123456", (("Topic:T", Action.PUB | Action.SUB), ("Group:*", Action.SUB))),
    KeyUser("bob", "AK2", "SK-of-the-reader", (("Topic:T", Action.SUB),)),
)


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Return the group, shared by the tests of the module."""
    with SecuredGroup(tmp_path_factory.mktemp("fronts") / "run", USERS, {"T": ""}) as made:
        yield made


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
