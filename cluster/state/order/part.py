"""Part 5 of the broker state, of groups that consume in order: message groups in flight, and owners of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.state.order.owners import QueueOwners, write_owners
from cluster.state.pop.ordered import load_ordered, write_ordered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.state.compact_bytes import Reader, Writer
    from cluster.state.pop.queue import PopQueue
    from cluster.state.pop.state import PopKey, PopState
    from store.model.message import QueueKey


class FrozenOrder:
    """The part at one moment; may be read in any thread."""

    __slots__ = ("_owners", "_queues")

    def __init__(self, queues: Mapping[PopKey, PopQueue], owners: Mapping[str, Mapping[QueueKey, str]]) -> None:
        self._queues = queues
        self._owners = owners

    def write(self, writer: Writer) -> Iterator[None]:
        """Write the content in steps of a few milliseconds."""
        yield from write_ordered(writer, self._queues)
        yield from write_owners(writer, self._owners)


class OrderPart:
    """The part; a `cluster.state.parts.StatePart`.

    Args:
        pop: has the queues of pop consumption; loaded before.
        owners: of the queues that consumers lock.
    """

    def __init__(self, pop: PopState, owners: QueueOwners) -> None:
        self._pop = pop
        self._owners = owners

    @property
    def is_empty(self) -> bool:
        """Whether no group consumes anything in order."""
        return not self._pop.ordered_count and not len(self._owners)

    def frozen(self) -> FrozenOrder:
        """Return a copy that later changes do not affect; it copies a reference for each queue and group."""
        return FrozenOrder(self._pop.ordered_queues(), self._owners.frozen())

    def loading(self, reader: Reader) -> Iterator[None]:
        """Load what `FrozenOrder.write` wrote, in steps of a few milliseconds.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is invalid; the part must not be used.
        """
        yield from load_ordered(reader, self._pop)
        yield from self._owners.loading(reader)
