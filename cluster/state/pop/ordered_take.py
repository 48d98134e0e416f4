"""The take of a queue that is consumed in order, and its encoding; an operation of `cluster.state.pop.ops`.

| field | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| low, begin - low, end - begin, invisible ms, attempt | numbers |
| messages before `begin` | a count; of each the distance from the last one, and 1 if it is passed over |
| keys of new messages, in the order of their first one | a count; numbers |
| new messages | a count; distance from the last one, twice the key's place in the list, plus 1 if it is wanted |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from store.errors import IllegalMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.state.compact_bytes import Reader, Writer

KEY_END: Final = 1 << 63
# The key of messages without a message group: all of a queue are one group.
NO_GROUP: Final = 0
# No attempt id was given.
NO_ATTEMPT: Final = 0


class Fresh(NamedTuple):
    """A new message.

    Attributes:
        offset: in the queue.
        key: hash of its message group, or `NO_GROUP`; below `KEY_END`.
        is_wanted: whether to take it if it is the first of its message group; otherwise it waits.
    """

    offset: int
    key: int
    is_wanted: bool


class OrderedTake(NamedTuple):
    """Take the first messages of some message groups of a queue.

    Attributes:
        group: consumer group.
        topic: topic of the queue.
        queue_id: number of the queue.
        epoch: reset count of the group's offset in the queue.
        low: offset of the first message that the queue has; those before it are lost.
        begin: the cursor that the leader knows.
        end: the new cursor.
        invisible_ms: time until the messages may be taken again.
        attempt: hash of the attempt id, below `KEY_END`: if a lease of it is valid, its messages are given again, and
            no others; `NO_ATTEMPT`: there is none.
        again: offsets before `begin` to take, ascending: each is the first one of its message group.
        passed: offsets before `begin` that cannot be read, or that the group does not want, ascending.
        fresh: the messages in [`begin`, `end`) that the group wants, ascending; others in that range are passed over.
    """

    group: str
    topic: str
    queue_id: int
    epoch: int
    low: int
    begin: int
    end: int
    invisible_ms: int
    attempt: int = NO_ATTEMPT
    again: Sequence[int] = ()
    passed: Sequence[int] = ()
    fresh: Sequence[Fresh] = ()


def check_ordered_take(op: OrderedTake, number_max: int, invisible_ms_max: int) -> None:
    """Raise unless the numbers of a take are valid, besides its epoch and queue.

    Raises:
        IllegalMessage: one is not.
    """
    for name, low, value, high in (
        ("low", 0, op.low, number_max),
        ("begin", op.low, op.begin, number_max),
        ("end", op.begin, op.end, number_max),
        ("invisible time", 0, op.invisible_ms, invisible_ms_max),
        ("attempt", 0, op.attempt, KEY_END - 1),
    ):
        if not low <= value <= high:
            raise IllegalMessage(name, f"{low} to {high}", str(value))
    _check_ascending(op.again, 0, op.begin)
    _check_ascending(op.passed, 0, op.begin)
    _check_ascending([each.offset for each in op.fresh], op.begin, op.end)
    if not set(op.again).isdisjoint(op.passed):
        raise IllegalMessage("offsets", "to take, or to pass over", "both")
    for each in op.fresh:
        if not 0 <= each.key < KEY_END:
            raise IllegalMessage("key", "0 to 2^63 - 1", str(each.key))


def _check_ascending(offsets: Sequence[int], begin: int, end: int) -> None:
    last = begin - 1
    for offset in offsets:
        if not last < offset < end:
            raise IllegalMessage("offsets", f"ascending, from {begin}, before {end}", repr(list(offsets[:20])))
        last = offset


def write_ordered_take(writer: Writer, op: OrderedTake) -> None:
    """Append a take, without the fields of all operations."""
    number = writer.number
    for value in (op.low, op.begin - op.low, op.end - op.begin, op.invisible_ms, op.attempt):
        number(value)
    old = sorted([(offset, 0) for offset in op.again] + [(offset, 1) for offset in op.passed])
    number(len(old))
    last = 0
    for offset, is_passed in old:
        number(offset - last)
        number(is_passed)
        last = offset
    keys = {key: place for place, key in enumerate(dict.fromkeys(each.key for each in op.fresh))}
    number(len(keys))
    for key in keys:
        number(key)
    number(len(op.fresh))
    last = op.begin
    for each in op.fresh:
        number(each.offset - last)
        number(keys[each.key] * 2 + each.is_wanted)
        last = each.offset


def read_ordered_take(reader: Reader, group: str, topic: str, queue_id: int, epoch: int) -> OrderedTake:
    """Read a take, after the fields of all operations.

    Raises:
        cluster.state.compact_bytes.Unreadable: there is none.
    """
    number = reader.number
    low = number()
    begin = low + number()
    end = begin + number()
    invisible_ms, attempt = number(), number()
    again: list[int] = []
    passed: list[int] = []
    last = 0
    for _ in range(reader.count()):
        last += number()
        (passed if reader.number_up_to(1, "mark of a message") else again).append(last)
    keys = [number() for _ in range(reader.count())]
    fresh = []
    last = begin
    for _ in range(reader.count()):
        last += number()
        marked = reader.number_up_to(len(keys) * 2 - 1, "place of a key")
        fresh.append(Fresh(last, keys[marked // 2], bool(marked % 2)))
    return OrderedTake(
        group,
        topic,
        queue_id,
        epoch,
        low,
        begin,
        end,
        invisible_ms,
        attempt,
        tuple(again),
        tuple(passed),
        tuple(fresh),
    )
