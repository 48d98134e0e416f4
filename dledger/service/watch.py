"""The stream of `AdminService.Watch`: a node's state, and its events, as messages.

A reader that is slow costs the node nothing: gRPC's flow control stops this stream, the next state that it sends is the
newest one, and the events that the node has overwritten meanwhile are counted in a gap.

Not here: which events there are and how long they are kept (`dledger.node.watching`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from dledger.errors import ResponseCode
from dledger.node.watching.state import known
from dledger.pending.reads import RequestRefused
from dledger.service.answers import group_id_of, hint, member_of, members_of
from dledger.v1 import watch_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from dledger.node.watching.events import NodeEvent
    from dledger.node.watching.state import WatchedState
    from dledger.node.watching.watching import NodeWatching

INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 60_000
# A reader that gets nothing for a few seconds knows that the stream is dead, however idle the node is.
_SILENCE_S_MAX: Final = 1.0
# After a response with events the next one waits this long, so that a flood of votes is sent in few responses.
_EVENTS_PAUSE_S: Final = 0.01
_EVENTS_MAX: Final = 256


async def watch_node(
    watching: NodeWatching, request: watch_pb2.WatchRequest
) -> AsyncGenerator[watch_pb2.WatchResponse, None]:
    """Stream the state and the events of a node until the caller ends it.

    Raises:
        RequestRefused: the request is wrong, all places are taken, or the node stopped.
    """
    interval_s = _interval_ms_of(request) / 1_000
    with watching.place():
        sequence = _begin_of(watching, request)
        shown: WatchedState | None = None
        silent_since_s = 0.0
        now_s = asyncio.get_running_loop().time
        while True:
            events = watching.recorder.after(sequence, _EVENTS_MAX)
            state = watching.state()
            if events or state != shown or now_s() - silent_since_s >= _SILENCE_S_MAX:
                sequence = events[-1].sequence if events else watching.recorder.last_sequence
                yield _response(watching, sequence, events, state)
                shown, silent_since_s = state, now_s()
            if events:
                await asyncio.sleep(_EVENTS_PAUSE_S)
            await watching.wait(sequence, min(interval_s, _SILENCE_S_MAX))


def _interval_ms_of(request: watch_pb2.WatchRequest) -> int:
    interval_ms = request.interval_ms or INTERVAL_MS_MIN
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        message = f"interval_ms: expected {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}, or 0, found {interval_ms}"
        raise RequestRefused(ResponseCode.UNEXPECTED_ARGUMENT, message)
    return interval_ms


def _begin_of(watching: NodeWatching, request: watch_pb2.WatchRequest) -> int:
    """Return the sequence number after which the events begin."""
    last_sequence = watching.recorder.last_sequence
    if not request.HasField("after_sequence"):
        return last_sequence
    if request.process and request.process != watching.process:
        # Another process numbered it.
        return 0
    if not 0 <= request.after_sequence <= last_sequence:
        message = f"after_sequence: expected 0 to {last_sequence}, found {request.after_sequence}"
        raise RequestRefused(ResponseCode.UNEXPECTED_ARGUMENT, message)
    return request.after_sequence


def _response(
    watching: NodeWatching, sequence: int, events: Sequence[NodeEvent], state: WatchedState
) -> watch_pb2.WatchResponse:
    clocks = watching.read_clocks()
    return watch_pb2.WatchResponse(
        code=ResponseCode.SUCCESS,
        leader=hint(state.status.leader),
        process=watching.process,
        sequence=sequence,
        wall_ms=int(clocks.wall_s * 1_000),
        monotonic_ms=int(clocks.monotonic_s * 1_000),
        events=map(_event_of, events),
        state=_state_of(state),
    )


def _state_of(state: WatchedState) -> watch_pb2.WatchState:
    status = state.status
    return watch_pb2.WatchState(
        group=status.group,
        group_id=group_id_of(status) or None,
        self_id=status.self_id,
        role=status.role.value,
        term=status.term,
        voted_for=state.voted_for,
        leader_id=status.leader.id or None,
        leader_address=status.leader.client_address or None,
        is_pre_vote=state.is_pre_vote,
        transfer_target=state.transfer_target,
        begin_index=status.begin_index,
        last_index=known(status.end_index),
        durable_index=state.durable_index,
        commit_index=known(status.commit_index),
        applied_index=known(status.applied_index),
        snapshot_index=known(status.snapshot_index),
        members=members_of(status),
        membership_index=known(status.membership.index),
        is_membership_committed=status.is_membership_committed,
        is_disk_full=status.is_disk_full,
        is_disk_stalled=status.is_disk_stalled,
        is_founding=status.is_founding,
        peers=[
            watch_pb2.WatchPeer(
                id=peer.id,
                is_voter=peer.is_voter,
                match_index=peer.match_index,
                sent_index=peer.sent_index,
                in_flight_bytes=peer.in_flight_bytes,
                answered_ms_ago=peer.answered_ms_ago,
                is_live=peer.is_live,
                is_counted=peer.is_counted,
                is_disk_unhealthy=not peer.is_disk_healthy,
                is_stalled=peer.is_stalled,
                snapshot_sent_bytes=peer.snapshot_sent_bytes,
                snapshot_size_bytes=peer.snapshot_size_bytes,
            )
            for peer in state.peers
        ],
    )


def _event_of(event: NodeEvent) -> watch_pb2.WatchEvent:
    details = event.details
    return watch_pb2.WatchEvent(
        sequence=event.sequence,
        kind=watch_pb2.WatchEventKind.ValueType(event.kind.value),
        wall_ms=event.wall_ms,
        monotonic_ms=event.monotonic_ms,
        role=event.role.value,
        term=event.term,
        leader_id=event.leader_id,
        peer_id=details.peer_id,
        vote_term=details.vote_term,
        is_pre_vote=details.is_pre_vote,
        is_granted=details.is_granted,
        cause=details.cause,
        index=details.index,
        members=map(member_of, details.members),
        is_committed=details.is_committed,
        lost_count=details.lost_count,
    )
