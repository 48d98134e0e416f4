"""Compiled SQL92 filters decide as an obvious evaluator does: for random expressions and random properties.

Hypothesis prints the smallest expression and properties of which this is not true.
"""

from hypothesis import assume, example, given
from hypothesis import strategies as st

from store.errors import IllegalExpression
from store.sql92.predicate import Predicate
from tests.support.sql92_reference import Integer, Long, passes, printed

NAMES = ("a", "b", "xa", "$_9", "TAGS")
# What is read in another way by Java than by Python, and neighbours of limits.
TEXTS = (
    "5", "5.0", "05", "+5", "-5", " 5", "5 ", "1_0", "abc", "true", "TRUE", "false", "NaN", "-NaN", "inf",
    "Infinity", "-Infinity", "0x1p3", "0x.8p-1d", "0x1", "1e400", "-1e400", "0x1p99999", "1e-400", "-0", "-0.0", "0",
    "5f", "5D", "5L", ".",
    "\u0665", "\U0001d7d3", "5.", ".5", "1e5", "e5", "2147483647", "2147483648", "-2147483648", "9223372036854775807",
    "9223372036854775808", "9007199254740993", "9007199254740992", "a'b", "ä", "0" * 30 + "5", "+", "-",
    "\x1f5", "\x7f5",
)  # fmt: skip
WHOLE = st.sampled_from((0, 1, 5, 10, 2147483647)).map(Integer) | st.sampled_from(
    (2147483648, 9007199254740993, 9223372036854775807)
).map(Long)
DOUBLES = st.sampled_from((5.0, 0.5, 1e5, 5e-324, 1.7976931348623157e308, 9007199254740992.0))
NUMBERS = (WHOLE | DOUBLES).map(lambda value: ("literal", value))
PROPERTY = st.sampled_from(NAMES).map(lambda name: ("name", name))
TEXT = st.sampled_from(TEXTS)
TRUTHS = st.sampled_from((True, False)).map(lambda value: ("literal", value))
SIZED = PROPERTY | NUMBERS | NUMBERS.map(lambda number: ("-", number)) | PROPERTY.map(lambda name: ("-", name))
NOTS = st.booleans()


def _is_good(tree):
    """Return whether a tree has none of the forms that are refused for their values."""
    form, left, right, *_ = tree
    if form in ("=", "<>"):
        return not (left[0] == right[0] == "literal" and isinstance(left[1], bool) and not isinstance(right[1], bool))
    return not (right[0] == tree[3][0] == "literal" and right[1] > tree[3][1])


def grown(inner):
    """Return trees with operands from `inner`, whose values are truth values."""
    # A name is a truth value only where one is expected.
    operand = (
        inner.filter(lambda tree: tree[0] != "cast")
        | PROPERTY
        | NUMBERS
        | TEXT.map(lambda text: ("literal", text))
        | TRUTHS
    )
    return st.one_of(
        inner.map(lambda each: ("NOT", each)),
        st.tuples(st.sampled_from(("AND", "OR")), inner, inner),
        st.tuples(st.sampled_from(("=", "<>")), operand, operand).filter(_is_good),
        st.tuples(st.just("is null"), operand, NOTS),
        st.tuples(st.sampled_from(("CONTAINS", "STARTSWITH", "ENDSWITH")), operand, TEXT | st.just(""), NOTS),
    )


LEAVES = st.one_of(
    PROPERTY.map(lambda name: ("cast", name)),
    st.sampled_from((True, False, None)).map(lambda value: ("literal", value)),
    st.tuples(st.sampled_from((">", ">=", "<", "<=")), SIZED, SIZED),
    st.tuples(st.just("between"), SIZED, SIZED, SIZED, NOTS).filter(_is_good),
    st.tuples(st.just("in"), PROPERTY, st.lists(TEXT, min_size=1, max_size=6), NOTS),
)
TREES = st.recursive(LEAVES, grown, max_leaves=6)
PROPERTIES = st.dictionaries(st.sampled_from((*NAMES, "A", "ab")), TEXT, max_size=5)


def stored(properties):
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


@given(TREES, st.lists(PROPERTIES, min_size=1, max_size=4))
@example(("=", ("literal", True), ("name", "a")), [{"a": "TRUE"}, {}])
@example(("NOT", ("<>", ("name", "a"), ("name", "b"))), [{"a": "5"}, {"b": "5"}, {}])
def test_an_expression_decides_as_the_reference_does(tree, messages):
    # A NULL or a number as an operand of `=` is refused, and tested with the parser.
    assume(("literal", None) not in _operands_of_equal(tree))
    predicate = Predicate(printed(tree))
    for properties in [*messages, *messages]:  # the second time from the memo
        assert predicate.matches(stored(properties)) is passes(tree, properties), printed(tree)


def _operands_of_equal(tree):
    if not isinstance(tree, tuple):
        return []
    found = list(tree[1:]) if tree[0] in ("=", "<>") else []
    return found + [each for part in tree for each in _operands_of_equal(part)]


PARTS = st.sampled_from((b"a", b"\x01", b"\x02", b"a\x01", b"a\x015\x02", b"xa\x016\x02", b"7", b"\xff", "ä".encode()))


@given(st.lists(PARTS, max_size=12).map(b"".join), st.sampled_from(("5", "57", "7", "a")))
def test_the_value_of_a_property_is_the_one_that_rocketmq_reads(raw, text):
    from commitlog.record.properties import decode_properties

    assert Predicate(f"a = '{text}'").matches(raw) is (decode_properties(raw).get("a") == text)
    assert Predicate("a IS NULL").matches(raw) is ("a" not in decode_properties(raw))


TOKENS = (
    "a", "b1", "'x'", "'it''s'", "5", "5.5", "9999999999", "NOT", "AND", "OR", "=", "<>", "<", ">=", "(", ")", "IS",
    "NULL", "TRUE", "BETWEEN", "IN", ",", "CONTAINS", "-", "+", "/* x */", "-- y\n", "'", "§",
)  # fmt: skip


@given(st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join))
def test_any_text_is_compiled_or_refused_with_its_position(expression):
    try:
        predicate = Predicate(expression)
    except IllegalExpression as error:
        position = error.position
    else:
        position = 0
        assert predicate.matches(b"a\x015\x02") in (True, False)
    assert 0 <= position <= len(expression)
