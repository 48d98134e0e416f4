"""Membership changes by a leader: one member at a time (dissertation §4.1, with the correction of 2015).

A change begins only when an entry of the leader's own term is committed and no other change is in progress; without the
first rule two leaders can commit memberships without a common voter. New members begin as learners, which receive the
log and do not count; they are promoted when they have caught up. A leader that removes itself leads until that is
committed, without counting itself, and then asks the follower with the highest match index to campaign (§4.2.2).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from dledger.core import replication, transfer
from dledger.core.events import AppendMembership, ChangeMembership, MembershipAction, RequestEnded, TransitionCause
from dledger.core.state import membership
from dledger.core.state.quorum import quorum_of
from dledger.core.state.roles import Change
from dledger.core.transitions import step_down
from dledger.errors import ResponseCode
from dledger.types import NO_INDEX, Member, Membership, MembershipEntry, Role

if TYPE_CHECKING:
    from dledger.core.state.consensus import State
    from dledger.core.state.progress import Progress

# Election timeouts for which a removed member still receives messages, so that it learns of its removal.
_REMOVED_PEER_TIMEOUTS = 4


def on_change(state: State, event: ChangeMembership) -> None:
    """Begin the requested change, or answer why not. Idempotent: a change that is already in force succeeds."""
    try:
        wanted = _wanted(state, event)
    except _Refused as refused:
        state.emit(RequestEnded(event.request_id, refused.code, refused.message))
        return
    if wanted == state.memberships[-1].membership:
        state.emit(RequestEnded(event.request_id, ResponseCode.SUCCESS, "the members are so already"))
        return
    _append(state, wanted)
    state.leader.change = Change(event.request_id, state.log.last_index)


class _Refused(Exception):
    def __init__(self, code: ResponseCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def _wanted(state: State, event: ChangeMembership) -> Membership:
    _check_may_change(state)
    current = state.memberships[-1].membership
    member = current.get(event.member_id)
    match event.action:
        case MembershipAction.ADD:
            if member is None:
                return current.with_member(Member(event.member_id, event.address, is_voter=False))
            if member.address == event.address:
                return current
            message = f"{member.id} is a member at {member.address}; remove it first"
            raise _Refused(ResponseCode.UNEXPECTED_MEMBER, message)
        case MembershipAction.PROMOTE:
            if member is None:
                raise _Refused(ResponseCode.UNKNOWN_MEMBER, f"{event.member_id} is not a member; add it first")
            return current if member.is_voter else _promoted(state, current, member)
        case MembershipAction.REMOVE:
            if member is None:
                raise _Refused(ResponseCode.UNKNOWN_MEMBER, f"{event.member_id} is not a member")
            wanted = current.without(member.id)
            _check_quorum_lives(state, wanted)
            return wanted


def _check_may_change(state: State) -> None:
    if state.role is not Role.LEADER:
        raise _Refused(ResponseCode.NOT_LEADER, "this node is not the leader")
    if state.transfer is not None:
        raise _Refused(
            ResponseCode.LEADER_TRANSFERRING, f"the leadership is being transferred to {state.transfer.target}"
        )
    if state.commit_index < state.leader.term_start_index:
        raise _Refused(ResponseCode.LEADER_NOT_READY, "no entry of this leader's term is committed yet; retry")
    if membership.is_changing(state):
        raise _Refused(ResponseCode.REPEATED_REQUEST, "another membership change is not committed yet; retry")


def _promoted(state: State, current: Membership, learner: Member) -> Membership:
    progress = state.leader.progress[learner.id]
    if progress.incarnation is None or not progress.is_live(state.now_ms, state.config.max_election_timeout_ms):
        raise _Refused(
            ResponseCode.NETWORK_ERROR, f"{learner.id} does not answer; check that it is started and reachable"
        )
    if progress.match_index == NO_INDEX:
        raise _Refused(ResponseCode.FALL_BEHIND_TOO_MUCH, f"{learner.id} has acknowledged nothing yet; retry")
    lag = state.commit_index - progress.match_index
    if lag > state.config.max_leadership_transfer_wait_index:
        allowed = state.config.max_leadership_transfer_wait_index
        message = f"{learner.id} lags by {lag} entries; retry when it lags by at most {allowed}"
        raise _Refused(ResponseCode.FALL_BEHIND_TOO_MUCH, message)
    wanted = current.with_member(replace(learner, is_voter=True, incarnation=progress.incarnation))
    _check_quorum_lives(state, wanted)
    return wanted


def _check_quorum_lives(state: State, wanted: Membership) -> None:
    """Refuse a change that would leave the group without a live majority: it could not be undone."""
    voters = wanted.voters
    if not voters:
        raise _Refused(ResponseCode.UNEXPECTED_ARGUMENT, "the last voter cannot be removed")
    silent = [voter for voter in voters if voter != state.self_id and not _is_in_contact(state, wanted, voter)]
    if len(voters) - len(silent) < quorum_of(len(voters)):
        names = ", ".join(voters)
        message = (
            f"too few of the remaining voters {names} would be available: {', '.join(silent)} cannot be counted now"
        )
        raise _Refused(ResponseCode.INCONSISTENT_STATE, message)


def _is_in_contact(state: State, wanted: Membership, voter: str) -> bool:
    """Return whether `voter` answered within an election timeout with the incarnation in `wanted`."""
    progress, member = state.leader.progress[voter], wanted.get(voter)
    is_live = progress.is_live(state.now_ms, state.config.max_election_timeout_ms)
    return is_live and member is not None and progress.incarnation == member.incarnation


def readmit(state: State, peer: str, progress: Progress) -> None:
    """Propose the membership in which a wiped voter's new incarnation counts, unless a change is pending (ADR 7)."""
    current = state.memberships[-1].membership
    member = current.get(peer)
    if member is None or not member.is_voter or progress.incarnation in (None, member.incarnation):
        return
    with suppress(_Refused):  # The next message of the peer repeats the attempt.
        _check_may_change(state)
        _append(state, current.with_member(replace(member, incarnation=progress.incarnation)))


