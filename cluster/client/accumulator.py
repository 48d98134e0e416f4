"""Collects messages of many callers into batches: one for each place they go to. Pure: time is given, nothing is sent.

A batch is complete when it is full or has waited for `linger_ms`. With `linger_ms = 0`, the default, it is complete at
the next `take_due`: so a lone message never waits for company, and those that came meanwhile travel together.

Source: RocketMQ `ProduceAccumulator`, which waits for 10 ms or 32 KiB.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from dledger.errors import DLedgerError

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")

MESSAGES_MAX: Final = 1_000
SIZE_BYTES_MAX: Final = 1 << 20
TOTAL_SIZE_BYTES_MAX: Final = 64 << 20


class AccumulatorFull(DLedgerError):
    """As many bytes wait to be sent, or for their answers, as may. The message was not taken; wait, or send less."""

    def __init__(self, found: int, maximum: int) -> None:
        super().__init__(f"{found} bytes of messages wait already, at most {maximum} may. Wait until some are answered")


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is complete, and how much may wait.

    Attributes:
        linger_ms: how long the first message of a batch waits at most for others.
        messages_max: in one batch.
        size_bytes_max: of one batch; a larger message travels alone.
        total_size_bytes_max: of all that is collected and not released.
    """

    linger_ms: float = 0
    messages_max: int = MESSAGES_MAX
    size_bytes_max: int = SIZE_BYTES_MAX
    total_size_bytes_max: int = TOTAL_SIZE_BYTES_MAX


@dataclass(slots=True)
class Batch(Generic[Key, Item]):
    """Messages that travel together, in the order in which they came.

    Attributes:
        key: where they go.
        items: the messages.
        size_bytes: of all of them.
        due_ms: when they should go at the latest.
    """

    key: Key
    due_ms: float
    items: list[Item] = field(default_factory=list)
    size_bytes: int = 0


class Accumulator(Generic[Key, Item]):
    """Open batches, one a key. What was taken counts until `release`."""

    def __init__(self, limits: BatchLimits | None = None) -> None:
        self._limits = limits or BatchLimits()
        self._open: dict[Key, Batch[Key, Item]] = {}
        self._total_size_bytes = 0

    @property
    def total_size_bytes(self) -> int:
        """Bytes that were added and not released."""
        return self._total_size_bytes

    def add(self, key: Key, item: Item, size_bytes: int, now_ms: float) -> list[Batch[Key, Item]]:
        """Take a message; return the batches that are complete now and should be sent, in this order.

        Raises:
            AccumulatorFull: see there.
        """
        limits = self._limits
        total = self._total_size_bytes + size_bytes
        # Something that is too large by itself must go through when nothing else waits.
        if total > limits.total_size_bytes_max and self._total_size_bytes:
            raise AccumulatorFull(self._total_size_bytes, limits.total_size_bytes_max)
        self._total_size_bytes = total
        complete = []
        batch = self._open.get(key)
        if batch is not None and batch.size_bytes + size_bytes > limits.size_bytes_max:
            complete.append(self._open.pop(key))
            batch = None
        if batch is None:
            # New ones go to the end: so the first is the one that is due first.
            batch = self._open[key] = Batch(key, now_ms + limits.linger_ms)
        batch.items.append(item)
        batch.size_bytes += size_bytes
        if len(batch.items) >= limits.messages_max or batch.size_bytes >= limits.size_bytes_max:
            complete.append(self._open.pop(key))
        return complete

    def take_due(self, now_ms: float) -> list[Batch[Key, Item]]:
        """Return the batches that have waited long enough."""
        due: list[Batch[Key, Item]] = []
        for batch in self._open.values():
            if batch.due_ms > now_ms:
                break
            due.append(batch)
        for batch in due:
            del self._open[batch.key]
        return due

    def take_all(self) -> list[Batch[Key, Item]]:
        """Return all batches: nothing shall wait any longer."""
        batches = list(self._open.values())
        self._open.clear()
        return batches

    @property
    def next_due_ms(self) -> float | None:
        """When the next batch will have waited long enough; None without any."""
        return next((batch.due_ms for batch in self._open.values()), None)

    def release(self, batch: Batch[Key, Item]) -> None:
        """Count a batch no longer: it was answered, or given up."""
        self._total_size_bytes -= batch.size_bytes
        assert self._total_size_bytes >= 0, self._total_size_bytes
