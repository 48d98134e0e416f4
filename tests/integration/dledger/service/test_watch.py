"""`AdminService.Watch` of real nodes over real gRPC: state, events of elections and stalls, gaps and bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from dledger.errors import ResponseCode
from dledger.node.watching.events import EventKind
from dledger.node.watching.recorder import EVENTS_MAX
from dledger.service.log import start_server
from dledger.v1.admin_pb2_grpc import AdminServiceStub
from dledger.v1.watch_pb2 import WatchEvent, WatchEventKind, WatchRequest, WatchResponse
from tests.support.waiting import until

if TYPE_CHECKING:
    from dledger.node.node import Node
    from tests.integration.dledger.conftest import Cluster

Run = Callable[[Coroutine[Any, Any, None]], None]
Accept = Callable[[WatchResponse], bool]


@asynccontextmanager
async def served(node: Node) -> AsyncIterator[AdminServiceStub]:
    server = await start_server(node, node.config.client_address)
    async with grpc.aio.insecure_channel(str(node.config.client_address)) as channel:
        yield AdminServiceStub(channel)
    await server.stop(None)


def asked(**fields: Any) -> WatchRequest:
    return WatchRequest(group="test", **fields)


async def until_response(call: Any, accept: Accept) -> list[WatchResponse]:
    """Read responses up to the first that is accepted; the test's own time limit ends the wait."""
    responses = []
    while (response := await call.read()) is not grpc.aio.EOF:
        assert response.code == ResponseCode.SUCCESS, response
        responses.append(response)
        if accept(response):
            return responses
    raise AssertionError(f"the stream ended after {len(responses)} responses")


def kinds_of(responses: list[WatchResponse]) -> list[str]:
    prefix = "WATCH_EVENT_KIND_"
    return [WatchEventKind.Name(event.kind).removeprefix(prefix) for each in responses for event in each.events]


