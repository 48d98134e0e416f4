"""Decides when a new leader may accept puts: once it has every message that an earlier leader may have acknowledged.

Only the leader assigns queue offsets, from its queues. So before its first put

1. its no-op must be committed: then all earlier entries are committed, and no other entry can precede it;
2. all entries up to the no-op must be dispatched: then each queue's next offset is its maximum;
3. the state must be applied up to there, so that a topic that it does not contain does not exist;
4. the table of next offsets is recomputed: as a follower, or as a leader of an earlier term, the node may have a
   different one.

A put that is refused after its offsets were assigned (no disk space, a leadership transfer) would leave a gap in its
queue. Then the leader accepts no puts until all accepted ones are decided, and repeats the steps from 2 on.

Source: RocketMQ `DLedgerRoleChangeHandler`. There, step 1 is "committed index equals end index", which may never become
true without an append, and step 2 can hang for that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dledger.entries.errors import EntryNotFound
from dledger.types import NO_INDEX, NO_TERM

if TYPE_CHECKING:
    from collections.abc import Callable


class LeadingNode(Protocol):
    """The port of the node; `dledger.node.node.Node` implements it."""

    @property
    def is_leader(self) -> bool:
        """Whether it leads, according to its own state."""
        ...

    @property
    def term(self) -> int:
        """The current term."""
        ...

    @property
    def commit_index(self) -> int:
        """Last index known to be committed."""
        ...

    @property
    def applied_index(self) -> int:
        """Index of the last entry applied to the state machine."""
        ...


@dataclass(frozen=True, slots=True)
class Readiness:
    """The progress of a node towards accepting puts.

    Attributes:
        is_leader: the node leads.
        term: its term.
        is_no_op_committed: an entry of that term is committed.
        dispatched_offset: the log is dispatched to queues up to here.
        target_offset: offset up to which it must be dispatched before the first put; -1 while unknown.
        is_ready: puts are accepted.
        unapplied_count: entries that must be applied to the state before the first put.
    """

    is_leader: bool
    term: int
    is_no_op_committed: bool
    dispatched_offset: int
    target_offset: int
    is_ready: bool
    unapplied_count: int = 0

    @property
    def behind_bytes(self) -> int:
        """Bytes that must still be dispatched; 0 also while unknown."""
        return max(self.target_offset - self.dispatched_offset, 0)

    @property
    def reason(self) -> str:
        """The reason why puts are refused, for error messages; empty if they are accepted."""
        if self.is_ready:
            return ""
        if not self.is_leader:
            return "this node does not lead its group"
        if not self.is_no_op_committed:
            return f"the leader of term {self.term} waits for a majority to have its first entry"
        if self.target_offset < 0:
            return "a put was refused when its queue offsets were assigned; earlier puts must be decided first"
        if self.behind_bytes:
            return f"the leader of term {self.term} has {self.behind_bytes} bytes of the log left to dispatch"
        return f"the leader of term {self.term} has {self.unapplied_count} entries left to apply to topics and groups"


class Leadership:
    """Decides when one node accepts puts.

    Args:
        node: the node.
        term_at: the term of an entry that is in its log; raises `EntryNotFound` for one that is not.
        end_offset: returns the end of the committed entries.
        dispatched_offset: returns the offset up to which the log is dispatched to queues.
        is_idle: returns whether all accepted puts are committed, refused or truncated.
        recover_queue_offsets: recomputes the next offsets from the queues.
    """

    def __init__(
        self,
        node: LeadingNode,
        *,
        term_at: Callable[[int], int],
        end_offset: Callable[[], int],
        dispatched_offset: Callable[[], int],
        is_idle: Callable[[], bool],
        recover_queue_offsets: Callable[[], None],
    ) -> None:
        self._node = node
        self._term_at = term_at
        self._end_offset = end_offset
        self._dispatched_offset = dispatched_offset
        self._is_idle = is_idle
        self._recover_queue_offsets = recover_queue_offsets
        # The term, and the offset to dispatch and the index to apply before its first put. Ignored in later terms.
        self._target = (NO_TERM, -1, NO_INDEX)
        # The only term in which puts are accepted; it is kept after the leadership, so it must be compared with the
        # current term.
        self._ready_term = NO_TERM
        # Offsets were assigned to messages that are not in the log. While it is set, `_ready_term` is `NO_TERM`.
        self._is_invalidated = False

    @property
    def is_ready(self) -> bool:
        """Whether puts are accepted: the last `look` found the node ready, and it still leads in the same term."""
        return self._node.is_leader and self._node.term == self._ready_term

    def invalidate_offsets(self) -> None:
        """Record that queue offsets were assigned to messages that will never be in the log."""
        if self.is_ready:
            self._is_invalidated, self._ready_term = True, NO_TERM

    def check(self) -> Readiness:
        """Update and return the readiness; when the node becomes ready, queue offsets are recomputed."""
        node, dispatched = self._node, self._dispatched_offset()
        term = node.term
        if not node.is_leader:
            return Readiness(False, term, False, dispatched, -1, False)
        if self._target[0] != term:
            if not self._is_own_committed(term):
                return Readiness(True, term, False, dispatched, -1, False)
            # Later entries are this leader's own.
            self._aim(term)
        if self._is_invalidated:
            if not self._is_idle():
                return Readiness(True, term, True, dispatched, -1, False)
            self._aim(term)
        _, target, target_index = self._target
        unapplied_count = max(target_index - node.applied_index, 0)
        if self._ready_term != term and dispatched >= target and not unapplied_count:
            self._recover_queue_offsets()
            self._ready_term = term
        return Readiness(True, term, True, dispatched, target, self._ready_term == term, unapplied_count)

    def _aim(self, term: int) -> None:
        """Record the present end of the committed entries as the target before puts are accepted."""
        self._target, self._is_invalidated = (term, self._end_offset(), self._node.commit_index), False

    def _is_own_committed(self, term: int) -> bool:
        try:
            return self._term_at(self._node.commit_index) == term
        except EntryNotFound:
            return False
