"""Bounds of the fields of a request, and their check: lengths are checked before any other work.

A table has every field of every message in the requests of a service, with its bound (`request_bounds` beside this
module, `cluster.protocol.request_bounds`); a server with a field that is missing in the table does not start. A field
beyond its bound is refused before the request is processed: before texts are parsed or names are looked up.

Bounds limit the size, not the meaning: whether a topic exists, or an offset is in a queue, is checked where it is used.
A number has `ANY_NUMBER` if its value is only compared or stored, never used as a count.

Not here: which methods are guarded, and the text of a refusal (`dledger.service.request_guard`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

if TYPE_CHECKING:
    from google.protobuf.message import Message

# A number takes up to 10 bytes on the wire, a tag or a length up to 5.
_NUMBER_SIZE_MAX: Final = 10
_TAG_SIZE_MAX: Final = 5
# Characters of a text take up to 4 bytes in UTF-8.
_CHARACTER_SIZE_MAX: Final = 4
# Fields that a newer client sends and this server does not know.
_UNKNOWN_SIZE_BYTES: Final = 1 << 10
_LENGTH_DELIMITED: Final = 2


@dataclass(frozen=True, slots=True)
class Text:
    """The most characters of a text, or bytes of a bytes field."""

    length_max: int


@dataclass(frozen=True, slots=True)
class Number:
    """An integer in a range, both ends included."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class AnyNumber:
    """A number, a boolean or an enumeration: every value of its type."""


@dataclass(frozen=True, slots=True)
class Fields:
    """A nested message, whose fields have their own bounds."""


@dataclass(frozen=True, slots=True)
class Many:
    """The most elements of a list or map, and the bound of each.

    Attributes:
        count_max: of the elements.
        each: bound of one element.
        inner_max: the most elements of a list within the elements, of all elements together, by the name of its field;
            for lists whose bound times `count_max` is more than can be checked quickly.
    """

    count_max: int
    each: Text | AnyNumber | Fields
    inner_max: Mapping[str, int] = dataclasses.field(default_factory=dict)


ANY_NUMBER: Final = AnyNumber()
FIELDS: Final = Fields()

Bound: TypeAlias = Text | Number | AnyNumber | Fields | Many
# Full name of a message -> name of a field -> its bound.
Bounds: TypeAlias = Mapping[str, Mapping[str, Bound]]


class FieldFault(NamedTuple):
    """A field that exceeds its bound."""

    field: str
    expected: str
    found: str


_Check: TypeAlias = Callable[[Any], FieldFault | None]


@dataclass(slots=True)
class Allowance:
    """What the rest of a request may have on the wire; below 0: it has more."""

    elements: int
    number_bytes: int


class UnboundedField(Exception):
    """A field of a request has no bound, or a bound has no field: a mistake in the tables of this program."""


class RequestShape:
    """The bounds of one kind of request.

    Args:
        descriptor: of its message.
        bounds: of that message and of all messages in it.
        checked_above: names of fields that the list with the message checks.

    Attributes:
        size_bytes_max: a longer request exceeds some bound.
        elements_max: fields that it may have on the wire, each element of a list counted, and those of messages in it.
        number_bytes_max: bytes on the wire that all its numbers together may take, with those of messages in it.

    Raises:
        UnboundedField: a field of a message has no bound, or a bound has no field: a mistake in the program.
    """

    def __init__(self, descriptor: Descriptor, bounds: Bounds, checked_above: Collection[str] = ()) -> None:
        fields = _fields_of(descriptor, bounds)
        self._checks = [_check_of(field, bound, bounds) for field, bound in fields if field.name not in checked_above]
        self.size_bytes_max = sum(_size_max(field, bound, bounds) for field, bound in fields) + _UNKNOWN_SIZE_BYTES
        self.elements_max = sum(_elements_max(field, bound, bounds) for field, bound in fields)
        self.number_bytes_max = _UNKNOWN_SIZE_BYTES + sum(
            _number_bytes_max(field, bound, bounds) for field, bound in fields
        )
        # One-byte tags of texts, and of messages with their shapes: each of these elements has its own length.
        tags = {field.number << 3 | _LENGTH_DELIMITED: field for field, _ in fields if field.number < 16}
        self._nested_shapes = {
            tag: RequestShape(_message_of(field), bounds)
            for tag, field in tags.items()
            if field.message_type is not None
        }
        self._text_tags = frozenset(
            tag for tag, field in tags.items() if _is_length_delimited(field) and tag not in self._nested_shapes
        )

    def fault_of(self, request: Message) -> FieldFault | None:
        """Return the first field that exceeds its bound; None: all are within their bounds."""
        for check in self._checks:
            fault = check(request)
            if fault is not None:
                return fault
        return None

    def wire_fault_of(self, data: bytes, unchecked_size_bytes: int) -> FieldFault | None:
        """Check the bytes of a request before it is parsed; return the reason if parsing would take too long.

        A parser needs about 0.2 microseconds for each element, and an element may have only two bytes: nine megabytes
        of empty bodies block the loop for most of a second. So elements are counted before, until the rest can be
        parsed quickly.

        Args:
            data: the bytes of the request.
            unchecked_size_bytes: the rest that need not be counted.
        """
        left = Allowance(self.elements_max, self.number_bytes_max)
        # If it ends in the middle of a field, the parser reports that.
        with suppress(IndexError):
            self.count_fields(data, 0, len(data) - unchecked_size_bytes, left)
        if left.elements < 0:
            return FieldFault("elements of all lists", f"at most {self.elements_max}", "more")
        if left.number_bytes < 0:
            return FieldFault("numbers of all lists", f"at most {self.number_bytes_max} bytes", "more")
        return None

    def count_fields(self, data: bytes, position: int, end: int, left: Allowance) -> None:
        """Count the fields that begin in `[position, end)`, until one is too many.

        Raises:
            IndexError: the data end in the middle of a field.
        """
        tags, nested, elements = self._text_tags, self._nested_shapes, left.elements
        while position < end and elements >= 0 and left.number_bytes >= 0:
            elements -= 1
            size = data[position + 1]
            if data[position] in tags:
                if size < 0x80:
                    position += 2 + size
                    continue
                more = data[position + 2]
                if more < 0x80:
                    position += 3 + (size & 0x7F | more << 7)
                    continue
            begin, position = position, _end_of(data, position)
            if data[begin] in nested:
                head = begin + 1
                while data[head] >= 0x80:
                    head += 1
                left.elements = elements
                nested[data[begin]].count_fields(data, head + 1, min(position, end), left)
                elements = left.elements
            elif data[begin] not in tags:
                left.number_bytes -= position - begin
        left.elements = elements