def test_every_node_shows_its_state_and_only_the_leader_shows_peers(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.linked()
        await cluster.append(b"one")
        for node in cluster.nodes.values():
            async with served(node) as stub:

                def is_settled(response: WatchResponse) -> bool:
                    # Of the leader of this moment: on a slow machine it may be another one than before.
                    state, leaders = response.state, cluster.leaders
                    if len(leaders) != 1:
                        return False
                    leader, last = leaders[0], leaders[0].status().end_index
                    return (
                        (state.term, state.leader_id) == (leader.term, leader.config.self_id)
                        and state.role == ("LEADER" if state.self_id == state.leader_id else "FOLLOWER")
                        and state.last_index == state.commit_index == state.durable_index == last
                        and all(peer.match_index == last and peer.is_live and peer.is_counted for peer in state.peers)
                        and state.leader_address != ""
                    )

                first = (await until_response(stub.Watch(asked()), is_settled))[-1]
                state = first.state
                assert state.self_id == node.config.self_id
                assert state.begin_index == 0
                assert [member.id for member in state.members] == ["n0", "n1", "n2"]
                others = sorted(set(cluster.nodes) - {state.self_id}) if state.role == "LEADER" else []
                assert [peer.id for peer in state.peers] == others
                assert all(peer.HasField("answered_ms_ago") for peer in state.peers)
                names = ("applied_index", "snapshot_index", "transfer_target")
                unknown = [name for name in names if state.HasField(name)]
                unknown += [peer.id for peer in state.peers if peer.HasField("snapshot_sent_bytes")]
                assert unknown == [], "what a node does not know is absent"
                assert first.process > 0
                assert first.wall_ms > 0
        await cluster.stop()

    run(main())


async def collect(call: Any, events: list[WatchEvent]) -> None:
    """Add all events of a stream to `events`, until it ends."""
    while (response := await call.read()) is not grpc.aio.EOF:
        events += response.events


def election_of(streams: dict[str, list[WatchEvent]]) -> tuple[str, int] | None:
    """Return winner and term of an election with its pre-vote, which another node followed; else None."""
    for winner, events in streams.items():
        begun = {event.term for event in events if event.kind == WatchEventKind.WATCH_EVENT_KIND_PRE_VOTE_BEGUN}
        for won in (
            event
            for event in events
            if event.kind == WatchEventKind.WATCH_EVENT_KIND_ELECTED and event.term - 1 in begun
        ):
            for others in streams.values():
                for seen in others:
                    is_seen = seen.kind == WatchEventKind.WATCH_EVENT_KIND_LEADER_SEEN
                    if is_seen and (seen.leader_id, seen.term) == (winner, won.term):
                        return winner, won.term
    return None


def votes_of(events: list[WatchEvent], kind: WatchEventKind.ValueType, term: int) -> set[tuple[str, bool, bool]]:
    """Return node, whether it is a pre-vote and whether it is granted, of all votes for a term."""
    votes = [event for event in events if event.kind == kind and event.vote_term == term]
    return {(event.peer_id, event.is_pre_vote, event.is_granted) for event in votes}


def test_a_failover_is_seen_as_pre_vote_candidacy_votes_and_leader(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.linked()
        await cluster.in_contact()
        streams: dict[str, list[WatchEvent]] = {node_id: [] for node_id in cluster.nodes}
        async with AsyncExitStack() as stack:
            for node_id, node in cluster.nodes.items():
                call = (await stack.enter_async_context(served(node))).Watch(asked())
                assert (await call.read()).code == ResponseCode.SUCCESS
                reading = asyncio.create_task(collect(call, streams[node_id]))
                stack.callback(reading.cancel)
            (await cluster.leader()).fail(RuntimeError("killed by the test"))
            winner, term = await until(lambda: election_of(streams))
            granting = {
                peer_id
                for peer_id, is_pre_vote, is_granted in votes_of(
                    streams[winner], WatchEventKind.WATCH_EVENT_KIND_VOTE_RECEIVED, term
                )
                if is_granted and not is_pre_vote
            }
            # The answers of voters come by streams of their own.
            answer, answered = (winner, False, True), WatchEventKind.WATCH_EVENT_KIND_VOTE_ANSWERED
            await until(lambda: all(answer in votes_of(streams[voter], answered, term) for voter in granting))

        assert granting
        steps = [(event.kind, event.term) for event in streams[winner]]
        begin, end = (
            steps.index((WatchEventKind.WATCH_EVENT_KIND_ELECTION_BEGUN, term)),
            steps.index((WatchEventKind.WATCH_EVENT_KIND_ELECTED, term)),
        )
        received = votes_of(streams[winner][:end], WatchEventKind.WATCH_EVENT_KIND_VOTE_RECEIVED, term)
        assert {is_pre_vote for _, is_pre_vote, is_granted in received if is_granted} == {True, False}
        assert (WatchEventKind.WATCH_EVENT_KIND_PRE_VOTE_BEGUN, term - 1) in steps[:begin]
        for events in streams.values():
            numbers = [event.sequence for event in events]
            assert all(after == before + 1 for before, after in pairwise(numbers)), numbers
        await cluster.stop()

    run(main())


async def stall_of(stub: AdminServiceStub, cluster: Cluster, leader: Node) -> tuple[str, list[WatchResponse]] | None:
    """Stop a follower, append, and return its id and what is shown up to its stall; None if another node leads."""
    follower_id = next(node_id for node_id, node in cluster.nodes.items() if node is not leader)
    call = stub.Watch(asked())
    await call.read()
    await cluster.stop(follower_id)
    await leader.append([b"not there"])
    ends = {"PUSH_STALLED", "STEPPED_DOWN"}
    responses = await until_response(call, lambda response: bool(ends & set(kinds_of([response]))))
    call.cancel()
    if "STEPPED_DOWN" in kinds_of(responses):
        await cluster.start(follower_id)
        return None
    return follower_id, responses


def test_a_follower_that_ends_stalls_with_a_cause_and_is_shown_again_when_it_is_back(
    run: Run, cluster: Cluster
) -> None:
    async def main() -> None:
        await cluster.start()
        while True:
            await cluster.linked()
            leader = await cluster.in_contact()
            async with served(leader) as stub:
                found = await stall_of(stub, cluster, leader)
                if found is None:
                    continue
                follower_id, responses = found
                stalled = [event for event in responses[-1].events if event.cause]
                assert [event.peer_id for event in stalled] == [follower_id]
                assert follower_id in {peer.id for peer in responses[-1].state.peers if peer.is_stalled}

                await cluster.start(follower_id)
                seen = set(kinds_of(responses))

                def is_back(response: WatchResponse, seen: set[str] = seen) -> bool:
                    seen.update(kinds_of([response]))
                    return {"PEER_LOST", "PEER_BACK", "PUSH_RESUMED"} <= seen or "STEPPED_DOWN" in seen

                resumed = asked(after_sequence=responses[-1].sequence, process=responses[-1].process)
                await until_response(stub.Watch(resumed), is_back)
                if "STEPPED_DOWN" not in seen:
                    break
        await cluster.stop()

    run(main())


async def transferred(cluster: Cluster) -> tuple[list[str], list[str]] | None:
    """Transfer the leadership; return the kinds of events at the old and the new leader. None: it failed."""
    leader = await cluster.in_contact()
    target = next(node for node in cluster.nodes.values() if node is not leader)
    async with served(leader) as old, served(target) as new:
        calls = [stub.Watch(asked()) for stub in (old, new)]
        for call in calls:
            await call.read()
        if (await leader.transfer_leadership(target.config.self_id)).code is not ResponseCode.SUCCESS:
            return None
        at_old = await until_response(calls[0], lambda response: "TRANSFER_ENDED" in kinds_of([response]))
        at_new = await until_response(calls[1], lambda response: "ELECTED" in kinds_of([response]))
    return kinds_of(at_old), kinds_of(at_new)


def test_a_transfer_is_shown_at_both_nodes(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.linked()
        # On a slow machine an election may come between.
        while (found := await transferred(cluster)) is None:
            pass
        old, new = found
        assert old.index("TRANSFER_BEGUN") < old.index("STEPPED_DOWN") < old.index("TRANSFER_ENDED")
        assert new.index("ELECTION_BEGUN") < new.index("ELECTED")
        await cluster.stop()

    run(main())


def test_a_reader_that_is_too_slow_gets_a_gap_and_then_the_newest_events(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start("n0")
        watching = cluster.nodes["n0"].watching
        async with served(cluster.nodes["n0"]) as stub:
            call = stub.Watch(asked())
            begin = (await call.read()).sequence
            # In one iteration of the loop, in which no reader can be quick enough.
            for index in range(3 * EVENTS_MAX):
                watching.recorder.truncated(index)
            end = watching.recorder.last_sequence

            responses = await until_response(call, lambda response: response.sequence >= end)
            events = [event for response in responses for event in response.events]
            gap = events[0]
            assert gap.kind == WatchEventKind.WATCH_EVENT_KIND_GAP
            assert gap.lost_count == gap.sequence - begin == end - EVENTS_MAX - begin
            assert [event.sequence for event in events[1:]] == list(range(gap.sequence + 1, events[-1].sequence + 1))
        await cluster.stop()

    run(main())


def test_events_before_the_call_are_sent_if_they_are_asked_for(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start("n0")
        recorder = cluster.nodes["n0"].watching.recorder
        for _ in range(3):
            recorder.peer(EventKind.PEER_LOST, "n9")
        async with served(cluster.nodes["n0"]) as stub:
            first = await stub.Watch(asked()).read()
            assert (list(first.events), first.sequence) == ([], recorder.last_sequence)
            after = first.sequence - 1
            resumed = await stub.Watch(asked(after_sequence=after, process=first.process)).read()
            assert resumed.events[0].sequence == after + 1
            of_another = await stub.Watch(asked(after_sequence=7_000, process=first.process + 1)).read()
            assert of_another.events[0].sequence == 1
        await cluster.stop()

    run(main())


def test_positions_are_sent_at_most_once_in_an_interval_and_silence_is_bounded(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start()
        await cluster.linked()
        leader = await cluster.in_contact()
        async with served(leader) as stub:
            call = stub.Watch(asked(interval_ms=200))
            first = await call.read()
            later = []
            while len(later) < 5:
                await cluster.append(b"x")
                later.append(await call.read())
            quiet = [each for each in [first, *later] if not each.events]
            times = [each.monotonic_ms for each in quiet]
            assert all(after - before >= 190 for before, after in pairwise(times)), times
            assert (await call.read()).HasField("state"), "an idle node sends its state, too"
        await cluster.stop()

    run(main())


def test_more_watchers_than_allowed_are_refused_and_places_become_free(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start("n0", max_watchers_num=2)
        node = cluster.nodes["n0"]
        async with served(node) as stub:
            calls = [stub.Watch(asked()) for _ in range(2)]
            for call in calls:
                assert (await call.read()).code == ResponseCode.SUCCESS
            refused = [response async for response in stub.Watch(asked())]
            assert [response.code for response in refused] == [ResponseCode.LEADER_PENDING_FULL]
            assert "max_watchers_num" in refused[0].message
            calls[0].cancel()
            await cluster.eventually(lambda: node.watching.watchers_count == 1)
            assert (await stub.Watch(asked()).read()).code == ResponseCode.SUCCESS
        await cluster.stop()

    run(main())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": "other"}, ResponseCode.UNKNOWN_GROUP),
        ({"interval_ms": 99}, ResponseCode.UNEXPECTED_ARGUMENT),
        ({"interval_ms": 60_001}, ResponseCode.UNEXPECTED_ARGUMENT),
        ({"after_sequence": -1}, ResponseCode.UNEXPECTED_ARGUMENT),
        ({"after_sequence": 1 << 40}, ResponseCode.UNEXPECTED_ARGUMENT),
    ],
)
def test_invalid_requests_are_refused_and_take_no_place(
    run: Run, cluster: Cluster, fields: dict[str, Any], code: ResponseCode
) -> None:
    async def main() -> None:
        await cluster.start("n0")
        node = cluster.nodes["n0"]
        async with served(node) as stub:
            responses = [response async for response in stub.Watch(WatchRequest(**{"group": "test", **fields}))]
            assert [response.code for response in responses] == [code]
            assert node.watching.watchers_count == 0
        await cluster.stop()

    run(main())


def test_a_stream_ends_with_the_reason_when_its_node_stops(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start("n0")
        node = cluster.nodes["n0"]
        async with served(node) as stub:
            call = stub.Watch(asked())
            first = await call.read()
            await cluster.stop("n0")
            responses = [first]
            while (response := await call.read()) is not grpc.aio.EOF:
                responses.append(response)
            assert responses[-1].code == ResponseCode.INTERNAL_ERROR
            assert node.watching.watchers_count == 0

    run(main())
