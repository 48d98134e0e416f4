"""Compiles the nodes of an expression into closures over the values of its properties.

| form | value |
| --- | --- |
| `x = y` | both NULL: TRUE; only `x` NULL: NULL; only `y` NULL: FALSE; else by value |
| `x > y` and the like | NULL if one is NULL; `y` is not looked at if `x` is; else by value |
| `NOT x` | NULL if `x` is, else the other |
| `x IN (…)` | NULL if `x` is, else by text |
| `x CONTAINS 's'`, also with NOT | FALSE if `x` is NULL or no text, or `'s'` is empty; else by text |

By value: two texts are equal only as texts, and their sizes are those of the doubles that they are; a text with a
number is read as a number of its type; a text with a truth value is TRUE if it is `true` in any case; a truth value
differs from a number. What cannot be read, as `'abc' > 5`, raises `NotComparable`, and the message does not match,
whatever else is in the expression, except after an AND or OR that was decided before.

An expression, and each part without a property, is evaluated only as often as its values differ: constants once, when
it is compiled; the rest by `store.sql92.predicate`.

Source: RocketMQ `ComparisonExpression`, `UnaryExpression`, `LogicExpression`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from store.sql92.java_numbers import SHORT_MAX, NotANumber, order_of_doubles, read_double, read_whole
from store.sql92.syntax import (
    AmongTexts,
    Cast,
    Compared,
    Either,
    Equal,
    Every,
    HasPart,
    IsNull,
    Literal,
    Name,
    Negated,
    Node,
    Not,
    NumberType,
    Operator,
    Search,
    TypedNumber,
    Value,
)

if TYPE_CHECKING:
    from typing import Never

# The values of the properties, in the order of `Compiled.names`; None: the message does not have it.
Values: TypeAlias = Sequence[str | None]
Evaluate: TypeAlias = Callable[[Values], Value]

_TESTS: Final[dict[Operator, Callable[[int, int], bool]]] = {
    Operator.GREATER: operator.gt,
    Operator.GREATER_EQUAL: operator.ge,
    Operator.LESS: operator.lt,
    Operator.LESS_EQUAL: operator.le,
}
_FINDS: Final[dict[Search, Callable[[str, str], bool]]] = {
    Search.CONTAINS: operator.contains,
    Search.STARTSWITH: str.startswith,
    Search.ENDSWITH: str.endswith,
}


class NotComparable(Exception):
    """Two values cannot be compared: the message does not match."""


class Compiler:
    """Compiles one expression.

    Attributes:
        names: of the properties in the expression, each once; their values are the arguments of the closures.
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    def compiled(self, node: Node) -> Evaluate:
        """Return a closure that evaluates a node; it raises `NotComparable`."""
        evaluate = self._compiled(node)
        return evaluate if _has_name(node) else _folded(evaluate)

    def _compiled(self, node: Node) -> Evaluate:
        match node:
            case Literal(value):
                evaluate = _constant(value)
            case Name(name):
                evaluate = operator.itemgetter(self._place(name))
            case Cast(operand):
                evaluate = _cast(self._place(operand.name))
            case Negated(operand):
                evaluate = _negated(self.compiled(operand))
            case Not(operand):
                evaluate = _not(self.compiled(operand))
            case Every(operands):
                evaluate = _every([self.compiled(each) for each in operands])
            case Either(operands):
                evaluate = _either([self.compiled(each) for each in operands])
            case Equal(left, right):
                evaluate = self._equal(left, right)
            case Compared(kind, left, right):
                evaluate = self._compared(kind, left, right)
            case IsNull(operand):
                evaluate = _is_null(self.compiled(operand))
            case AmongTexts(operand, texts, is_not):
                evaluate = _among(self._place(operand.name), texts, is_not=is_not)
            case _:
                assert isinstance(node, HasPart), node
                find = _FINDS[node.search]
                evaluate = _has_part(self.compiled(node.operand), find, node.part, is_not=node.is_not)
        return evaluate

    def _place(self, name: str) -> int:
        """Return the place of a property's value."""
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def _equal(self, left: Node, right: Node) -> Evaluate:
        if isinstance(left, Name) and isinstance(right, Literal) and isinstance(right.value, str):
            return _equals_text(self._place(left.name), right.value)
        # RocketMQ fails to compare `TRUE = a`, and so never finds it equal; here both orders have the same meaning.
        is_truth_first = isinstance(left, Literal) and isinstance(left.value, bool) and isinstance(right, Name)
        evaluate_left, evaluate_right = self.compiled(left), self.compiled(right)

        def equal(values: Values) -> bool | None:
            x, y = evaluate_left(values), evaluate_right(values)
            if x is None or y is None:
                return y is None or None if x is None else False
            return are_equal(y, x) if is_truth_first else are_equal(x, y)

        return equal

    def _compared(self, kind: Operator, left: Node, right: Node) -> Evaluate:
        if isinstance(left, Name) and isinstance(right, Literal) and isinstance(right.value, TypedNumber):
            return _compared_with(self._place(left.name), _TESTS[kind], right.value)
        test, evaluate_left, evaluate_right = _TESTS[kind], self.compiled(left), self.compiled(right)

        def compared(values: Values) -> bool | None:
            x = evaluate_left(values)
            if x is None:
                return None
            y = evaluate_right(values)
            return None if y is None else test(order(x, y), 0)

        return compared


