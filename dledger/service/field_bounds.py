"""Bounds of the fields of a request, and their check: lengths are checked before any other work.

A table has every field of every message in the requests of a service, with its bound (`dledger.service.request_bounds`,
`cluster.protocol.request_bounds`); a server with a field that is missing in the table does not start. A field beyond
its bound is refused before the request is processed: before texts are parsed or names are looked up.

Bounds limit the size, not the meaning: whether a topic exists, or an offset is in a queue, is checked where it is used.
A number has `ANY_NUMBER` if its value is only compared or stored, never used as a count.

Not here: which methods are guarded, and the text of a refusal (`dledger.service.request_guard`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """The most elements of a list or map, and the bound of each."""

    count_max: int
    each: Text | AnyNumber | Fields


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


class UnboundedField(Exception):
    """A field of a request has no bound, or a bound has no field: a mistake in the tables of this program."""


class RequestShape:
    """The bounds of one kind of request.

    Args:
        descriptor: of its message.
        bounds: of that message and of all messages in it.

    Attributes:
        size_bytes_max: a longer request exceeds some bound.
        elements_max: fields that it may have on the wire, each element of a list counted.
        number_bytes_max: bytes on the wire that all its numbers together may take.

    Raises:
        UnboundedField: a field of a message has no bound, or a bound has no field: a mistake in the program.
    """

    def __init__(self, descriptor: Descriptor, bounds: Bounds) -> None:
        fields = _fields_of(descriptor, bounds)
        self._checks = [_check_of(field, bound, bounds) for field, bound in fields]
        self.size_bytes_max = sum(_size_max(field, bound, bounds) for field, bound in fields) + _UNKNOWN_SIZE_BYTES
        self.elements_max = sum(bound.count_max if isinstance(bound, Many) else 1 for _, bound in fields)
        self.number_bytes_max = _UNKNOWN_SIZE_BYTES + sum(
            _size_max(field, bound, bounds) for field, bound in fields if not _is_length_delimited(field)
        )
        # One-byte tags of texts and messages: on the wire each of these elements has its own length.
        self._length_delimited_tags = frozenset(
            field.number << 3 | _LENGTH_DELIMITED
            for field, _ in fields
            if _is_length_delimited(field) and field.number < 16
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
        position, end, count, number_bytes = 0, len(data) - unchecked_size_bytes, 0, 0
        most, tags = self.elements_max, self._length_delimited_tags
        try:
            while position < end:
                count += 1
                if count > most:
                    return FieldFault("elements of all lists", f"at most {most}", "more")
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
                if data[begin] not in tags:
                    number_bytes += position - begin
                    if number_bytes > self.number_bytes_max:
                        return FieldFault("numbers of all lists", f"at most {self.number_bytes_max} bytes", "more")
        except IndexError:
            # It ends in the middle of a field; the parser reports that.
            return None
        return None


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
        case Many(count_max, each):
            return count_max * _size_max(field, each, bounds) + _TAG_SIZE_MAX
        case Text(length_max):
            is_text = field.type == FieldDescriptor.TYPE_STRING
            return length_max * (_CHARACTER_SIZE_MAX if is_text else 1) + 2 * _TAG_SIZE_MAX
        case Fields():
            inner = _fields_of(_message_of(field), bounds)
            return sum(_size_max(each, of_each, bounds) for each, of_each in inner) + 2 * _TAG_SIZE_MAX
    return _NUMBER_SIZE_MAX + _TAG_SIZE_MAX


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
    of_each = None if isinstance(each, AnyNumber) else _check_of_elements(field, each, bounds, is_map=is_map)

    def check(message: Any) -> FieldFault | None:
        values = getattr(message, name)
        count = len(values)
        if count > count_max:
            return FieldFault(name, f"at most {count_max}", str(count))
        return of_each(values) if count and of_each is not None else None

    return check


def _check_of_elements(field: FieldDescriptor, each: Text | Fields, bounds: Bounds, *, is_map: bool) -> _Check:
    name = field.name
    if isinstance(each, Text):
        length_max = each.length_max
        return lambda values: _text_fault(name, max(map(len, values)), length_max)
    shape = RequestShape(_message_of(field), bounds)
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
