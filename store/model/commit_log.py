"""The port of the message store's log, `CommitLog`.

Two implementations: the plain log of one machine (`commitlog.plain.commit_log`) and the replicated one
(`commitlog.replicated.commit_log`). All methods are for the thread that owns the store.

Offsets are bytes of the log. A record's *physical offset* is that of its first byte; in the replicated log 48 bytes of
entry header precede it, which are not part of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.errors import Certainty
    from store.model.dispatch_batch import DispatchBatch, Int64s
    from store.model.message import Host, Message, StoredMessage


class PutStatus(StrEnum):
    """The status of a put, with RocketMQ's names (`org.apache.rocketmq.store.PutMessageStatus`)."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


class Place(NamedTuple):
    """The place of one message.

    Attributes:
        physical_offset: of its record.
        size: of its record, in bytes.
        queue_offset: as stored in the record.
        store_timestamp: milliseconds since 1970.
    """

    physical_offset: int
    size: int
    queue_offset: int
    store_timestamp: int


class Places(Sequence[Place]):
    """The places of messages that were appended together, as columns; each `Place` is made on access.

    Attributes:
        physical_offsets, sizes, queue_offsets: of each message.
        store_timestamp: of all of them.
    """

    __slots__ = ("physical_offsets", "queue_offsets", "sizes", "store_timestamp")

    def __init__(
        self,
        physical_offsets: Sequence[int],
        sizes: Sequence[int],
        queue_offsets: Sequence[int],
        store_timestamp: int,
    ) -> None:
        assert len(physical_offsets) == len(sizes) == len(queue_offsets), (physical_offsets, sizes, queue_offsets)
        self.physical_offsets = physical_offsets
        self.sizes = sizes
        self.queue_offsets = queue_offsets
        self.store_timestamp = store_timestamp

    def __len__(self) -> int:
        return len(self.physical_offsets)

    @overload
    def __getitem__(self, row: int) -> Place: ...

    @overload
    def __getitem__(self, row: slice) -> list[Place]: ...

    def __getitem__(self, row: int | slice) -> Place | list[Place]:
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        return Place(self.physical_offsets[row], self.sizes[row], self.queue_offsets[row], self.store_timestamp)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class PutOutcome(NamedTuple):
    """The outcome of one append, the same for all its messages.

    Attributes:
        status: with RocketMQ's name.
        certainty: whether it was executed.
        places: of each message; empty unless `certainty` is APPENDED.
        detail: the reason of a failure, as a sentence; empty after success.
        repeated_count: the number of messages that were stored by an earlier put (`store.access.dedupe`).
        queue_ids: of each message, if some were repeated, because those may be in another queue than requested; else
            empty.
        store_hosts: of each message, likewise, because an earlier leader may have stored it; None: this node did.
    """

    status: PutStatus
    certainty: Certainty
    places: Sequence[Place]
    detail: str = ""
    repeated_count: int = 0
    queue_ids: Sequence[int] = ()
    store_hosts: Sequence[Host | None] = ()


class RawLog(NamedTuple):
    """Stored bytes of a log.

    Attributes:
        data: of one file; valid until the log changes.
        header_size: size of the entry's header before each record, or 0.
    """

    data: memoryview
    header_size: int


class PendingPut:
    """An append in progress: the log ends it once, in the owner's thread.

    Attributes:
        outcome: None while the append is in progress.
    """

    __slots__ = ("_callbacks", "outcome")

    def __init__(self, outcome: PutOutcome | None = None) -> None:
        self.outcome = outcome
        self._callbacks: list[Callable[[PutOutcome], None]] = []

    def when_done(self, callback: Callable[[PutOutcome], None]) -> None:
        """Call `callback` with the outcome, at once if it is known."""
        if self.outcome is None:
            self._callbacks.append(callback)
        else:
            callback(self.outcome)

    def end(self, outcome: PutOutcome) -> None:
        """Set the outcome; only once."""
        assert self.outcome is None, (self.outcome, outcome)
        self.outcome = outcome
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(outcome)


class CommitLog(Protocol):
    """A log of message records."""

    @property
    def begin_offset(self) -> int:
        """Offset at or before the start of the oldest record."""
        ...

    @property
    def end_offset(self) -> int:
        """Offset after the last record that may be read and dispatched.

        Up to here the log is flushed (plain, sync), written (plain, async) or committed (replicated).
        """
        ...

    @property
    def last_store_timestamp(self) -> int:
        """Store timestamp of the last record below `end_offset`, in milliseconds since 1970; -1 when there is none."""
        ...

    @property
    def flushed_store_timestamp(self) -> int:
        """Store timestamp of the last durable record; -1 when there is none."""
        ...

    def offset_at_timestamp(self, store_timestamp: int) -> int:
        """Return the offset of the first record stored then or later; `end_offset` if there is none.

        Store timestamps never decrease along the log, so all earlier records are older.
        """
        ...

    def peek(self, physical_offset: int, size: int) -> StoredMessage | None:
        """Return the record at `physical_offset` for access to its fields; None if none can be read there.

        Checksums are not checked, so the cost does not depend on the body.
        """
        ...

    def append(
        self, messages: Sequence[Message], queue_offsets: Sequence[int], *, may_carry_effects: bool = False
    ) -> PendingPut:
        """Append messages in order, all or none, with the queue offsets that the store has assigned.

        Args:
            messages: to be stored.
            queue_offsets: of each.
            may_carry_effects: they are the broker's own: marks of effects are stored. Those of clients are removed.

        Raises:
            store.errors.IllegalMessage: nothing was appended; the error has the number of the message and the reason.
            store.errors.DiskFull: nothing was appended.
            store.errors.StorageFailed: the messages may have been appended; the node must stop.
        """
        ...

    def read(self, physical_offset: int, size: int) -> StoredMessage | None:
        """Return the record of `size` bytes at `physical_offset`; None if it is deleted or not readable yet.

        Raises:
            store.errors.CorruptData: there is no such record, or its checksum is wrong.
        """
        ...

    def read_many(self, places: Sequence[int], sizes: Sequence[int]) -> Sequence[StoredMessage]:
        """Return the records at these offsets, at least one, up to the first that `read` must examine.

        It is cheaper than `read` for each. The result is empty if `read` must examine the first: because it is deleted,
        not readable yet, or damaged.
        """
        ...

    def find(self, physical_offset: int) -> StoredMessage | None:
        """Return the record at `physical_offset`, of any size; None if none may be read there.

        Raises:
            store.errors.CorruptData: no record begins there, or its checksum is wrong.
        """
        ...

    def scan(self, offset: int, size_bytes_max: int) -> DispatchBatch | None:
        """Return the columns of about `size_bytes_max` bytes of records from `offset` on; None at the end.

        Args:
            offset: `begin_offset`, the `next_offset` of another batch, or a known begin of a record.
            size_bytes_max: at least one record is taken.
        """
        ...

    def raw(self, offset: int, end: int, size_bytes_max: int) -> RawLog | None:
        """Return stored bytes of `[offset, end)`, from one file; None if none is readable.

        Args:
            offset: anywhere in the log.
            end: after the last byte wanted.
            size_bytes_max: fewer are returned at a file's end, and at the end of the readable part.
        """
        ...

    def begins_within(self, begin: int, end: int) -> Int64s | None:
        """Return the start of each record's bytes in the log in `[begin, end)`; None for a log without an index.

        In the replicated log that is an entry's header; a leader's own entries are among them.
        """
        ...
