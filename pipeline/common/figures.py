"""Formats numbers for output."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def bytes_text(size: float) -> str:
    """Return a number of bytes, in units of a thousand, with three digits."""
    place = 0
    while size >= 1000 and place < len(_UNITS) - 1:
        size /= 1000
        place += 1
    return f"{size:.0f} {_UNITS[place]}" if not place else f"{_three_digits(size)} {_UNITS[place]}"


def count_text(count: int, noun: str) -> str:
    """Return `1 message`, `2,000 messages`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def share_text(share: float) -> str:
    """Return a share of 1 in percent."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def duration_text(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds)} s"


def short_count(count: float) -> str:
    """Return a count with at most three digits: `950`, `12.3 k`, `4 M`."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{_three_digits(count / size)}{unit}"
    return _three_digits(count)


def _three_digits(value: float) -> str:
    """Return a value with three digits, or all digits before the decimal point if there are more."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"
