"""Rejects messages that no correct member of the group can have sent, before any rule of Raft is applied.

A peer port without authentication accepts messages from any process that reaches it, and a damaged or foreign
directory makes a correct program send false ones. So a message that no node of this group can have sent is dropped,
and the operator is informed; it never stops this node, because any sender could then stop the group.

Not here: which peers may connect (`dledger.peer.handshake`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dledger.core.events import RejectReason
from dledger.core.messages import GROUPED, LEADERS_MESSAGES, Grouped, Message, ResetLog, VoteRequest
from dledger.core.state import voting_rights
from dledger.types import INDEX_JUMP_MAX, NO_GROUP, TERM_JUMP_MAX, TERM_MAX

if TYPE_CHECKING:
    from dledger.core.state.consensus import State


def fault_of(state: State, sender: str, message: Message) -> RejectReason | None:
    """Return why `message` is not believed; None: the rules may see it.

    - A term that is out of bounds, or too far above ours, is the work of no election. Saved, it could never be taken
      back, and in the end no higher one could be sent: the group would have no leader ever again.
    - A leader or candidate must name the group that our log names, once that is committed; before, that of the founding
      in which this node took part. It need not be a member as far as we know: its membership may be newer (dissertation
      §4.1); the id proves it, because it is never sent to strangers.
    - While we know of no group, messages of members are accepted, and of nodes that name the group of an entry of ours
      which we do not know to be committed. Other nodes are believed only if this node holds nothing, or has no vote: a
      node that is new or was wiped may not know which nodes joined meanwhile.
    - A log that begins further after ours than a group can have committed, taken once, would have every later reset
      and push taken for held: nothing that the group has comes after it.
    - A term has one leader. A second node that claims to be it is not believed; the elected one is still followed.
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
    """Return whether no group can have got from our last entry to this begin, or from there to its commit index."""
    ends = (state.log.last_index, reset.begin_index, max(reset.commit_index, reset.begin_index))
    return any(end - begin > INDEX_JUMP_MAX for begin, end in pairwise(ends))


def _fault_of_group(state: State, sender: str, message: Grouped) -> RejectReason | None:
    known = voting_rights.believed_group_id(state)
    if known == NO_GROUP:
        # A node that names the group of our log belongs to it, committed or not: the id is never sent to strangers.
        is_proven = message.group_id != NO_GROUP and message.group_id == state.group_id
        if not (is_proven or _may_be_of_our_group(state, sender)):
            return RejectReason.STRANGER
    elif message.group_id != known:
        is_new = message.group_id == NO_GROUP and isinstance(message, VoteRequest)
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
