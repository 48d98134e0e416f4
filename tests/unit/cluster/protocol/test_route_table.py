"""The registrations of a name server: ordered by term and sequence, and dropped without heartbeats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.nameserver import registered_brokers
from cluster.nameserver.registered_brokers import HeartbeatAnswer, RegisterResult, RouteTable
from cluster.protocol.route_table import (
    SILENCE_MS_MAX,
    BrokerNode,
    Extent,
    IllegalRegistration,
    Registration,
    StaleRegistration,
    TooManyBrokers,
    TooManyTopics,
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
    assert sorted(set(table.topics())) == ["events", "orders"]


def test_an_unknown_topic_is_routed_to_brokers_that_would_create_it_until_one_has_it() -> None:
    table = RouteTable()
    table.register(registration("b0", topics=(ORDERS, TopicQueues("TBW102", 3, 3, 7))), 0)
    table.register(registration("b1", topics=(EVENTS,)), 0)

    assert [(route.registration.broker, route.queues) for route in table.routes("new")] == [
        ("b0", TopicQueues("new", 3, 3, 6))
    ]
    assert [route.registration.broker for route in table.routes("events")] == ["b1"]
    assert [table.routes(name) for name in ("", "a b", "rmq_sys_x", "BenchmarkTest", "rmq_sys_dledger")] == [[]] * 5
    assert sorted(set(table.topics())) == ["events", "orders"]
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


def test_the_leader_of_a_higher_term_replaces_the_registration_whatever_its_sequence() -> None:
    table = RouteTable()
    table.register(registration(term=5, sequence=7), 0)

    assert table.register(registration(term=6, sequence=0, leader="n2", topics=[EVENTS]), 1)

    assert leaders(table) == {}
    assert leaders(table, "events") == {"b0": "127.0.0.1:20923"}


def test_a_repeated_registration_changes_nothing_but_counts_as_a_heartbeat() -> None:
    table = RouteTable()
    table.register(registration(), 0)

    assert table.register(registration(), 100_000) is RegisterResult.UNCHANGED
    assert table.scan(SILENCE_MS_MAX) == []


def test_silent_broker_is_dropped_after_two_minutes_and_one_with_heartbeats_is_not() -> None:
    table = RouteTable()
    table.register(registration("b0"), 0)
    table.register(registration("b1"), 0)
    assert table.heartbeat("b1", 1, 0, SILENCE_MS_MAX - 1) is HeartbeatAnswer.KNOWN

    assert table.scan(SILENCE_MS_MAX - 1) == []
    assert table.scan(SILENCE_MS_MAX) == ["b0"]

    assert list(leaders(table)) == ["b1"]


def test_heartbeats_of_unregistered_brokers_request_a_registration_and_stale_ones_are_refused() -> None:
    table = RouteTable()
    assert table.heartbeat("b0", 3, 0, 0) is HeartbeatAnswer.REGISTER
    table.register(registration(term=3), 0)

    assert table.heartbeat("b0", 3, 1, 0) is HeartbeatAnswer.REGISTER
    assert table.heartbeat("b0", 4, 0, 0) is HeartbeatAnswer.REGISTER
    with pytest.raises(StaleRegistration):
        table.heartbeat("b0", 2, 9, SILENCE_MS_MAX)
    assert table.scan(SILENCE_MS_MAX) == ["b0"]


def test_a_leader_that_was_paused_cannot_register_with_an_old_term_while_the_newer_one_is_known() -> None:
    table = RouteTable()
    table.register(registration(term=5), 0)
    table.scan(SILENCE_MS_MAX)

    with pytest.raises(StaleRegistration):
        table.register(registration(term=4, leader="n1"), SILENCE_MS_MAX + 1)
    # The same one was only slow; and a group that was founded again begins with term 1 again, after a while.
    assert table.register(registration(term=5), SILENCE_MS_MAX + 2)
    table.scan(2 * SILENCE_MS_MAX + 2)
    table.scan(3 * SILENCE_MS_MAX + 2)
    assert table.register(registration(term=1), 3 * SILENCE_MS_MAX + 3)


def test_withdrawn_write_permission_survives_new_leaders_until_it_is_restored() -> None:
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

    assert sorted(set(table.topics())) == ["orders", long.topic]
    (route,) = table.routes(long.topic)
    assert route.queues == long


def test_a_broker_that_stops_is_removed_at_once_unless_another_node_leads_it() -> None:
    table = RouteTable()
    table.register(registration(term=2), 0)

    with pytest.raises(StaleRegistration):
        table.unregister("b0", 1, 0)
    table.unregister("b0", 2, 0)
    table.unregister("b0", 2, 0)

    assert sorted(set(table.topics())) == []
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
        (registration(topics=[TopicQueues("orders", 2_000_000_000, 8, 6)]), IllegalRegistration),
        (registration(term=(1 << 63) - 1), IllegalRegistration),
        (replace(registration(), nodes=(BrokerNode("n0", "127.0.0.1:1\nCRITICAL stopped"),)), IllegalRegistration),
        (replace(registration(), nodes=(BrokerNode("n0", "unix:/etc/passwd"),)), IllegalRegistration),
        (replace(registration(), nodes=(*NODES, BrokerNode("n 3", "127.0.0.1:1"))), IllegalRegistration),
    ],
    ids=[
        *("no name", "long name", "term", "leader", "no nodes", "same ids", "queues", "topic"),
        *("many queues", "huge term", "address of two lines", "address of a file", "id"),
    ],
)
def test_invalid_requests_are_refused_and_change_nothing(bad: Registration, error: type[Exception]) -> None:
    table = RouteTable()
    table.register(registration(), 0)

    with pytest.raises(error):
        table.register(bad, 0)

    assert list(leaders(table)) == ["b0"]


def test_the_number_of_brokers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_brokers, "BROKERS_MAX", 2)
    table = RouteTable()
    table.register(registration("b0"), 0)
    table.register(registration("b1"), 0)

    with pytest.raises(TooManyBrokers):
        table.register(registration("b2"), 0)
    assert table.register(registration("b1", term=2), 0)


def test_an_unknown_broker_cannot_be_drained() -> None:
    with pytest.raises(UnknownBroker, match="b7"):
        RouteTable().set_writable("b7", is_writable=False)


def topics(begin: int, end: int, queues: int = 1) -> list[TopicQueues]:
    return [TopicQueues(f"t{number}", queues, queues, 6) for number in range(begin, end)]


def names(table: RouteTable) -> set[str]:
    return set(table.topics())


def test_a_difference_changes_only_the_topics_in_it() -> None:
    table = RouteTable()
    table.register(registration(sequence=4, topics=topics(0, 4)), 0)

    change = registration(sequence=7, topics=[*topics(1, 2, queues=9), *topics(4, 5)])
    assert table.register(change, 1, Extent(since_sequence=4, deleted=("t0", "t77"))) is RegisterResult.CHANGED

    assert names(table) == {"t1", "t2", "t3", "t4"}
    assert [route.queues.read_queues for route in table.routes("t1")] == [9]
    assert table.routes("t1")[0].registration.sequence == 7
    assert table.heartbeat("b0", 1, 7, 2) is HeartbeatAnswer.KNOWN


@pytest.mark.parametrize("known", [None, (1, 3), (1, 5), (2, 4)])
def test_a_difference_to_another_version_requests_all_and_changes_nothing(known: tuple[int, int] | None) -> None:
    table = RouteTable()
    if known is not None:
        table.register(registration(term=known[0], sequence=known[1], topics=topics(0, 1)), 0)
    change = registration(term=2, sequence=9, topics=topics(5, 6))

    if known == (2, 4):
        assert table.register(change, 1, Extent(since_sequence=3)) is RegisterResult.WANTS_ALL
    else:
        assert table.register(change, 1, Extent(since_sequence=4)) is RegisterResult.WANTS_ALL

    assert names(table) == (set() if known is None else {"t0"})


def test_pieces_take_effect_with_the_last_one() -> None:
    table = RouteTable()
    table.register(registration(sequence=1, topics=topics(0, 3)), 0)

    for piece in range(3):
        taken = table.register(
            registration(sequence=2, topics=topics(2 * piece, 2 * piece + 2)),
            1,
            Extent(piece=piece, has_more=piece < 2),
        )
        assert taken is (RegisterResult.PIECE if piece < 2 else RegisterResult.CHANGED)
        assert len(names(table)) == (3 if piece < 2 else 6)


def test_a_piece_that_does_not_follow_the_one_before_requests_all_again() -> None:
    table = RouteTable()

    assert table.register(registration(topics=topics(0, 1)), 0, Extent(piece=0, has_more=True)) is RegisterResult.PIECE
    assert table.register(registration(topics=topics(1, 2)), 0, Extent(piece=2)) is RegisterResult.WANTS_ALL
    assert table.register(registration(topics=topics(1, 2)), 0, Extent(piece=1)) is RegisterResult.WANTS_ALL
    assert table.register(registration(topics=topics(0, 1)), 0, Extent(piece=0, has_more=True)) is RegisterResult.PIECE
    assert table.register(registration(sequence=1, topics=topics(1, 2)), 0, Extent(piece=1)) is RegisterResult.WANTS_ALL
    assert names(table) == set()


def test_all_topics_together_are_bounded_also_those_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_brokers, "TOPICS_MAX", 10)
    table = RouteTable()
    table.register(registration("b0", topics=topics(0, 6)), 0)

    with pytest.raises(TooManyTopics):
        table.register(registration("b1", topics=topics(0, 5)), 0)
    assert table.register(registration("b1", topics=topics(0, 4)), 0, Extent(has_more=True)) is RegisterResult.PIECE
    with pytest.raises(TooManyTopics):
        table.register(registration("b2", topics=topics(0, 1)), 0)
    with pytest.raises(TooManyTopics):
        table.register(registration("b0", sequence=1, topics=topics(6, 7)), 0, Extent(since_sequence=0))
    # Pieces that are not followed by others free space again.
    assert table.scan(registered_brokers.PIECES_MS_MAX) == []
    assert table.register(registration("b2", topics=topics(0, 4)), 0) is RegisterResult.CHANGED
    table.unregister("b0", 1, 0)
    assert table.register(registration("b3", topics=topics(0, 6)), 0) is RegisterResult.CHANGED


def test_a_brokers_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_brokers, "TOPICS_PER_BROKER_MAX", 4)
    table = RouteTable()
    table.register(registration(topics=topics(0, 4)), 0)

    with pytest.raises(IllegalRegistration):
        table.register(registration(sequence=1, topics=topics(4, 5)), 0, Extent(since_sequence=0))
    table.register(registration("b1", topics=topics(0, 3)), 0, Extent(has_more=True))
    with pytest.raises(IllegalRegistration):
        table.register(registration("b1", topics=topics(3, 5)), 0, Extent(piece=1))
