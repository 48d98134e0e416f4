"""A second evaluator of SQL92 filters, slow and obvious, and a printer of its trees.

A tree is a tuple: the name of its form, and its operands. Nothing of `store.sql92` is used: the tests compare both.
"""

import math
import unicodedata


class Failed(Exception):
    """Java would throw an exception."""


class Integer(int):
    """A 32-bit number of Java."""


class Long(int):
    """A 64-bit number of Java."""


def passes(tree, properties):
    """Return whether a message with these properties (a dictionary) passes."""
    try:
        return value_of(tree, properties) is True
    except Failed:
        return False


def value_of(tree, properties):
    form, *operands = tree
    if form == "literal":
        return operands[0]
    if form == "name":
        return properties.get(operands[0])
    if form == "cast":
        return None if properties.get(operands[0][1]) is None else False
    if form == "in":
        operand, texts, is_not = operands
        value = value_of(operand, properties)
        return None if value is None else (value not in texts if is_not else value in texts)
    if form in ("CONTAINS", "STARTSWITH", "ENDSWITH"):
        return _has_part(form, *operands, properties)
    if form in ("AND", "OR"):
        return _combined(form, *operands, properties)
    if form == "between":
        value, low, high, is_not = operands
        if is_not:
            return _combined("OR", ("<", value, low), (">", value, high), properties)
        return _combined("AND", (">=", value, low), ("<=", value, high), properties)
    left = value_of(operands[0], properties)
    if form == "NOT":
        return None if left is None else not left
    if form == "-":
        return type(left)(-left) if isinstance(left, int | float) and not isinstance(left, bool) else None
    if form == "is null":
        return (left is not None) if operands[1] else left is None
    if form in ("=", "<>"):
        equal = _equal(left, value_of(operands[1], properties), operands)
        return equal if form == "=" or equal is None else not equal
    if left is None:
        return None
    right = value_of(operands[1], properties)
    return None if right is None else _sized(form, left, right)


def _has_part(form, operand, part, is_not, properties):
    if part == "":
        return False
    value = value_of(operand, properties)
    if not isinstance(value, str):
        return False
    if form == "STARTSWITH":
        found = value[: len(part)] == part
    elif form == "ENDSWITH":
        found = value[-len(part) :] == part
    else:
        found = part in value
    return not found if is_not else found


def _combined(form, left, right, properties):
    decisive = form == "OR"
    first = value_of(left, properties)
    if first is decisive:
        return decisive
    second = value_of(right, properties)
    if second is decisive:
        return decisive
    return None if first is None or second is None else not decisive


def _equal(left, right, operands):
    if left is None and right is None:
        return True
    if left is None:
        return None
    if right is None:
        return False
    if operands[0] in (("literal", True), ("literal", False)) and operands[1][0] == "name":
        left, right = right, left
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, bool) and isinstance(right, bool):
        return left is right
    if isinstance(left, str) and isinstance(right, bool):
        return (left.upper() == "TRUE") is right
    if isinstance(left, bool) and isinstance(right, str):
        raise Failed
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    return _compare(left, right) == 0


def _sized(form, left, right):
    if isinstance(left, str) and isinstance(right, str):
        left, right = double_of(left), double_of(right)
    answer = _compare(left, right)
    return {">": answer > 0, ">=": answer >= 0, "<": answer < 0, "<=": answer <= 0}[form]


def _compare(left, right):
    if isinstance(left, str):
        left = number_like(left, right)
    if isinstance(right, str):
        right = number_like(right, left)
    if isinstance(left, int) and isinstance(right, int):
        return -1 if left < right else int(left > right)
    return compare_doubles(float(left), float(right))


def compare_doubles(left, right):
    """Order: everything else, then NaN; -0.0 before 0.0."""

    def place(value):
        return (1, 0.0, 0) if math.isnan(value) else (0, value, 0 if str(value) == "-0.0" else 1)

    return -1 if place(left) < place(right) else int(place(left) > place(right))


def number_like(text, number):
    if isinstance(number, float):
        return double_of(text)
    value, digits = 0, text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        raise Failed
    for character in digits:
        digit = unicodedata.decimal(character, None)
        if digit is None or ord(character) > 0xFFFF:
            raise Failed
        value = value * 10 + digit
    value = -value if text[0] == "-" else value
    bits = 31 if isinstance(number, Integer) else 63
    if not -(1 << bits) <= value < 1 << bits:
        raise Failed
    return type(number)(value)


def double_of(text):
    while text and text[0] <= " ":
        text = text[1:]
    while text and text[-1] <= " ":
        text = text[:-1]
    sign = -1.0 if text[:1] == "-" else 1.0
    text = text[1:] if text[:1] in ("+", "-") else text
    if text in ("NaN", "Infinity"):
        return math.nan if text == "NaN" else sign * math.inf
    is_hex = text[:2] in ("0x", "0X")
    if text[-1:] in tuple("fFdD") and (not is_hex or "p" in text.lower()):
        text = text[:-1]
    allowed = set("0123456789abcdefABCDEFxXpP.+-" if is_hex else "0123456789eE.+-")
    if not text or set(text) - allowed or text[0] in "+-" or (is_hex and "p" not in text.lower()):
        raise Failed
    try:
        return sign * (float.fromhex(text) if is_hex else float(text))
    except OverflowError:
        return sign * math.inf
    except ValueError:
        raise Failed from None


# ------------------------------------------------------------------------------------------------------------- printing

# From loose to tight.
_LEVELS = ("OR", "AND", "equality", "comparison", "unary", "primary")


def level_of(tree):
    form = tree[0]
    if form in ("=", "<>", "is null"):
        return "equality"
    if form in (">", ">=", "<", "<=", "in", "between", "CONTAINS", "STARTSWITH", "ENDSWITH"):
        return "comparison"
    if form in ("NOT", "-"):
        return "unary"
    return form if form in ("OR", "AND") else "primary"


def printed(tree, level="OR"):
    """Return a text of a tree, with parentheses only where the grammar needs them."""
    text = _text_of(tree)
    return f"({text})" if _LEVELS.index(level_of(tree)) < _LEVELS.index(level) else text


def _text_of(tree):
    form, *operands = tree
    if form == "literal":
        return literal(operands[0])
    if form == "name":
        return operands[0]
    if form == "cast":
        return operands[0][1]
    if form in ("OR", "AND"):
        tighter = "AND" if form == "OR" else "equality"
        return f"{printed(operands[0], form)} {form} {printed(operands[1], tighter)}"
    if form in ("=", "<>"):
        return f"{printed(operands[0], 'equality')} {form} {printed(operands[1], 'comparison')}"
    if form == "is null":
        return f"{printed(operands[0], 'equality')} IS {'NOT ' if operands[1] else ''}NULL"
    if form in (">", ">=", "<", "<="):
        return f"{printed(operands[0], 'unary')} {form} {printed(operands[1], 'unary')}"
    if form in ("NOT", "-"):
        return f"{form} {printed(operands[0], 'unary')}"
    no = "NOT " if operands[-1] else ""
    value = printed(operands[0], "comparison" if form not in ("in", "between") else "unary")
    if form == "in":
        return f"{value} {no}IN ({', '.join(map(literal, operands[1]))})"
    if form == "between":
        return f"{value} {no}BETWEEN {printed(operands[1], 'unary')} AND {printed(operands[2], 'unary')}"
    return f"{value} {no}{form} {literal(operands[1])}"


def literal(value):
    if value is None or isinstance(value, bool):
        return str(value).upper().replace("NONE", "NULL")
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(float(value)) if isinstance(value, float) else str(int(value))