def _has_name(node: Node) -> bool:
    match node:
        case Literal():
            return False
        case Every(operands) | Either(operands):
            return any(map(_has_name, operands))
        case Equal(left, right) | Compared(_, left, right):
            return _has_name(left) or _has_name(right)
        case Negated(operand) | Not(operand) | IsNull(operand) | HasPart(_, operand):
            return _has_name(operand)
        case Name() | Cast() | AmongTexts():
            return True


def _folded(evaluate: Evaluate) -> Evaluate:
    """Return a closure with the result of a part that reads no property."""
    try:
        value = evaluate(())
    except NotComparable as error:
        return _failing(str(error))
    return _constant(value)


def _constant(value: Value) -> Evaluate:
    return lambda _values: value


def _failing(text: str) -> Evaluate:
    def fail(_values: Values) -> Never:
        raise NotComparable(text)

    return fail


# ------------------------------------------------------------------------------------------------------------- closures


def _cast(place: int) -> Evaluate:
    # No text is a truth value, not even "true".
    return lambda values: None if values[place] is None else False


def _negated(evaluate: Evaluate) -> Evaluate:
    def negated(values: Values) -> Value:
        value = evaluate(values)
        return TypedNumber(-value.value, value.type) if isinstance(value, TypedNumber) else None

    return negated


def _not(evaluate: Evaluate) -> Evaluate:
    def inverted(values: Values) -> bool | None:
        value = evaluate(values)
        return None if value is None else not value

    return inverted


def _every(operands: list[Evaluate]) -> Evaluate:
    def every(values: Values) -> bool | None:
        result: bool | None = True
        for evaluate in operands:
            value = evaluate(values)
            if value is None:
                result = None
            elif not value:
                return False
        return result

    return every


def _either(operands: list[Evaluate]) -> Evaluate:
    def either(values: Values) -> bool | None:
        result: bool | None = False
        for evaluate in operands:
            value = evaluate(values)
            if value is None:
                result = None
            elif value:
                return True
        return result

    return either


def _is_null(evaluate: Evaluate) -> Evaluate:
    return lambda values: evaluate(values) is None


def _equals_text(place: int, text: str) -> Evaluate:
    def equals_text(values: Values) -> bool | None:
        value = values[place]
        return None if value is None else value == text

    return equals_text


def _compared_with(place: int, test: Callable[[int, int], bool], number: TypedNumber) -> Evaluate:
    whole = number.value if isinstance(number.value, int) else None

    def compared_with(values: Values) -> bool | None:
        text = values[place]
        if text is None:
            return None
        # Most values are such numbers; `order` would read them in the same way.
        if whole is not None and len(text) <= SHORT_MAX and text.isascii() and text.isdigit():
            return test(int(text), whole)
        return test(order(text, number), 0)

    return compared_with


def _among(place: int, texts: frozenset[str], *, is_not: bool) -> Evaluate:
    def among(values: Values) -> bool | None:
        value = values[place]
        return None if value is None else (value in texts) is not is_not

    return among


def _has_part(evaluate: Evaluate, find: Callable[[str, str], bool], part: str, *, is_not: bool) -> Evaluate:
    if not part:
        return lambda _values: False

    def has_part(values: Values) -> bool:
        value = evaluate(values)
        return isinstance(value, str) and find(value, part) is not is_not

    return has_part


# --------------------------------------------------------------------------------------------------------------- values


def are_equal(left: bool | str | TypedNumber, right: bool | str | TypedNumber) -> bool:
    """Return whether two values are equal.

    Raises:
        NotComparable: they cannot be compared: a text is not the number that the other value is, or the left value is a
            truth value and the right one a text.
    """
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return order(left, right) == 0


def order(left: bool | str | TypedNumber, right: bool | str | TypedNumber) -> int:
    """Return whether the left value is less (below 0), equal (0) or greater; for values that differ in kind, below 0.

    Raises:
        NotComparable: as `are_equal`; or both are texts, and one is not a number.
    """
    if isinstance(left, bool) or isinstance(right, bool):
        return _order_of_truth(left, right)
    try:
        if isinstance(left, TypedNumber):
            other = _number(right, left.type) if isinstance(right, str) else right
            return _order_of_numbers(left, other)
        if isinstance(right, TypedNumber):
            return _order_of_numbers(_number(left, right.type), right)
        return order_of_doubles(read_double(left), read_double(right))
    except NotANumber as error:
        raise NotComparable(f"{error} is not a number") from error


def _order_of_truth(left: bool | str | TypedNumber, right: bool | str | TypedNumber) -> int:
    if isinstance(left, str):
        left = left.lower() == "true"
    elif isinstance(right, str):
        raise NotComparable(f"{left} with the text {right!r}")
    if isinstance(left, bool) and isinstance(right, bool):
        return left - right
    return -1


def _number(text: str, number_type: NumberType) -> TypedNumber:
    value = read_double(text) if number_type is NumberType.DOUBLE else read_whole(text, number_type)
    return TypedNumber(value, number_type)


def _order_of_numbers(left: TypedNumber, right: TypedNumber) -> int:
    if isinstance(left.value, int) and isinstance(right.value, int):
        return (left.value > right.value) - (left.value < right.value)
    return order_of_doubles(float(left.value), float(right.value))
