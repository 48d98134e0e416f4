"""The values of SQL92 filters: three-valued logic, texts and numbers as Java reads them, missing properties."""

import pytest

from store.sql92.predicate import Predicate, predicate_of

# Whether a message with `a` (None: without it) matches: the expression, then `a`.
CASES = [
    # A lone name is never TRUE.
    ("a", {"true": False, "x": False, None: False}),
    ("NOT a", {"true": True, "x": True, None: False}),
    ("a OR TRUE", {"x": True, None: True}),
    ("(a OR FALSE) IS NULL", {"x": False, None: True}),
    ("(a AND TRUE) IS NULL", {"x": False, None: True}),
    ("(NULL AND a) IS NULL", {"x": False, None: True}),
    # Texts.
    ("a = 'x'", {"x": True, "X": False, None: False}),
    ("a <> 'x'", {"x": False, "y": True, None: False}),
    ("(a = 'x') IS NULL", {"x": False, None: True}),
    ("'x' = a", {"x": True, "y": False, None: False}),
    ("'x' <> a", {"x": False, "y": True, None: True}),
    ("a = missing", {"x": False, None: True}),
    ("a <> missing", {"x": True, None: False}),
    ("a IN ('x', 'y')", {"x": True, "z": False, None: False}),
    ("a NOT IN ('x', 'y')", {"x": False, "z": True, None: False}),
    ("NOT (a IN ('x'))", {"x": False, "z": True, None: False}),
    ("a CONTAINS 'bc'", {"abcd": True, "acb": False, None: False}),
    ("a NOT CONTAINS 'bc'", {"abcd": False, "acb": True, None: False}),
    ("NOT (a CONTAINS 'bc')", {"abcd": False, "acb": True, None: True}),
    ("a STARTSWITH 'ab'", {"abc": True, "cab": False, None: False}),
    ("a NOT STARTSWITH 'ab'", {"abc": False, "cab": True, None: False}),
    ("a ENDSWITH 'ab'", {"abc": False, "cab": True, None: False}),
    ("a CONTAINS '' OR a NOT CONTAINS ''", {"abc": False, None: False}),
    ("a = 'it''s'", {"it's": True, "it''s": False}),
    ("a IS NULL", {"x": False, None: True}),
    ("a IS NOT NULL", {"x": True, None: False}),
    # Integers: decimal digits of any script, a sign, 32 or 64 bits by the literal.
    ("a > 5", {"6": True, "5": False, "+6": True, "-6": False, "\u0666": True, "\U0001d7d4": False, None: False}),
    ("a > 5 OR TRUE", {"x": False, "6.0": False, " 6": False, "1_0": False, "0x6": False, "": True, None: True}),
    ("a < 5", {"2147483647": False, "-2147483648": True, "-2147483649": False, "00004": True}),
    ("a <> 5", {"2147483647": True, "2147483648": False}),
    ("a > 2147483648", {"9223372036854775807": True, "9223372036854775808": False, "2147483649": True}),
    ("a > -2147483648", {"9223372036854775807": True, "-2147483648": False}),
    ("a = 5", {"5": True, "05": True, "5.0": False, "6": False}),
    ("5 = a", {"5": True, "05": True, "5.0": False, "x": False}),
    ("5 < a", {"6": True, "5": False, "x": False, None: False}),
    ("a BETWEEN 5 AND 7", {"5": True, "7": True, "8": False, None: False}),
    ("a NOT BETWEEN 5 AND 7", {"5": False, "7": False, "8": True, None: False}),
    ("a BETWEEN missing AND 7", {"5": False, "8": False}),
    # Doubles.
    ("a > 5.0", {"6": True, "5": False, " 6.5\t": True, "6f": True, "6D": True, "0x1p3": True, "1_0": False}),
    ("a >= 5.", {"NaN": True, "Infinity": True, "-Infinity": False, "1e400": True, "inf": False, "nan": False}),
    ("a < .5", {"-0": True, "0x0p0": True, "1e-400": True, "-1e400": True, "-NaN": False, "": False}),
    ("a = 9007199254740993", {"9007199254740993": True, "9007199254740992": False}),
    ("a = 9007199254740992.0", {"9007199254740993": True}),
    # Two texts have an order only as numbers; NaN is the greatest, and -0.0 is below 0.0.
    ("a > b", {"6": True, "5": False, "x": False, "NaN": True, None: False}),
    ("a >= zero", {"-0.0": False, "0.0": True, "-1": False}),
    # Truth values.
    ("a = TRUE", {"true": True, "TrUe": True, "yes": False, None: False}),
    ("a = FALSE", {"false": True, "yes": True, "true": False, None: False}),
    ("TRUE = a", {"true": True, "TrUe": True, "yes": False, None: False}),
    ("TRUE <> a", {"true": False, "yes": True, None: True}),
    ("NOT a = 'x'", {"x": False, "y": False, None: False}),
    ("NOT a = 'x' OR TRUE", {"x": False, None: True}),
    ("(a IS NULL) = 5", {"x": False, None: False}),
    ("(a IS NULL) <> FALSE", {"x": False, None: True}),
    # A negated text is NULL.
    ("-a IS NULL", {"5": True, None: True}),
    ("-a = 5", {"5": False, "-5": False}),
    # What is decided before is not looked at.
    ("a = 'x' OR a > 5", {"x": True, "y": False, "6": True}),
    ("a > 5 OR a = 'x'", {"x": False, "6": True}),
    ("a <> 'x' AND a > 5", {"x": False, "6": True}),
    ("NOT (a <> 'x' AND a > 5)", {"x": True, "y": False}),
    ("missing > a", {"x": False}),
    ("(missing > a) IS NULL", {"x": True}),
]


