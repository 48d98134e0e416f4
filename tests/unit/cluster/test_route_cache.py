"""The routes that a client knows: kept without name servers, and never replaced by those of an older term."""

from __future__ import annotations

from cluster.client.route_cache import REFRESH_INTERVAL_MS, RouteCache
from cluster.route_table import BrokerNode, BrokerRoute, Registration, TopicQueues

NODES = (BrokerNode("n0", "127.0.0.1:1"), BrokerNode("n1", "127.0.0.1:2"))
QUEUES = TopicQueues("orders", 8, 8, 6)


def route(term: int = 1, leader: str = "n0", broker: str = "b0") -> BrokerRoute:
    return BrokerRoute(Registration(broker, "c0", term, 0, leader, NODES, (QUEUES,)), QUEUES)


def known(cache: RouteCache) -> list[tuple[str, str]]:
    return [(each.registration.broker, each.registration.leader_address) for each in cache.get("orders") or ()]


def test_routes_are_kept_when_a_name_server_that_was_just_started_knows_none() -> None:
    cache = RouteCache()
    cache.update(["orders"], {"orders": [route()]}, 0)

    assert cache.update(["orders"], {}, 10) == set()

    assert known(cache) == [("b0", "127.0.0.1:1")]


def test_a_route_of_an_older_term_does_not_replace_a_newer_leader() -> None:
    cache = RouteCache()
    cache.update(["orders"], {"orders": [route(term=3)]}, 0)
    cache.leader_is("b0", 4, "n1")
    assert known(cache) == [("b0", "127.0.0.1:2")]

    assert cache.update(["orders"], {"orders": [route(term=3), route(broker="b1")]}, 1) == {"orders"}
    assert known(cache) == [("b0", "127.0.0.1:2"), ("b1", "127.0.0.1:1")]

    cache.leader_is("b0", 2, "n0")
    assert known(cache)[0] == ("b0", "127.0.0.1:2")
    cache.update(["orders"], {"orders": [route(term=5)]}, 2)
    assert known(cache) == [("b0", "127.0.0.1:1")]


def test_topics_are_due_half_a_minute_after_they_were_asked_for() -> None:
    cache = RouteCache()
    cache.update(["orders"], {"orders": [route()]}, 0)
    cache.update(["events"], {}, 10)

    assert cache.due(REFRESH_INTERVAL_MS - 1) == []
    assert cache.due(REFRESH_INTERVAL_MS) == ["orders"]
    assert cache.due(REFRESH_INTERVAL_MS + 10) == ["orders", "events"]
    assert cache.get("events") == ()
    assert cache.get("unknown") is None


def test_of_too_many_topics_the_least_used_goes_and_a_deleted_one_is_forgotten() -> None:
    cache = RouteCache(topics_max=2)
    cache.update(["orders"], {"orders": [route()]}, 0)
    cache.update(["a"], {}, 0)
    cache.get("orders")
    cache.update(["b"], {}, 0)

    assert cache.get("a") is None
    assert cache.get("orders")
    cache.forget("orders")
    assert cache.get("orders") is None
