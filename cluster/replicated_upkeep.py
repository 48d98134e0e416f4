"""Runs what follows a replicated log: dispatch behind each commit, readers that wait for it, when puts may be taken.

The node runs the log itself: its syncs, its files, who leads. It says that there is news; all else is done in turns of
the loop of their own. What the node's retention has deleted is gone from queues and index a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cluster.replicated_state import ReplicatedState
from commitlog.dledger_commit_log import DLedgerCommitLog
from commitlog.leadership import Leadership, Readiness
from dledger.node import Node
from store.errors import StoreStopped
from store.message_store import MessageStore
from store.queue_ends import QueueEnds
from store.store_config import MessageStoreConfig
from store.store_keeper import DerivedKeeper
from store.store_upkeep import StoreUpkeep


class ReplicatedUpkeep(StoreUpkeep):
    """Runs the store of one node. Construct it inside the running loop, then `start` it behind the node.

    Args:
        store: open.
        log: its log.
        node: whose log it is.
        leadership: of the node.
        machine: may hold what a snapshot says of queues.
        keeper: of the store.
        config: of the store.
        on_look: hears how the leadership stands, whenever it may have changed.

    Attributes:
        readiness: how the leadership stood at the last look; any thread may read it.
    """

    def __init__(
        self,
        store: MessageStore,
        log: DLedgerCommitLog,
        node: Node,
        leadership: Leadership,
        machine: ReplicatedState,
        keeper: DerivedKeeper,
        config: MessageStoreConfig,
        on_look: Callable[[], None],
    ) -> None:
        super().__init__(store, keeper, config)
        self.readiness: Readiness = leadership.look()
        self._log = log
        self._node = node
        self._leadership = leadership
        self._machine = machine
        self._on_look = on_look
        self._prepared: QueueEnds | None = None
        self._begin_offset = log.begin_offset
        # (place in the log, who waits until so much is dispatched).
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        node.when_changed(self.dispatch_soon)

    async def dispatched_to(self, offset: int) -> None:
        """Return when queues and index hold everything of the log below `offset`.

        Raises:
            store.errors.StoreStopped: they never will.
        """
        if self.store.derived.dispatcher.offset >= offset:
            return
        if self.store.stop_reason:
            raise StoreStopped(self.store.stop_reason)
        told: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((offset, told))
        self.dispatch_soon()
        await told

    def _due(self, now_ms: int) -> None:
        del now_ms
        if self._log.begin_offset != self._begin_offset:
            self._begin_offset = self._log.begin_offset
            self.store.expire()

    def prepare(self) -> None:
        """See `StoreUpkeep.prepare`: follow a log that was begun anew."""
        loaded = self._machine.loaded
        if loaded is not None and loaded is not self._prepared:
            self._prepared = loaded
            self._log.drop_stranded_files()
            self.store.derived.drop_surpassed_queues(loaded)

    def _dispatched(self) -> None:
        offset = self.store.derived.dispatcher.offset
        loaded = self._machine.loaded
        if loaded is not None and offset >= loaded.offset:
            # Before this node may lead: it would give out offsets anew of which the log says nothing any more.
            self.store.derived.restore_queue_ends(loaded)
            self._machine.loaded = None
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for place, told in waiting:
                if place > offset:
                    self._waiting.append((place, told))
                elif not told.done():
                    told.set_result(None)
        self.readiness = self._leadership.look()
        self._on_look()

    def _failed(self, error: Exception) -> None:
        """End the node: it must not go on to acknowledge what nobody here can read, on a disk that fails."""
        self._node.fail(error)
        waiting, self._waiting = self._waiting, []
        for _, told in waiting:
            if not told.done():
                told.set_exception(StoreStopped(self.store.stop_reason))

    async def end(self) -> None:
        """See `StoreUpkeep.end`; who waits hears that the store has stopped."""
        await super().end()
        waiting, self._waiting = self._waiting, []
        for _, told in waiting:
            if not told.done():
                told.set_exception(StoreStopped("the node is stopping; try another one"))
