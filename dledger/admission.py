"""Keeps from the core what would make it ask for what the disk cannot do, so that an effect never fails half-way.

Place on the way of an append: in front of the core, behind the driver's inbox; room is reserved here, and pushed bytes
are checked.
"""

from __future__ import annotations

from dataclasses import replace

from dledger.core.events import ChangeMembership, Event, PushNotTaken, Received
from dledger.core.messages import (
    LEADERS_MESSAGES,
    HeartbeatResponse,
    Push,
    PushAccepted,
    PushRefused,
    SnapshotChunk,
    TimeoutNow,
    VoteResponse,
)
from dledger.core.raft import Raft
from dledger.disk_watch import RoomWatch
from dledger.driver_ports import Observer
from dledger.entry_store import CorruptPush, EntryStore
from dledger.errors import ResponseCode
from dledger.types import NO_GROUP, Role, Span
from store.errors import DiskFull

# What one more member can add to the entry of a membership: two names of at most 255 characters, and their frame.
_MEMBER_SIZE_BYTES_MAX = 1_024


class Admission:
    """Decides what the core may see.

    Args:
        raft, store, observer, room: the driver's.
        has_snapshots: chunks of snapshots can be taken.
    """

    def __init__(
        self, raft: Raft, store: EntryStore, observer: Observer, room: RoomWatch, *, has_snapshots: bool
    ) -> None:
        self._raft = raft
        self._store = store
        self._observer = observer
        self._room = room
        self._has_snapshots = has_snapshots

    def admit(self, event: Event) -> Event | None:
        """Return what the core may see of `event`; None: nothing.

        Raises:
            store.errors.StorageFailed: stop the node.
        """
        if isinstance(event, Received):
            return self._admit_message(event)
        if isinstance(event, ChangeMembership) and not self._has_room_for_membership():
            message = "no room for the entry on the leader's disk; free some and try again"
            self._observer.on_request_ended(event.request_id, ResponseCode.DISK_FULL, message)
            return None
        return event

    def _admit_message(self, event: Received) -> Event | None:
        message = event.message
        if isinstance(message, LEADERS_MESSAGES) and not self._raft.is_believed(event.sender, message):
            # The core drops it, or answers that its term is old: neither needs its bytes checked or room for them.
            return event
        match message:
            case Push(span=Span() as span):
                return self._admit_push(event, message, span)
            case PushAccepted() | HeartbeatResponse():
                # A voter that was wiped brings about a membership in which it is readmitted.
                is_wiped = self._raft.is_unknown_life(event.sender, message.incarnation)
                return event if not is_wiped or self._has_room_for_membership() else None
            case VoteResponse() | TimeoutNow():
                return event if self.can_lead() else None
            case PushRefused(is_corrupt=True):
                self._observer.on_corrupt_push_refused(event.sender, message.rejected_prev_index + 1)
            case SnapshotChunk():
                return event if self._has_snapshots else None
        return event

    def can_lead(self) -> bool:
        """Say whether a leader's no-op has room; a vote that would elect a node with a full disk is not counted."""
        if self._raft.role is Role.LEADER:
            return True
        if self._raft.state.group_id == NO_GROUP:
            return self._has_room_for_membership()
        return self._has_room(len(self._store.codec.no_op().body))

    def _has_room_for_membership(self) -> bool:
        entry = self._store.codec.membership(self._raft.membership)
        return self._has_room(len(entry.body) + _MEMBER_SIZE_BYTES_MAX)

    def _has_room(self, size_bytes: int) -> bool:
        sizes = (min(size_bytes, self._store.max_body_bytes),)
        try:
            self._store.reserve(sizes)
        except DiskFull:
            self._room.lacked(sizes, self._raft.now_ms)
            return False
        self._room.found(sizes)
        return True

    def _admit_push(self, event: Received, push: Push, span: Span) -> Event | None:
        assert push.payload is not None
        try:
            brought = self._store.check_push(span, push.payload, push.prev_term)
            if brought:
                event = Received(event.sender, replace(push, memberships=brought))
            if push.prev_index <= self._store.last_index:
                self._store.reserve_span(span)
        except CorruptPush as error:
            self._observer.on_corrupt_push(event.sender, error)
            return PushNotTaken(event.sender, push, is_corrupt=True)
        except DiskFull:
            self._room.lacked((min(span.length, self._store.max_body_bytes),), self._raft.now_ms)
            return PushNotTaken(event.sender, push)
        return event
