"""Leadership transfer: on request, to a preferred leader that has caught up, or because this node must step down.

Sources: dissertation §3.10; DLedger `leadershipTransfer` and `preferredLeaderIds`. A target must be live, healthy and
almost caught up when the transfer begins, and have the leader's whole log when it is asked to campaign; until then
appends are refused. A transfer that has not succeeded within one election timeout is aborted, and appends are accepted
again.
"""

from __future__ import annotations

from dledger.core.events import RequestEnded, TransferBegun, TransferEnded
from dledger.core.messages import TimeoutNow
from dledger.core.state import voting_rights
from dledger.core.state.consensus import State, Transfer
from dledger.core.state.roles import Leader
from dledger.errors import ResponseCode
from dledger.types import Role

_PAUSE_MAX_MS = 60_000


def on_transfer(state: State, request_id: int, target: str) -> None:
    """Begin a requested transfer, or refuse it with the reason."""
    code, message = _fault_of(state, target)
    if code is ResponseCode.SUCCESS and target != state.self_id:
        _begin(state, target, request_id)
    else:
        state.emit(RequestEnded(request_id, code, message))


def _fault_of(state: State, target: str) -> tuple[ResponseCode, str]:
    if state.role is not Role.LEADER:
        return ResponseCode.NOT_LEADER, "this node is not the leader"
    if state.transfer is not None:
        return ResponseCode.LEADER_TRANSFERRING, f"the leadership is being transferred to {state.transfer.target}"
    if target not in state.voters:
        return ResponseCode.UNKNOWN_MEMBER, f"{target} is not a voter; the voters are {', '.join(state.voters)}"
    if target == state.self_id:
        return ResponseCode.SUCCESS, ""
    return _fault_of_follower(state, target)


def _fault_of_follower(state: State, target: str) -> tuple[ResponseCode, str]:
    if not _is_fit(state, target):
        return ResponseCode.TAKE_LEADERSHIP_FAILED, _cause_of(state, target)
    lag = state.log.last_index - state.leader.progress[target].match_index
    if lag > state.config.max_leadership_transfer_wait_index:
        allowed = state.config.max_leadership_transfer_wait_index
        return ResponseCode.FALL_BEHIND_TOO_MUCH, f"{target} lags by {lag} entries; at most {allowed} are allowed"
    return ResponseCode.SUCCESS, ""


def _is_fit(state: State, peer: str) -> bool:
    progress = state.leader.progress[peer]
    return (
        progress.is_live(state.now_ms, state.config.min_election_timeout_ms)
        and progress.is_healthy
        and progress.installation is None
        and voting_rights.counts(state, peer, progress)
    )


def _cause_of(state: State, peer: str) -> str:
    """Return the first reason why a voter cannot become leader; an operator resolves them one by one."""
    progress = state.leader.progress[peer]
    limit_ms = state.config.min_election_timeout_ms
    if not progress.is_live(state.now_ms, limit_ms):
        return f"{peer} has not answered for {limit_ms} ms or longer"
    if not progress.is_healthy:
        return f"{peer} reports that its disk accepts no appends"
    if progress.installation is not None:
        return f"{peer} is receiving a snapshot and the log after it; it cannot lead before it has both"
    return f"{peer} lost its disk and has no vote yet: the group readmits it when it has caught up"


def _begin(state: State, target: str, request_id: int | None) -> None:
    state.transfer = Transfer(target, request_id, state.now_ms + state.config.max_election_timeout_ms)
    state.emit(TransferBegun(target))
    ask_target(state)


def ask_target(state: State) -> None:
    """Ask the target to campaign if it has caught up."""
    transfer = state.transfer
    if transfer is None or state.role is not Role.LEADER:
        return
    progress = state.leader.progress.get(transfer.target)
    if progress is not None and progress.match_index == state.log.last_index:
        state.leader.is_lease_void = True
        state.send(transfer.target, TimeoutNow(state.term, state.group_id))


def tick(state: State) -> None:
    """Abort a transfer that has timed out."""
    transfer = state.transfer
    if transfer is None or state.now_ms < transfer.deadline_ms:
        return
    state.transfer = None
    state.emit(TransferEnded(transfer.target, None))
    if transfer.request_id is None:
        if isinstance(state.role_state, Leader):
            role_state, interval_ms = state.role_state, state.config.preferred_leader_interval_ms
            role_state.preferred_pause_ms = min(max(2 * role_state.preferred_pause_ms, interval_ms), _PAUSE_MAX_MS)
            role_state.preferred_due_ms = state.now_ms + role_state.preferred_pause_ms
    else:
        message = _why_given_up(state, transfer.target)
        state.emit(RequestEnded(transfer.request_id, ResponseCode.TAKE_LEADERSHIP_FAILED, message))


def _why_given_up(state: State, target: str) -> str:
    within = f"within {state.config.max_election_timeout_ms} ms"
    progress = state.leader.progress.get(target) if isinstance(state.role_state, Leader) else None
    if progress is None:
        return f"{target} did not become leader {within}"
    if not progress.is_live(state.now_ms, state.config.min_election_timeout_ms):
        return f"{target} stopped answering; it did not become leader {within}"
    lag = state.log.last_index - progress.match_index
    if lag > 0:
        return f"{target} did not receive the last {lag} entries {within}"
    return f"{target} has every entry and was asked to start an election, but was not elected {within}"


def transfer_to_preferred(state: State) -> None:
    """As a leader that is not preferred, transfer to the first preferred node that is fit, steady and caught up."""
    preferred = state.config.preferred_leader_ids
    leader = state.leader
    if not preferred or state.self_id in preferred or state.now_ms < leader.preferred_due_ms:
        return
    leader.preferred_due_ms = state.now_ms + state.config.preferred_leader_interval_ms
    if state.transfer is not None or state.commit_index < leader.term_start_index:
        return
    for target in preferred:
        progress = leader.progress.get(target)
        if target not in state.voters or progress is None or not _is_fit(state, target):
            continue
        is_steady = state.now_ms - progress.steady_since_ms >= state.config.preferred_leader_interval_ms
        if is_steady and progress.match_index >= state.commit_index:
            _begin(state, target, None)
            return


def check_full_disk(state: State) -> None:
    """As a leader whose disk is full, check regularly for a voter whose disk is not."""
    leader = state.leader
    if state.is_disk_full and state.now_ms >= leader.preferred_due_ms:
        leader.preferred_due_ms = state.now_ms + state.config.preferred_leader_interval_ms
        leave_full_disk(state)


def leave_full_disk(state: State) -> None:
    """If this node leads, transfer to the most advanced voter with free space; if there is none, continue to lead."""
    role_state = state.role_state
    if (
        not isinstance(role_state, Leader)
        or state.transfer is not None
        or state.commit_index < role_state.term_start_index
    ):
        return
    progress = role_state.progress
    index_min = state.log.last_index - state.config.max_leadership_transfer_wait_index
    with_free_space = [
        voter
        for voter in state.voters
        if voter != state.self_id and _is_fit(state, voter) and progress[voter].match_index >= index_min
    ]
    if with_free_space:
        _begin(state, max(with_free_space, key=lambda voter: progress[voter].match_index), None)


def hand_over(state: State) -> None:
    """Ask the follower with the highest match index to campaign, before this node resigns."""
    fit = [peer for peer in state.voters if peer != state.self_id and _is_fit(state, peer)]
    if fit:
        leader = state.leader
        best = max(fit, key=lambda peer: leader.progress[peer].match_index)
        leader.is_lease_void = True
        state.send(best, TimeoutNow(state.term, state.group_id))
