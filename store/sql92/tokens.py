"""Splits the text of an expression into tokens.

| token | form |
| --- | --- |
| blank | space, tab, carriage return, line feed, form feed; `--` to the end of its line; `/* … */` |
| keyword | NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH, in any case |
| name | a letter, `_` or `$`, then these and digits; upper and lower case differ |
| text | `'…'`; a quote in it is doubled |
| whole number | `0`, or a digit from 1 and digits, then optionally `L` |
| fraction | `5.5`, `5.`, `.5`, `5E10`, each optionally with an exponent |
| sign | `= <> > >= < <= + - ( ) ,` |

Letters and digits are those of ASCII. A line comment without a line end is none, so that its dashes are two signs.

Source: RocketMQ `SelectorParser`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from store.errors import IllegalExpression

LENGTH_MAX: Final = 4_096

KEYWORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)
_BLANK: Final = re.compile(r"(?:[ \t\r\n\f]+|--[^\r\n]*[\r\n]|/\*.*?\*/)+", re.DOTALL)
_EXPONENT: Final = r"[eE][+-]?[0-9]+"
_TOKEN: Final = re.compile(
    rf"(?P<fraction>[0-9]+\.[0-9]*(?:{_EXPONENT})?|\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT})"
    r"|(?P<whole>0|[1-9][0-9]*[lL]?)"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<sign><>|>=|<=|[=><+\-(),])"
)


class TokenType(Enum):
    """The kinds of tokens; END is the end of the expression."""

    WHOLE = "whole"
    FRACTION = "fraction"
    NAME = "name"
    TEXT = "text"
    SIGN = "sign"
    KEYWORD = "keyword"
    END = "end"


class Token(NamedTuple):
    """One token.

    Attributes:
        type: its kind.
        text: as it is in the expression; a keyword in upper case; of a TEXT its value.
        position: of its first character, from 0.
    """

    type: TokenType
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The token as an error message quotes it."""
        return "the end" if self.type is TokenType.END else repr(self.text[:80])


def tokens_of(expression: str) -> list[Token]:
    """Return the tokens of an expression, with an END after the last.

    Raises:
        IllegalExpression: it is longer than 4,096 characters, or has something that is no token.
    """
    # Checked first: the work grows with the length.
    if len(expression) > LENGTH_MAX:
        found = f"{len(expression)}: {expression[:80]!r}…"
        raise IllegalExpression(LENGTH_MAX, f"at most {LENGTH_MAX} characters", found)
    tokens: list[Token] = []
    position, end = 0, len(expression)
    while True:
        blank = _BLANK.match(expression, position)
        if blank is not None:
            position = blank.end()
        if position == end:
            tokens.append(Token(TokenType.END, "", end))
            return tokens
        match = _TOKEN.match(expression, position)
        if match is None:
            expected = "a name, a number, a text in single quotes, or one of = <> > >= < <= + - ( ) ,"
            raise IllegalExpression(position, expected, repr(expression[position : position + 20]))
        tokens.append(_token(match, position))
        position = match.end()


def _token(match: re.Match[str], position: int) -> Token:
    text = match[0]
    kind = TokenType(match.lastgroup)
    if kind is TokenType.NAME and text.upper() in KEYWORDS:
        return Token(TokenType.KEYWORD, text.upper(), position)
    if kind is TokenType.TEXT:
        return Token(kind, text[1:-1].replace("''", "'"), position)
    return Token(kind, text, position)
