"""The nodes of a parsed expression. Plain values; `store.sql92.parser` builds them, and checks what may be combined.

A value is NULL (None), a truth value, a text, or a number. Only literals are numbers: every property is a text. So the
type of each number is known when the expression is parsed, and it decides how a text beside it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class NumberType(Enum):
    """How a text is read that is compared with a number: as a 32-bit or 64-bit integer, or as a double."""

    INTEGER = "integer"
    LONG = "long"
    DOUBLE = "double"


@dataclass(frozen=True, slots=True)
class TypedNumber:
    """A number.

    Attributes:
        value: an int, or for DOUBLE a float.
        type: its type.
    """

    value: int | float
    type: NumberType


Value: TypeAlias = bool | str | TypedNumber | None


class Operator(Enum):
    """The comparisons of sizes."""

    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="


class Search(Enum):
    """The comparisons of a part of a text."""

    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of the text."""

    value: Value
    height: int = 1


@dataclass(frozen=True, slots=True)
class Name:
    """The value of a property; NULL if the message does not have it."""

    name: str
    height: int = 1


@dataclass(frozen=True, slots=True)
class Negated:
    """`-x`: a number with the other sign, NULL for anything else."""

    operand: Node
    height: int


@dataclass(frozen=True, slots=True)
class Cast:
    """A name where a truth value is expected: NULL if it is missing, else FALSE, because a text is no truth value."""

    operand: Name
    height: int


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT x`."""

    operand: Node
    height: int


@dataclass(frozen=True, slots=True)
class Every:
    """`x AND y AND …`: FALSE after the first FALSE, without a look at the rest; else NULL if any is NULL."""

    operands: tuple[Node, ...]
    height: int


@dataclass(frozen=True, slots=True)
class Either:
    """`x OR y OR …`: TRUE after the first TRUE, without a look at the rest; else NULL if any is NULL."""

    operands: tuple[Node, ...]
    height: int


@dataclass(frozen=True, slots=True)
class Equal:
    """`x = y`."""

    left: Node
    right: Node
    height: int


@dataclass(frozen=True, slots=True)
class Compared:
    """`x > y` and the like."""

    operator: Operator
    left: Node
    right: Node
    height: int


@dataclass(frozen=True, slots=True)
class IsNull:
    """`x IS NULL`."""

    operand: Node
    height: int


@dataclass(frozen=True, slots=True)
class AmongTexts:
    """`x IN ('a', 'b')`, or with `is_not` `x NOT IN ('a', 'b')`."""

    operand: Name
    texts: frozenset[str]
    is_not: bool
    height: int


@dataclass(frozen=True, slots=True)
class HasPart:
    """`x CONTAINS 'a'` and the like, or with `is_not` `x NOT CONTAINS 'a'`; both are FALSE if `x` is no text."""

    search: Search
    operand: Node
    part: str
    is_not: bool
    height: int


Node: TypeAlias = (
    Literal | Name | Negated | Cast | Not | Every | Either | Equal | Compared | IsNull | AmongTexts | HasPart
)
