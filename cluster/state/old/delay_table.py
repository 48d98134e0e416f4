"""The delays of the delay levels, where they are not the default ones; part 6 of the broker state.

Source: RocketMQ `MessageStoreConfig.messageDelayLevel`, which each broker reads from a file of its own.

The queues of the levels have the default delays, from which every node, and every program that reads the log, derives
the times of the units. So a message of a level with another delay waits for a time instead (`cluster.delivery`): a
changed table never changes when a message is due that was put before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store.errors import IllegalMessage
from store.model.topics import DELAY_LEVELS_MAX, DELAY_LEVELS_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.state.compact_bytes import Reader, Writer

# 40 days, as the longest time of a message.
DELAY_MS_MAX: Final = 40 * 24 * 3_600_000


class DelayTable:
    """The table; a `cluster.state.parts.MovablePart`, which is immutable apart from `set`.

    Attributes:
        levels_ms: delay of level 1, 2, …
    """

    def __init__(self) -> None:
        self.levels_ms: tuple[int, ...] = DELAY_LEVELS_MS

    def set(self, levels_ms: tuple[int, ...]) -> bool:
        """Replace the table; empty: by the default one. Return whether that changes it."""
        before, self.levels_ms = self.levels_ms, levels_ms or DELAY_LEVELS_MS
        return self.levels_ms != before

    @property
    def is_empty(self) -> bool:
        """Whether the table is the default one."""
        return self.levels_ms == DELAY_LEVELS_MS

    def frozen(self) -> FrozenTable:
        """Return a copy that later changes do not affect."""
        return FrozenTable(self.levels_ms)

    def pieces(self) -> Iterator[FrozenTable]:
        """Yield the table."""
        yield self.frozen()

    def take_over(self, piece: DelayTable) -> bool:
        """Take over the table of a standalone broker, unless the group has one of its own."""
        return self.is_empty and self.set(piece.levels_ms)

    def loading(self, reader: Reader) -> Iterator[None]:
        """Load what `FrozenTable.write` wrote, in one step.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is invalid.
        """
        self.levels_ms = read_levels(reader)
        yield


class FrozenTable:
    """An immutable copy of a `DelayTable`; a `cluster.state.parts.FrozenPart`."""

    def __init__(self, levels_ms: tuple[int, ...]) -> None:
        self._levels_ms = levels_ms

    def write(self, writer: Writer) -> Iterator[None]:
        """Write the table in one step."""
        write_levels(writer, self._levels_ms)
        yield


def check_levels(levels_ms: tuple[int, ...]) -> None:
    """Raise unless a table is valid.

    Raises:
        IllegalMessage: it has too many levels, or a delay is out of its range.
    """
    if len(levels_ms) > DELAY_LEVELS_MAX:
        raise IllegalMessage("delay levels", f"at most {DELAY_LEVELS_MAX}", str(len(levels_ms)))
    for level, delay_ms in enumerate(levels_ms, start=1):
        if not 1 <= delay_ms <= DELAY_MS_MAX:
            raise IllegalMessage(f"delay of level {level}", f"1 to {DELAY_MS_MAX} ms", str(delay_ms))


def write_levels(writer: Writer, levels_ms: tuple[int, ...]) -> None:
    """Append the delays of a table."""
    writer.number(len(levels_ms))
    for delay_ms in levels_ms:
        writer.number(delay_ms)


def read_levels(reader: Reader) -> tuple[int, ...]:
    """Read the delays of a table."""
    return tuple(reader.number() for _ in range(reader.count()))
