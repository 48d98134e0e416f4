"""Runs a message store on a plain log, in an asyncio loop: puts, flushes of the log, and its next file.

A flush starts as soon as a put waits, one flush at a time, so that messages appended during it share the next one
(group commit). Other flushes, and the creation of the next file, are periodic jobs of the log; queues and index are in
`store.maintenance.background`. A failed write or sync stops the store permanently: `failure` has the error.

Source: RocketMQ `DefaultMessageStore.start`, `CommitLog.GroupCommitService`.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from store.errors import Certainty, StorageFailed
from store.fs.storage_thread import StorageThread
from store.maintenance.background import BackgroundTasks, LogTasks, monotonic_ms
from store.maintenance.flush_policy import FlushPolicy, FlushSettings, is_worth_flushing
from store.maintenance.periodic_jobs import EVERY_TICK_MS, PeriodicJob
from store.model.commit_log import PendingPut, PutOutcome, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.access.message_store import MessageStore
    from store.maintenance.lifecycle import StoreLifecycle
    from store.model.config import MessageStoreConfig
    from store.model.local_log import LocalLog
    from store.model.message import Message

_MS_PER_S = 1000


class StoreService:
    """Runs one store. Construct it inside the running loop, then `start`.

    Args:
        store: the open store.
        log: its log.
        lifecycle: of the store.
        config: of the store.
        is_flush_sync: puts wait until they are durable.

    Attributes:
        background: its tasks.
        flush_listener: called with the duration of each sync of the log in seconds, in the thread of the sync.
    """

    def __init__(
        self,
        store: MessageStore,
        log: LocalLog[Any],
        lifecycle: StoreLifecycle,
        config: MessageStoreConfig,
        *,
        is_flush_sync: bool,
    ) -> None:
        jobs = (
            # `FlushPolicy` decides which tick starts a flush.
            PeriodicJob("flush of the log", EVERY_TICK_MS, self._flush_log_if_due),
            PeriodicJob("next file of the log", EVERY_TICK_MS, self._make_next_file),
        )
        tasks = LogTasks(jobs, failed=lambda error: log.abandon(str(error)))
        self.background = BackgroundTasks(store, lifecycle.derived, config, tasks)
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._log = log
        self._lifecycle = lifecycle
        self._is_flush_sync = is_flush_sync
        self._log_thread = StorageThread("store-log")
        self.flush_listener: Callable[[float], None] | None = None
        # One sync of the log at a time: data written during it is part of the next one (group commit).
        self._is_flushing_log = False
        # Puts that wait for a sync; at most `pending_puts_max`.
        self._pending_count = 0
        self._log_policy = FlushPolicy(
            FlushSettings(
                config.flush_interval_commit_log_ms,
                config.flush_commit_log_least_pages,
                config.flush_commit_log_thorough_interval_ms,
            ),
            monotonic_ms(),
        )

    @property
    def store(self) -> MessageStore:
        """The store."""
        return self.background.store

    @property
    def failure(self) -> asyncio.Future[Exception]:
        """Resolves with the error that stopped the store."""
        return self.background.failure

    def start(self) -> None:
        """Start; returns at once."""
        self.background.start()

    async def stop(self) -> None:
        """Stop: complete work in progress, flush everything, and close the store cleanly.

        Raises:
            store.errors.StoreError: the flush failed, or the store had failed before; the files are closed.
        """
        self.background.begin_end()
        await self._log_thread.stop()
        await self.background.end()
        self._lifecycle.close()
        if self.failure.done():
            raise self.failure.result()

    async def wait(self, topic: str, queue_id: int, offset: int, time_limit_s: float, tags: str | None = "*") -> bool:
        """Wait until `get` from this offset may find a message; see `BackgroundTasks.wait`."""
        return await self.background.wait(topic, queue_id, offset, time_limit_s, tags)

    async def dispatched_to(self, offset: int) -> None:
        """Wait until queues and index have every message before `offset`; see `BackgroundTasks.dispatched_to`."""
        await self.background.dispatched_to(offset)

    # ---------------------------------------------------------------------------------------------------- putting

    async def put(self, message: Message) -> PutOutcome:
        """Put one message; see `put_many`."""
        return await self.put_many((message,))

    async def put_many(self, messages: Sequence[Message]) -> PutOutcome:
        """Put messages like `MessageStore.put_many`; return the outcome.

        Raises:
            as `begin_put`.
        """
        return await self.begin_put(messages)

    def begin_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Put messages, in the same iteration of the event loop; the future returns their outcome.

        With `is_flush_sync` the outcome waits for the flush; after `sync_flush_timeout_ms` it is FLUSH_DISK_TIMEOUT:
        the messages are in the log, but may not be durable.

        Raises:
            store.errors.IllegalMessage: nothing was put.
            store.errors.StorageFailed: the messages may have been put; the store has stopped.
        """
        return self._begin(messages, self.store.put_many)

    def begin_own_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Put the broker's own messages, as `MessageStore.put_own`; otherwise as `begin_put`."""
        return self._begin(messages, self.store.put_own)

    def begin_prepared_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Put messages as `MessageStore.put_prepared`; otherwise as `begin_put`."""
        return self._begin(messages, self.store.put_prepared)

    def _begin(
        self, messages: Sequence[Message], put: Callable[[Sequence[Message]], PendingPut]
    ) -> asyncio.Future[PutOutcome]:
        future: asyncio.Future[PutOutcome] = self._loop.create_future()
        if self._pending_count >= self._config.pending_puts_max:
            detail = f"{self._pending_count} puts wait for the disk; retry later"
            future.set_result(PutOutcome(PutStatus.OS_PAGE_CACHE_BUSY, Certainty.NOT_APPENDED, (), detail))
            return future
        try:
            pending = put(messages)
        except StorageFailed as error:
            self.background.fail(error)
            raise
        self._appended()
        if pending.outcome is not None:
            future.set_result(pending.outcome)
        else:
            self._watch(pending, future)
        return future

    def _watch(self, pending: PendingPut, future: asyncio.Future[PutOutcome]) -> None:
        """Resolve the future when the put ends or times out, unless it was cancelled."""
        time_limit_ms = self._config.sync_flush_timeout_ms

        def end(outcome: PutOutcome) -> None:
            if not future.done():
                future.set_result(outcome)

        detail = f"the sync did not complete within {time_limit_ms} ms"
        late = PutOutcome(PutStatus.FLUSH_DISK_TIMEOUT, Certainty.UNKNOWN, (), detail)
        timer = self._loop.call_later(time_limit_ms / _MS_PER_S, end, late)

        def ended(_: asyncio.Future[PutOutcome]) -> None:
            self._pending_count -= 1
            timer.cancel()

        self._pending_count += 1
        future.add_done_callback(ended)
        pending.when_done(end)

    def _appended(self) -> None:
        """Request a flush of the appended messages, or their dispatch if puts do not wait for a flush."""
        if self._is_flush_sync:
            self._flush_log_soon()
        else:
            self.background.dispatch_soon()

    # ---------------------------------------------------------------------------------------------- in other threads

    def _make_next_file(self, _now_ms: int) -> None:
        job = self._log.prepare_next_file()
        if job is not None:
            self.background.run_in_thread(job.make)

    def _flush_log_soon(self) -> None:
        """Start a flush, unless one is running; new messages are then part of the next one."""
        if self._is_flushing_log or not self.background.is_running:
            return
        try:
            ticket = self._log.begin_flush()
        except StorageFailed as error:
            self.background.fail(error)
            return
        if ticket is None:
            return
        self._is_flushing_log = True

        def finished(error: Exception | None) -> None:
            self._is_flushing_log = False
            if error is not None:
                self.background.fail(error)
                return
            self._log.end_flush(ticket)
            self.background.dispatch_soon()
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
