"""Rejects events whose effects the disk could not execute, before the core sees them, so that no effect fails half-way.

Place on the path of an append: between the driver's inbox and the core; disk space is reserved here, and pushed bytes
are checked.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from dledger.core.events import ChangeMembership, Event, MembershipAction, PushNotTaken, Received
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
from dledger.entries.store import CorruptPush, EntryStore
from dledger.errors import ResponseCode
from dledger.storage.membership_codec import widest, widest_member
from dledger.types import NO_GROUP, Member, Membership, Role, Span
from store.errors import DiskFull

if TYPE_CHECKING:
    from dledger.core.raft import Raft
    from dledger.driver.disk_watch import SpaceWatch
    from dledger.driver.ports import Observer

logger = logging.getLogger(__name__)


class Admission:
    """Decides which events are passed to the core.

    Args:
        raft, store, observer, space: the driver's.
        has_snapshots: chunks of snapshots can be stored.
    """

    def __init__(
        self, raft: Raft, store: EntryStore, observer: Observer, space: SpaceWatch, *, has_snapshots: bool
    ) -> None:
        self._raft = raft
        self._store = store
        self._observer = observer
        self._space = space
        self._has_snapshots = has_snapshots
        # Voters whose readmission does not fit into an entry, each logged once by this process.
        self._too_large: set[str] = set()

    def admit(self, event: Event) -> Event | None:
        """Return the event to pass to the core, `event` or a substitute; None: it is dropped.

        Raises:
            store.errors.StorageFailed: stop the node.
        """
        if isinstance(event, Received):
            return self._admit_message(event)
        if isinstance(event, ChangeMembership) and self._raft.role is Role.LEADER:
            return self._admit_change(event)
        return event

    def _admit_change(self, event: ChangeMembership) -> Event | None:
        """Refuse a change whose entry does not fit into a data file, or on the disk."""
        size, size_max = self._size_of(self._at_most(event)), self._store.max_body_bytes
        # A removal makes the entry shorter than the last one, which fitted.
        if size > size_max and event.action is not MembershipAction.REMOVE:
            code = ResponseCode.UNEXPECTED_ARGUMENT
            message = (
                f"the membership with {event.member_id} takes up to {size} bytes, and an entry of this log holds at "
                f"most {size_max}; remove a member first, or use shorter addresses"
            )
        elif not self._has_space(size):
            code = ResponseCode.DISK_FULL
            message = "no space for the entry on the leader's disk; free some and retry"
        else:
            return event
        self._observer.on_request_ended(event.request_id, code, message)
        return None

    def _at_most(self, event: ChangeMembership) -> Membership:
        """Return a membership whose entry is at least as long as the one that `event` produces.

        A member is added only if the entry would still fit after all were promoted and readmitted.
        """
        current = self._raft.membership
        member = current.get(event.member_id)
        match event.action:
            case MembershipAction.ADD if member is None:
                return widest(current.with_member(Member(event.member_id, event.address)))
            case MembershipAction.PROMOTE if member is not None:
                return current.with_member(widest_member(member))
        return current

    def _size_of(self, membership: Membership) -> int:
        return len(self._store.codec.membership(membership).body)

    def _admit_message(self, event: Received) -> Event | None:
        message = event.message
        if isinstance(message, LEADERS_MESSAGES) and not self._raft.is_acceptable(event.sender, message):
            # The core drops it, or answers that its term is old: no need to check its bytes or to reserve space.
            return event
        match message:
            case Push(span=Span() as span):
                return self._admit_push(event, message, span)
            case PushAccepted() | HeartbeatResponse():
                # A wiped voter leads to a membership in which it is readmitted.
                is_wiped = self._raft.is_unknown_life(event.sender, message.incarnation)
                return event if not is_wiped or self._can_readmit(event.sender, message.incarnation) else None
            case VoteResponse() | TimeoutNow():
                return event if self.can_lead() else None
            case PushRefused(is_corrupt=True):
                self._observer.on_corrupt_push_refused(event.sender, message.rejected_prev_index + 1)
            case SnapshotChunk():
                return event if self._has_snapshots else None
        return event

    def can_lead(self) -> bool:
        """Return whether a leader's no-op fits on the disk; if not, votes for this node are not counted."""
        if self._raft.role is Role.LEADER:
            return True
        if self._raft.state.group_id == NO_GROUP:
            return self._has_space(self._size_of(widest(self._raft.membership)))
        return self._has_space(len(self._store.codec.no_op().body))

    def _can_readmit(self, peer: str, incarnation: int) -> bool:
        current = self._raft.membership
        member = current.get(peer)
        if member is None:
            return True
        readmitted = current.with_member(replace(member, incarnation=incarnation))
        size, size_max = self._size_of(readmitted), self._store.max_body_bytes
        if size <= size_max:
            return self._has_space(size)
        # Possible only if an older version admitted more members than fit into a data file.
        if peer not in self._too_large:
            self._too_large.add(peer)
            text = (
                "the membership that readmits it fits into no data file: remove a member, then remove and add this one"
            )
            logger.error(
                "readmission_does_not_fit peer=%r size_bytes=%d size_max=%d text=%r", peer, size, size_max, text
            )
        return False

    def _has_space(self, size_bytes: int) -> bool:
        sizes = (min(size_bytes, self._store.max_body_bytes),)
        try:
            self._store.reserve(sizes)
        except DiskFull:
            self._space.lacked(sizes, self._raft.now_ms)
            return False
        self._space.found(sizes)
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
            self._space.lacked((min(span.length, self._store.max_body_bytes),), self._raft.now_ms)
            return PushNotTaken(event.sender, push)
        return event
