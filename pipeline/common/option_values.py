"""Parses option values: sizes, durations, times, integers, lists. Shared by source, sinks and jobs.

Each function raises `pipeline.common.errors.BadOption` with the name of the option.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pipeline.common.errors import BadOption, NoCatalogTable, UnknownOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.ASCII | re.IGNORECASE)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.ASCII)
_TIME: Final = re.compile(r"\d{1,18}", re.ASCII)
_POWERS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_LONG_MAX: Final = (1 << 63) - 1
_MS_PER_S: Final = 1000


def parse_flag(name: str, text: str) -> bool:
    """Parse true or false."""
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise BadOption(name, "true or false", repr(text))
    return word in _TRUE


def parse_count(name: str, text: str, least: int = 1) -> int:
    """Parse an integer of at least `least`."""
    digits = text.strip().replace("_", "")
    if not (digits.isascii() and digits.isdigit() and least <= int(digits) <= _LONG_MAX):
        raise BadOption(name, f"a whole number of at least {least}", repr(text))
    return int(digits)


def parse_size(name: str, text: str) -> int:
    """Parse a size such as `64m`, `1g`, `512k` or `1048576` to bytes; k, m, g, t are powers of 1,024."""
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) << _POWERS[found[2].lower()] if found else 0
    if not 0 < size <= _LONG_MAX:
        raise BadOption(name, "a size of at least one byte, for example 64m, 1g or 1048576", repr(text))
    return size


def parse_duration_s(name: str, text: str) -> float:
    """Parse a duration such as `200ms`, `30s`, `15m`, `2h` or `30` to seconds."""
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise BadOption(name, "a duration, for example 200ms, 30s or 15m", repr(text))
    return float(found[1]) * _SECONDS[found[2] or "s"]


def parse_time_ms(name: str, text: str) -> int:
    """Parse milliseconds since 1970, or ISO 8601 (UTC if there is no zone), to milliseconds since 1970."""
    text = text.strip()
    if _TIME.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        expected = "milliseconds since 1970 (1795227552330) or a time (2026-11-21T09:00:00, UTC)"
        raise BadOption(name, expected, repr(text)) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * _MS_PER_S)


def parse_choice(name: str, text: str, choices: Sequence[str]) -> str:
    """Parse one of `choices`, ignoring case."""
    for choice in choices:
        if text.strip().lower() == choice.lower():
            return choice
    raise BadOption(name, f"one of {', '.join(choices)}", repr(text))


def parse_names(name: str, text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of at least one name, without repetitions."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise BadOption(name, "at least one name, separated by commas", repr(text))
    if len(set(names)) < len(names):
        raise BadOption(name, "each name once", repr(text))
    return names


def check_no_table(given: Mapping[str, str], source: str) -> None:
    """Check that options are those of a query, not of a table of Spark's catalog.

    Raises:
        NoCatalogTable: the options contain Spark's own `provider`.
    """
    if given.get("provider", "").lower() == source:
        raise NoCatalogTable(source)


def check_names(
    given: Mapping[str, str], known: Iterable[str], removed: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the options by their canonical names; names are not case-sensitive.

    Args:
        given: the options.
        known: names.
        removed: names that earlier versions had, and for each what to use instead.

    Raises:
        UnknownOption: there is no such option.
    """
    by_lower = {name.lower(): name for name in known}
    instead = {name.lower(): remedy for name, remedy in removed.items()}
    found = {}
    for name, value in given.items():
        if name.lower() not in by_lower:
            raise UnknownOption(name, by_lower.values(), instead.get(name.lower()))
        found[by_lower[name.lower()]] = value
    return found