def _end_of(data: bytes, position: int) -> int:
    """Return the end of the field that begins at `position`.

    Raises:
        IndexError: after the end.
    """
    wire_type = data[position] & 7
    while data[position] >= 0x80:
        position += 1
    position += 1
    value = shift = 0
    if wire_type in (0, _LENGTH_DELIMITED):
        while data[position] >= 0x80:
            value |= (data[position] & 0x7F) << shift
            shift += 7
            position += 1
        value |= data[position] << shift
        position += 1
    return position + {0: 0, 1: 8, 5: 4}.get(wire_type, value)


def _fields_of(descriptor: Descriptor, bounds: Bounds) -> list[tuple[FieldDescriptor, Bound]]:
    """Return the fields of a message, each with its bound.

    Raises:
        UnboundedField: a field of a message has no bound, or a bound has no field: a mistake in the program.
    """
    rows = bounds.get(descriptor.full_name, {})
    odd = set(rows) - {field.name for field in descriptor.fields}
    odd |= {field.name for field in descriptor.fields if not _is_bounded(field, rows.get(field.name))}
    if odd:
        text = f"{descriptor.full_name}: no bound that fits the field, or no field that fits the bound"
        raise UnboundedField(f"{text}: {', '.join(sorted(odd))}")
    return [(field, rows[field.name]) for field in descriptor.fields]


def _is_bounded(field: FieldDescriptor, bound: Bound | None) -> bool:
    each = bound.each if isinstance(bound, Many) else bound
    if isinstance(bound, Many) is not bool(field.is_repeated):
        return False
    if field.message_type is not None:
        return isinstance(each, Fields)
    return isinstance(each, Text if _is_length_delimited(field) else Number | AnyNumber)


def _is_length_delimited(field: FieldDescriptor) -> bool:
    return field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)


