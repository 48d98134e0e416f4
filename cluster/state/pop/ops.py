"""The operations of pop consumption, and the encoding of the command that contains many of them.

| field | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| time | a number: milliseconds since 1970 |
| pairs of group and topic, in the order of their first operation | a count; two texts each |
| operations | a count; kind, number of the pair, queue, epoch, then by kind |
| … 1 take | low, begin - low, end - begin, invisible ms; again; passed; runs of fresh: a count; gap, length |
| … 2 done | serial; runs of offsets, as in a take |
| … 3 extend | serial, offset, invisible ms, whether it counts |
| … 8 take in order | `cluster.state.pop.ordered_take` |
| offsets | a count; the first, then the differences |

The leader proposes operations that it has checked against its state; the state checks them again when it applies them,
and says what of each held. So operations of a deposed leader are harmless.

Source: RocketMQ `PopMessageProcessor`, `AckMessageProcessor`, `ChangeInvisibleTimeProcessor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.protocol.topic_config import QUEUES_MAX
from cluster.state.pop.ordered_take import (
    OrderedTake,
    check_ordered_take,
    read_ordered_take,
    write_ordered_take,
)
from store.errors import IllegalMessage
from store.model.topics import check_group, is_storable_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.state.compact_bytes import Reader, Writer

INVISIBLE_MS_MAX: Final = 12 * 60 * 60 * 1_000
# Of one command, which is applied in one iteration of the event loop: some milliseconds.
OPS_MAX: Final = 1_024
OFFSETS_MAX: Final = 4_096
_NUMBER_MAX: Final = (1 << 63) - 1


class Take(NamedTuple):
    """Take messages of a queue.

    Attributes:
        group: consumer group.
        topic: topic of the queue.
        queue_id: number of the queue.
        epoch: reset count of the group's offset in the queue.
        low: offset of the first message that the queue has; those before it are lost.
        begin: the cursor that the leader knows: everything before it was taken or passed over.
        end: the new cursor.
        invisible_ms: time until the messages may be taken again.
        again: offsets before `begin` to take, ascending: their leases have ended.
        passed: offsets before `begin` that the group does not want or that cannot be read, ascending.
        fresh: offsets in [`begin`, `end`) to take, ascending; the others in that range are passed over.
    """

    group: str
    topic: str
    queue_id: int
    epoch: int
    low: int
    begin: int
    end: int
    invisible_ms: int
    again: Sequence[int] = ()
    passed: Sequence[int] = ()
    fresh: Sequence[int] = ()


class Done(NamedTuple):
    """Acknowledge messages of one lease: ascending offsets, and its serial."""

    group: str
    topic: str
    queue_id: int
    epoch: int
    serial: int
    offsets: Sequence[int]


class Extend(NamedTuple):
    """Change the time until which one message is invisible.

    Attributes:
        is_counted: False: the next take of the message does not count as another attempt.
    """

    group: str
    topic: str
    queue_id: int
    epoch: int
    serial: int
    offset: int
    invisible_ms: int
    is_counted: bool = True


PopOp = Take | Done | Extend | OrderedTake


class AckOutcome(IntEnum):
    """The outcome for one message; numbers as in `cluster.v1.AckOutcome`.

    Attributes:
        ACKNOWLEDGED: the message is done, or invisible for the new time.
        ALREADY_DONE: it was done before.
        STALE: the lease does not exist: another consumer has taken the message, or the group's offset was reset.
    """

    ACKNOWLEDGED = 0
    ALREADY_DONE = 1
    STALE = 2


class Taken(NamedTuple):
    """The result of a take.

    Attributes:
        serial: of the new lease.
        offsets: the messages that were taken.
        attempts: number of takes of each, this one included; from 1.
        is_full: messages were not taken because the group has too many in flight.
    """

    serial: int = 0
    offsets: Sequence[int] = ()
    attempts: Sequence[int] = ()
    is_full: bool = False


class Extended(NamedTuple):
    """The result of an extension; `serial` is that of the new lease if it was acknowledged."""

    outcome: AckOutcome
    serial: int = 0


# Of a take, of a done (for each offset), of an extension.
PopResult = Taken | tuple[AckOutcome, ...] | Extended


@dataclass(frozen=True, slots=True)
class PopOps:
    """Operations, applied in order, and the leader's time: milliseconds since 1970."""

    time_ms: int
    ops: tuple[PopOp, ...]


# -------------------------------------------------------------------------------------------------------------- checks


def weight_of(op: PopOp) -> int:
    """Return the number of offsets of an operation, by which the size of a command is limited."""
    match op:
        case Take() | OrderedTake():
            return len(op.again) + len(op.passed) + len(op.fresh)
        case Done():
            return len(op.offsets)
        case Extend():
            return 1


def check_pop_ops(command: PopOps) -> None:
    """Raise unless a command is valid.

    Raises:
        IllegalMessage: a field is invalid.
    """
    _check("time", 0, command.time_ms, _NUMBER_MAX)
    _check("operations", 1, len(command.ops), OPS_MAX)
    _check("offsets", 0, sum(map(weight_of, command.ops)), OFFSETS_MAX)
    for group, topic in {(op.group, op.topic): None for op in command.ops}:
        check_group(group)
        if not is_storable_topic(topic):
            raise IllegalMessage("topic", "a name of 1 to 255 letters, digits and % | _ -", repr(topic[:80]))
    for op in command.ops:
        _check("queue", 0, op.queue_id, QUEUES_MAX - 1)
        _check("epoch", 0, op.epoch, _NUMBER_MAX)
        match op:
            case Take():
                _check("begin", op.low, op.begin, _NUMBER_MAX)
                _check("end", op.begin, op.end, _NUMBER_MAX)
                _check("low", 0, op.low, _NUMBER_MAX)
                _check("invisible time", 0, op.invisible_ms, INVISIBLE_MS_MAX)
                _check_offsets(op.again, 0, op.begin)
                _check_offsets(op.passed, 0, op.begin)
                _check_offsets(op.fresh, op.begin, op.end)
            case OrderedTake():
                check_ordered_take(op, _NUMBER_MAX, INVISIBLE_MS_MAX)
            case Done():
                _check("serial", 0, op.serial, _NUMBER_MAX)
                _check_offsets(op.offsets, 0, _NUMBER_MAX)
            case Extend():
                _check("serial", 0, op.serial, _NUMBER_MAX)
                _check("offset", 0, op.offset, _NUMBER_MAX)
                _check("invisible time", 0, op.invisible_ms, INVISIBLE_MS_MAX)


