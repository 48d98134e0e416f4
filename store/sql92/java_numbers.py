"""Reads and compares numbers as Java does: `Integer.valueOf`, `Long.valueOf`, `Double.valueOf`, `Double.compareTo`.

`int()` and `float()` accept other texts: blanks and underscores, `inf`; they refuse `5f`, `0x1p3`.
"""

from __future__ import annotations

import math
import re
from typing import Final

from store.sql92.syntax import NumberType

_RANGES: Final = {NumberType.INTEGER: 1 << 31, NumberType.LONG: 1 << 63}
_WHOLE: Final = re.compile(r"[+-]?\d+")
# Digits of the greatest 64-bit integer. Longer ones are never converted: `int` takes quadratic time.
_DIGITS_MAX: Final = 19
# Digits of other scripts are counted with their zeros, which a pattern cannot find.
_OTHER_DIGITS_MAX: Final = 64
# Any integer of so few digits fits into 32 bits.
SHORT_MAX: Final = 9
_BMP_LAST: Final = "\uffff"
_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity"
    r"|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
# `String.trim` removes all characters up to the blank.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


class NotANumber(Exception):
    """A text is not a number of the expected type."""


def read_whole(text: str, number_type: NumberType) -> int:
    """Return the integer that a text is.

    Raises:
        NotANumber: it is none, or beyond 32 bits for INTEGER or 64 bits for LONG.
    """
    if len(text) <= SHORT_MAX and text.isascii() and text.isdigit():
        return int(text)
    # Java looks at UTF-16 units, so that no digit beyond the first plane is one.
    if _WHOLE.fullmatch(text) is None or max(text) > _BMP_LAST:
        raise NotANumber(text)
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > (_DIGITS_MAX if digits.isascii() else _OTHER_DIGITS_MAX):
        raise NotANumber(text)
    value = int(digits or "0")
    if text[0] == "-":
        value = -value
    limit = _RANGES[number_type]
    if not -limit <= value < limit:
        raise NotANumber(text)
    return value


def read_double(text: str) -> float:
    """Return the double that a text is.

    Raises:
        NotANumber: it is none.
    """
    text = text.strip(_TRIMMED)
    match = _DOUBLE.fullmatch(text)
    if match is None:
        raise NotANumber(text)
    sign = -1.0 if text[0] == "-" else 1.0
    if match["decimal"] is not None:
        value = float(match["decimal"])
    elif match["hex"] is not None:
        try:
            value = float.fromhex(match["hex"])
        except OverflowError:
            value = math.inf
    else:
        value = math.nan if text.endswith("NaN") else math.inf
    return math.copysign(value, sign)


def order_of_doubles(left: float, right: float) -> int:
    """Return -1, 0 or 1: NaN equals NaN and is above all else, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        signs = math.copysign(1.0, left), math.copysign(1.0, right)
        return int(signs[0] > signs[1]) - int(signs[0] < signs[1])
    # At least one is NaN.
    return int(left != left) - int(right != right)  # noqa: PLR0124  (only NaN differs from itself)
