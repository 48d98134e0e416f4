"""Rejects messages that no correct member of the group can have sent, before any rule of Raft is applied.

A peer port without authentication accepts messages from any process that reaches it, and a correct program on a damaged
or foreign directory sends false ones. So a message that no node of this group can have sent is dropped, and the
operator is informed; it never stops this node, because any sender could then stop the group.

Not here: which peers may connect (`dledger.peer.handshake`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dledger.core.events import RejectReason
from dledger.core.messages import GROUPED, LEADERS_MESSAGES, Grouped, Message, ResetLog, VoteRequest
from dledger.core.state import voting_rights
from dledger.types import INDEX_JUMP_MAX, NO_GROUP, NO_INDEX, TERM_JUMP_MAX, TERM_MAX

if TYPE_CHECKING:
    from dledger.core.state.consensus import State


def fault_of(state: State, sender: str, message: Message) -> RejectReason | None:
    """Return the reason to reject `message`; None: it is passed to the rules.

    - A term that is out of bounds, or too far above ours, cannot be the result of elections. Once saved, it could not
      be lowered; at the upper bound of terms no node could campaign again.
    - A leader or candidate must send the group id in our log, once that is committed; before, the id of the founding
      in which this node took part. The sender need not be a known member, because its membership may be newer
      (dissertation §4.1); the id is the proof, because it is sent only to members.
    - While this node knows no group id, it accepts messages of members, and of nodes that send the group id of an entry
      of its log that is not known to be committed. It accepts other nodes only if it has no entries or no vote: a new
      or wiped node may not know the current members.
    - A reset to an index far beyond any possible commit index would make the node ignore every later reset and push,
      because they are at or before its log's start.
    - A term has one leader. Messages of a second leader of the same term are rejected; the elected one is still
      followed.
    """
    term = message.term
    if term > TERM_MAX or term - state.term > TERM_JUMP_MAX:
        return RejectReason.TERM
    if not isinstance(message, GROUPED):
        return None
    fault = _fault_of_group(state, sender, message)
    if fault is None and isinstance(message, ResetLog) and _is_too_far(state, message):
        return RejectReason.INDEX
    is_leaders = isinstance(message, LEADERS_MESSAGES)
    if fault is None and is_leaders and term == state.term and state.leader_id not in (None, sender):
        return RejectReason.SECOND_LEADER
    return fault


def _is_too_far(state: State, reset: ResetLog) -> bool:
    """Return whether this begin is too far from our last entry, or the commit index from this begin, for any group."""
    ends = (state.log.last_index, reset.begin_index, max(reset.commit_index, reset.begin_index))
    return any(end - begin > INDEX_JUMP_MAX for begin, end in pairwise(ends))


def _fault_of_group(state: State, sender: str, message: Grouped) -> RejectReason | None:
    known = voting_rights.accepted_group_id(state)
    if known == NO_GROUP:
        # A node that sends the group id of our log belongs to it, committed or not: the id is sent only to members.
        is_proven = message.group_id != NO_GROUP and message.group_id == state.group_id
        if not (is_proven or _may_be_of_our_group(state, sender)):
            return RejectReason.NON_MEMBER
    elif message.group_id != known:
        # Of several candidates of a founding, each names an id; the others learn that of the one which was elected.
        is_new = isinstance(message, VoteRequest) and (message.group_id == NO_GROUP or message.last_index == NO_INDEX)
        return RejectReason.NO_GROUP if is_new else RejectReason.GROUP
    elif isinstance(message, ResetLog) and message.membership.membership.group_id != known:
        return RejectReason.GROUP
    return None


def _may_be_of_our_group(state: State, sender: str) -> bool:
    if any(entry.membership.get(sender) is not None for entry in state.memberships):
        return True
    return (
        state.log.last_index < state.log.begin_index
        or voting_rights.voting_status_of(state) is not voting_rights.VotingStatus.COUNTED
    )
