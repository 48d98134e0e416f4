r"""A compiled expression, applied to the properties of a record as they are stored.

Properties are bytes: name, 0x01, value, 0x02, and so on, in UTF-8. Only the values of the expression's names are looked
up. As RocketMQ reads them, of equal names the last counts, and a property with an empty value is missing.

Messages of one topic have few combinations of these values, while all their properties together differ, because each
message has a UNIQ_KEY. So the memo has the results by the values that the expression reads.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from store.sql92.compiler import Compiler, Evaluate, NotComparable
from store.sql92.parser import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Results by values; all are dropped when one more is added, so that values that no longer occur do not stay.
_MEMO_MAX: Final = 2_048
# Larger values are not remembered, so that a memo takes at most some 500 KB.
_MEMO_SIZE_MAX: Final = 64
_NAME_END: Final = b"\x01"
_PROPERTY_END: Final = b"\x02"
# With more names than these all properties of a record are separated, at a cost that does not depend on the names.
_SEARCHED_NAMES_MAX: Final = 8
# Bytes that are searched for a name, separated, or compared, in about a microsecond if they are as unfavourable as
# possible.
_SEARCHED_BYTES: Final = 16
_SEPARATED_BYTES: Final = 4
_COMPARED_BYTES: Final = 256


class Predicate:
    """An expression, ready to be evaluated.

    Args:
        expression: its text.

    Attributes:
        names: of the properties that it reads.

    Raises:
        store.errors.IllegalExpression: it cannot be compiled.
    """

    __slots__ = ("_evaluate", "_found_in", "_memo", "_terms", "names")

    def __init__(self, expression: str) -> None:
        compiler = Compiler()
        self._evaluate: Evaluate = compiler.compiled(parse(expression))
        self.names = tuple(compiler.names)
        self._found_in = _searched(self.names) if len(self.names) <= _SEARCHED_NAMES_MAX else _separated(self.names)
        self._memo: dict[tuple[bytes, ...], bool] = {}
        # Each term has at least one character and one between it and the next.
        self._terms = len(expression) // 2 + 1

    def matches(self, properties: bytes) -> bool:
        """Return whether a message with these stored properties matches: whether the expression is TRUE."""
        found = tuple(self._found_in(properties))
        verdict = self._memo.get(found)
        if verdict is None:
            pairs = (str(each, "utf-8", "replace").split("\x01", 1) for each in found)
            # Of equal names the last counts.
            values: dict[str, str] = dict(pairs)
            verdict = self.evaluate([values.get(name) for name in self.names])
            if sum(map(len, found)) <= _MEMO_SIZE_MAX:
                if len(self._memo) >= _MEMO_MAX:
                    self._memo.clear()
                self._memo[found] = verdict
        return verdict

    def evaluate(self, values: list[str | None]) -> bool:
        """Return whether the expression is TRUE for these values of `names`; None: there is no such property."""
        try:
            return self._evaluate(values) is True
        except NotComparable:
            return False

    def work(self, size_bytes: int) -> int:
        """Return how long it takes at most to evaluate properties of this size, in units of about a microsecond."""
        names = len(self.names)
        if names <= _SEARCHED_NAMES_MAX:
            searches = names * (1 + size_bytes // _SEARCHED_BYTES)
        else:
            searches = 1 + size_bytes // _SEPARATED_BYTES
        return searches + self._terms * (1 + size_bytes // _COMPARED_BYTES)


def _searched(names: Sequence[str]) -> Callable[[bytes], list[bytes]]:
    """Return a function that finds properties by these names, which are ASCII: name, 0x01, value, as stored."""
    if not names:
        return lambda _: []
    pattern = rf"\x02((?:{'|'.join(map(re.escape, names))})\x01[^\x02]+)"
    find = re.compile(pattern.encode()).findall
    return lambda properties: find(_PROPERTY_END + properties)


def _separated(names: Sequence[str]) -> Callable[[bytes], list[bytes]]:
    """Return a function with the results of `_searched`, for many names."""
    wanted = {name.encode() for name in names}

    def find(properties: bytes) -> list[bytes]:
        parts = [(part, part.find(_NAME_END)) for part in properties.split(_PROPERTY_END)]
        return [part for part, end in parts if 0 < end < len(part) - 1 and part[:end] in wanted]

    return find


@lru_cache(maxsize=128)
def predicate_of(expression: str) -> Predicate:
    """Return the predicate of an expression; cached, since readers send the same few expressions repeatedly.

    Raises:
        store.errors.IllegalExpression: it cannot be compiled.
    """
    return Predicate(expression)