def _append(state: State, wanted: Membership) -> None:
    # A voter that has not answered yet, or returns after a removal, may have been wiped: the founding is over.
    state.leader.founders = frozenset()
    entry = MembershipEntry(state.log.last_index + 1, wanted)
    membership.add(state, [entry])
    state.emit(AppendMembership(entry, state.term))
    state.log.append(entry.index, state.term)
    refresh_followers(state)


def refresh_followers(state: State) -> None:
    """Begin to replicate to new members, and schedule the end of replication to removed ones."""
    members = state.memberships[-1].membership.members
    for member in members:
        progress = state.leader.progress.get(member.id)
        if member.id == state.self_id:
            continue
        if progress is None:
            replication.follow(state, member.id)
        else:
            progress.leaves_ms = -1
    ids = {member.id for member in members}
    for peer, progress in state.leader.progress.items():
        if peer not in ids and progress.leaves_ms < 0:
            progress.leaves_ms = state.now_ms + _REMOVED_PEER_TIMEOUTS * state.config.max_election_timeout_ms


def forget_removed_peers(state: State) -> None:
    """End the replication to removed members that have received their removal, or after a time limit."""
    index = state.memberships[-1].index
    gone = [
        peer
        for peer, progress in state.leader.progress.items()
        if progress.leaves_ms >= 0 and (state.now_ms >= progress.leaves_ms or progress.commit_sent >= index)
    ]
    for peer in gone:
        del state.leader.progress[peer]


def committed(state: State) -> None:
    """Answer the request whose change is now committed; step down if the change removed this node."""
    change = state.leader.change
    if change is not None and state.commit_index >= change.index:
        state.leader.change = None
        state.emit(RequestEnded(change.request_id, ResponseCode.SUCCESS))
    if not membership.is_changing(state) and state.self_id not in state.voters:
        transfer.hand_over(state)
        step_down(state, TransitionCause.REMOVED)
