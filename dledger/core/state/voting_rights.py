"""The rights of a node whose directory was empty, or whose disk was lost, as one table (ADR 7, ADR 18).

A disk that is empty does not say whether the group is new or the disk was wiped. So a node that begins with nothing is
*founding* until it meets a leader. If that leader was elected by all voters in the first election of the group, and
with this node's vote, the node is a full member. If not, it may have promised what it no longer knows: it draws a new
*incarnation*, and the group does not count its vote until a committed membership names that one.

Not here: the entry that names it (`dledger.core.membership_changes.readmit`), and what is founding on disk
(`dledger.node.persistent_state`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from dledger.types import GROUP_ID_END, INCARNATION_END, NO_GROUP, NO_INDEX

if TYPE_CHECKING:
    from dledger.core.config import RaftConfig
    from dledger.core.messages import VoteRequest
    from dledger.core.state.consensus import State
    from dledger.core.state.progress import Progress
    from dledger.core.state.roles import Candidate


class VotingStatus(Enum):
    """Whether a node still has the state of its earlier votes and acknowledgements, and the group knows it."""

    FOUNDING = "a voter that began with nothing and has met no leader"
    COUNTED = "a voter with the incarnation that the membership names"
    NOT_COUNTED = "a voter that lost its disk, or a tail of its log, and whose new incarnation no membership names yet"
    NON_VOTER = "no voter: a learner, a node that was removed, or one that was never added"


@dataclass(frozen=True, slots=True)
class VotingRights:
    """A row of the table: what a node of that status may do.

    Attributes:
        campaigns: ask for votes.
        elects: its vote, if it gives one, makes a majority.
        founds: its vote counts where all voters vote alike for a founding node.
        commits: what it acknowledges counts.
    """

    campaigns: bool
    elects: bool
    founds: bool
    commits: bool


RIGHTS: Final = {
    VotingStatus.FOUNDING: VotingRights(campaigns=True, elects=False, founds=True, commits=False),
    # It founds the group only as the candidate: a founding one might have promised another id of the group.
    VotingStatus.COUNTED: VotingRights(campaigns=True, elects=True, founds=False, commits=True),
    # It takes entries like a learner, and gives no vote: a candidate asks for that of the name which the group knows.
    VotingStatus.NOT_COUNTED: VotingRights(campaigns=False, elects=False, founds=False, commits=False),
    # It may give a vote: whether it has one is for the candidate to know, whose membership may be newer.
    VotingStatus.NON_VOTER: VotingRights(campaigns=False, elects=False, founds=False, commits=False),
}


def voting_status_of(state: State) -> VotingStatus:
    """Return the row of the table for this node.

    One that a membership removes which is not known to be committed may be the only one that can win: it is still a
    voter, and does not count its own vote (dissertation §4.2.2).
    """
    known = state.incarnations.get(state.self_id)
    if known is None and len(state.memberships) > 1:
        committed = state.memberships[0].membership.get(state.self_id)
        known = committed.incarnation if committed is not None and committed.is_voter else None
    if known is None:
        return VotingStatus.NON_VOTER
    if state.is_founding:
        return VotingStatus.FOUNDING
    return VotingStatus.COUNTED if known == state.incarnation else VotingStatus.NOT_COUNTED


# ------------------------------------------------------------------------------------------------------ elections


def quiet_until_ms(config: RaftConfig, now_ms: int, *, is_founding: bool) -> int:
    """Return until when a node that starts gives no vote: it may have promised a leader its lease a moment ago.

    A founding node knows of no leader, and promised none anything that counts.
    """
    return now_ms if is_founding else now_ms + config.min_election_timeout_ms


def has_vote(state: State, request: VoteRequest) -> bool:
    """Return whether this node, as the disk knows it, is the one that the candidate wants a vote of."""
    return request.voter_incarnation == state.incarnation


def take_vote(candidate: Candidate, voter: str, *, is_founding: bool) -> None:
    """Count a vote; `is_founding`: its voter says that it is."""
    candidate.votes.add(voter)
    if is_founding:
        candidate.founding_votes.add(voter)


def has_majority(state: State, candidate: Candidate) -> bool:
    """Return whether a majority of voters that are not founding has voted for this node."""
    return len(candidate.votes) - len(candidate.founding_votes) >= state.quorum


def is_founded_by(state: State, candidate: Candidate) -> bool:
    """Return whether all voters have voted for this node, which has nothing to lose: so a group begins.

    Founding voters may have lost what they promised. So a group in which disks were wiped is never begun a second
    time without those that still hold its log. Where a voter is not founding, no founding candidate is elected: so
    every member by a founding knows the one id that all voters promised (`promise_group`).
    """
    is_pure = not state.is_founding or len(candidate.founding_votes) == len(state.voters)
    return len(candidate.votes) == len(state.voters) and is_pure and state.log.holds_only_no_ops


def name_group(state: State) -> None:
    """As a candidate that may found the group, have an id for it: the one that was promised last, or a new one."""
    if state.is_founding and state.named_group_id == NO_GROUP:
        state.founding_group_id = state.draw(1, GROUP_ID_END)


def promise_group(state: State, group_id: int) -> None:
    """With a vote, promise the id of the group that is to be founded; a node that is not founding keeps its own."""
    if state.is_founding:
        state.founding_group_id = group_id


def believed_group_id(state: State) -> int:
    """Return the only group of which leaders and candidates are believed; 0: this node knows of none yet.

    It is the one that is known to be committed, or the one of the founding that this node took part in. All voters gave
    their votes for that founding with this id, and saved it: a node that knows it refuses every founding of another
    group, which would need its vote, too; and elections by a majority need the votes of nodes that know it.
    """
    if state.committed_group_id != NO_GROUP or state.is_founding:
        return state.committed_group_id
    return state.founding_group_id


# ------------------------------------------------------------------------------------------------ the leader's side


def is_founding_for(state: State, peer: str, progress: Progress) -> bool:
    """Return whether `peer` has promised nothing yet in a group that this leader's election founded."""
    return progress.incarnation is None and peer in state.leader.founders


