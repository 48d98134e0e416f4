"""Parses the JSON of RocketMQ's serializer (fastjson), in which integer member names have no quotes.

It is strict otherwise: no duplicate names in an object, no NaN, no trailing text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NamedTuple

# A string, which is skipped; or an integer, which is a member's name if a colon follows.
_STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*+"|(-?\d++)(\s*+:)?', re.DOTALL)
_QUOTES = 2
_FOUND_LENGTH_MAX = 20
_DIGITS_MAX = 100


class JsonFault(NamedTuple):
    """The position of a syntax error: line and column from 1, expected and found."""

    line: int
    column: int
    expected: str
    found: str


class NotJson(ValueError):
    """A text is not JSON of fastjson; `fault` has the position."""

    def __init__(self, fault: JsonFault) -> None:
        super().__init__(f"line {fault.line}, column {fault.column}: expected {fault.expected}, found {fault.found}")
        self.fault = fault


def parse_fastjson(text: str) -> Any:
    """Parse `text`; integer names become strings.

    Raises:
        NotJson: it is not JSON of fastjson; the text has line and column.
    """
    quoted_at: list[int] = []

    def quote(match: re.Match[str]) -> str:
        if match[2] is None:
            return match[0]
        quoted_at.append(match.start())
        return f'"{match[1]}"{match[2]}'

    quoted = _STRING_OR_NUMBER.sub(quote, text)
    try:
        return json.loads(quoted, object_pairs_hook=_object_of, parse_constant=_refuse_constant, parse_int=_parse_int)
    except RecursionError:
        raise NotJson(_fault_at(text, 0, "fewer levels of nesting")) from None
    except json.JSONDecodeError as error:
        position = error.pos
        for number, begin in enumerate(quoted_at):
            if begin + number * _QUOTES >= error.pos:
                break
            position = error.pos - (number + 1) * _QUOTES
        raise NotJson(_fault_at(text, max(position, 0), error.msg)) from None
    except _BadMember as error:
        begin = max(text.find(error.name), 0)
        raise NotJson(_fault_at(text, begin, error.expected)) from None


class _BadMember(Exception):
    def __init__(self, name: str, expected: str) -> None:
        super().__init__(name)
        self.name = name
        self.expected = expected


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # In one pass: a stranger may send hundreds of thousands of names.
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, _ in pairs if counts[name] > 1)
        raise _BadMember(twice, f"the name {twice!r} once in its object")
    return found


def _refuse_constant(name: str) -> None:
    raise _BadMember(name, "a number")


def _parse_int(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise _BadMember(digits, f"a number of at most {_DIGITS_MAX} digits")
    return int(digits)


def _fault_at(text: str, position: int, expected: str) -> JsonFault:
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    found = repr(text[position : position + _FOUND_LENGTH_MAX]) if position < len(text) else "the end"
    # The texts of `json` begin with "Expecting".
    return JsonFault(line, column, expected.removeprefix("Expecting ").split(":")[0], found)
