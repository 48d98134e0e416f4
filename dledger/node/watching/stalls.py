"""Finds followers that stop answering, or lack entries without receiving any. Pure: the caller passes the time.

Both are facts about time, not about one message, so the node looks regularly (`NodeWatching.look`) instead of at each
answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dledger.node.watching.events import EventKind

if TYPE_CHECKING:
    from collections.abc import Mapping


class PeerView(NamedTuple):
    """One follower, as its leader sees it now.

    Attributes:
        progress: what grows while the follower receives anything: its match index, and the bytes of a snapshot that it
            has.
        lacks_entries: its match index is below the leader's last index.
        is_live: it answered within the longest election timeout.
        cause: why it might receive nothing, for people.
    """

    progress: tuple[int, int]
    lacks_entries: bool
    is_live: bool
    cause: str


class PeerChange(NamedTuple):
    """A follower that was lost or is back, or stalls or receives entries again."""

    kind: EventKind
    peer_id: str
    cause: str | None


@dataclass(slots=True)
class _Seen:
    """What was last seen of one follower; `since_ms`: when its progress last changed, or it had all entries."""

    progress: tuple[int, int]
    since_ms: int
    is_live: bool = True
    is_stalled: bool = False


class StallWatch:
    """Compares followers with how they were before.

    Args:
        limit_ms: a follower stalls if it lacks entries and its progress has not changed for this time.
    """

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        # Only of the members of the last call.
        self._seen: dict[str, _Seen] = {}

    def is_stalled(self, peer_id: str) -> bool:
        """Return whether the follower stalled when it was last looked at."""
        seen = self._seen.get(peer_id)
        return seen is not None and seen.is_stalled

    def forget(self) -> None:
        """Forget all followers: this node does not lead."""
        self._seen.clear()

    def look(self, now_ms: int, peers: Mapping[str, PeerView]) -> list[PeerChange]:
        """Return the changes since the last call; `peers` are all followers of this leader."""
        self._seen = {peer_id: seen for peer_id, seen in self._seen.items() if peer_id in peers}
        changes: list[PeerChange] = []
        for peer_id, view in peers.items():
            seen = self._seen.setdefault(peer_id, _Seen(view.progress, now_ms))
            if view.is_live != seen.is_live:
                seen.is_live = view.is_live
                changes.append(PeerChange(EventKind.PEER_BACK if view.is_live else EventKind.PEER_LOST, peer_id, None))
            if view.progress != seen.progress or not view.lacks_entries:
                seen.progress, seen.since_ms = view.progress, now_ms
            is_stalled = now_ms - seen.since_ms >= self._limit_ms
            if is_stalled != seen.is_stalled:
                seen.is_stalled = is_stalled
                kind = EventKind.PUSH_STALLED if is_stalled else EventKind.PUSH_RESUMED
                changes.append(PeerChange(kind, peer_id, view.cause if is_stalled else None))
        return changes
