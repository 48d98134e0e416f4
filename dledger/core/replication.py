"""A leader's messages to followers: pushes within their bounds, probes, heartbeats.

The answers are handled in `leader`; followers that lack deleted entries are handled in
`catch_up`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core import catch_up
from dledger.core.messages import Heartbeat, Push
from dledger.core.state import voting_rights
from dledger.core.state.progress import Progress
from dledger.types import NO_INDEX

if TYPE_CHECKING:
    from dledger.core.state.consensus import State

# Rounds whose start time is kept; an answer to an older round would renew a lease that has already expired.
_ROUND_TIMES_MAX = 64


def follow(state: State, peer: str) -> None:
    """Begin to replicate to `peer`, whose log is not known yet."""
    now_ms = state.now_ms
    next_index = state.log.last_index + 1
    state.leader.progress[peer] = Progress(
        next_index=next_index, contact_ms=now_ms, steady_since_ms=now_ms, quota_ms=now_ms
    )


def push(state: State, peer: str) -> None:
    """Send as many entries as the peer's window and the bounds on bytes allow."""
    progress = state.leader.progress[peer]
    progress.is_throttled = False
    if state.now_ms < progress.paused_until_ms:
        return
    if progress.installation is not None or progress.next_index < state.log.begin_index:
        if progress.installation is None:
            catch_up.begin(state, peer, progress)
        else:
            catch_up.continue_installation(state, peer, progress)
        return
    if progress.is_probing:
        if not progress.is_waiting:
            _send_probe(state, peer, progress)
        return
    while progress.next_index <= state.written_index and _has_space(state, progress):
        _send_push(state, peer, progress)


def _has_space(state: State, progress: Progress) -> bool:
    """Return whether the bounds for this peer and for all peers, and the catch-up quota, allow another push."""
    config = state.config
    in_flight = progress.in_flight
    if len(in_flight) >= config.max_push_window or progress.in_flight_size_bytes >= config.max_in_flight_size_bytes:
        return False
    if in_flight and config.max_in_flight_total_size_bytes <= sum(
        other.in_flight_size_bytes for other in state.leader.progress.values()
    ):
        progress.is_throttled = True
        return False
    if _is_catching_up(state, progress) and not progress.has_quota(config.peer_push_quota, state.now_ms):
        progress.is_throttled = True
        return False
    return True


def _is_catching_up(state: State, progress: Progress) -> bool:
    """Return whether the peer receives entries that were committed long ago, for which no client waits."""
    return progress.next_index + state.config.max_leadership_transfer_wait_index < state.commit_index


def _send_push(state: State, peer: str, progress: Progress) -> None:
    config = state.config
    span = state.fit(progress.next_index, state.written_index, config.max_push_size_bytes)
    prev_index = span.first_index - 1
    state.send(
        peer,
        Push(
            term=state.term,
            prev_index=prev_index,
            prev_term=state.log.term_at(prev_index),
            commit_index=min(state.commit_index, span.last_index),
            span=span,
            is_founding=voting_rights.is_founding_for(state, peer, progress),
            group_id=state.group_id,
        ),
    )
    progress.commit_sent = min(state.commit_index, span.last_index)
    if _is_catching_up(state, progress):
        progress.quota_bytes -= span.length
    progress.sent_push(span.last_index, span.length, state.now_ms)


def _send_probe(state: State, peer: str, progress: Progress) -> None:
    """Ask whether the logs agree before `next_index`."""
    prev_index = progress.next_index - 1
    state.send(
        peer,
        Push(
            term=state.term,
            prev_index=prev_index,
            prev_term=state.log.term_at(prev_index),
            commit_index=min(state.commit_index, prev_index),
            span=None,
            is_founding=voting_rights.is_founding_for(state, peer, progress),
            group_id=state.group_id,
            acknowledged_by=_acknowledged_by(state, peer, progress),
        ),
    )
    progress.asked(state.now_ms)


def _acknowledged_by(state: State, peer: str, progress: Progress) -> int | None:
    """Return the incarnation of `peer` that acknowledged the entry of the next probe, if it has a vote to give up.

    If it lacks the entry, it gives up its vote (`core.follower`), and only a majority without it can readmit it. So it
    is not asked while there is none: one lost acknowledgement would otherwise stop the group.
    """
    is_acknowledged = NO_INDEX < progress.match_index == progress.next_index - 1
    if not (is_acknowledged and voting_rights.counts(state, peer, progress) and _can_readmit(state, peer)):
        return None
    return progress.incarnation


def _can_readmit(state: State, peer: str) -> bool:
    """Return whether a majority of the voters is live and has matching logs without `peer`.

    A voter that is being probed, too, may have lost entries at the same time.
    """
    time_out_ms = state.config.max_election_timeout_ms
    able = 0
    for voter in state.voters:
        if voter == state.self_id:
            able += 1
        elif voter != peer:
            progress = state.leader.progress[voter]
            is_matched = not progress.is_probing and voting_rights.counts(state, voter, progress)
            able += is_matched and progress.is_live(state.now_ms, time_out_ms)
    return able >= state.quorum


def retry(state: State, peer: str, progress: Progress) -> None:
    """Consider everything in flight to `peer` lost, and probe again."""
    if progress.installation is None:
        progress.retry()
        push(state, peer)
    else:
        catch_up.retry(state, peer, progress)


def broadcast_heartbeat(state: State) -> None:
    """Begin a heartbeat round."""
    leader = state.leader
    leader.round += 1
    leader.renews_lease = state.now_ms < leader.lease_wanted_until_ms
    if leader.renews_lease:
        leader.round_times.append((leader.round, state.now_ms))
        if len(leader.round_times) > _ROUND_TIMES_MAX:
            leader.round_times.popleft()
    else:
        leader.round_times.clear()
    leader.heartbeat_due_ms = state.now_ms + state.config.heart_beat_time_interval_ms
    for peer, progress in leader.progress.items():
        send_heartbeat(state, peer, progress)


def send_heartbeat(state: State, peer: str, progress: Progress) -> None:
    """Send `peer` a heartbeat with the commit index, at most the peer's match index."""
    commit_index = min(progress.match_index, state.commit_index)
    progress.commit_sent = commit_index
    is_founding = voting_rights.is_founding_for(state, peer, progress)
    leader = state.leader
    heartbeat = Heartbeat(
        state.term, commit_index, leader.round, is_founding, state.group_id, renews_lease=leader.renews_lease
    )
    state.send(peer, heartbeat)
