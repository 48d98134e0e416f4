"""The background tasks of a store, in an asyncio loop: dispatch, flushes of queues and index, checkpoint, retention.

`jobs` is the list of those that are periodic; docs/architecture.md, "Periodic jobs", lists them with all other jobs of
a node: period, setting, bound, and thread. Dispatch runs at once for a read that needs it, within 2 ms while a reader
waits, otherwise after 100 ms or 1 MiB; a bounded part per loop iteration.

A failed write or sync stops the store permanently: `failure` has the error. `LogTasks` are the tasks of a log:
`store.maintenance.service` has those of a plain log, `cluster.replica.replicated_background` those of a replicated one.

Source: RocketMQ `DefaultMessageStore.start`, `FlushConsumeQueueService`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from store.errors import DiskFull, StorageFailed, StoreStopped
from store.maintenance.debouncer import Debouncer
from store.maintenance.flush_policy import FlushPolicy, FlushSettings
from store.maintenance.paced_flush import PacedFlush
from store.maintenance.periodic_jobs import EVERY_TICK_MS, PeriodicJob, PeriodicJobs
from store.maintenance.task_host import TaskHost
from store.queues.pending_units import FLUSH_ABOVE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store.access.message_store import MessageStore
    from store.dispatch.derived_data import DerivedTicket
    from store.maintenance.lifecycle import DerivedLifecycle
    from store.model.config import MessageStoreConfig

logger = logging.getLogger(__name__)

_TICK_S = 0.05
# After this time a job yields to the event loop.
STEP_S = 0.005
# Unless a reader waits, appends are dispatched in batches, after this time or this many bytes: each run of dispatch
# costs a millisecond, so frequent small runs would cost as much as all other work. Linearizable reads request dispatch
# at once.
_DISPATCH_PACE_S = 0.1
_DISPATCH_GATHER_SIZE_BYTES = 1 << 20
# Appends within this time are dispatched together for waiting readers.
_DISPATCH_GAP_S = 0.002
_MS_PER_S = 1000
_STOPPING = "the node is stopping; try another one"


@dataclass(frozen=True, slots=True)
class LogTasks:
    """The tasks of the log's owner. All are called in the event loop.

    Attributes:
        jobs: of the log; they run before those of the store.
        prepare: runs a bounded part of the work before the next dispatch; returns whether it is done. Raises
            StorageFailed: the store must stop.
        dispatched: called after a dispatch, even an empty one; returns whether the dispatched part may be read and no
            work is due.
        is_dispatch_urgent: returns whether dispatch must run at once for other reasons than waiting readers.
        failed: called once with the error that stopped the store; must stop the log, too.
    """

    jobs: tuple[PeriodicJob, ...] = ()
    prepare: Callable[[], bool] = lambda: True
    dispatched: Callable[[], bool] = lambda: True
    is_dispatch_urgent: Callable[[], bool] = lambda: False
    failed: Callable[[Exception], None] = lambda _: None


class BackgroundTasks:
    """Runs one store. Construct it inside the running loop, then `start`.

    Args:
        store: the open store.
        lifecycle: of the store.
        config: of the store.
        log: the tasks of its log.
        host: the machine; None: this one.

    Attributes:
        store: the store.
        jobs: all periodic jobs, in the order of execution.
    """

    def __init__(
        self,
        store: MessageStore,
        lifecycle: DerivedLifecycle,
        config: MessageStoreConfig,
        log: LogTasks,
        host: TaskHost | None = None,
    ) -> None:
        self.store = store
        self._log = log
        self._lifecycle = lifecycle
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._host = host or TaskHost()
        self._other_thread = self._host.new_worker("store-other")
        self._failure: asyncio.Future[Exception] = self._loop.create_future()
        # False before `start`, and again after `end` or `fail`: callbacks of the loop may run later and check it first.
        self._is_running = False
        # At most one flush of queues and index at a time; None: none is running.
        self._flushing: PacedFlush | None = None
        # Dispatch failed because the disk is full.
        self._is_held_up = False
        # A flush of queues failed because the disk is full.
        self._is_short_of_space = False
        self._dispatching = Debouncer(self._dispatch, _DISPATCH_PACE_S, _DISPATCH_GAP_S)
        # Waiting readers, each with the log offset that must be dispatched.
        self._awaited: dict[asyncio.Future[None], int] = {}
        store.when_awaited(self._reader_waits)
        # The running steps that delete the part of queues before the log's start, and the last begin used.
        self._expiring: Iterator[None] | None = None
        self._begin_offset = store.log.begin_offset
        lifecycle.retention.leave_expiry()
        now_ms = self._now_ms()
        self._queue_policy = FlushPolicy(
            FlushSettings(
                config.flush_interval_consume_queue_ms,
                config.flush_consume_queue_least_pages,
                config.flush_consume_queue_thorough_interval_ms,
            ),
            now_ms,
        )
        self._checkpoint_job = PeriodicJob("checkpoint", config.checkpoint_interval_ms, self._save_checkpoint)
        self.jobs = (
            *log.jobs,
            PeriodicJob("queues follow the log's start", EVERY_TICK_MS, self._follow_log_begin),
            # `FlushPolicy` decides which tick starts a flush, and of which queues.
            PeriodicJob("flush of queues and index", EVERY_TICK_MS, self._flush_derived_if_due),
            self._checkpoint_job,
            PeriodicJob("retention", config.clean_resource_interval_ms, self._begin_retention),
        )
        self._schedule = PeriodicJobs(self.jobs, now_ms)

    @property
    def failure(self) -> asyncio.Future[Exception]:
        """Resolves with the error that stopped the store."""
        return self._failure

    @property
    def is_running(self) -> bool:
        """Whether jobs run: from `start` to `begin_end` or a failure."""
        return self._is_running

    # ------------------------------------------------------------------------------------------- starting and ending

    def start(self) -> None:
        """Start; returns at once."""
        assert not self._is_running
        self._is_running = True
        self._lifecycle.retention.archive.check_in_thread()
        self.dispatch_soon()
        self._tick()

    def begin_end(self) -> None:
        """Start no more jobs; `end` must follow."""
        self._is_running = False

    async def end(self) -> None:
        """Stop all jobs; return when those in other threads have ended. Waiting readers get `StoreStopped`."""
        self.begin_end()
        self._dispatching.cancel()
        if self._flushing is not None:
            self._flushing.hurry()
        await self._other_thread.stop()
        self._give_up(_STOPPING)

    def fail(self, error: Exception) -> None:
        """Stop the store, because the state of the disk is unknown or its log has stopped."""
        self._is_running = False
        if self._flushing is not None:
            self._flushing.give_up()
            self._flushing = None
        self.store.stop(str(error))
        if not self._failure.done():
            logger.error("store_failed error=%r", str(error))
            self._failure.set_result(error)
            self._log.failed(error)
        self._give_up(self.store.stop_reason)

    def _give_up(self, reason: str) -> None:
        """Fail all futures that wait for dispatch, since it has ended."""
        for ready in self._awaited:
            if not ready.done():
                ready.set_exception(StoreStopped(reason))

    def run_in_thread(self, work: Callable[[], object]) -> None:
        """Run `work` in the store's thread for derived files; an exception stops the store."""
        self._other_thread.run(work, self._finished)

    # ----------------------------------------------------------------------------------------------------- waiting

    async def wait(self, topic: str, queue_id: int, offset: int, time_limit_s: float, tags: str | None = "*") -> bool:
        """Wait until `get` from this offset may find a message; return False after the time limit.

        Raises:
            store.errors.IllegalRequest, TooManyWaiters, StoreStopped: see `MessageStore.wait`.
        """
        ready: asyncio.Future[None] = self._loop.create_future()
        waiter = self.store.wait(
            topic, queue_id, offset, lambda: None if ready.done() else ready.set_result(None), tags
        )
        try:
            async with asyncio.timeout(time_limit_s):
                await ready
        except TimeoutError:
            return False
        finally:
            waiter.cancel()
        if self.store.stop_reason:
            raise StoreStopped(self.store.stop_reason)
        return True

    async def dispatched_to(self, offset: int) -> None:
        """Wait until queues and index have every message of the log before `offset`.

        Raises:
            store.errors.StoreStopped: the store stopped before that.
        """
        if self.store.derived.dispatcher.offset >= offset:
            return
        if not self._is_running:
            raise StoreStopped(self.store.stop_reason or _STOPPING)
        ready: asyncio.Future[None] = self._loop.create_future()
        self._awaited[ready] = offset
        try:
            self.dispatch_soon()
            await ready
        finally:
            # A cancelled reader must no longer cause dispatch: while a disk is full many are cancelled.
            self._awaited.pop(ready, None)

    def _reader_waits(self) -> None:
        """Dispatch soon, because a reader may wait for the next messages."""
        if self.store.derived.dispatcher.behind_bytes:
            self.dispatch_soon()

    def _complete_awaited(self) -> None:
        """Resolve the futures whose offset is dispatched now."""
        if not self._awaited:
            return
        offset = self.store.derived.dispatcher.offset
        for ready in [ready for ready, place in self._awaited.items() if place <= offset]:
            del self._awaited[ready]
            if not ready.done():
                ready.set_result(None)

    # -------------------------------------------------------------------------------------------------- periodic work

    def _tick(self) -> None:
        """Run the due jobs; repeated until the end."""
        if not self._is_running:
            return
        self._loop.call_later(_TICK_S, self._tick)
        now_ms = self._now_ms()
        try:
            self._schedule.run_due(now_ms)
        except (StorageFailed, StoreStopped) as error:
            self.fail(error)
        # Including messages that did not fit on the disk before.
        self.dispatch_soon()

    def dispatch_soon(self) -> None:
        """Request dispatch of the readable records; the module's docstring describes when it runs."""
        if not self._is_running:
            return
        if self._is_dispatch_urgent():
            self._dispatching.at_once()
        elif not self._is_held_up and (self.store.waiters_count or self._is_batch_full()):
            self._dispatching.soon()
        else:
            self._dispatching.later()

    def _is_dispatch_urgent(self) -> bool:
        return bool(self._awaited) or self._log.is_dispatch_urgent()

    def _is_batch_full(self) -> bool:
        return self.store.derived.dispatcher.behind_bytes >= _DISPATCH_GATHER_SIZE_BYTES

    def _dispatch(self) -> None:
        """Dispatch a bounded part, and continue in the next loop iteration if more is left."""
        if not self._is_running or self.store.derived.queues.is_full:
            return
        try:
            if not self._log.prepare():
                self._dispatching.at_once()
                return
            is_more = self.store.dispatch_step()
            is_done = self._log.dispatched()
            if is_done:
                self._complete_awaited()
            if is_more or not is_done:
                self._dispatching.at_once()
            if self._is_held_up:
                self._is_held_up = False
                logger.info("dispatching_again")
        except DiskFull as error:
            # The next tick retries; no message is lost, because undispatched messages are not deleted.
            if not self._is_held_up:
                self._is_held_up = True
                logger.warning("cannot_dispatch error=%r", str(error))
        except (StorageFailed, StoreStopped) as error:
            self.fail(error)

    def _begin_retention(self, _now_ms: int) -> None:
        # The check uses the result of the previous read.
        self._lifecycle.retention.archive.check_in_thread()
        self._lifecycle.retention.begin_round()
        self._loop.call_soon(self._expire)

    def _expire(self) -> None:
        """Delete one file that may be deleted, and continue in the next loop iteration if there are more."""
        if not self._is_running:
            return
        try:
            if self._lifecycle.retention.step():
                self._loop.call_soon(self._expire)
        except (StorageFailed, StoreStopped) as error:
            self.fail(error)

    def _follow_log_begin(self, _now_ms: int) -> None:
        """Start to delete the part of queues and index before the log's start, if that has changed."""
        if self.store.log.begin_offset == self._begin_offset:
            return
        self._begin_offset = self.store.log.begin_offset
        is_in_progress, self._expiring = self._expiring is not None, self.store.expire_in_steps()
        if not is_in_progress:
            self._expire_some()

    def _expire_some(self) -> None:
        """Delete that part of some queues, and continue in the next iteration, so as not to block the loop."""
        if not self._is_running:
            return
        turn_end_s = self._host.now_s() + STEP_S
        try:
            for _ in self._expiring or ():
                if self._host.now_s() >= turn_end_s:
                    self._loop.call_soon(self._expire_some)
                    return
        except (StorageFailed, StoreStopped) as error:
            self.fail(error)
        self._expiring = None

    # ---------------------------------------------------------------------------------------------- in other threads

    def _flush_derived_if_due(self, now_ms: int) -> None:
        derived, config = self.store.derived, self._config
        # A single unsynced unit would otherwise prevent the checkpoint from advancing for up to a minute. Few units in
        # each of many queues also use memory until they are written.
        is_pressing = derived.queues.pending_bytes >= FLUSH_ABOVE_BYTES or (
            derived.dispatcher.offset - derived.durable_offset >= config.redispatch_max_bytes
        )
        if self._flushing is not None:
            if is_pressing:
                self._flushing.hurry()
            return
        pages_min = self._queue_policy.begin_round(now_ms)
        if pages_min is None:
            return
        is_thorough = is_pressing or pages_min == 0
        # The changed slots of an index file are spread over all its pages: so they are written only with a thorough
        # flush.
        ticket = derived.begin_flush(0 if is_thorough else pages_min, is_index_due=is_thorough)
        if ticket is not None:
            self._sync_derived(ticket, is_index_due=is_thorough, is_urgent=is_pressing)

    def _sync_derived(self, ticket: DerivedTicket, *, is_index_due: bool, is_urgent: bool) -> None:
        def finished(error: Exception | None) -> None:
            self._flushing = None
            if error is not None:
                self.fail(error)
                return
            if not self._end_flush(ticket):
                return
            if is_index_due and ticket.index is not None and self._is_running:
                # The headers of the index are written after its items: a second ticket syncs them.
                following = self.store.derived.begin_headers_flush()
                if following is not None:
                    self._sync_derived(following, is_index_due=False, is_urgent=True)
                    return
            if is_index_due or ticket.index is not None:
                # The checkpoint is synced at once, because a start after a crash begins at it.
                self._schedule.bring_forward(self._checkpoint_job)

        self._flushing = PacedFlush(
            self._loop, self._other_thread, ticket, finished, is_urgent=is_urgent, now_s=self._host.now_s
        )

    def _end_flush(self, ticket: DerivedTicket) -> bool:
        """End a ticket; return whether all its units fitted on the disk."""
        try:
            self.store.end_flush(ticket)
        except DiskFull as error:
            # A later flush retries. The unwritten units are in memory and can be read.
            if not self._is_short_of_space:
                self._is_short_of_space = True
                logger.warning("cannot_flush_queues error=%r", str(error))
            return False
        if self._is_short_of_space:
            self._is_short_of_space = False
            logger.info("flushing_queues_again")
        # Dispatch may have waited for memory to be released.
        self.dispatch_soon()
        return True

    def _save_checkpoint(self, _now_ms: int) -> None:
        if self._lifecycle.write_checkpoint():
            self.run_in_thread(self._lifecycle.sync_checkpoint)

    def _finished(self, error: Exception | None) -> None:
        if error is not None:
            self.fail(error)

    def _now_ms(self) -> int:
        return int(self._host.now_s() * _MS_PER_S)


def monotonic_ms() -> int:
    """Return milliseconds of the monotonic clock."""
    return int(monotonic() * _MS_PER_S)
