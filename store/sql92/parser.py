"""Parses an expression: from its text to the nodes of `store.sql92.syntax`.

```
expression := and { OR and }
and        := equality { AND equality }
equality   := comparison { ('=' | '<>') comparison | IS [NOT] NULL }
comparison := unary { ('>' | '>=' | '<' | '<=') unary
                    | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text
                    | [NOT] BETWEEN unary AND unary
                    | [NOT] IN '(' text { ',' text } ')' }
unary      := ('+' | '-' | NOT) unary | primary
primary    := TRUE | FALSE | NULL | text | number | name | '(' expression ')'
```

NOT binds tighter than `=`: `NOT a = 'x'` is `(NOT a) = 'x'`. Bounds of length, terms and nesting limit the work of
parsing, compiling and evaluating an expression, and keep the recursion far from the limit of Python.

Source: RocketMQ `SelectorParser`, `ComparisonExpression`, `ConstantExpression`.
"""

from __future__ import annotations

import math
from typing import Final

from store.errors import IllegalExpression
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
)
from store.sql92.tokens import Token, TokenType, tokens_of

# Names and literals, those in lists of IN included.
TERMS_MAX: Final = 512
# Of nodes in nodes, and of parentheses.
NESTING_MAX: Final = 64
_INTEGER_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_LONG_DIGITS: Final = len(str(_LONG_MAX))

_TRUTH: Final = (Not, Every, Either, Equal, Compared, IsNull, AmongTexts, HasPart, Cast)
_CONSTANTS: Final = {"TRUE": Literal(True), "FALSE": Literal(False), "NULL": Literal(None)}
_OPERATORS: Final = {each.value: each for each in Operator}
_SEARCHES: Final = {each.value: each for each in Search}


def parse(expression: str) -> Node:
    """Return the parsed expression, whose value is a truth value or NULL.

    Raises:
        IllegalExpression: it does not follow the grammar, combines values that cannot be compared, or exceeds a bound.
    """
    return _Parser(tokens_of(expression)).whole()


