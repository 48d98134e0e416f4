"""Templates of `dledger consume`: a text with fields in braces, for the output of a message."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from commitlog.record.record import Record

_FIELD: Final = re.compile(r"\{([a-z]+)(?::([^{}]*))?\}|\\([ntr\\])")
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}
_HEADER: Final = "header"
_MS_PER_S: Final = 1000
_OWN_NAMES: Final = ("TAGS", "KEYS", "UNIQ_KEY")

_Piece = Callable[["Record"], bytes]


def template_printer(template: str) -> Callable[[Record], None]:
    r"""Return a function that prints a message to standard output with a template.

    Args:
        template: text with fields such as `{offset}` or `{header:trace}`, and `\n`, `\t`.

    Raises:
        ValueError: a field is unknown; the text has all known fields.
    """
    pieces: list[_Piece] = []
    position = 0
    for found in _FIELD.finditer(template):
        pieces.append(_fixed(template[position : found.start()].encode()))
        pieces.append(_fixed(_ESCAPES[found[3]]) if found[3] else _field(found[1], found[2]))
        position = found.end()
    pieces.append(_fixed(template[position:].encode()))

    def show(record: Record) -> None:
        sys.stdout.buffer.write(b"".join([piece(record) for piece in pieces]) + b"\n")

    return show


def _fixed(text: bytes) -> _Piece:
    return lambda _: text


def _field(name: str, argument: str | None) -> _Piece:
    if name == _HEADER and argument:
        return lambda record: record.properties.get(argument, "").encode()
    piece = _FIELDS.get(name)
    if piece is None or argument is not None:
        known = ", ".join(f"{{{each}}}" for each in [*_FIELDS, f"{_HEADER}:NAME"])
        wrong = name if argument is None else f"{name}:{argument}"
        raise ValueError(f"--template: expected fields out of {known}, found {{{wrong}}}")
    return piece


def _body(record: Record) -> bytes:
    from commitlog.record.compression import uncompressed_body

    return bytes(uncompressed_body(record.sys_flag, record.body))


def _headers(record: Record) -> bytes:
    own = {name: value for name, value in record.properties.items() if name not in _OWN_NAMES}
    return ",".join(f"{name}={value}" for name, value in sorted(own.items())).encode()


def _time(record: Record) -> bytes:
    stored = datetime.fromtimestamp(record.store_timestamp / _MS_PER_S, UTC)
    return stored.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


_FIELDS: Final[dict[str, _Piece]] = {
    "topic": lambda record: record.topic.encode(),
    "queue": lambda record: b"%d" % record.queue_id,
    "offset": lambda record: b"%d" % record.queue_offset,
    "time": _time,
    "tag": lambda record: record.properties.get("TAGS", "").encode(),
    "keys": lambda record: record.properties.get("KEYS", "").encode(),
    "headers": _headers,
    "id": lambda record: record.message_id.encode(),
    "uniqkey": lambda record: record.properties.get("UNIQ_KEY", "").encode(),
    "size": lambda record: b"%d" % len(_body(record)),
    "body": _body,
}
