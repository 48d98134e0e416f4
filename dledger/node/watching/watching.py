"""What watchers get from one node: its state, its last events, and a wait for the next one."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from dledger.core.state.roles import Leader
from dledger.errors import RequestRefused, ResponseCode
from dledger.node.watching.stalls import PeerView, StallWatch
from dledger.node.watching.state import WatchedState, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dledger.core.raft import Raft
    from dledger.core.state.progress import Progress
    from dledger.entries.store import EntryStore
    from dledger.node.status import NodeStatus
    from dledger.node.watching.recorder import EventRecorder
    from dledger.pending.reads import CommitWaiters
    from store.fs.retention_rules import ClockReading

# How often a leader looks for followers that are lost or stall.
LOOK_INTERVAL_S: Final = 0.5


class NodeWatching:
    """The watchers' port of a node. Loop thread only.

    Args:
        raft, store: of the node.
        recorder: its last events.
        changed: woken after each event.
        status: returns the status of the node.
        read_clocks: wall clock and monotonic clock.
        watchers_max: streams that may watch at the same time.
    """

    def __init__(
        self,
        raft: Raft,
        store: EntryStore,
        recorder: EventRecorder,
        changed: CommitWaiters,
        *,
        status: Callable[[], NodeStatus],
        read_clocks: Callable[[], ClockReading],
        watchers_max: int,
    ) -> None:
        self._raft = raft
        self._store = store
        self._changed = changed
        self._status = status
        self._watchers_max = watchers_max
        self._stalls = StallWatch(raft.state.config.max_election_timeout_ms)
        self.recorder = recorder
        self.read_clocks = read_clocks
        self.watchers_count = 0

    @property
    def process(self) -> int:
        """A random number of this process, which numbers its events from 1."""
        return self._raft.state.life

    def state(self) -> WatchedState:
        """Return the state of the node; only while it runs."""
        return state_of(self._raft, self._status(), self._store.durable_index, self._stalls)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take the place of a watcher for the block.

        Raises:
            RequestRefused: all places are taken.
        """
        if self.watchers_count >= self._watchers_max:
            message = f"{self.watchers_count} streams watch this node already; max_watchers_num allows no more"
            raise RequestRefused(ResponseCode.LEADER_PENDING_FULL, message)
        self.watchers_count += 1
        try:
            yield
        finally:
            self.watchers_count -= 1

    async def wait(self, sequence: int, limit_s: float) -> None:
        """Return when there is an event after `sequence`, or after `limit_s` seconds.

        Raises:
            RequestRefused: the node stopped.
        """
        try:
            async with asyncio.timeout(limit_s):
                while self.recorder.last_sequence <= sequence:
                    await self._changed.wait()
        except TimeoutError:
            pass

    def look(self) -> None:
        """Record followers that were lost, are back, stall or receive entries again; a periodic job."""
        role_state = self._raft.state.role_state
        if not isinstance(role_state, Leader):
            self._stalls.forget()
            return
        peers = {
            peer_id: self._view_of(peer_id, progress)
            for peer_id, progress in role_state.progress.items()
            # A removed member gets messages only until it knows that.
            if progress.leaves_ms < 0
        }
        for change in self._stalls.look(self._raft.now_ms, peers):
            self.recorder.peer(change.kind, change.peer_id, change.cause)

    def _view_of(self, peer_id: str, progress: Progress) -> PeerView:
        sent_bytes = 0 if progress.installation is None else progress.installation.sent_bytes
        is_live = self._raft.is_live(peer_id)
        return PeerView(
            progress=(progress.match_index, sent_bytes),
            lacks_entries=progress.match_index < self._raft.last_index,
            is_live=is_live,
            cause=_cause_of(progress, is_live=is_live),
        )


def _cause_of(progress: Progress, *, is_live: bool) -> str:
    """Return the most likely reason for which a follower receives no entries."""
    causes = (
        (not is_live, "it does not answer"),
        (progress.is_contradicting, "it has other committed entries than this leader"),
        (progress.corrupt_count > 0, "it cannot verify the entries"),
        (not progress.is_healthy, "its disk stalls or is full"),
        (progress.installation is not None, "it needs a snapshot or a new log, and receives none"),
        (progress.is_probing, "its log is being compared"),
        (progress.is_throttled, "peer_push_quota limits what it is sent"),
    )
    return next((text for is_so, text in causes if is_so), "it acknowledges nothing")
