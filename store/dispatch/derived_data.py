"""Queues and index of one store: opening, recovery, dispatch, flush and expiry.

Not here: the rules for their certain part (`store.dispatch.recovery`), and their construction
(`store.dispatch.dispatcher`).
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from store.dispatch.catch_up import DerivedCatchUp, Progress, QueuesGuarantee
from store.dispatch.checkpoint import NO_DIGEST
from store.dispatch.dispatcher import Dispatcher
from store.dispatch.loading import load_index, load_queues
from store.dispatch.recovery import DerivedDigests, LastState
from store.fs.flush_tickets import DerivedFilesTicket, Dispatched
from store.fs.sync_tickets import flush_all
from store.model.queue_ends import QueueEnds
from store.queues.unit_writer import GROUP_TAILS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.dispatch.long_polls import MessageWaiters
    from store.fs.ports import Files
    from store.index.key_index import KeyIndex
    from store.model.commit_log import CommitLog
    from store.model.config import MessageStoreConfig
    from store.queues.consume_queues import ConsumeQueues
    from store.queues.unit_writer import UnitsTicket

logger = logging.getLogger(__name__)

# Opening syncs the units of at most this number of queues before it returns.
_FLUSHED_AT_ONCE_MAX = 256


class DerivedData:
    """Queues and index. Construct it by `open`.

    Attributes:
        queues: all consume queues.
        index: None: keys are not indexed.
        dispatcher: builds both from the log.
        notes: one sentence for each repair or finding at the opening.
    """

    def __init__(
        self, queues: ConsumeQueues, index: KeyIndex | None, dispatcher: Dispatcher, log: CommitLog, notes: list[str]
    ) -> None:
        self.queues = queues
        self.index = index
        self.dispatcher = dispatcher
        self.notes = notes
        self._log = log
        # The durable offset after the opening, a lower bound until the first flush.
        opened = Dispatched(dispatcher.offset, max(log.last_store_timestamp, 0))
        self._opened_queues = opened
        self._opened_index = opened

    @classmethod
    def open(
        cls,
        files: Files,
        root: str,
        log: CommitLog,
        config: MessageStoreConfig,
        waiters: MessageWaiters,
        last: LastState,
        on_progress: Progress | None = None,
    ) -> Self:
        """Open queues and index, truncate them to their certain parts, dispatch the rest; see `MessageStore.open`."""
        guarantee = QueuesGuarantee(last)
        with ExitStack() as on_failure:
            queues, lost_queues, notes = load_queues(files, root, config, replace(last, withdraw=guarantee.withdraw))
            on_failure.callback(queues.close)
            index, index_notes = load_index(files, root, config, last)
            if index is not None:
                on_failure.callback(index.close)
            notes += index_notes
            dispatcher = Dispatcher(log, queues, index, waiters, config.dispatch_size_bytes)
            recovery = DerivedCatchUp(log, queues, index, dispatcher, last, guarantee, on_progress)
            recovery.find_headless(lost_queues)
            recovery.truncate()
            recovery.catch_up(lost_queues)
            derived = cls(queues, index, dispatcher, log, [*notes, *recovery.notes])
            for _ in derived.expire_in_steps():
                continue
            if queues.pending_count > _FLUSHED_AT_ONCE_MAX and not guarantee.is_withdrawn:
                # Writing files of thousands of queues takes seconds. The unwritten units can be read, can be rebuilt,
                # and are written by the first flush; until then the checkpoint's time of the queues does not change.
                derived.flush_index()
                derived._opened_queues = Dispatched(recovery.queues_end, last.queues_timestamp)
            else:
                derived.flush()
            on_failure.pop_all()
        for note in derived.notes:
            logger.info("opened note=%r", note)
        return derived

    # --------------------------------------------------------------------------------------------------- flushing

    @property
    def queues_timestamp(self) -> int:
        """Every dispatched message stored before this time is durable in the queues."""
        return max(self._opened_queues.store_timestamp, self.queues.flushed.store_timestamp)

    @property
    def index_timestamp(self) -> int:
        """Every dispatched message stored before this time is durable in the index."""
        if self.index is None:
            return 0
        return max(self._opened_index.store_timestamp, self.index.flushed.store_timestamp)

    @property
    def empty_index_digest(self) -> int:
        """The digest of an index that has no file, because no message had a key; NO_DIGEST if it has any."""
        return NO_DIGEST if self.index is None or self.index.files else self.index.digest()

    @property
    def durable_offset(self) -> int:
        """Every message of the log before this offset is durable in queues and index."""
        queues_end = max(self._opened_queues.offset, self.queues.flushed.offset)
        index_end = queues_end if self.index is None else max(self._opened_index.offset, self.index.flushed.offset)
        return min(queues_end, index_end)

    def begin_flush(self, pages_min: int = 0, *, is_index_due: bool = True) -> DerivedTicket | None:
        """Return a ticket for all unsynced changes; None if there are none.

        Args:
            pages_min: skip queues with fewer unwritten pages.
            is_index_due: include the index.
        """
        queues = self.queues.begin_flush(pages_min)
        index = self.index.begin_flush() if self.index is not None and is_index_due else None
        return None if queues is None and index is None else DerivedTicket(queues, index)

    def begin_headers_flush(self) -> DerivedTicket | None:
        """Return a ticket for the headers of the index, which are written after their items are durable."""
        index = None if self.index is None else self.index.begin_flush()
        return None if index is None else DerivedTicket(None, index)

    def end_flush(self, ticket: DerivedTicket) -> None:
        """Record that a ticket was synced.

        Raises:
            store.errors.DiskFull: there was no space for all units of queues; none is lost, and a later ticket covers
                them again.
        """
        if ticket.index is not None:
            assert self.index is not None
            self.index.end_flush(ticket.index)
        if ticket.queues is not None:
            self.queues.end_flush(ticket.queues)

    def flush(self) -> None:
        """Make queues and index durable, synchronously.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        flush_all(self)

    def flush_index(self) -> None:
        """Make the index durable, synchronously.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        if self.index is not None:
            flush_all(self.index)

    def expire_in_steps(self) -> Iterator[None]:
        """Delete the part of queues and index before the log's current begin, one queue per step.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        begin_offset = self._log.begin_offset
        if self.index is not None:
            self.index.expire(begin_offset)
        yield from self.queues.expire_in_steps(begin_offset)

    # ------------------------------------------------------------------------------------------- ends of queues

    def queue_ends(self) -> QueueEnds:
        """Return the ends of all queues, consistent with one offset of the log; any thread may call it."""
        with self.dispatcher.guard:
            return QueueEnds(self.dispatcher.queues_offset, self.queues.next_offsets())

    def drop_superseded_queues_in_steps(self, ends: QueueEnds) -> Iterator[None]:
        """Remove the queues whose known ends are in a range of the log that this node no longer has.

        Otherwise they would be padded with blanks. `restore_queue_ends_in_steps` must be called when that range is
        dispatched. One queue per step; no dispatch may run before the last step.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        yield from self._guarded(self.queues.drop_superseded_in_steps(ends.next_offsets, self._log.begin_offset))

    def restore_queue_ends_in_steps(self, ends: QueueEnds) -> Iterator[None]:
        """Raise the end of each queue to its known end, when the log before `ends.offset` is dispatched.

        The missing messages are no longer in the log. One queue per step; no dispatch may run before the last step, and
        if `queues.is_full` between steps, a flush is needed.

        Raises:
            store.errors.DiskFull: only some queues were raised; call it again with the same argument.
            store.errors.StorageFailed: the store must stop.
        """
        assert self.dispatcher.offset >= ends.offset, (self.dispatcher.offset, ends.offset)
        yield from self._guarded(self.queues.extend_in_steps(ends.next_offsets, self._log.begin_offset))

    def _guarded(self, steps: Iterator[None]) -> Iterator[None]:
        """Run each step while no other thread reads the ends of queues."""
        while True:
            with self.dispatcher.guard:
                if next(steps, True):
                    return
            yield

    def digests(self) -> DerivedDigests:
        """Return checksums of the ends of queues and index, as the next opening will compute them."""
        return DerivedDigests(self.queues.digest(), NO_DIGEST if self.index is None else self.index.digest())

    def close(self) -> None:
        """Close all files without a flush."""
        self.queues.close()
        if self.index is not None:
            self.index.close()


class DerivedTicket:
    """A sync of queues and index up to their current ends; it combines their tickets."""

    __slots__ = ("index", "queues")

    def __init__(self, queues: UnitsTicket | None, index: DerivedFilesTicket | None) -> None:
        self.queues = queues
        self.index = index

    def step(self, queues_max: int = GROUP_TAILS_MAX) -> bool:
        """Run a part of `sync`, of some queues at most; return whether more is left. One thread at a time.

        Raises:
            store.errors.StorageFailed: the store must stop; the ticket must not be tried again.
        """
        if self.queues is not None and not self.queues.is_synced:
            if self.queues.step(queues_max) or self.index is not None:
                return True
        elif self.index is not None:
            self.index.sync()
        return False

    def sync(self) -> None:
        """Sync files and names; any thread may call it, once.

        Raises:
            store.errors.StorageFailed: the store must stop; the ticket must not be tried again.
        """
        while self.step():
            continue
