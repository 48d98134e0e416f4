"""The rights of a node whose directory was empty, or whose disk was lost, as one table (ADR 7, ADR 18).

An empty disk does not show whether the group is new or the disk was wiped. So a node with an empty disk is *founding*
until it receives the first message of a leader. If that leader was elected by all voters in the first election of the
group, including this node, the node is a full member. Otherwise the node may have lost votes and acknowledgements: it
draws a new *incarnation*, and the group does not count its vote until a committed membership contains that incarnation.

Not here: the membership entry (`dledger.core.membership_changes.readmit`), and the persistent form of founding
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
    """Whether a node still has its earlier votes and acknowledgements, according to its disk and the membership."""

    FOUNDING = "a voter that began with nothing and has met no leader"
    COUNTED = "a voter with the incarnation that the membership names"
    NOT_COUNTED = "a voter that lost its disk, or a tail of its log, and whose new incarnation no membership names yet"
    NON_VOTER = "no voter: a learner, a node that was removed, or one that was never added"


@dataclass(frozen=True, slots=True)
class VotingRights:
    """A row of the table: the rights of a node with that status.

    Attributes:
        campaigns: it may request votes.
        elects: its vote counts towards a majority.
        founds: its vote counts in an election that founds the group, which needs all voters.
        commits: its acknowledgements count towards a majority.
    """

    campaigns: bool
    elects: bool
    founds: bool
    commits: bool


RIGHTS: Final = {
    VotingStatus.FOUNDING: VotingRights(campaigns=True, elects=False, founds=True, commits=False),
    # It founds the group only as the candidate: a founding candidate might have agreed to another group id.
    VotingStatus.COUNTED: VotingRights(campaigns=True, elects=True, founds=False, commits=True),
    # It receives entries like a learner, and grants no vote: a candidate requests the vote of the incarnation in the
    # membership.
    VotingStatus.NOT_COUNTED: VotingRights(campaigns=False, elects=False, founds=False, commits=False),
    # It may grant a vote: the candidate decides whether it counts, because the candidate's membership may be newer.
    VotingStatus.NON_VOTER: VotingRights(campaigns=False, elects=False, founds=False, commits=False),
}


def voting_status_of(state: State) -> VotingStatus:
    """Return the row of the table for this node.

    A node that an uncommitted membership removes may be the only one that can win: it is still a voter, and does not
    count its own vote (dissertation §4.2.2).
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
    """Return the time before which a started node grants no vote: it may have extended a leader's lease just before.

    A founding node has received no leader's message, so no lease depends on it.
    """
    return now_ms if is_founding else now_ms + config.min_election_timeout_ms


def has_vote(state: State, request: VoteRequest) -> bool:
    """Return whether this node has the incarnation whose vote the candidate requests."""
    return request.voter_incarnation == state.incarnation


def take_vote(candidate: Candidate, voter: str, *, is_founding: bool) -> None:
    """Count a vote; `is_founding`: the voter reports that it is founding."""
    candidate.votes.add(voter)
    if is_founding:
        candidate.founding_votes.add(voter)


def has_majority(state: State, candidate: Candidate) -> bool:
    """Return whether a majority of voters that are not founding has voted for this node."""
    return len(candidate.votes) - len(candidate.founding_votes) >= state.quorum


def is_founded_by(state: State, candidate: Candidate) -> bool:
    """Return whether all voters have voted for this founding node, which founds the group.

    Founding voters may have lost earlier votes and acknowledgements. All voters are required so that a group whose
    disks were wiped is never founded a second time without the nodes that still have its log. If a voter is not
    founding, no founding candidate is elected. So every founding member knows the one group id that all voters agreed
    to (`agree_to_group`).
    """
    is_pure = not state.is_founding or len(candidate.founding_votes) == len(state.voters)
    return len(candidate.votes) == len(state.voters) and is_pure and state.log.holds_only_no_ops


def name_group(state: State) -> None:
    """As a candidate that may found the group, choose its id: the one agreed to last, or a new one."""
    if state.is_founding and state.named_group_id == NO_GROUP:
        state.founding_group_id = state.draw(1, GROUP_ID_END)


def agree_to_group(state: State, group_id: int) -> None:
    """With a vote, agree to the id of the group to be founded; a node that is not founding keeps its own."""
    if state.is_founding:
        state.founding_group_id = group_id


def accepted_group_id(state: State) -> int:
    """Return the only group id from which this node accepts leaders and candidates; 0: it knows none yet.

    It is the committed group id, or that of the founding in which this node took part. All voters saved this id with
    their votes: each of them refuses the founding of another group, which would need its vote, too; and elections by a
    majority need the votes of nodes that know the id.
    """
    if state.committed_group_id != NO_GROUP or state.is_founding:
        return state.committed_group_id
    return state.founding_group_id


# ------------------------------------------------------------------------------------------------ the leader's side


def is_founding_for(state: State, peer: str, progress: Progress) -> bool:
    """Return whether `peer` has granted and acknowledged nothing yet in a group that this leader's election founded."""
    return progress.incarnation is None and peer in state.leader.founders


def is_being_founded(state: State) -> bool:
    """Return whether only a founding node could be elected next, because a majority is still founding."""
    leader = state.leader
    return bool(leader.founders) and state.commit_index < leader.term_start_index


def counts(state: State, peer: str, progress: Progress) -> bool:
    """Return whether the answers of `peer` count towards a majority."""
    return progress.incarnation is not None and state.incarnations.get(peer) == progress.incarnation


def recognise(state: State, progress: Progress, incarnation: int, answered_round: int) -> bool:
    """Record the incarnation of an answer; False: the answer may be from before the peer's disk was lost.

    Such an answer may arrive after those of a later incarnation; the entries that it acknowledges are lost, and if it
    replaced the later one, the peer would be ignored and its dead incarnation readmitted. A node has one incarnation
    after the other. So only an answer to a heartbeat round that began after the recorded incarnation had answered for
    the first time proves a later one; all answers of an earlier one were sent before that round. Every live node sends
    such an answer within a heartbeat interval.

    Args:
        state: a leader's.
        progress: of the peer.
        incarnation: in its answer.
        answered_round: the heartbeat round in its answer; 0: none.
    """
    if incarnation == progress.incarnation:
        return True
    if progress.incarnation is not None:
        if answered_round <= progress.incarnation_round:
            return False
        # The entries that it acknowledged before are lost.
        progress.match_index = NO_INDEX
        progress.retry()
    progress.incarnation, progress.incarnation_round = incarnation, state.leader.round
    return True


# ---------------------------------------------------------------------------------------------- the follower's side


def give_up_vote(state: State) -> None:
    """Draw a new incarnation, so that no vote of this node counts until a committed membership names it."""
    state.incarnation = state.draw(1, INCARNATION_END)


def end_founding(state: State, leader_id: str, *, is_founding: bool) -> None:
    """End the founding of this node at the first message of a leader.

    `is_founding`: the leader was elected by a founding, which needs the votes of all voters. So a node without a saved
    vote for this leader has lost it, and the message was sent before the loss.
    """
    if state.is_founding:
        state.is_founding = False
        if not (is_founding and state.voted_for == leader_id):
            give_up_vote(state)
            state.founding_group_id = NO_GROUP