class _Parser:
    """Reads the tokens of one expression, each once."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._terms = 0
        # Open parentheses and unary operators.
        self._nesting = 0

    def whole(self) -> Node:
        """Return the whole expression."""
        found = self._truth(self._either(), self._tokens[0])
        self._expect(TokenType.END, "", "AND, OR, a comparison or the end")
        return found

    # ----------------------------------------------------------------------------------------------------- the grammar

    def _either(self) -> Node:
        begin = self._peek()
        operands = [self._every()]
        while self._takes(TokenType.KEYWORD, "OR"):
            operands[0] = self._truth(operands[0], begin)
            at = self._peek()
            operands.append(self._truth(self._every(), at))
        return operands[0] if len(operands) == 1 else Either(tuple(operands), self._height(*operands))

    def _every(self) -> Node:
        begin = self._peek()
        operands = [self._equality()]
        while self._takes(TokenType.KEYWORD, "AND"):
            operands[0] = self._truth(operands[0], begin)
            at = self._peek()
            operands.append(self._truth(self._equality(), at))
        return operands[0] if len(operands) == 1 else Every(tuple(operands), self._height(*operands))

    def _equality(self) -> Node:
        begin = self._peek()
        left = self._comparison()
        while True:
            sign = self._peek()
            if sign.type is TokenType.SIGN and sign.text in ("=", "<>"):
                self._next += 1
                right = self._comparison()
                _check_equal(left, right, sign, begin)
                equal = Equal(left, right, self._height(left, right))
                left = equal if sign.text == "=" else self._not(equal)
            elif self._takes(TokenType.KEYWORD, "IS"):
                is_not = self._takes(TokenType.KEYWORD, "NOT")
                self._expect(TokenType.KEYWORD, "NULL", "NULL" if is_not else "NULL or NOT NULL")
                is_null = IsNull(left, self._height(left))
                left = self._not(is_null) if is_not else is_null
            else:
                return left

    def _comparison(self) -> Node:
        begin = self._peek()
        left = self._unary()
        while True:
            token = self._peek()
            if token.type is TokenType.SIGN and token.text in _OPERATORS:
                self._next += 1
                at = self._peek()
                left = self._compared(_OPERATORS[token.text], left, self._unary(), begin, at)
                continue
            is_not = token[:2] == (TokenType.KEYWORD, "NOT")
            word = self._tokens[self._next + 1] if is_not else token
            if word.type is not TokenType.KEYWORD or word.text not in ("BETWEEN", "IN", *_SEARCHES):
                return left
            self._next += 2 if is_not else 1
            if word.text == "BETWEEN":
                left = self._between(left, begin, is_not=is_not)
            elif word.text == "IN":
                left = self._among(left, begin, is_not=is_not)
            else:
                left = HasPart(_SEARCHES[word.text], left, self._text(), is_not, self._height(left))

    def _between(self, value: Node, begin: Token, *, is_not: bool) -> Node:
        at_low = self._peek()
        low = self._unary()
        self._expect(TokenType.KEYWORD, "AND", "AND and the upper limit of BETWEEN")
        at_high = self._peek()
        high = self._unary()
        if is_not:
            below = self._compared(Operator.LESS, value, low, begin, at_low)
            above = self._compared(Operator.GREATER, value, high, begin, at_high)
            return Either((below, above), self._height(below, above))
        least = self._compared(Operator.GREATER_EQUAL, value, low, begin, at_low)
        most = self._compared(Operator.LESS_EQUAL, value, high, begin, at_high)
        # A negated number is no literal, as in RocketMQ: such limits are not compared.
        if isinstance(low, Literal) and isinstance(high, Literal):
            assert isinstance(low.value, TypedNumber), low
            assert isinstance(high.value, TypedNumber), high
            if low.value.value > high.value.value:
                raise IllegalExpression(at_high.position, f"at least {low.value.value}", str(high.value.value))
        return Every((least, most), self._height(least, most))

    def _among(self, operand: Node, begin: Token, *, is_not: bool) -> Node:
        if not isinstance(operand, Name):
            raise IllegalExpression(begin.position, "the name of a property before IN", begin.shown)
        self._expect(TokenType.SIGN, "(", "( after IN")
        texts = {self._text()}
        while self._takes(TokenType.SIGN, ","):
            texts.add(self._text())
        self._expect(TokenType.SIGN, ")", ", or )")
        return AmongTexts(operand, frozenset(texts), is_not, self._height(operand))

    def _text(self) -> str:
        self._count_term(self._peek())
        return self._expect(TokenType.TEXT, "", "a text in single quotes").text

    def _unary(self) -> Node:
        token = self._peek()
        is_sign = token.type is TokenType.SIGN and token.text in ("+", "-")
        if not is_sign and token[:2] != (TokenType.KEYWORD, "NOT"):
            return self._primary()
        self._next += 1
        self._enter(token)
        begin = self._peek()
        operand = self._unary()
        self._nesting -= 1
        if token.text == "NOT":
            return self._not(self._truth(operand, begin))
        return operand if token.text == "+" else Negated(operand, self._height(operand))

    def _primary(self) -> Node:
        token = self._peek()
        self._next += 1
        if token[:2] == (TokenType.SIGN, "("):
            self._enter(token)
            inner = self._either()
            self._nesting -= 1
            self._expect(TokenType.SIGN, ")", ")")
            return inner
        self._count_term(token)
        match token.type:
            case TokenType.NAME:
                return Name(token.text)
            case TokenType.TEXT:
                return Literal(token.text)
            case TokenType.WHOLE:
                return Literal(_whole(token))
            case TokenType.FRACTION:
                return Literal(_fraction(token))
            case TokenType.KEYWORD if token.text in _CONSTANTS:
                return _CONSTANTS[token.text]
        raise IllegalExpression(token.position, "a name, a number, a text, TRUE, FALSE, NULL, NOT or (", token.shown)

    # ------------------------------------------------------------------------------------------------------- its parts

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _takes(self, kind: TokenType, text: str) -> bool:
        """Take the next token if it is this one; return whether it was."""
        is_it = self._peek()[:2] == (kind, text)
        self._next += is_it
        return is_it

    def _expect(self, kind: TokenType, text: str, expected: str) -> Token:
        """Take the next token; an empty `text` allows any of its kind."""
        token = self._peek()
        if token.type is not kind or (text and token.text != text):
            raise IllegalExpression(token.position, expected, token.shown)
        self._next += 1
        return token

    def _enter(self, token: Token) -> None:
        if self._nesting >= NESTING_MAX:
            raise IllegalExpression(token.position, f"at most {NESTING_MAX} levels of nesting", "more")
        self._nesting += 1

    def _count_term(self, token: Token) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise IllegalExpression(token.position, f"at most {TERMS_MAX} names and literals", "more")

    def _height(self, *operands: Node) -> int:
        """Return the height of a node with these operands."""
        height = 1 + max(each.height for each in operands)
        if height > NESTING_MAX:
            raise IllegalExpression(self._peek().position, f"at most {NESTING_MAX} levels of nesting", "more")
        return height

    def _not(self, operand: Node) -> Not:
        return Not(operand, self._height(operand))

    def _truth(self, node: Node, begin: Token) -> Node:
        """Return a node as an operand of NOT, AND or OR, or as the whole expression."""
        if isinstance(node, Name):
            return Cast(node, self._height(node))
        is_constant = isinstance(node, Literal) and (node.value is None or isinstance(node.value, bool))
        if not is_constant and not isinstance(node, _TRUTH):
            raise IllegalExpression(begin.position, "a condition, such as a > 5", begin.shown)
        return node

    def _compared(self, operator: Operator, left: Node, right: Node, begin: Token, at: Token) -> Compared:
        for operand, token in ((left, begin), (right, at)):
            is_number = isinstance(operand, Literal) and isinstance(operand.value, TypedNumber)
            if not is_number and isinstance(operand, (Literal, *_TRUTH)):
                expected = f"a number or the name of a property beside {operator.value} or BETWEEN"
                raise IllegalExpression(token.position, expected, token.shown)
        return Compared(operator, left, right, self._height(left, right))


def _check_equal(left: Node, right: Node, sign: Token, begin: Token) -> None:
    """Refuse operands of `=` and `<>` that can never be equal.

    Raises:
        IllegalExpression: one is the literal NULL, or the left one a truth value and the right one another literal.
    """
    if not isinstance(left, Literal) and not isinstance(right, Literal):
        return
    for operand in (left, right):
        if isinstance(operand, Literal) and operand.value is None:
            raise IllegalExpression(sign.position, "IS NULL or IS NOT NULL", f"{sign.text} and NULL")
    if not isinstance(left, Literal) or not isinstance(right, Literal) or not isinstance(left.value, bool):
        return
    if not isinstance(right.value, bool):
        found = f"{begin.shown} {sign.text} a literal of another kind"
        raise IllegalExpression(sign.position, "TRUE or FALSE on both sides", found)


def _whole(token: Token) -> TypedNumber:
    """Return a whole number: 32 bits where they are enough, else 64."""
    digits = token.text.rstrip("lL")
    if len(digits) > _LONG_DIGITS or int(digits) > _LONG_MAX:
        raise IllegalExpression(token.position, f"at most {_LONG_MAX}", token.shown)
    value = int(digits)
    return TypedNumber(value, NumberType.INTEGER if value <= _INTEGER_MAX else NumberType.LONG)


def _fraction(token: Token) -> TypedNumber:
    value = float(token.text)
    # RocketMQ refuses 0.0, which is less than the least positive double.
    if not 0.0 < value < math.inf:
        raise IllegalExpression(token.position, "a fraction above 0 and at most 1.7976931348623157E308", token.shown)
    return TypedNumber(value, NumberType.DOUBLE)