def _check(name: str, low: int, value: int, high: int) -> None:
    if not low <= value <= high:
        raise IllegalMessage(name, f"{low} to {high}", str(value))


def _check_offsets(offsets: Sequence[int], begin: int, end: int) -> None:
    if not offsets:
        return
    is_ascending = all(map(lt, offsets, islice(offsets, 1, None)))
    if not is_ascending or offsets[0] < begin or offsets[-1] >= end:
        raise IllegalMessage("offsets", f"ascending, from {begin}, before {end}", repr(list(offsets[:20])))


# -------------------------------------------------------------------------------------------------------------- bytes


def write_pop_ops(writer: Writer, command: PopOps) -> None:
    """Append a command."""
    number = writer.number
    pairs: dict[tuple[str, str], int] = {}
    for op in command.ops:
        pairs.setdefault((op.group, op.topic), len(pairs))
    number(command.time_ms)
    writer.pairs(list(pairs))
    number(len(command.ops))
    for op in command.ops:
        number(_KINDS[type(op)])
        for value in (pairs[op.group, op.topic], op.queue_id, op.epoch):
            number(value)
        match op:
            case Take():
                for value in (op.low, op.begin - op.low, op.end - op.begin, op.invisible_ms):
                    number(value)
                _write_offsets(writer, op.again)
                _write_offsets(writer, op.passed)
                _write_runs(writer, op.begin, op.fresh)
            case OrderedTake():
                write_ordered_take(writer, op)
            case Done():
                number(op.serial)
                _write_runs(writer, 0, op.offsets)
            case Extend():
                for value in (op.serial, op.offset, op.invisible_ms, op.is_counted):
                    number(value)


def read_pop_ops(reader: Reader) -> PopOps:
    """Read a command.

    Raises:
        cluster.state.compact_bytes.Unreadable: there is none.
    """
    time_ms = reader.number()
    pairs = reader.pairs()
    return PopOps(time_ms, tuple([_read_op(reader, pairs) for _ in range(reader.count())]))


_KINDS: Final[dict[type[PopOp], int]] = {Take: 1, Done: 2, Extend: 3, OrderedTake: 8}


def _read_op(reader: Reader, pairs: Sequence[tuple[str, str]]) -> PopOp:
    number = reader.number
    kind = reader.number_up_to(max(_KINDS.values()), "kind of operation", 1)
    group, topic = pairs[reader.number_up_to(len(pairs) - 1, "number of a pair")]
    queue_id, epoch = number(), number()
    if kind == _KINDS[Done]:
        return Done(group, topic, queue_id, epoch, number(), _read_runs(reader, 0, _NUMBER_MAX))
    if kind == _KINDS[Extend]:
        return Extend(group, topic, queue_id, epoch, number(), number(), number(), bool(number()))
    if kind == _KINDS[OrderedTake]:
        return read_ordered_take(reader, group, topic, queue_id, epoch)
    if kind != _KINDS[Take]:
        raise reader.fault(f"a kind of {sorted(_KINDS.values())}", str(kind))
    low = number()
    begin = low + number()
    end = begin + number()
    invisible_ms = number()
    again, passed = _read_offsets(reader), _read_offsets(reader)
    return Take(
        group, topic, queue_id, epoch, low, begin, end, invisible_ms, again, passed, _read_runs(reader, begin, end)
    )


def _write_offsets(writer: Writer, offsets: Sequence[int]) -> None:
    writer.number(len(offsets))
    last = 0
    for offset in offsets:
        writer.number(offset - last)
        last = offset


def _read_offsets(reader: Reader) -> tuple[int, ...]:
    count, last, offsets = reader.count(), 0, []
    for _ in range(count):
        last += reader.number()
        offsets.append(last)
    return tuple(offsets)


def _write_runs(writer: Writer, begin: int, offsets: Sequence[int]) -> None:
    runs = runs_of(offsets)
    writer.number(len(runs))
    last = begin
    for first, length in runs:
        writer.number(first - last)
        writer.number(length)
        last = first + length


def _read_runs(reader: Reader, begin: int, end: int) -> tuple[int, ...]:
    offsets: list[int] = []
    last = begin
    for _ in range(reader.count()):
        first = last + reader.number()
        last = first + reader.number()
        # A short text could otherwise demand any amount of memory.
        if last > end or last - first > OFFSETS_MAX - len(offsets):
            raise reader.fault(f"at most {OFFSETS_MAX} offsets before {end}", f"a run up to {last}")
        offsets += range(first, last)
    return tuple(offsets)


def runs_of(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive offsets: the first offset and the length of each; `offsets` are ascending."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return [(offsets[0], len(offsets))]
    runs: list[tuple[int, int]] = []
    first = end = -1
    for offset in offsets:
        if offset != end:
            if end > first:
                runs.append((first, end - first))
            first = offset
        end = offset + 1
    if end > first:
        runs.append((first, end - first))
    return runs
