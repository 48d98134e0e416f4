"""The table of registered clients."""

import pytest

from cluster.remoting import clients
from cluster.remoting.clients import ClientHeartbeat, ClientTable, ConsumerData, Subscription
from cluster.remoting.command import Language, Rejected


class Connection:
    address = "127.0.0.1:1"


def consumer(client_id, *subscriptions, group="g", **fields):
    data = ConsumerData(group, subscriptions={each.topic: each for each in subscriptions})
    return ClientHeartbeat(client_id, consumers=(data,), **fields)


def beat(table, heartbeat, connection=None, now_ms=0):
    return table.beat(heartbeat, connection or Connection(), Language.JAVA, 479, now_ms)


def test_only_a_new_member_or_other_topics_change_a_group():
    table = ClientTable()
    first = consumer("a", Subscription("t", "x", version=1))
    assert beat(table, first).changed_groups == ("g",)
    assert beat(table, first).changed_groups == ()
    assert beat(table, consumer("a", Subscription("t", "y", version=2))).changed_groups == ()
    assert table.consumers_of("g").subscriptions["t"].expression == "y"
    assert beat(table, consumer("a", Subscription("u", version=3))).changed_groups == ("g",)
    assert beat(table, consumer("b", Subscription("u", version=1))).changed_groups == ("g",)
    assert sorted(table.consumers_of("g").members) == ["a", "b"]


def test_members_with_different_subscriptions_do_not_replace_one_another_s():
    table = ClientTable()
    one, two = consumer("a", Subscription("t", version=1)), consumer("b", Subscription("u", version=1))
    beat(table, one), beat(table, two)
    assert not beat(table, one).changed_groups
    assert not beat(table, two).changed_groups
    assert sorted(table.consumers_of("g").subscriptions) == ["t", "u"]


def test_a_closed_connection_removes_its_clients_unless_they_have_a_newer_one():
    table, old, new = ClientTable(), Connection(), Connection()
    beat(table, consumer("a"), old), beat(table, consumer("b"), old), beat(table, ClientHeartbeat("a", ("p",)), old)
    beat(table, consumer("a"), new)
    assert table.closed(old) == ["g"]
    assert list(table.consumers_of("g").members) == ["a"]
    assert table.producers_of("p") == []
    assert table.client("a") is new
    assert table.client("b") is None
    assert table.closed(new) == ["g"]
    assert table.consumers_of("g") is None
    assert len(table) == 0
    assert table.client("a") is None
    assert table.consumer_groups() == []


def test_a_client_without_heartbeats_for_two_minutes_is_removed():
    table = ClientTable()
    beat(table, consumer("a"), now_ms=0), beat(table, consumer("b"), now_ms=1)
    beat(table, ClientHeartbeat("a", ("p",)), now_ms=0)
    assert table.expire(119_999) == []
    assert table.producer_groups() == ["p"]
    assert table.expire(120_000) == ["g"]
    assert table.producer_groups() == []
    assert list(table.consumers_of("g").members) == ["b"]


def test_unregistering_removes_one_group_only():
    table = ClientTable()
    beat(table, ClientHeartbeat("a", ("p",), (ConsumerData("g"), ConsumerData("h"))))
    assert table.unregister("a", consumer_group="g") == ["g"]
    assert table.unregister("a", consumer_group="g") == [] == table.unregister("x", producer_group="p")
    assert table.unregister("a", producer_group="p") == []
    assert table.consumer_groups() == ["h"]
    assert len(table) == 1


def test_a_heartbeat_without_subscriptions_keeps_the_known_ones_and_asks_for_them_if_it_means_others():
    table = ClientTable()
    short = consumer("a", fingerprint=7, is_without_subscriptions=True)
    assert beat(table, short).is_full_wanted
    assert beat(table, short).is_full_wanted
    assert not beat(table, consumer("a", Subscription("t"), fingerprint=7)).is_full_wanted
    assert not beat(table, short).is_full_wanted
    assert list(table.consumers_of("g").subscriptions) == ["t"]
    assert beat(table, consumer("a", fingerprint=8, is_without_subscriptions=True)).is_full_wanted
    assert list(table.consumers_of("g").subscriptions) == ["t"]


def test_the_table_is_bounded_and_a_refused_heartbeat_changes_nothing(monkeypatch):
    monkeypatch.setattr(clients, "MEMBERS_MAX", 2)
    monkeypatch.setattr(clients, "SUBSCRIPTIONS_MAX", 2)
    table = ClientTable()
    with pytest.raises(Rejected):
        beat(table, consumer("a", *(Subscription(f"t{each}") for each in range(3))))
    with pytest.raises(Rejected):
        beat(table, ClientHeartbeat("a", ("p", "q", "r")))
    assert len(table) == 0
    assert table.consumer_groups() == table.producer_groups() == []
    beat(table, consumer("a", Subscription("t"), Subscription("u")))
    beat(table, consumer("a", Subscription("t"), Subscription("v")))
    assert len(table) == 1
