"""The message groups of the rows of a queue that is consumed in order; part 5 of the broker state has them.

Each row of such a queue (`cluster.state.pop.queue`) has a key: a hash of its message group. The rows of one key are a
chain; only its first message is ever taken, and the others have rows in which they wait. So a take looks at the chains
that may continue, and never reads the messages again that wait: they are 10,000 at most, as all rows of a queue.

| chain | where a take finds it |
| --- | --- |
| its first message has a valid lease | nowhere: it is blocked |
| the lease of its first message has ended | `PopQueue.free_offsets` |
| its first message was never taken: the one before it is done | `OrderedRows.ready` |

| field of a snapshot | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| queues, in order of group, topic and number | a count; names and number, keys, rows, leases of attempts |
| keys, in the order of their first row | a count; numbers |
| rows, ascending | of each row that part 4 has: the place of its key in that list |
| leases of attempts, in the order of their hashes | a count; hash, serial, a count and the offsets |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.state.pop.state import PopKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.state.compact_bytes import Reader, Writer
    from cluster.state.pop.queue import PopQueue
    from cluster.state.pop.state import PopState

_ROWS_PER_STEP: Final = 2_000


class AttemptLease(NamedTuple):
    """The lease that a receive with an attempt id got: its serial, and those of its messages that are not done."""

    serial: int
    offsets: list[int]


class OrderedRows:
    """The keys of the rows of one queue, and the chains of equal keys.

    Attributes:
        ready: keys whose first message was never taken, the one that became ready first first; values have no meaning.
    """

    __slots__ = ("_attempts", "_chains", "_keys", "_leases", "ready")

    def __init__(self) -> None:
        self.ready: dict[int, None] = {}
        # Key of each offset, and the offsets of each key; both ascending, without empty chains.
        self._keys: dict[int, int] = {}
        self._chains: dict[int, list[int]] = {}
        # Attempt of each offset whose lease has one, and the lease of each attempt.
        self._attempts: dict[int, int] = {}
        self._leases: dict[int, AttemptLease] = {}

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._keys)

    def copy(self) -> OrderedRows:
        """Return a copy that may be changed; some milliseconds for 10,000 rows."""
        other = OrderedRows()
        other.ready = dict(self.ready)
        other._keys = dict(self._keys)
        other._chains = {key: chain[:] for key, chain in self._chains.items()}
        other._attempts = dict(self._attempts)
        other._leases = {attempt: AttemptLease(serial, rows[:]) for attempt, (serial, rows) in self._leases.items()}
        return other

    # -------------------------------------------------------------------------------------------------------- reading

    def is_blocked(self, key: int) -> bool:
        """Return whether a new message of a key must wait: an earlier one is not done."""
        return key in self._chains

    def first_of(self, key: int) -> int:
        """Return the first offset of a key that has rows."""
        return self._chains[key][0]

    def is_first(self, offset: int) -> bool:
        """Return whether the row of an offset is the first one of its key."""
        key = self._keys.get(offset)
        return key is not None and self._chains[key][0] == offset

    def lease_of(self, attempt: int) -> AttemptLease | None:
        """Return the last lease of an attempt; None: there is none, or all of its messages are done or taken since."""
        return self._leases.get(attempt)

    # ------------------------------------------------------------------------------------------------------- changing

    def add(self, offset: int, key: int, *, is_taken: bool) -> None:
        """Add a row after all others; one that is not taken waits."""
        chain = self._chains.setdefault(key, [])
        if not chain and not is_taken:
            self.ready[key] = None
        chain.append(offset)
        self._keys[offset] = key

    def taken(self, offset: int, serial: int, attempt: int) -> None:
        """Note that the first message of a key was taken; `attempt` 0: without an attempt id."""
        self.ready.pop(self._keys[offset], None)
        self._leave(offset)
        if not attempt:
            return
        lease = self._leases.get(attempt)
        if lease is None or lease.serial != serial:
            for old in () if lease is None else lease.offsets:
                del self._attempts[old]
            lease = self._leases[attempt] = AttemptLease(serial, [])
        lease.offsets.append(offset)
        self._attempts[offset] = attempt

    def remove(self, offset: int) -> None:
        """Remove a row: its message is done, so the next one of its key may be taken."""
        key = self._keys.pop(offset)
        self._leave(offset)
        chain = self._chains[key]
        was_first = chain[0] == offset
        chain.remove(offset)
        if not chain:
            del self._chains[key]
            self.ready.pop(key, None)
        elif was_first:
            self.ready[key] = None

    def _leave(self, offset: int) -> None:
        attempt = self._attempts.pop(offset, None)
        if attempt is not None:
            offsets = self._leases[attempt].offsets
            offsets.remove(offset)
            if not offsets:
                del self._leases[attempt]

    # ------------------------------------------------------------------------------------------------------ snapshots

    def write(self, writer: Writer) -> Iterator[None]:
        """Write the content in steps of a few milliseconds."""
        places = {key: place for place, key in enumerate(dict.fromkeys(self._keys.values()))}
        writer.number(len(places))
        for key in places:
            writer.number(key)
        for number, key in enumerate(self._keys.values(), 1):
            writer.number(places[key])
            if number % _ROWS_PER_STEP == 0:
                yield
        writer.number(len(self._leases))
        for attempt, lease in sorted(self._leases.items()):
            writer.number(attempt)
            writer.number(lease.serial)
            writer.number(len(lease.offsets))
            for offset in sorted(lease.offsets):
                writer.number(offset)

    def loading(self, reader: Reader, queue: PopQueue) -> Iterator[None]:
        """Load what `write` wrote, for the rows of a queue, in steps of a few milliseconds.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is invalid.
        """
        keys = [reader.number() for _ in range(reader.count())]
        for number, (offset, attempts) in enumerate(queue.offsets_and_attempts(), 1):
            key = keys[reader.number_up_to(len(keys) - 1, "place of a key")]
            self.add(offset, key, is_taken=attempts > 0)
            if number % _ROWS_PER_STEP == 0:
                yield
        for _ in range(reader.count()):
            attempt, serial = reader.number(), reader.number()
            for _ in range(reader.count()):
                offset = reader.number()
                if offset not in self._keys or offset in self._attempts:
                    raise reader.fault("a row without an attempt", str(offset))
                self.taken(offset, serial, attempt)


def write_ordered(writer: Writer, queues: Mapping[PopKey, PopQueue]) -> Iterator[None]:
    """Write the message groups of all queues (`PopState.ordered_queues`) in steps of a few milliseconds."""
    writer.number(len(queues))
    for key, queue in sorted(queues.items()):
        assert queue.ordered is not None
        writer.text(key.group)
        writer.text(key.topic)
        writer.number(key.queue_id)
        yield from queue.ordered.write(writer)
        yield


def load_ordered(reader: Reader, pop: PopState) -> Iterator[None]:
    """Load what `write_ordered` wrote, in steps of a few milliseconds.

    Args:
        reader: before it.
        pop: has the rows.

    Raises:
        cluster.state.compact_bytes.Unreadable: it is invalid; the state must not be used.
    """
    for _ in range(reader.count()):
        group, topic, queue_id = reader.text(), reader.text(), reader.number()
        key = PopKey(group, topic, queue_id)
        queue = pop.own(key)
        if queue is None or queue.ordered is not None:
            raise reader.fault("a queue of part 4, once", f"queue {queue_id} of topic {topic} for group {group}")
        rows = OrderedRows()
        yield from rows.loading(reader, queue)
        queue.ordered = rows
        pop.count_ordered(key, len(queue))
        yield
