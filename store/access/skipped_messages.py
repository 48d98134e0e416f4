"""Messages that a read of a queue skipped although they may match the filter, so that none is lost silently.

| cause   | what is at the offset                                     | is the message lost?                     |
| ------- | ------------------------------------------------------------- | ---------------------------------------- |
| DAMAGED | a unit; its record is damaged, or the unit points             | here; another node may have it; a wrong  |
|         | to a message of another topic, queue or queue offset          | unit: no, `dledger rebuild` corrects it  |
| ABSENT  | a blank unit: the log had no readable record for this offset  | if it was ever stored: see the broker's  |
|         | when the queue was built                                      | log of that start                        |
| REMOVED | a unit; its file of the log was deleted by age since          | yes, as configured                       |
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from store.model.skipped import Skipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.errors import CorruptData
    from store.model.message import StoredMessage
    from store.queues.consume_queue import ConsumeQueue

# Largest number of skips in one read, which then ends; the next read continues there.
SKIPS_MAX = 64


class SkipCause(StrEnum):
    """The reason why messages were skipped; see the module's table."""

    DAMAGED = "DAMAGED"
    ABSENT = "ABSENT"
    REMOVED = "REMOVED"


class Skip(NamedTuple):
    """A range of skipped offsets of a queue.

    Attributes:
        begin: the first queue offset.
        end: after the last one.
        cause: of all of them.
        record: the place and fault of the first damaged record; None for other causes.
    """

    begin: int
    end: int
    cause: SkipCause
    record: Skipped | None = None


class SkipNotes:
    """Collects the skipped offsets of one read: consecutive ones with the same cause are joined."""

    __slots__ = ("_skips",)

    def __init__(self) -> None:
        self._skips: list[Skip] = []

    @property
    def skips(self) -> Sequence[Skip]:
        """All skips, in order of their offsets."""
        return tuple(self._skips)

    @property
    def is_full(self) -> bool:
        """Whether the read should end here."""
        return len(self._skips) >= SKIPS_MAX

    def damaged(self, offset: int, record: Skipped) -> None:
        """Record an offset whose record cannot be read."""
        self._add(Skip(offset, offset + 1, SkipCause.DAMAGED, record))

    def add(self, offset: int, damage: Skipped | None, cause: SkipCause) -> None:
        """Record an offset whose record is damaged, or missing for the given cause."""
        if damage is not None:
            self.damaged(offset, damage)
        else:
            self.gone(offset, cause)

    def gone(self, offset: int, cause: SkipCause) -> None:
        """Record an offset without a record."""
        self._add(Skip(offset, offset + 1, cause))

    def _add(self, skip: Skip) -> None:
        """Add a skip after all others."""
        last = self._skips[-1] if self._skips else None
        if last is not None and last.end == skip.begin and last.cause is skip.cause:
            self._skips[-1] = last._replace(end=skip.end)
        else:
            self._skips.append(skip)


def damaged_record(physical_offset: int, size: int, error: CorruptData) -> Skipped:
    """Return the report of an unreadable record."""
    return Skipped(error.path, error.position, physical_offset, size, error.expected, error.found)


def wrong_unit(queue: ConsumeQueue, queue_offset: int, message: StoredMessage) -> Skipped:
    """Return the report of a unit that points to a message with another queue offset."""
    path, position = queue.place_of(queue_offset)
    return Skipped(
        path,
        position,
        message.physical_offset,
        message.size,
        f"the unit of {queue.key.topic}/{queue.key.queue_id}, queue offset {queue_offset}",
        f"that of {message.topic}/{message.queue_id}, queue offset {message.queue_offset}",
    )
