"""All queues with messages in flight; part 4 of the broker state.

| field of a snapshot | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| log time | a number: milliseconds since 1970 |
| serial floor | a number |
| pause | a number: the graces so far, milliseconds (`cluster.state.pop.grace`) |
| queues, in order of group, topic and number | a count; names and number, cursor, last serial, runs of rows |
| runs | a count; gap before, length, serial, deadline, attempts of each |

A queue without messages in flight has no state of its own: its floor and its cursor are the group's committed offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.state.pop.queue import PopQueue
from cluster.state.pop.queues import PopKey, PopQueues

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.state.compact_bytes import Reader, Writer
    from cluster.state.pop.queues import Removed

__all__ = ["IN_FLIGHT_MAX", "IN_FLIGHT_OF_QUEUE_MAX", "QUEUES_MAX", "FrozenPop", "PopKey", "PopState"]

# Messages in flight of one group in one queue, and of all; and the number of queues that have some.
IN_FLIGHT_OF_QUEUE_MAX: Final = 10_000
IN_FLIGHT_MAX: Final = 2_000_000
QUEUES_MAX: Final = 200_000
# Of a piece for one command: some hundred kilobytes at most.
_PIECE_MESSAGES: Final = 4_096
_PIECE_QUEUES: Final = 256
_RUNS_PER_STEP: Final = 1_000
_RUNS_READ_PER_STEP: Final = 200
_ATTEMPTS_END: Final = 1 << 16


class FrozenPop:
    """All queues at one moment; may be read in any thread."""

    __slots__ = ("_pause_ms", "_queues", "_serial_floor", "_time_ms")

    def __init__(self, time_ms: int, serial_floor: int, pause_ms: int, queues: Mapping[PopKey, PopQueue]) -> None:
        self._time_ms = time_ms
        self._serial_floor = serial_floor
        self._pause_ms = pause_ms
        self._queues = queues

    def write(self, writer: Writer) -> Iterator[None]:
        """Write the content in steps of a few milliseconds."""
        writer.number(self._time_ms)
        writer.number(self._serial_floor)
        writer.number(self._pause_ms)
        writer.number(len(self._queues))
        for key, queue in sorted(self._queues.items()):
            writer.text(key.group)
            writer.text(key.topic)
            runs = queue.runs()
            for value in (key.queue_id, queue.cursor, queue.last_serial, len(runs)):
                writer.number(value)
            end = 0
            for number, (first, length, serial, deadline_ms, attempts) in enumerate(runs, 1):
                for value in (first - end, length, serial, deadline_ms, attempts):
                    writer.number(value)
                end = first + length
                if number % _RUNS_PER_STEP == 0:
                    yield
            yield


class PopState:
    """The state of pop consumption; a `cluster.state.parts.StatePart`.

    Attributes:
        count: messages in flight.
        ordered_count: those of them in queues that are consumed in order, with those that wait for others.
        time_ms: the latest time of a command: log time, which never decreases.
        pause_ms: by how much lease time, in which deadlines are, is less than log time; it only grows.
        lost_count: messages in flight that the log no longer had, since this process began.
    """

    def __init__(self) -> None:
        self.count = 0
        self.ordered_count = 0
        self.time_ms = 0
        self.pause_ms = 0
        self.lost_count = 0
        # Serials of queues whose state was dropped are not larger.
        self._serial_floor = 0
        self._queues = PopQueues()
        # The number of copies that `frozen` has returned; a queue of an older version is shared with one.
        self._version = 0

    @property
    def is_empty(self) -> bool:
        """Whether no group has ever consumed in this way."""
        return not self._queues and not self.time_ms and not self._serial_floor

    @property
    def queues(self) -> Mapping[PopKey, PopQueue]:
        """All queues with messages in flight; only to read."""
        return self._queues

    @property
    def lease_time_ms(self) -> int:
        """The time of the latest command on the clock of deadlines."""
        return self.time_ms - self.pause_ms

    def pause(self, time_ms: int, grace_ms: int) -> bool:
        """Pause the clock of deadlines for some time before `time_ms`; return whether anything changed.

        Args:
            time_ms: the time of the command.
            grace_ms: for how long; at most since the last command.
        """
        before = self.time_ms
        self.time_ms = max(before, time_ms)
        self.pause_ms += min(grace_ms, self.time_ms - before)
        return self.time_ms > before

    def own(self, key: PopKey) -> PopQueue | None:
        """Return a queue that may be changed; None: it has no message in flight."""
        queue = self._queues.get(key)
        if queue is not None and queue.version != self._version:
            queue = queue.copy(self._version)
            self._queues.put(key, queue, 0)
        return queue

    def new(self, cursor: int) -> PopQueue:
        """Return an empty queue."""
        return PopQueue(cursor, self._serial_floor, self._version)

    def settle(self, key: PopKey, queue: PopQueue, count_before: int) -> None:
        """Store a queue after changes, or drop it if nothing of it is in flight.

        Args:
            key: of the queue.
            queue: from `own` or `new`.
            count_before: its messages in flight before the changes.
        """
        self._counted(queue, len(queue) - count_before)
        if len(queue):
            queue.tidy()
            self._queues.put(key, queue, len(queue) - count_before)
        else:
            self._serial_floor = max(self._serial_floor, queue.last_serial)
            self._queues.remove(key, count_before)

    def forget(self, key: PopKey) -> None:
        """Forget the messages in flight of one queue."""
        queue = self._queues.get(key)
        if queue is not None:
            self._counted(queue, -len(queue))
            self._serial_floor = max(self._serial_floor, queue.last_serial)
            self._queues.remove(key, len(queue))

    def ordered_queues(self) -> Mapping[PopKey, PopQueue]:
        """Return copies of the queues that are consumed in order; later changes do not affect them."""
        self._version += 1
        return {key: queue for key, queue in self._queues.items() if queue.ordered is not None}

    def count_ordered(self, key: PopKey, count: int) -> None:
        """Count the messages of a loaded queue that is known as consumed in order only now."""
        self.ordered_count += count
        self._queues.count_ordered(key, count)

    def _counted(self, queue: PopQueue, change: int) -> None:
        self.count += change
        if queue.ordered is not None:
            self.ordered_count += change

    def forget_group(self, group: str) -> None:
        """Forget the messages in flight of a group."""
        self._forgotten(self._queues.remove_group(group))

    def forget_topic(self, topic: str) -> None:
        """Forget the messages in flight of a topic."""
        self._forgotten(self._queues.remove_topic(topic))

    def _forgotten(self, removed: Removed) -> None:
        self.count -= removed.in_flight
        self.ordered_count -= removed.ordered
        self._serial_floor = max(self._serial_floor, removed.last_serial)

    def sweep(self, work_max: int) -> None:
        """Free the memory of at most `work_max` forgotten queues."""
        self._queues.sweep(work_max)

    def raise_floor(self, key: PopKey, offset: int) -> int:
        """Take everything before an offset as done; return the new floor, at or after it."""
        queue = self.own(key)
        if queue is None:
            return offset
        before = len(queue)
        queue.remove_before(offset)
        queue.cursor = max(queue.cursor, offset)
        floor = max(queue.floor, offset)
        self.settle(key, queue, before)
        return floor

    # ------------------------------------------------------------------------------------------------------ snapshots

    def frozen(self) -> FrozenPop:
        """Return a copy that later changes do not affect; it copies a reference for each queue."""
        self._version += 1
        return FrozenPop(self.time_ms, self._serial_floor, self.pause_ms, self._queues.frozen())

    def pieces(self) -> Iterator[FrozenPop]:
        """Yield the queues in pieces for a command each.

        Queues that are consumed in order are left out: they begin again at the group's offset.
        """
        piece: dict[PopKey, PopQueue] = {}
        count = 0
        for key, queue in sorted(self._queues.items()):
            if queue.ordered is not None:
                continue
            piece[key] = queue
            count += len(queue)
            if count >= _PIECE_MESSAGES or len(piece) >= _PIECE_QUEUES:
                yield FrozenPop(self.time_ms, self._serial_floor, self.pause_ms, piece)
                piece, count = {}, 0
        if piece or self.time_ms or self._serial_floor:
            yield FrozenPop(self.time_ms, self._serial_floor, self.pause_ms, piece)

    def take_over(self, piece: PopState) -> bool:
        """Add queues of a standalone broker in which nothing is in flight here; return whether anything is new."""
        before = self.count, self.time_ms, self._serial_floor, self.pause_ms
        self.time_ms = max(self.time_ms, piece.time_ms)
        # Deadlines of both are by a clock with its own pauses: with the longer ones no lease ends too early.
        self.pause_ms = max(self.pause_ms, piece.pause_ms)
        self._serial_floor = max(self._serial_floor, piece._serial_floor)
        for key, queue in piece._queues.items():
            if key not in self._queues:
                self.settle(key, queue.copy(self._version), 0)
        return before != (self.count, self.time_ms, self._serial_floor, self.pause_ms)

    def loading(self, reader: Reader) -> Iterator[None]:
        """Load what `FrozenPop.write` wrote, in steps of a few milliseconds.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is invalid; the part must not be used.
        """
        number = reader.number
        self.time_ms, self._serial_floor, self.pause_ms = number(), number(), number()
        for _ in range(reader.count()):
            key = PopKey(reader.text(), reader.text(), number())
            queue = PopQueue(number(), number(), self._version)
            end = 0
            for run in range(reader.count()):
                first = end + number()
                length = reader.number_up_to(IN_FLIGHT_OF_QUEUE_MAX - len(queue), "length of a run", 1)
                end = first + length
                serial, deadline_ms = number(), number()
                attempts = reader.number_up_to(_ATTEMPTS_END - 1, "attempts")
                queue.append(range(first, end), serial, deadline_ms, attempts)
                if run % _RUNS_READ_PER_STEP == 0:
                    yield
            self.settle(key, queue, 0)
