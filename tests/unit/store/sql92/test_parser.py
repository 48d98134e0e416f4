"""The grammar of SQL92 filters: what binds how, what is refused and where, and the bounds."""

import pytest

from store.errors import IllegalExpression, IllegalRequest
from store.sql92.parser import parse
from store.sql92.predicate import Predicate


def matches(expression, **properties):
    raw = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    return Predicate(expression).matches(raw)


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("a > 1 OR b > 1 AND c > 1", "a > 1 OR (b > 1 AND c > 1)"),
        ("a = 1 AND b > 1 OR c > 1", "((a = 1) AND (b > 1)) OR (c > 1)"),
        ("NOT a = 'x'", "(NOT a) = 'x'"),
        ("NOT a IS NULL", "(NOT a) IS NULL"),
        ("NOT (a > 5)", "(NOT (a > 5))"),
        ("a = b = c", "(a = b) = c"),
        ("a <> b > 5", "a <> b > 5"),
        ("a BETWEEN 1 AND 2 AND b > 1", "(a BETWEEN 1 AND 2) AND (b > 1)"),
        ("a BETWEEN 1 AND 2", "a >= 1 AND a <= 2"),
        ("a NOT BETWEEN 1 AND 2", "a < 1 OR a > 2"),
        ("+a = + + 'x'", "a = 'x'"),
        ("a CONTAINS 'x' CONTAINS 'y'", "(a CONTAINS 'x') CONTAINS 'y'"),
        ("not a aNd tRue", "NOT a AND TRUE"),
        ("a=5--c\n", "a = 5"),
        ("/* ' */a/**/=/***/5 -- 'x\r\n", "a = 5"),
        ("a\t=\r\n\f5L", "a = 5"),
        ("a = 5l", "a = 5"),
    ],
)
def test_operators_bind_as_in_rocketmq(expression, same):
    assert parse(expression) == parse(same)


@pytest.mark.parametrize(
    ("expression", "position", "expected"),
    [
        ("", 0, "a name, a number"),
        ("   ", 3, "a name, a number"),
        ("a = ", 4, "a name, a number"),
        ("a == 5", 3, "a name, a number"),
        ("a != 5", 2, "a name, a number, a text in single quotes, or one of"),
        ("a.b = 5", 1, "a name, a number, a text in single quotes, or one of"),
        ("a LIKE 'x'", 2, "AND, OR, a comparison or the end"),
        ("a = 5 /* open", 6, "a name"),
        ("a = 'x", 4, "a name"),
        ('a = "x"', 4, "a name"),
        ("a = 007", 5, "AND, OR"),
        ("a = 0L", 5, "AND, OR"),
        ("a = 9223372036854775808", 4, "at most 9223372036854775807"),
        ("a = -9223372036854775808", 5, "at most 9223372036854775807"),
        ("a = 0.0", 4, "a fraction above 0"),
        ("a = 1E400", 4, "a fraction above 0"),
        ("a > 1 > 2", 0, "a number or the name of a property beside >"),
        ("5", 0, "a condition"),
        ("'x'", 0, "a condition"),
        ("-a", 0, "a condition"),
        ("a AND 5", 6, "a condition"),
        ("5 OR a", 0, "a condition"),
        ("NOT 'x'", 4, "a condition"),
        ("a > 'x'", 4, "a number or the name"),
        ("a > TRUE", 4, "a number or the name"),
        ("NULL < a", 0, "a number or the name"),
        ("(a = 'x') > 1", 0, "a number or the name"),
        ("a BETWEEN 'x' AND 5", 10, "a number or the name"),
        ("a BETWEEN 5 AND NULL", 16, "a number or the name"),
        ("'x' NOT BETWEEN 1 AND 5", 0, "a number or the name"),
        ("a BETWEEN 5 AND 4.5", 16, "at least 5"),
        ("a BETWEEN 5", 11, "AND and the upper limit"),
        ("a = NULL", 2, "IS NULL or IS NOT NULL"),
        ("NULL <> a", 5, "IS NULL or IS NOT NULL"),
        ("TRUE = 5", 5, "TRUE or FALSE on both sides"),
        ("FALSE <> 'x'", 6, "TRUE or FALSE on both sides"),
        ("a IS 5", 5, "NULL or NOT NULL"),
        ("a IS NOT TRUE", 9, "NULL"),
        ("5 IN ('5')", 0, "the name of a property before IN"),
        ("a IN (5)", 6, "a text in single quotes"),
        ("a IN ()", 6, "a text in single quotes"),
        ("a IN ('x' 'y')", 10, ", or )"),
        ("a IN 'x'", 5, "( after IN"),
        ("a CONTAINS b", 11, "a text in single quotes"),
        ("(a = 5", 6, ")"),
        ("a = 5)", 5, "AND, OR"),
        ("TRUE a", 5, "AND, OR"),
        ("a NOT", 2, "AND, OR"),
        ("between = 5", 0, "a name, a number"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_position(expression, position, expected):
    with pytest.raises(IllegalExpression) as caught:
        Predicate(expression)

    assert caught.value.position == position
    assert caught.value.expected.startswith(expected)
    assert f"at character {position}: expected" in str(caught.value)
    assert isinstance(caught.value, IllegalRequest)


@pytest.mark.parametrize(
    ("expression", "is_true"),
    [
        ("'5' = 5", True),
        ("5 = TRUE", False),
        ("'true' = TRUE", True),
        ("5 = 5.0 AND 5L = 5", True),
        ("5 BETWEEN -5 AND -10", False),
        ("-5 BETWEEN -5 AND -4", True),
        ("NULL", False),
        ("NULL IS NULL", True),
        ("TRUE OR 'x' = 5", True),
        ("'x' = 5 OR TRUE", False),
        ("NOT FALSE", True),
        ("--TRUE\nTRUE", True),
        ("- - 5 = 5", True),
    ],
)
def test_an_expression_without_properties_is_a_constant(expression, is_true):
    assert matches(expression) is is_true
    assert matches(expression, a="5") is is_true


@pytest.mark.parametrize(
    ("at_most", "too_much"),
    [
        (f"a = '{'x' * 4090}'", f"a = '{'x' * 4091}'"),
        ("(" * 64 + "a" + ")" * 64, "(" * 65 + "a" + ")" * 65),
        ("NOT " * 62 + "a", "NOT " * 63 + "a"),
        ("a" + " IS NULL" * 63, "a" + " IS NULL" * 64),
        ("a=1" + " AND a=1" * 255, "a=1" + " AND a=1" * 255 + " AND a"),
        ("a IN ('1'" + ",'1'" * 510 + ")", "a IN ('1'" + ",'1'" * 511 + ")"),
        ("a" + " OR a" * 511, "a" + " OR a" * 512),
    ],
)
def test_length_nesting_and_terms_are_bounded(at_most, too_much):
    assert matches(at_most) in (True, False)
    with pytest.raises(IllegalExpression, match=r"at most (4096 characters|64 levels|512 names and literals)"):
        Predicate(too_much)


def test_a_long_expression_is_refused_before_it_is_read():
    with pytest.raises(IllegalExpression) as caught:
        Predicate("§" * 10_000)

    assert caught.value.position == 4096
    assert len(str(caught.value)) < 300