def _message_of(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None, field.full_name
    return field.message_type


def _size_max(field: FieldDescriptor, bound: Bound, bounds: Bounds) -> int:
    """Return the largest size of a field on the wire, in bytes."""
    match bound:
        case Many(count_max, each, inner_max) if inner_max:
            limited, others = _split(field, inner_max, bounds)
            of_each = sum(_size_max(*inner, bounds) for inner in others) + (2 + len(limited)) * _TAG_SIZE_MAX
            of_inner = sum(inner_max[inner.name] * _size_max(inner, many.each, bounds) for inner, many in limited)
            return count_max * of_each + of_inner
        case Many(count_max, each):
            return count_max * _size_max(field, each, bounds) + _TAG_SIZE_MAX
        case Text(length_max):
            is_text = field.type == FieldDescriptor.TYPE_STRING
            return length_max * (_CHARACTER_SIZE_MAX if is_text else 1) + 2 * _TAG_SIZE_MAX
        case Fields():
            inner = _fields_of(_message_of(field), bounds)
            return sum(_size_max(each, of_each, bounds) for each, of_each in inner) + 2 * _TAG_SIZE_MAX
    return _NUMBER_SIZE_MAX + (1 if field.number < 16 else _TAG_SIZE_MAX)


def _split(
    field: FieldDescriptor, inner_max: Mapping[str, int], bounds: Bounds
) -> tuple[list[tuple[FieldDescriptor, Many]], list[tuple[FieldDescriptor, Bound]]]:
    """Return the fields of a message that `inner_max` limits, and all others, each with its bound."""
    inner = _fields_of(_message_of(field), bounds)
    limited = [(each, bound) for each, bound in inner if each.name in inner_max and isinstance(bound, Many)]
    assert len(limited) == len(inner_max), (field.full_name, inner_max)
    return limited, [(each, bound) for each, bound in inner if each.name not in inner_max]


def _elements_max(field: FieldDescriptor, bound: Bound, bounds: Bounds) -> int:
    """Return the most fields on the wire, those of nested messages included.

    A list of numbers is one field, packed, as clients send it: of fields with one number each, hundreds of thousands
    would have to be counted. Requests that are too small to be counted may have them.
    """
    match bound:
        case Many(count_max, Fields(), inner_max):
            limited, others = _split(field, inner_max, bounds)
            of_each = 1 + len(limited) + sum(_elements_max(*inner, bounds) for inner in others)
            return count_max * of_each + sum(
                inner_max[inner.name] for inner, _ in limited if _is_length_delimited(inner)
            )
        case Many(count_max, Text()):
            return count_max
        case Fields():
            return 1 + sum(_elements_max(*inner, bounds) for inner in _fields_of(_message_of(field), bounds))
    return 1


def _number_bytes_max(field: FieldDescriptor, bound: Bound, bounds: Bounds) -> int:
    """Return the most bytes of numbers on the wire, those of nested messages included."""
    match bound:
        case Many(count_max, Fields(), inner_max):
            limited, others = _split(field, inner_max, bounds)
            of_inner = sum(
                inner_max[inner.name] * _number_bytes_max(inner, many.each, bounds) for inner, many in limited
            )
            return count_max * sum(_number_bytes_max(*inner, bounds) for inner in others) + of_inner
        case Fields():
            return sum(_number_bytes_max(*inner, bounds) for inner in _fields_of(_message_of(field), bounds))
    return 0 if _is_length_delimited(field) else _size_max(field, bound, bounds)


# --------------------------------------------------------------------------------------------------------------- checks


def _check_of(field: FieldDescriptor, bound: Bound, bounds: Bounds) -> _Check:
    """Return the function that checks one field of a message."""
    name = field.name
    match bound:
        case Text(length_max):
            return lambda message: _text_fault(name, len(getattr(message, name)), length_max)
        case Number(least, most):
            return lambda message: _number_fault(name, getattr(message, name), least, most)
        case Fields():
            shape = RequestShape(_message_of(field), bounds)
            return lambda message: shape.fault_of(getattr(message, name)) if message.HasField(name) else None
        case Many():
            return _check_of_list(field, bound, bounds)
    return _no_fault


def _no_fault(_message: Any) -> None:
    """Accept every value."""


def _text_fault(name: str, length: int, length_max: int) -> FieldFault | None:
    return None if length <= length_max else FieldFault(name, f"a length of at most {length_max}", str(length))


def _number_fault(name: str, value: int, least: int, most: int) -> FieldFault | None:
    return None if least <= value <= most else FieldFault(name, f"{least} to {most}", str(value))


def _check_of_list(field: FieldDescriptor, bound: Many, bounds: Bounds) -> _Check:
    name, count_max, each = field.name, bound.count_max, bound.each
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    of_each = None if isinstance(each, AnyNumber) else _check_of_elements(field, bound, bounds, is_map=is_map)

    def check(message: Any) -> FieldFault | None:
        values = getattr(message, name)
        count = len(values)
        if count > count_max:
            return FieldFault(name, f"at most {count_max}", str(count))
        for inner, most in bound.inner_max.items():
            total = sum(len(getattr(value, inner)) for value in values)
            if total > most:
                return FieldFault(inner, f"at most {most} in all {name}", str(total))
        return of_each(values) if count and of_each is not None else None

    return check


def _check_of_elements(field: FieldDescriptor, bound: Many, bounds: Bounds, *, is_map: bool) -> _Check:
    name = field.name
    if isinstance(bound.each, Text):
        length_max = bound.each.length_max
        return lambda values: _text_fault(name, max(map(len, values)), length_max)
    # Of lists of numbers only the lengths are bounded.
    limited, _ = _split(field, bound.inner_max, bounds)
    counted = [inner.name for inner, many in limited if isinstance(many.each, AnyNumber)]
    shape = RequestShape(_message_of(field), bounds, counted)
    if is_map:
        rows = bounds[_message_of(field).full_name]
        key, value = rows["key"], rows["value"]
        assert isinstance(key, Text)
        assert isinstance(value, Text)
        return lambda values: _map_fault(name, values, key.length_max, value.length_max)
    return lambda values: _first_fault(shape, values)


def _map_fault(name: str, values: Mapping[str, str], key_max: int, value_max: int) -> FieldFault | None:
    for key, value in values.items():
        fault = _text_fault(name, len(key), key_max) or _text_fault(name, len(value), value_max)
        if fault is not None:
            return fault
    return None


def _first_fault(shape: RequestShape, values: Sequence[Message]) -> FieldFault | None:
    for value in values:
        fault = shape.fault_of(value)
        if fault is not None:
            return fault
    return None
