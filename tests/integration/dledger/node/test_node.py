"""Three nodes in one process over loopback: elect, append, fail over, catch up, refuse, stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from dledger.errors import ResponseCode, outcome_of
from dledger.pending.reads import RequestRefused
from store.errors import Certainty, DirectoryLocked

if TYPE_CHECKING:
    from tests.integration.dledger.conftest import Cluster

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.usefixtures("both_forms")
def test_append_is_committed_and_readable_on_every_node(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        first = await cluster.append(b"one")
        second = await cluster.append(b"two", b"three")
        assert second.first_index == first.first_index + 1
        assert second.term == first.term
        assert second.positions == [first.positions[0] + 51, first.positions[0] + 102]
        last_index = second.first_index + 1
        for node in cluster.nodes.values():
            await node.wait_commit(last_index - 1)
            assert cluster.bodies(node, last_index) == [b"one", b"two", b"three"]
        await cluster.stop()

    run(main())


@pytest.mark.parametrize("is_flush_sync", [True, False])
def test_many_concurrent_appends_each_get_their_own_position(run: Run, cluster: Cluster, is_flush_sync: bool) -> None:
    async def main() -> None:
        await cluster.start(is_flush_sync=is_flush_sync)
        bodies = [b"%d" % number for number in range(2000)]
        codes: set[ResponseCode] = set()
        while codes != {ResponseCode.SUCCESS}:
            # On a busy machine a leader may be deposed meanwhile; then others of the same bodies are in the log before.
            leader = await cluster.leader()
            results = await asyncio.gather(*(leader.append([body]) for body in bodies))
            codes = {result.code for result in results}
            assert codes <= {
                ResponseCode.SUCCESS,
                ResponseCode.NOT_LEADER,
                ResponseCode.TERM_CHANGED,
                ResponseCode.WAIT_QUORUM_ACK_TIMEOUT,
            }
        last_index = results[-1].first_index
        assert [result.first_index for result in results] == list(range(last_index - 1999, last_index + 1))
        for node in cluster.nodes.values():
            await node.wait_commit(last_index - 1)
            assert cluster.bodies(node, last_index)[-len(bodies) :] == bodies
        await cluster.stop()

    run(main())


def test_log_rolls_over_data_files_and_batches_larger_than_a_push(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        body = bytes(range(256)) * 1200
        for _ in range(5):
            result = await cluster.append(body, body, body)
        last_index = result.first_index + 2
        for node in cluster.nodes.values():
            await node.wait_commit(last_index - 1)
            assert cluster.bodies(node, last_index) == [body] * 15
        await cluster.stop()

    run(main())


def test_another_node_leads_when_the_leader_stops_and_nothing_acknowledged_is_lost(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"before")
        old = await cluster.leader()
        await cluster.stop(old.config.self_id)
        result = await cluster.append(b"after")
        new = await cluster.leader()
        assert new is not old
        assert cluster.bodies(new, result.first_index) == [b"before", b"after"]
        await cluster.start(old.config.self_id)
        returned = cluster.nodes[old.config.self_id]
        await returned.wait_commit(result.first_index - 1)
        assert cluster.bodies(returned, result.first_index) == [b"before", b"after"]
        await cluster.stop()

    run(main())


def test_follower_that_was_away_catches_up_over_many_pushes(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        away = (await cluster.follower()).config.self_id
        await cluster.stop(away)
        bodies = [b"%06d" % number * 40 for number in range(8000)]
        for at in range(0, len(bodies), 500):
            result = await cluster.append(*bodies[at : at + 500])
        await cluster.start(away)
        last_index = result.first_index + 499
        await cluster.nodes[away].wait_commit(last_index - 1)
        assert cluster.bodies(cluster.nodes[away], last_index) == bodies
        await cluster.stop()

    run(main())


def test_all_nodes_restart_with_everything_that_was_acknowledged(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"one", b"two")
        term = (await cluster.leader()).status().term
        await cluster.stop()
        await cluster.start()
        result = await cluster.append(b"three")
        assert result.term > term
        assert cluster.bodies(await cluster.leader(), result.first_index) == [b"one", b"two", b"three"]
        await cluster.stop()

    run(main())


def test_append_to_a_follower_is_refused_at_once_and_names_the_leader(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        follower, leader = await cluster.follower(), await cluster.leader()
        future = follower.append([b"x"])
        assert future.done()
        assert future.result().code is ResponseCode.NOT_LEADER
        assert follower.leader().id == leader.config.self_id
        assert follower.leader().client_address == str(leader.config.client_address)
        await cluster.stop()

    run(main())


def test_follower_asks_the_leader_for_a_read_index(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        appended = await cluster.append(b"x")
        follower = await cluster.follower()
        await cluster.linked()
        assert await cluster.read_index(follower) >= appended.first_index
        assert follower.commit_index >= appended.first_index
        await cluster.stop()

    run(main())


def test_node_that_can_ask_no_leader_refuses_linearizable_reads(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"x")
        left = await cluster.follower()
        for node_id in [node_id for node_id, node in cluster.nodes.items() if node is not left]:
            await cluster.stop(node_id)
        with pytest.raises(RequestRefused) as refused:
            await left.read_index()
        assert refused.value.code is ResponseCode.NOT_LEADER
        await cluster.stop()

    run(main())


def test_read_index_covers_every_append_acknowledged_before(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        leader = await cluster.leader()
        await cluster.linked()
        for number in range(20):
            result = await cluster.append(b"%d" % number)
            for node in cluster.nodes.values():
                index = await cluster.read_index(node)
                assert node.commit_index >= index >= result.first_index
        indexes = await asyncio.gather(*(leader.read_index() for _ in range(50)))
        assert set(indexes) == {leader.commit_index}
        await cluster.stop()

    run(main())


def test_full_backlog_is_refused_at_once_and_clears(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start(max_pending_requests_num=10)
        leader = await cluster.leader()
        futures = [leader.append([b"x"]) for _ in range(11)]
        assert futures[10].done()
        assert futures[10].result().code is ResponseCode.LEADER_PENDING_FULL
        assert {(await future).code for future in futures[:10]} == {ResponseCode.SUCCESS}
        assert (await leader.append([b"x"])).code is ResponseCode.SUCCESS
        await cluster.stop()

    run(main())


def test_leader_without_a_quorum_leaves_the_outcome_open_and_steps_down(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"one")
        leader = await cluster.leader()
        leader._waiters.appends._timeout_s = 0.3
        cluster.silence_others(leader)
        result = await leader.append([b"two"])
        assert outcome_of(result.code) is Certainty.UNKNOWN
        await cluster.eventually(lambda: not leader.is_leader)
        assert leader.append([b"three"]).result().code is ResponseCode.NOT_LEADER
        await cluster.stop()

    run(main())


def test_batches_beyond_the_limits_are_distinguished_from_a_full_backlog(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start(max_pending_requests_num=10, max_pending_size_bytes=1000)
        leader = await cluster.leader()
        table = {
            ResponseCode.REQUEST_WITH_EMPTY_BODYS: [[]],
            ResponseCode.UNEXPECTED_ARGUMENT: [[b"x"] * 11, [b"x" * 1001], [b"x" * (2 << 20)]],
        }
        for code, batches in table.items():
            for bodies in batches:
                result = leader.append(bodies).result()
                assert result.code is code
                assert outcome_of(result.code) is Certainty.NOT_APPENDED
                assert result.message
        await cluster.stop()

    run(main())


def test_directory_of_a_running_node_is_locked(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start("n0")
        with pytest.raises(DirectoryLocked):
            await cluster.start("n0")
        await cluster.stop("n0")
        await cluster.start("n0")
        await cluster.stop("n0")

    run(main())


def test_stopped_node_refuses_requests(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        leader = await cluster.leader()
        await cluster.stop()
        assert leader.append([b"x"]).result().code is ResponseCode.NOT_LEADER
        with pytest.raises(RequestRefused):
            await leader.read_index()
        with pytest.raises(RequestRefused):
            await leader.wait_commit(1 << 40)
        assert not leader.failed.done()

    run(main())


def test_metrics_show_the_node_s_status(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"x")
        leader = await cluster.in_contact()
        registry = cluster.registries[leader.config.self_id]
        labels = {"group": "test", "self_id": leader.config.self_id}
        assert registry.get_sample_value("dledger_role", {**labels, "role": "LEADER"}) == 1
        assert registry.get_sample_value("dledger_commit_index", labels) == leader.commit_index
        assert registry.get_sample_value("dledger_append_latency_seconds_count", labels) == 1
        peer = (await cluster.follower()).config.self_id
        assert registry.get_sample_value("dledger_peer_live", {**labels, "peer": peer}) == 1
        await cluster.stop()

    run(main())