def is_being_founded(state: State) -> bool:
    """Return whether only a node with nothing to lose could be elected again, as a majority is still founding."""
    office = state.leader
    return bool(office.founders) and state.commit_index < office.term_start_index


def counts(state: State, peer: str, progress: Progress) -> bool:
    """Return whether what `peer` answers counts towards a majority."""
    return progress.incarnation is not None and state.incarnations.get(peer) == progress.incarnation


def recognise(state: State, peer: str, progress: Progress, incarnation: int) -> bool:
    """Record the name by which a peer answers; False: the answer is of a life before its disk was lost.

    An answer may come after those of a later life: what it acknowledges is gone. It is recognised by its name, which
    this leader has met before the present one, or which the membership counts while another one answers: a name that
    counts is older than any that does not count yet.
    """
    known = progress.incarnation
    if incarnation == known:
        return True
    if known is not None:
        counted = state.incarnations.get(peer, 0)
        if incarnation in (0, counted) or incarnation in progress.earlier_incarnations:
            return False
        progress.earlier_incarnations.append(known)
        # What it acknowledged before is gone.
        progress.match_index = NO_INDEX
        progress.retry()
    progress.incarnation = incarnation
    return True


# ---------------------------------------------------------------------------------------------- the follower's side


def meet_leader(state: State, leader_id: str, *, is_founding: bool) -> None:
    """End the founding of this node, if it is founding, at the first message of a leader.

    `is_founding`: the leader was elected by a founding, which needs the votes of all voters. A node that has no vote
    for this leader has therefore lost it, and the message was sent before that.
    """
    if state.is_founding:
        state.is_founding = False
        if not (is_founding and state.voted_for == leader_id):
            state.incarnation = state.draw(1, INCARNATION_END)
            state.founding_group_id = NO_GROUP
