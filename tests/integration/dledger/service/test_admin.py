"""The AdminService of real nodes over real gRPC: its lists, its answers, and invalid input."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from dledger.errors import ResponseCode
from dledger.service.log import start_server
from dledger.v1 import admin_pb2
from dledger.v1.admin_pb2_grpc import AdminServiceStub

if TYPE_CHECKING:
    from dledger.node.node import Node
    from tests.integration.dledger.conftest import Cluster

Run = Callable[[Coroutine[Any, Any, None]], None]
GROUP = {"group": "test"}


@asynccontextmanager
async def served(node: Node) -> AsyncIterator[AdminServiceStub]:
    server = await start_server(node, node.config.client_address)
    async with grpc.aio.insecure_channel(str(node.config.client_address)) as channel:
        yield AdminServiceStub(channel)
    await server.stop(None)


def test_every_node_lists_the_members_and_the_leader_also_their_progress(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.linked()
        result = await cluster.append(b"one")
        leader = await cluster.in_contact()
        await cluster.eventually(lambda: all(p.match_index == result.first_index for p in leader.status().peers))
        # Followers learn of a commit with the leader's next message.
        nodes = cluster.nodes.values()
        await cluster.eventually(lambda: all(node.status().commit_index == result.first_index for node in nodes))
        for node in cluster.nodes.values():
            async with served(node) as stub:
                listed = await stub.ListMembers(admin_pb2.ListMembersRequest(**GROUP))
                # The first entry of a group is the membership that gives the group its id.
                assert (listed.code, listed.membership_index, listed.is_committed) == (200, 0, True)
                assert [(member.id, member.is_voter) for member in listed.members] == [
                    (node_id, True) for node_id in ("n0", "n1", "n2")
                ]
                assert listed.leader.id == leader.config.self_id
                expected = sorted(set(cluster.nodes) - {node.config.self_id}) if node is leader else []
                assert [peer.id for peer in listed.peers] == expected
                assert all(peer.is_live and peer.is_counted and not peer.is_disk_unhealthy for peer in listed.peers)
                assert all(peer.client_address for peer in listed.peers)
        await cluster.stop()

    run(main())


def test_follower_and_wrong_group_are_refused_and_the_leader_is_named(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.linked()
        follower, leader = await cluster.follower(), await cluster.leader()
        async with served(follower) as stub:
            requests = {
                stub.AddMember: admin_pb2.AddMemberRequest(**GROUP, id="n9", address="127.0.0.1:9"),
                stub.PromoteMember: admin_pb2.PromoteMemberRequest(**GROUP, id="n9"),
                stub.RemoveMember: admin_pb2.RemoveMemberRequest(**GROUP, id="n9"),
                stub.TransferLeadership: admin_pb2.TransferLeadershipRequest(**GROUP, id="n0"),
            }
            for method, request in requests.items():
                answer = await method(request)
                assert answer.code == ResponseCode.NOT_LEADER
                assert answer.leader.id == leader.config.self_id
                assert answer.leader.address == str(leader.config.client_address)
                request.group = "other"
                refused = await method(request)
                assert refused.code == ResponseCode.UNKNOWN_GROUP
                assert "'test', not 'other'" in refused.message
            listed = await stub.ListMembers(admin_pb2.ListMembersRequest(group="other"))
            assert listed.code == ResponseCode.UNKNOWN_GROUP
        registry = cluster.registries[follower.config.self_id]
        labels = {"group": "test", "self_id": follower.config.self_id, "code": "NOT_LEADER"}
        assert registry.get_sample_value("dledger_refusals_total", labels) == 4
        await cluster.stop()

    run(main())


@pytest.mark.parametrize(("member_id", "address"), [("../n9", "127.0.0.1:9"), ("n9", "nowhere"), ("", "127.0.0.1:9")])
def test_invalid_names_and_addresses_are_refused_before_they_reach_the_log(
    run: Run, cluster: Cluster, member_id: str, address: str
) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"one")
        leader = await cluster.leader()
        async with served(leader) as stub:
            answer = await stub.AddMember(admin_pb2.AddMemberRequest(**GROUP, id=member_id, address=address))
            assert answer.code == ResponseCode.UNEXPECTED_ARGUMENT
            assert answer.message
        await cluster.stop()

    run(main())


def test_stopped_node_refuses_requests_with_a_code(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        node = await cluster.leader()
        async with served(node) as stub:
            await cluster.stop(node.config.self_id)
            answer = await stub.RemoveMember(admin_pb2.RemoveMemberRequest(**GROUP, id="n0"))
            assert answer.code == ResponseCode.INTERNAL_ERROR
            listed = await stub.ListMembers(admin_pb2.ListMembersRequest(**GROUP))
            assert listed.code == ResponseCode.INTERNAL_ERROR
        await cluster.stop()

    run(main())
