"""Nodes that join, are promoted, removed, wiped; leadership transfers: real nodes over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dledger.core.events import MembershipAction
from dledger.errors import ResponseCode
from dledger.pending.requests import PENDING_MAX, RequestResult

if TYPE_CHECKING:
    from dledger.node.node import Node
    from dledger.node.status import PeerStatus
    from tests.integration.dledger.conftest import Cluster

Run = Callable[[Coroutine[Any, Any, None]], None]


async def change(cluster: Cluster, action: MembershipAction, node_id: str) -> RequestResult:
    leader = await cluster.leader()
    return await leader.change_membership(action, node_id, str(cluster.configs[node_id].self_address))


async def changed(cluster: Cluster, action: MembershipAction, node_id: str) -> None:
    """Repeat the request until it succeeds; a learner needs time to catch up."""
    while True:
        result = await change(cluster, action, node_id)
        if result.code is ResponseCode.SUCCESS:
            return
        retriable = (ResponseCode.FALL_BEHIND_TOO_MUCH, ResponseCode.NETWORK_ERROR, ResponseCode.LEADER_NOT_READY)
        assert result.code in (*retriable, ResponseCode.REPEATED_REQUEST), result
        await asyncio.sleep(0.01)


async def transfer_to_follower(cluster: Cluster) -> Node:
    """Transfer the leadership to a follower; return it. One whose disk is slow may not catch up in time."""
    while True:
        leader, target = await cluster.leader(), await cluster.follower()
        result = await leader.transfer_leadership(target.config.self_id)
        if result.code is ResponseCode.SUCCESS:
            return target
        assert result.code in (ResponseCode.TAKE_LEADERSHIP_FAILED, ResponseCode.NOT_LEADER), result


def peer_of(leader: Node, node_id: str) -> PeerStatus:
    return next(peer for peer in leader.status().peers if peer.id == node_id)


def voters_of(node: Node) -> list[str]:
    return list(node.status().membership.membership.voters)


def test_node_joins_as_a_learner_and_replaces_an_old_voter(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        bodies = [b"%d" % number for number in range(500)]
        await cluster.append(*bodies)
        config = cluster.invite("n3")
        await changed(cluster, MembershipAction.ADD, "n3")
        await changed(cluster, MembershipAction.ADD, "n3")
        result = await cluster.append(b"with a learner that has not started yet")
        await cluster.start("n3")
        newcomer = cluster.nodes["n3"]
        await newcomer.wait_commit(result.first_index - 1)
        leader = await cluster.leader()
        await cluster.eventually(lambda: peer_of(leader, "n3").is_live)
        assert not peer_of(leader, "n3").is_voter
        assert voters_of(newcomer) == ["n0", "n1", "n2"]

        await changed(cluster, MembershipAction.PROMOTE, "n3")
        old = (await cluster.follower()).config.self_id
        await changed(cluster, MembershipAction.REMOVE, old)
        await cluster.eventually(lambda: voters_of(newcomer) == voters_of(leader))
        assert old not in voters_of(newcomer)
        assert "n3" in voters_of(newcomer)
        removed = cluster.nodes[old]
        await cluster.eventually(lambda: old not in removed.status().membership.membership.voters)
        await cluster.stop(old)

        # The settings of all nodes are unchanged; the members are in the log.
        await cluster.stop()
        ids = [node_id for node_id in cluster.configs if node_id != old]
        await cluster.start(*ids)
        result = await cluster.append(b"after")
        for node_id in ids:
            await cluster.nodes[node_id].wait_commit(result.first_index - 1)
            found = cluster.bodies(cluster.nodes[node_id], result.first_index)
            assert found == [*bodies, b"with a learner that has not started yet", b"after"]
        assert config.is_joining
        await cluster.stop()

    run(main())


def test_leader_that_removes_itself_hands_over_and_reports_that_it_is_no_member(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"one")
        leader = await cluster.in_contact()
        result = await leader.change_membership(MembershipAction.REMOVE, leader.config.self_id)
        assert result.code is ResponseCode.SUCCESS, result
        await cluster.eventually(lambda: not leader.is_leader)
        others = [node for node in cluster.nodes.values() if node is not leader]
        await cluster.eventually(lambda: any(node.is_leader for node in others))
        assert leader.append([b"two"]).result().code is ResponseCode.NOT_LEADER
        await cluster.eventually(lambda: leader.status().is_membership_committed)
        assert leader.status().membership.membership.get(leader.config.self_id) is None
        await cluster.stop(leader.config.self_id)
        await cluster.append(b"two")
        await cluster.stop()

    run(main())


def test_invalid_membership_change_is_refused_with_its_code(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"one")
        leader, follower = await cluster.leader(), await cluster.follower()
        taken = str(follower.config.self_address)
        table = [
            (leader, (MembershipAction.ADD, "../n9", "127.0.0.1:9"), ResponseCode.UNEXPECTED_ARGUMENT),
            (leader, (MembershipAction.ADD, "n9", "nowhere"), ResponseCode.UNEXPECTED_ARGUMENT),
            (leader, (MembershipAction.ADD, "n9", taken), ResponseCode.UNEXPECTED_ARGUMENT),
            (leader, (MembershipAction.ADD, follower.config.self_id, "127.0.0.1:9"), ResponseCode.UNEXPECTED_MEMBER),
            (leader, (MembershipAction.PROMOTE, "n9"), ResponseCode.UNKNOWN_MEMBER),
            (leader, (MembershipAction.REMOVE, "n9"), ResponseCode.UNKNOWN_MEMBER),
            (follower, (MembershipAction.REMOVE, "n9"), ResponseCode.NOT_LEADER),
        ]
        for node, arguments, code in table:
            result = await node.change_membership(*arguments)
            assert result.code is code, (arguments, result)
            assert result.message
        assert (await leader.transfer_leadership("n9")).code is ResponseCode.UNKNOWN_MEMBER
        assert (await follower.transfer_leadership("n9")).code is ResponseCode.NOT_LEADER

        requests = [leader.change_membership(MembershipAction.REMOVE, "n9") for _ in range(PENDING_MAX + 1)]
        assert requests[PENDING_MAX].result().code is ResponseCode.REPEATED_REQUEST
        await asyncio.gather(*requests)
        await cluster.stop()

    run(main())


def test_change_without_a_majority_is_refused_or_left_open_and_ends(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"one")
        leader = await cluster.leader()
        cluster.invite("n3")
        leader._group._requests._timeout_s = 0.3
        cluster.silence_others(leader)
        address = str(cluster.configs["n3"].self_address)
        result = await leader.change_membership(MembershipAction.ADD, "n3", address)
        assert result.code in (ResponseCode.WAIT_QUORUM_ACK_TIMEOUT, ResponseCode.NOT_LEADER)
        assert result.message
        await cluster.stop()

    run(main())


def test_pending_requests_are_answered_when_the_node_stops(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        leader = await cluster.leader()
        future = leader.transfer_leadership((await cluster.follower()).config.self_id)
        await cluster.stop(leader.config.self_id)
        assert future.done()
        await cluster.stop()

    run(main())


def test_leadership_is_transferred_under_load_and_nothing_acknowledged_is_lost(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"begin")
        acknowledged: list[bytes] = []
        is_over = False

        async def load(name: int) -> None:
            number = 0
            while not is_over:
                body = b"%d-%d" % (name, number)
                await cluster.append(body)
                acknowledged.append(body)
                number += 1

        tasks = [asyncio.create_task(load(name)) for name in range(8)]
        for _ in range(3):
            count = len(acknowledged)
            await cluster.eventually(lambda count=count: len(acknowledged) > count + 20)
            target = await transfer_to_follower(cluster)
            await cluster.eventually(lambda target=target: target.is_leader)
            assert await cluster.leader() is target
        is_over = True
        await asyncio.gather(*tasks)
        node = await cluster.leader()
        found = cluster.bodies(node, await cluster.read_index(node))
        assert sorted(found) == sorted([b"begin", *acknowledged])
        await cluster.stop()

    run(main())


def test_wiped_node_gets_the_log_and_its_vote_again(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        bodies = [b"%d" % number for number in range(300)]
        await cluster.append(*bodies)
        wiped = (await cluster.follower()).config.self_id
        await cluster.stop(wiped)
        cluster.wipe(wiped)
        await cluster.append(b"while it was away")
        await cluster.start(wiped)
        leader = await cluster.leader()

        def incarnation_in_the_log() -> int:
            member = leader.status().membership.membership.get(wiped)
            assert member is not None
            return member.incarnation

        await cluster.eventually(incarnation_in_the_log)
        assert incarnation_in_the_log() == cluster.nodes[wiped].status().incarnation
        await cluster.eventually(lambda: peer_of(leader, wiped).is_counted)

        third = next(node_id for node_id in cluster.nodes if node_id not in (wiped, leader.config.self_id))
        await cluster.stop(third)
        result = await cluster.append(b"with its vote")
        await cluster.nodes[wiped].wait_commit(result.first_index - 1)
        found = cluster.bodies(cluster.nodes[wiped], result.first_index)
        assert found == [*bodies, b"while it was away", b"with its vote"]
        await cluster.stop()

    run(main())


def test_preferred_node_gets_the_leadership_and_keeps_it(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        raft = replace(
            cluster.configs["n0"].raft, preferred_leader_ids=("n9", "n2", "n1"), preferred_leader_interval_ms=50
        )
        await cluster.start(raft=raft)
        await cluster.eventually(lambda: cluster.nodes["n2"].is_leader or cluster.nodes["n1"].is_leader)
        leader = await cluster.leader()
        term = leader.status().term
        for _ in range(50):
            await cluster.append(b"x")
            await asyncio.sleep(0.01)
        assert await cluster.leader() is leader, "nothing moves between preferred nodes"
        assert leader.status().term == term
        await cluster.stop(leader.config.self_id)
        other = "n1" if leader.config.self_id == "n2" else "n2"
        await cluster.eventually(lambda: cluster.nodes[other].is_leader)
        await cluster.append(b"y")
        await cluster.stop()

    run(main())
