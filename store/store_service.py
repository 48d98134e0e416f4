"""Runs a message store in an asyncio loop: dispatch right behind appends, flushes, checkpoint, retention, next file.

| what                          | when                                                        | where the work is done |
| ----------------------------- | ----------------------------------------------------------- | ---------------------- |
| flush of the log, sync        | as soon as something waits, one at a time (group commit)    | thread of the log      |
| flush of the log, async       | every 500 ms from 4 pages on; after 10 s anything           | thread of the log      |
| dispatch                      | as soon as the log may be read further, in bounded turns    | loop                   |
| flush of queues               | every second from 2 pages on; after 60 s anything           | other thread           |
| flush of the index            | with the thorough flush of the queues                       | other thread           |
| checkpoint                    | every second, if there is news                              | other thread           |
| retention                     | every 10 s, a file a turn                                   | loop                   |
| the next file of the log      | when the last one is three quarters full                    | other thread           |

The numbers are settings (`store.store_config`). A failed write or sync ends the store for good: `failure` tells.

Source: RocketMQ `DefaultMessageStore.start`, `CommitLog.GroupCommitService`, `FlushConsumeQueueService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from store.commit_log import Certainty, Outcome, PendingAppend, PutStatus
from store.derived_data import DerivedTicket
from store.errors import DiskFull, StorageFailed, StoreStopped
from store.flush_policy import FlushPolicy, FlushSettings, is_worth_flushing
from store.local_log import LocalLog
from store.message import Message
from store.message_store import MessageStore
from store.storage_thread import StorageThread
from store.store_config import MessageStoreConfig
from store.store_keeper import StoreKeeper
from store.store_root import StoreRoot

logger = logging.getLogger(__name__)

_TICK_S = 0.05
_MS_PER_S = 1000


class StoreService:
    """Runs one store. Construct it inside the running loop, then `start`.

    Args:
        store: open.
        log: its log.
        root: its directory.
        keeper: of the store.
        config: of the store.
        is_flush_sync: puts wait until they are durable.

    Attributes:
        flush_listener: hears how long each sync of the log took, in seconds, in the thread that did it.
    """

    def __init__(
        self,
        store: MessageStore,
        log: LocalLog[Any],
        root: StoreRoot,
        keeper: StoreKeeper,
        config: MessageStoreConfig,
        *,
        is_flush_sync: bool,
    ) -> None:
        self.store = store
        self._log = log
        self._root = root
        self._keeper = keeper
        self._config = config
        self._is_flush_sync = is_flush_sync
        self._loop = asyncio.get_running_loop()
        self._log_thread = StorageThread("store-log")
        self._other_thread = StorageThread("store-other")
        self._failure: asyncio.Future[Exception] = self._loop.create_future()
        self.flush_listener: Callable[[float], None] | None = None
        self._is_running = False
        self._is_flushing_log = False
        self._is_flushing_derived = False
        self._is_dispatching = False
        self._pending_count = 0
        now_ms = _now_ms()
        self._log_policy = FlushPolicy(
            FlushSettings(
                config.flush_interval_commit_log_ms,
                config.flush_commit_log_least_pages,
                config.flush_commit_log_thorough_interval_ms,
            ),
            now_ms,
        )
        self._queue_policy = FlushPolicy(
            FlushSettings(
                config.flush_interval_consume_queue_ms,
                config.flush_consume_queue_least_pages,
                config.flush_consume_queue_thorough_interval_ms,
            ),
            now_ms,
        )
        self._checkpoint_due_ms = now_ms + config.checkpoint_interval_ms
        self._retention_due_ms = now_ms + config.clean_resource_interval_ms

    @property
    def failure(self) -> asyncio.Future[Exception]:
        """Ends with the error that ended the store."""
        return self._failure

    # ------------------------------------------------------------------------------------------- starting and ending

    def start(self) -> None:
        """Begin to run; returns at once."""
        assert not self._is_running
        self._is_running = True
        self._dispatch_soon()
        self._tick()

    async def stop(self) -> None:
        """End: what is under way is finished, everything is flushed, and the store is closed in order.

        Raises:
            store.errors.StoreError: it could not be flushed, or had failed before; the files are given back.
        """
        self._is_running = False
        await self._log_thread.stop()
        await self._other_thread.stop()
        self._keeper.close()
        if self._failure.done():
            raise self._failure.result()

    def _fail(self, error: Exception) -> None:
        """End the store: what reached the disk is not known any more."""
        self._is_running = False
        self.store.stop(str(error))
        if not self._failure.done():
            logger.error("store_failed error=%r", str(error))
            self._failure.set_result(error)
            self._log.abandon(str(error))

    # ------------------------------------------------------------------------------------------- putting and waiting

    async def put(self, message: Message) -> Outcome:
        """Put one message; see `put_many`."""
        return await self.put_many((message,))

    async def put_many(self, messages: Sequence[Message]) -> Outcome:
        """Put messages as `MessageStore.put_many` does; return what became of them.

        Raises:
            as `begin_put`.
        """
        return await self.begin_put(messages)

    def begin_put(self, messages: Sequence[Message]) -> asyncio.Future[Outcome]:
        """Put messages, in this very turn of the loop; the future tells what became of them.

        With a flush before acknowledging, it is awaited; after `sync_flush_timeout_ms` the answer is
        FLUSH_DISK_TIMEOUT: the messages are in the log, but it is not known whether they are durable.

        Raises:
            store.errors.IllegalMessage: nothing was put.
            store.errors.StorageFailed: whether anything was put is not known; the store has stopped.
        """
        future: asyncio.Future[Outcome] = self._loop.create_future()
        if self._pending_count >= self._config.pending_puts_max:
            detail = f"{self._pending_count} puts wait for the disk; try again later"
            future.set_result(Outcome(PutStatus.OS_PAGE_CACHE_BUSY, Certainty.NOT_APPENDED, (), detail))
            return future
        try:
            pending = self.store.put_many(messages)
        except StorageFailed as error:
            self._fail(error)
            raise
        self._appended()
        if pending.outcome is not None:
            future.set_result(pending.outcome)
        else:
            self._watch(pending, future)
        return future

    def _watch(self, pending: PendingAppend, future: asyncio.Future[Outcome]) -> None:
        """Have the future told of the put's end, or that the time is over; or nobody waits any more."""
        time_limit_ms = self._config.sync_flush_timeout_ms

        def end(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        detail = f"the disk did not answer within {time_limit_ms} ms"
        late = Outcome(PutStatus.FLUSH_DISK_TIMEOUT, Certainty.UNKNOWN, (), detail)
        timer = self._loop.call_later(time_limit_ms / _MS_PER_S, end, late)

        def ended(_: asyncio.Future[Outcome]) -> None:
            self._pending_count -= 1
            timer.cancel()

        self._pending_count += 1
        future.add_done_callback(ended)
        pending.when_done(end)

    async def wait(self, topic: str, queue_id: int, offset: int, time_limit_s: float, tags: str | None = "*") -> bool:
        """Wait until `get` from this offset on may find a message; return False when the time is over.

        Raises:
            store.errors.IllegalRequest, TooManyWaiters, StoreStopped: see `MessageStore.wait`.
        """
        told: asyncio.Future[None] = self._loop.create_future()
        waiter = self.store.wait(topic, queue_id, offset, lambda: None if told.done() else told.set_result(None), tags)
        try:
            async with asyncio.timeout(time_limit_s):
                await told
        except TimeoutError:
            return False
        finally:
            waiter.cancel()
        if self.store.stop_reason:
            raise StoreStopped(self.store.stop_reason)
        return True

    # ---------------------------------------------------------------------------------------------------- its turns

    def _appended(self) -> None:
        """See to what was appended just now."""
        if self._is_flush_sync:
            self._flush_log_soon()
        else:
            self._dispatch_soon()

    def _tick(self) -> None:
        """Do what is due; comes again until the end."""
        if not self._is_running:
            return
        self._loop.call_later(_TICK_S, self._tick)
        now_ms = _now_ms()
        try:
            self._flush_log_if_due(now_ms)
            self._flush_derived_if_due(now_ms)
            self._save_checkpoint_if_due(now_ms)
            self._make_next_file()
            if now_ms >= self._retention_due_ms:
                self._retention_due_ms = now_ms + self._config.clean_resource_interval_ms
                self._keeper.retention.begin_round()
                self._loop.call_soon(self._expire)
        except (StorageFailed, StoreStopped) as error:
            self._fail(error)
        # Also what found no room before.
        self._dispatch_soon()

    def _dispatch_soon(self) -> None:
        if not self._is_dispatching and self._is_running:
            self._is_dispatching = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Dispatch a bounded part, and go on in the next turn if there is more."""
        self._is_dispatching = False
        if not self._is_running:
            return
        try:
            if self.store.dispatch_turn():
                self._dispatch_soon()
        except DiskFull as error:
            # The next tick tries again; nothing is lost meanwhile, for what is not dispatched is not deleted.
            logger.warning("cannot_dispatch error=%r", str(error))
        except (StorageFailed, StoreStopped) as error:
            self._fail(error)

    def _expire(self) -> None:
        """Delete one file that may go, and go on in the next turn if there are more."""
        if not self._is_running:
            return
        try:
            if self._keeper.retention.step():
                self._loop.call_soon(self._expire)
        except (StorageFailed, StoreStopped) as error:
            self._fail(error)

    # ---------------------------------------------------------------------------------------------- in other threads

    def _flush_log_soon(self) -> None:
        """Flush what waits, unless a flush is under way: then what came meanwhile joins the next one."""
        if self._is_flushing_log or not self._is_running:
            return
        try:
            ticket = self._log.begin_flush()
        except StorageFailed as error:
            self._fail(error)
            return
        if ticket is None:
            return
        self._is_flushing_log = True

        def finished(error: Exception | None) -> None:
            self._is_flushing_log = False
            if error is not None:
                self._fail(error)
                return
            self._log.end_flush(ticket)
            self._dispatch_soon()
            if self._is_flush_sync:
                self._flush_log_soon()

        def sync() -> None:
            begin_s = monotonic()
            ticket.sync()
            if self.flush_listener is not None:
                self.flush_listener(monotonic() - begin_s)

        self._log_thread.run(sync, finished)

    def _flush_log_if_due(self, now_ms: int) -> None:
        pages_min = self._log_policy.begin_round(now_ms)
        if pages_min is None or self._is_flush_sync:
            return
        if is_worth_flushing(self._log.flushed_offset, self._log.written_offset, pages_min):
            self._flush_log_soon()

    def _flush_derived_if_due(self, now_ms: int) -> None:
        if self._is_flushing_derived:
            return
        pages_min = self._queue_policy.begin_round(now_ms)
        if pages_min is None:
            return
        # The slots of an index file are spread all over it: they are written with a thorough flush only.
        ticket = self.store.derived.begin_flush(pages_min, is_index_due=pages_min == 0)
        if ticket is not None:
            self._sync_derived(ticket, is_index_due=pages_min == 0)

    def _sync_derived(self, ticket: DerivedTicket, *, is_index_due: bool) -> None:
        self._is_flushing_derived = True

        def finished(error: Exception | None) -> None:
            self._is_flushing_derived = False
            if error is not None:
                self._fail(error)
                return
            self.store.end_flush(ticket)
            if is_index_due and ticket.index is not None and self._is_running:
                # The headers of the index follow its items: they are synced by a second ticket.
                following = self.store.derived.begin_headers_flush()
                if following is not None:
                    self._sync_derived(following, is_index_due=False)

        self._other_thread.run(ticket.sync, finished)

    def _save_checkpoint_if_due(self, now_ms: int) -> None:
        if now_ms < self._checkpoint_due_ms:
            return
        self._checkpoint_due_ms = now_ms + self._config.checkpoint_interval_ms
        if self._keeper.write_checkpoint():
            self._other_thread.run(self._root.sync_checkpoint, self._finished)

    def _make_next_file(self) -> None:
        job = self._log.prepare_next_file()
        if job is not None:
            self._other_thread.run(job.make, self._finished)

    def _finished(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)


def _now_ms() -> int:
    return int(monotonic() * _MS_PER_S)
