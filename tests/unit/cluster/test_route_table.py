"""What a name server knows: registrations are ordered by term and sequence, and the silent are dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster import route_table
from cluster.route_table import (
    SILENCE_MS_MAX,
    BrokerNode,
    HeartbeatAnswer,
    IllegalRegistration,
    Registration,
    RouteTable,
    StaleRegistration,
    TooManyBrokers,
    TopicQueues,
    UnknownBroker,
)
from store.errors import IllegalMessage

NODES = tuple(BrokerNode(f"n{number}", f"127.0.0.1:{20_921 + number}") for number in range(3))
ORDERS = TopicQueues("orders", 8, 8, 6)
EVENTS = TopicQueues("events", 4, 4, 6)


def registration(broker="b0", term=1, sequence=0, leader="n0", topics=(ORDERS,)) -> Registration:
    return Registration(broker, "c0", term, sequence, leader, NODES, tuple(topics))


def leaders(table: RouteTable, topic: str = "orders") -> dict[str, str]:
    return {route.registration.broker: route.registration.leader_address for route in table.routes(topic)}


def test_routes_of_a_topic_are_those_of_all_brokers_in_order_of_their_names() -> None:
    table = RouteTable()
    table.register(registration("b1", leader="n1", topics=(ORDERS, EVENTS)), 0)
    table.register(registration("b0"), 0)

    assert leaders(table) == {"b0": "127.0.0.1:20921", "b1": "127.0.0.1:20922"}
    assert list(leaders(table)) == ["b0", "b1"]
    assert list(leaders(table, "events")) == ["b1"]
    assert leaders(table, "unknown") == {}
    assert table.topics() == ["events", "orders"]


def test_an_unknown_topic_leads_to_the_brokers_that_would_create_it_until_one_has_it() -> None:
    table = RouteTable()
    table.register(registration("b0", topics=(ORDERS, TopicQueues("TBW102", 3, 3, 7))), 0)
    table.register(registration("b1", topics=(EVENTS,)), 0)

    assert [(route.registration.broker, route.queues) for route in table.routes("new")] == [
        ("b0", TopicQueues("new", 3, 3, 6))
    ]
    assert [route.registration.broker for route in table.routes("events")] == ["b1"]
    assert [table.routes(name) for name in ("", "a b", "rmq_sys_x", "BenchmarkTest", "rmq_sys_dledger")] == [[]] * 5
    assert table.topics() == ["events", "orders"]
    assert table.set_writable("b0", is_writable=True) == 1
    table.set_writable("b0", is_writable=False)
    assert [route.queues.permission for route in table.routes("new")] == [4]


@pytest.mark.parametrize(
    ("stale", "why"),
    [
        (registration(term=4, sequence=9, leader="n2"), "term 4"),
        (registration(term=5, sequence=1, leader="n0"), "sequence 1"),
        (registration(term=5, sequence=3, leader="n2"), "term 5"),
    ],
    ids=["of a lower term", "overtaken within the term", "of a second leader in one term"],
)
def test_a_stale_registration_replaces_no_newer_one(stale: Registration, why: str) -> None:
    table = RouteTable()
    table.register(registration(term=5, sequence=2, leader="n0"), 0)

    with pytest.raises(StaleRegistration, match=why):
        table.register(stale, 1)

    assert leaders(table) == {"b0": "127.0.0.1:20921"}


def test_the_leader_of_a_higher_term_takes_the_place_whatever_its_sequence() -> None:
    table = RouteTable()
    table.register(registration(term=5, sequence=7), 0)

    assert table.register(registration(term=6, sequence=0, leader="n2", topics=[EVENTS]), 1)

    assert leaders(table) == {}
    assert leaders(table, "events") == {"b0": "127.0.0.1:20923"}


def test_the_same_registration_again_says_nothing_new_and_shows_life() -> None:
    table = RouteTable()
    table.register(registration(), 0)

    assert not table.register(registration(), 100_000)
    assert table.scan(SILENCE_MS_MAX) == []


def test_who_is_silent_for_two_minutes_is_dropped_and_who_beats_is_not() -> None:
    table = RouteTable()
    table.register(registration("b0"), 0)
    table.register(registration("b1"), 0)
    assert table.heartbeat("b1", 1, 0, SILENCE_MS_MAX - 1) is HeartbeatAnswer.KNOWN

    assert table.scan(SILENCE_MS_MAX - 1) == []
    assert table.scan(SILENCE_MS_MAX) == ["b0"]

    assert list(leaders(table)) == ["b1"]


def test_heartbeats_of_what_is_not_registered_ask_for_a_registration_and_stale_ones_are_refused() -> None:
    table = RouteTable()
    assert table.heartbeat("b0", 3, 0, 0) is HeartbeatAnswer.REGISTER
    table.register(registration(term=3), 0)

    assert table.heartbeat("b0", 3, 1, 0) is HeartbeatAnswer.REGISTER
    assert table.heartbeat("b0", 4, 0, 0) is HeartbeatAnswer.REGISTER
    with pytest.raises(StaleRegistration):
        table.heartbeat("b0", 2, 9, SILENCE_MS_MAX)
    assert table.scan(SILENCE_MS_MAX) == ["b0"]


def test_a_leader_that_was_frozen_does_not_come_back_with_an_old_term_for_as_long_as_it_is_remembered() -> None:
    table = RouteTable()
    table.register(registration(term=5), 0)
    table.scan(SILENCE_MS_MAX)

    with pytest.raises(StaleRegistration):
        table.register(registration(term=4, leader="n1"), SILENCE_MS_MAX + 1)
    # The same one was only slow; and a group that was founded anew begins with term 1 again, after a while.
    assert table.register(registration(term=5), SILENCE_MS_MAX + 2)
    table.scan(2 * SILENCE_MS_MAX + 2)
    table.scan(3 * SILENCE_MS_MAX + 2)
    assert table.register(registration(term=1), 3 * SILENCE_MS_MAX + 3)


def test_permission_to_write_is_taken_away_over_new_leaders_and_given_back() -> None:
    table = RouteTable()
    table.register(registration(topics=[ORDERS, replace(EVENTS, permission=4)]), 0)

    assert table.set_writable("b0", is_writable=False) == 0
    table.register(registration(term=2, leader="n1", topics=[ORDERS]), 1)

    (route,) = table.routes("orders")
    assert route.queues.permission == 4
    assert [known.is_writable for known in table.brokers(1)] == [False]
    assert table.set_writable("b0", is_writable=True) == 1
    (route,) = table.routes("orders")
    assert route.queues.permission == 6


def test_a_topic_that_is_only_read_may_have_a_longer_name_and_costs_its_broker_nothing() -> None:
    table = RouteTable()
    long = TopicQueues("t" * 200, 2, 2, 4)

    table.register(registration(topics=(ORDERS, long)), 0)

    assert table.topics() == ["orders", long.topic]
    (route,) = table.routes(long.topic)
    assert route.queues == long


def test_a_broker_that_ends_is_gone_at_once_unless_another_node_leads_it_by_now() -> None:
    table = RouteTable()
    table.register(registration(term=2), 0)

    with pytest.raises(StaleRegistration):
        table.unregister("b0", 1, 0)
    table.unregister("b0", 2, 0)
    table.unregister("b0", 2, 0)

    assert table.topics() == []
    assert table.brokers(0) == []


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (registration(broker=""), IllegalRegistration),
        (registration(broker="b" * 129), IllegalRegistration),
        (registration(term=-1), IllegalRegistration),
        (registration(leader="n9"), IllegalRegistration),
        (replace(registration(), nodes=()), IllegalRegistration),
        (replace(registration(), nodes=NODES[:1] * 2), IllegalRegistration),
        (registration(topics=[TopicQueues("orders", -1, 8, 6)]), IllegalRegistration),
        (registration(topics=[TopicQueues("../etc", 1, 1, 6)]), IllegalMessage),
    ],
    ids=["no name", "long name", "term", "leader", "no nodes", "same ids", "queues", "topic"],
)
def test_what_cannot_be_is_refused_and_changes_nothing(bad: Registration, error: type[Exception]) -> None:
    table = RouteTable()
    table.register(registration(), 0)

    with pytest.raises(error):
        table.register(bad, 0)

    assert list(leaders(table)) == ["b0"]


def test_the_number_of_brokers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "BROKERS_MAX", 2)
    table = RouteTable()
    table.register(registration("b0"), 0)
    table.register(registration("b1"), 0)

    with pytest.raises(TooManyBrokers):
        table.register(registration("b2"), 0)
    assert table.register(registration("b1", term=2), 0)


def test_an_unknown_broker_cannot_be_drained() -> None:
    with pytest.raises(UnknownBroker, match="b7"):
        RouteTable().set_writable("b7", is_writable=False)
