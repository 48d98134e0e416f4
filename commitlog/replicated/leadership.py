"""Decides when a new leader may accept puts: once it has every message that an earlier leader may have acknowledged.

Queue offsets are given out by the leader alone, from what its queues hold. So before its first put

1. its no-op must be committed: then everything before it is, and nothing else ever comes before it;
2. queues must hold everything up to there: then each queue's next offset is its maximum;
3. the state must be applied up to there: a topic that it does not know then does not exist;
4. the table of next offsets is asked again: as a follower, or as a leader of an earlier term, it may have been another.

A put that is refused after its offsets were given out (no room on the disk, the leadership is being handed on) would
leave a gap in its queue. Then the leader takes no puts until all it has taken in are decided, and begins at 2.

Source: RocketMQ `DLedgerRoleChangeHandler`. There, step 1 is "committed index equals end index", which may never come
true without an append, and step 2 can hang for as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dledger.entries.errors import EntryNotFound
from dledger.types import NO_INDEX, NO_TERM

if TYPE_CHECKING:
    from collections.abc import Callable


class LeadingNode(Protocol):
    """What has to be known of the node; `dledger.node.node.Node` is one."""

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
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
        """The last entry that the state machine has applied."""
        ...


@dataclass(frozen=True, slots=True)
class Readiness:
    """How close a node is to accepting puts.

    Attributes:
        is_leader: the node leads.
        term: its term.
        is_no_op_committed: an entry of that term is committed.
        dispatched_offset: queues hold everything of the log below.
        target_offset: what they must hold before the first put; -1 while that is not known.
        is_ready: puts may be taken.
        unapplied_count: entries that the state must be applied to before the first put.
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
        """How much must still be dispatched; 0 when nothing, or while that is not known."""
        return max(self.target_offset - self.dispatched_offset, 0)

    @property
    def reason(self) -> str:
        """Why puts are not taken, for people; empty when they are."""
        if self.is_ready:
            return ""
        if not self.is_leader:
            return "this node does not lead its group"
        if not self.is_no_op_committed:
            return f"the leader of term {self.term} waits for a majority to have its first entry"
        if self.target_offset < 0:
            return "a put was refused when its queue offsets were given out; those before it must be decided first"
        if self.behind_bytes:
            return f"the leader of term {self.term} has {self.behind_bytes} bytes of the log left to dispatch"
        return f"the leader of term {self.term} has {self.unapplied_count} entries left to apply to topics and groups"


class Leadership:
    """Watches one node; puts are taken only while `look` says so.

    Args:
        node: the node.
        term_at: the term of an entry that is in its log; raises `EntryNotFound` for one that is not.
        end_offset: of what is committed.
        dispatched_offset: queues hold everything of the log below, and say which offsets come next.
        is_idle: whether everything that was taken in is committed, refused or cut off.
        recover_queue_offsets: has queues asked again for their next offsets.
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
        # The term in which it was set, the offset that must be dispatched and the index that must be applied before
        # the first put of that term. Of an older term it means nothing.
        self._target = (NO_TERM, -1, NO_INDEX)
        # The only term in which puts may be taken; it outlives the leadership, so compare it with the current term.
        self._ready_term = NO_TERM
        # Offsets were given out for messages that are not in the log. While it is set `_ready_term` is `NO_TERM`.
        self._is_invalidated = False

    @property
    def is_ready(self) -> bool:
        """Whether puts may be taken, as of the last `look`, and the node leads in the same term still."""
        return self._node.is_leader and self._node.term == self._ready_term

    def invalidate_offsets(self) -> None:
        """Record that queue offsets were given out to messages that are not in the log, and will not be."""
        if self.is_ready:
            self._is_invalidated, self._ready_term = True, NO_TERM

    def look(self) -> Readiness:
        """Return the readiness; the moment that the node becomes ready, queue offsets are asked for again."""
        node, dispatched = self._node, self._dispatched_offset()
        term = node.term
        if not node.is_leader:
            return Readiness(False, term, False, dispatched, -1, False)
        if self._target[0] != term:
            if not self._is_own_committed(term):
                return Readiness(True, term, False, dispatched, -1, False)
            # What comes after is this leader's own.
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
        """Record what must be done before puts are taken: all that is committed now."""
        self._target, self._is_invalidated = (term, self._end_offset(), self._node.commit_index), False

    def _is_own_committed(self, term: int) -> bool:
        try:
            return self._term_at(self._node.commit_index) == term
        except EntryNotFound:
            return False
