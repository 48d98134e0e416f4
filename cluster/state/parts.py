"""The port of a part of broker state that a feature adds: timed messages, transactions, … each in a module of its own.

A snapshot has each part that is not empty, with its number (`cluster.state.snapshot`). So a new part changes neither
the format nor the modules of other parts, and a group that does not use a feature writes what older programs read.

| number | part |
| -----: | --- |
| 1 | done units of the timer queue (`cluster.state.timers`) |
| 2 | `cluster.state.returned_messages` |
| 3 | transactions (`cluster.state.transactions`) |
| 4 | messages in flight of pop consumption (`cluster.state.pop.state`) |
| 5 | message groups in flight, and owners of queues, of groups that consume in order (`cluster.state.order.part`) |
| 6 | delays of the delay levels (`cluster.state.old.delay_table`) |
| 7 | access keys (`cluster.state.access_keys`) |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.state.compact_bytes import Reader, Writer


class FrozenPart(Protocol):
    """An immutable copy of a part."""

    def write(self, writer: Writer) -> Iterator[None]:
        """Write the content in steps of a few milliseconds; in any thread. Equal contents give equal bytes."""
        ...


class StatePart(Protocol):
    """The state of one feature; only committed commands and effects change it."""

    @property
    def is_empty(self) -> bool:
        """Whether the part is as in a new group: a snapshot does not contain it."""
        ...

    def frozen(self) -> FrozenPart:
        """Return a copy that later changes do not affect; in a few milliseconds, whatever the size."""
        ...

    def loading(self, reader: Reader) -> Iterator[None]:
        """Load what `write` wrote, into an empty part, in steps of a few milliseconds.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is invalid; the part must not be used.
        """
        ...


class MovablePart(StatePart, Protocol):
    """A part that a group takes over from a standalone broker (`cluster.state.old.commands`)."""

    def pieces(self) -> Iterator[FrozenPart]:
        """Yield parts of the content that fit into a command each; together they are the content."""
        ...

    def take_over(self, piece: Self) -> bool:
        """Add a piece without what is known already; return whether anything was new. Repeated, it changes nothing."""
        ...
