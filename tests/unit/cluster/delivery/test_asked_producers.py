"""The producers that can be asked about transactions: in turn, of the right group and topic, with bounds."""

import pytest

from cluster.delivery.transactions import producers
from cluster.delivery.transactions.producers import QUESTIONS_MAX, AskedProducer, AskedProducers
from cluster.protocol.errors import RequestFailed
from cluster.state.transactions import name_hash


def joined(found, group="g", topics=("T",)):
    producer = AskedProducer(group, frozenset(topics), lambda: None)
    found.join(producer)
    return producer


def test_producers_of_a_group_are_asked_in_turn():
    found = AskedProducers(lambda: None)
    first, second = joined(found), joined(found)
    assert [found.next_of("g", "T") for _ in range(4)] == [first, second, first, second]


def test_only_producers_of_the_group_and_topic_are_asked():
    found = AskedProducers(lambda: None)
    joined(found, "other")
    joined(found, "g", ["U"])
    assert found.next_of("g", "T") is None
    assert (found.has_group(name_hash("g")), found.has_group(name_hash("none"))) == (True, False)


def test_producer_with_too_many_open_questions_is_passed_over():
    found = AskedProducers(lambda: None)
    full = joined(found)
    for half in range(QUESTIONS_MAX):
        full.ask(half)
    assert found.next_of("g", "T") is None
    other = joined(found)
    assert [found.next_of("g", "T") for _ in range(2)] == [other, other]
    full.questions.popleft()
    assert full in [found.next_of("g", "T") for _ in range(2)]


def test_producer_that_left_is_not_asked_and_its_group_is_forgotten():
    found = AskedProducers(lambda: None)
    producer = joined(found)
    assert len(found) == 1
    found.leave(producer)
    assert (len(found), found.next_of("g", "T"), found.has_group(name_hash("g"))) == (0, None, False)


def test_producers_have_a_limit(monkeypatch):
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 2)
    found = AskedProducers(lambda: None)
    joined(found, "a")
    joined(found, "b")
    with pytest.raises(RequestFailed, match="TOO_MANY_WAITERS"):
        joined(found, "c")


def test_question_wakes_the_stream_of_its_producer():
    woken = []
    producer = AskedProducer("g", frozenset("T"), lambda: woken.append(1))
    producer.ask(7)
    assert (list(producer.questions), woken) == ([7], [1])
