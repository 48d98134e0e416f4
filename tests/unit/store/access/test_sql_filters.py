"""Reads of a queue by SQL92 expressions: which messages, the next offset, and bounds of work."""

import pytest

from store.access.get_message import GetStatus
from store.errors import IllegalExpression
from store.model.message import Message
from store.model.read_filter import Sql92, parse_filter
from store.model.tag_filter import TagFilter

TOPIC = "TopicTest"


def put(store, *properties):
    store.messages.put_many([Message(TOPIC, b"%d" % number, 0, each) for number, each in enumerate(properties)])
    store.dispatch()


def read(store, expression, offset=0, **limits):
    found = store.messages.get(TOPIC, 0, offset, tags=Sql92(expression), **limits)
    return [int(each.body) for each in found.messages], found.status, found.next_begin_offset


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("amount > 100", [1, 3]),
        ("amount > 100 AND region IN ('eu', 'us')", [1]),
        ("TAGS = 'paid' OR amount = 5", [0, 2]),
        ("amount > 100.0", [1, 3]),
        ("region IS NULL", [2, 3]),
        ("NOT (amount > 100)", [0]),
        ("TRUE", [0, 1, 2, 3]),
        ("1 = 2", []),
    ],
)
def test_messages_for_which_an_expression_is_true_are_returned(opened, expression, expected):
    store = opened()
    put(
        store,
        {"amount": "5", "region": "eu"},
        {"amount": "120", "region": "us"},
        {"TAGS": "paid", "amount": "abc"},
        {"amount": "1000"},
    )

    status = GetStatus.FOUND if expected else GetStatus.NO_MATCHED_MESSAGE
    assert read(store, expression) == (expected, status, 4)
    assert read(store, expression, count_max=1)[0] == expected[:1]


def test_expression_that_cannot_be_compiled_reads_nothing(opened):
    store = opened()
    put(store, {"amount": "5"})

    for use in (
        lambda: read(store, "amount >"),
        lambda: store.messages.wait(TOPIC, 0, 1, lambda: None, Sql92("amount >")),
        lambda: parse_filter(Sql92("")),
    ):
        with pytest.raises(IllegalExpression, match="SQL92 expression, at character"):
            use()


def test_text_of_tags_is_no_expression():
    assert isinstance(parse_filter("TRUE"), TagFilter)
    assert parse_filter(None).is_everything
    assert not parse_filter(Sql92("TRUE")).is_everything


def test_read_ends_when_its_filter_has_worked_for_its_share_and_the_next_read_continues(opened, monkeypatch):
    store = opened()
    put(store, *[{"amount": str(number)} for number in range(100)])
    monkeypatch.setattr("store.access.get_message.WORK_MAX", 30)

    expression, found, offset, reads = "amount >= 90", [], 0, 0
    while offset < 100:
        numbers, _, following = read(store, expression, offset)
        assert following > offset
        found, offset, reads = found + numbers, following, reads + 1

    assert found == list(range(90, 100))
    assert reads >= 5


def test_work_of_tags_with_large_properties_is_bounded(opened, monkeypatch):
    """Each candidate's properties are decoded: 800 with 32 KiB of them took seconds of one read."""
    store, size = opened(), 5_000
    for _ in range(20):
        put(store, {"TAGS": "Aa", "more": "x" * size})
    monkeypatch.setattr("store.access.get_message.WORK_MAX", 5 * size // 16)

    found = store.messages.get(TOPIC, 0, 0, tags="BB")

    assert found.status is GetStatus.NO_MATCHED_MESSAGE
    assert 0 < found.next_begin_offset <= 6


def test_waiting_reader_is_notified_of_each_message_because_units_have_no_properties(opened):
    store = opened()
    put(store, {"amount": "5"})
    notified = []
    store.messages.wait(TOPIC, 0, 1, lambda: notified.append(1), Sql92("amount > 100"))

    put(store, {"amount": "6"})

    assert notified == [1]