def stored(a, extra="b\x015\x02zero\x010.0\x02"):
    """Return the properties `b`, `zero` and, unless it is None, `a`; an empty `a` is stored, and read as missing."""
    return ((f"a\x01{a}\x02" if a is not None else "") + extra).encode()


@pytest.mark.parametrize(("expression", "verdicts"), CASES, ids=[expression for expression, _ in CASES])
def test_values_are_compared_as_in_rocketmq(expression, verdicts):
    predicate = Predicate(expression)
    for _ in range(2):  # the second time from the memo
        assert {a: predicate.matches(stored(a)) for a in verdicts} == verdicts


@pytest.mark.parametrize(
    ("raw", "is_five"),
    [
        (b"price\x015\x02", True),
        (b"price\x015", True),
        (b"xprice\x016\x02price\x015\x02", True),
        (b"xprice\x015\x02", False),
        (b"price\x015\x02xprice\x016\x02", True),
        (b"\x02\x02price\x015\x02\x02", True),
        (b"price\x01\x02", False),
        (b"price\x015\x02price\x01\x02", True),
        (b"price\x016\x02price\x015\x02", True),
        (b"price\x015\x02price\x016\x02", False),
        (b"price\x015\x01\x02", False),
        (b"Price\x015\x02", False),
        (b"key\x01price\x02price", False),
        (b"", False),
        (b"\xe4price\x015\x02", False),
        (b"a\x01\xe4\x02price\x015\x02", True),
    ],
)
def test_a_property_is_found_in_the_stored_bytes(raw, is_five):
    assert Predicate("price = 5").matches(raw) is is_five


def test_system_properties_and_hidden_names_are_readable():
    raw = b"TAGS\x01paid\x02KEYS\x01o-1 o-2\x02UNIQ_KEY\x01AB\x02__SHARDINGKEY\x01s\x02$a\x01x\x02"

    assert Predicate("TAGS = 'paid' AND KEYS CONTAINS 'o-2' AND __SHARDINGKEY = 's' AND $a = 'x'").matches(raw)


def test_bytes_that_are_no_text_are_replaced():
    assert Predicate("a = '\ufffd'").matches(b"a\x01\xff\x02")


def test_results_are_remembered_by_the_values_that_are_read_and_bounded():
    evaluated = []

    class Counted(Predicate):
        def evaluate(self, values):
            evaluated.append(values)
            return super().evaluate(values)

    predicate = Counted("a = 'x' OR b = 'y'")
    for number in range(2_000):
        assert predicate.matches(f"UNIQ_KEY\x01{number}\x02a\x01x\x02b\x01{number % 5}\x02".encode())
    assert len(evaluated) == 5

    for number in range(5_000):
        assert not predicate.matches(f"a\x01{number}\x02".encode())
        assert len(predicate._memo) <= 2_048
    evaluated.clear()
    for _ in range(2):
        assert not predicate.matches(b"a\x01" + b"long" * 100)
    assert len(evaluated) == 2


def test_the_same_text_is_compiled_once():
    assert predicate_of("a = 'once'") is predicate_of("a = 'once'")


def test_work_grows_with_names_terms_and_properties():
    small, large = Predicate("a = 1"), Predicate(" OR ".join(f"a{number} = 1" for number in range(200)))

    assert small.work(100) < small.work(30_000)
    assert small.work(100) * 50 < large.work(100)
