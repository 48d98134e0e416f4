"""Reads the fields of a request: all are text, and each has its bounds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cluster.remoting.command import Rejected, RemotingCode

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN_LENGTH_MAX = 80
# As Java reads numbers; the longest one of 64 bits has 20 characters.
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def text_of(fields: Mapping[str, str], name: str, length_max: int) -> str:
    """Return a field that must be there, of 1 to `length_max` characters.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    value = fields.get(name, "")
    if 0 < len(value) <= length_max:
        return value
    raise _wrong(name, f"1 to {length_max} characters", value)


def int_of(fields: Mapping[str, str], name: str, low: int, high: int, default: int | None = None) -> int:
    """Return a number from `low` to `high`; `default` for a field that is absent or empty.

    Raises:
        Rejected: INVALID_PARAMETER: it is absent and has no default, is no number, or is out of range.
    """
    value = fields.get(name, "")
    if not value and default is not None:
        return default
    if _NUMBER.fullmatch(value) and low <= int(value) <= high:
        return int(value)
    raise _wrong(name, f"a number from {low} to {high}", value)


def bool_of(fields: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return whether a field is "true", in any case; `default` if it is absent."""
    value = fields.get(name)
    return default if value is None else value.lower() == "true"


def is_unicode(text: str) -> bool:
    """Return whether a text of JSON can be written: half of a pair of surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong(name: str, expected: str, found: str) -> Rejected:
    text = f"field {name!r}: expected {expected}, found {found[:_SHOWN_LENGTH_MAX]!r}"
    return Rejected(RemotingCode.INVALID_PARAMETER, text)
