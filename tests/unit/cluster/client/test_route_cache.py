"""The route cache of a client: routes are kept without name servers, and never replaced by those of an older term."""

from __future__ import annotations

from cluster.client.routing.cache import OLD_QUEUES_MS, REFRESH_INTERVAL_MS, UNCONFIRMED_INTERVAL_MS, RouteCache
from cluster.protocol.route_table import BrokerNode, BrokerRoute, Registration, TopicQueues

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
    assert cache.update(["orders"], {"orders": [route(term=4, leader="n1")]}, 0) == {"orders"}
    assert known(cache) == [("b0", "127.0.0.1:2")]

    assert cache.update(["orders"], {"orders": [route(term=3), route(broker="b1")]}, 1) == {"orders"}
    assert known(cache) == [("b0", "127.0.0.1:2"), ("b1", "127.0.0.1:1")]

    cache.update(["orders"], {"orders": [route(term=2), route(broker="b1")]}, 1)
    assert known(cache)[0] == ("b0", "127.0.0.1:2")
    cache.update(["orders"], {"orders": [route(term=5)]}, 2)
    assert known(cache) == [("b0", "127.0.0.1:1")]


def test_topics_are_refreshed_after_half_a_minute() -> None:
    cache = RouteCache()
    cache.update(["orders"], {"orders": [route()]}, 0)
    cache.update(["events"], {}, 10)

    assert cache.due(REFRESH_INTERVAL_MS - 1) == []
    assert cache.due(REFRESH_INTERVAL_MS) == ["orders"]
    assert cache.due(REFRESH_INTERVAL_MS + 10) == ["orders", "events"]
    assert cache.get("events") == ()
    assert cache.get("unknown") is None


def test_the_least_recently_used_of_too_many_topics_and_deleted_ones_are_dropped() -> None:
    cache = RouteCache(topics_max=2)
    cache.update(["orders"], {"orders": [route()]}, 0)
    cache.update(["a"], {}, 0)
    cache.get("orders")
    cache.update(["b"], {}, 0)

    assert cache.get("a") is None
    assert cache.get("orders")
    cache.forget("orders")
    assert cache.get("orders") is None


# ------------------------------------------------------------------------------------------------------------- queues


def sized(queues: int, term: int = 1, sequence: int = 0, leader: str = "n0") -> BrokerRoute:
    of_topic = TopicQueues("orders", queues, queues, 6)
    return BrokerRoute(Registration("b0", "c0", term, sequence, leader, NODES, (of_topic,)), of_topic)


def learned(cache: RouteCache, route: BrokerRoute, now_ms: int = 1, *, unconfirmed: bool = False) -> tuple[int, str]:
    """Pass an answer to the cache; return its number of queues, and its leader."""
    cache.update(["orders"], {"orders": [route]}, now_ms, {"b0"} if unconfirmed else ())
    (known_route,) = cache.get("orders") or ()
    return known_route.queues.write_queues, known_route.registration.leader_id


def test_queues_of_an_outdated_name_server_replace_no_newer_ones() -> None:
    cache = RouteCache()
    assert learned(cache, sized(8, sequence=5)) == (8, "n0")

    assert learned(cache, sized(4, sequence=4)) == (8, "n0")
    assert learned(cache, sized(16, sequence=6)) == (16, "n0")
    # Of an older leader, though it had counted further; and of a newer one.
    assert learned(cache, sized(2, term=0, sequence=9, leader="n1")) == (16, "n0")
    assert learned(cache, sized(20, term=2, sequence=6, leader="n1")) == (20, "n1")


def test_an_unconfirmed_route_is_used_while_nothing_else_is_known_and_refreshed_soon() -> None:
    cache = RouteCache()

    assert learned(cache, sized(4, term=7, sequence=4), now_ms=0, unconfirmed=True) == (4, "n0")
    assert cache.due(UNCONFIRMED_INTERVAL_MS) == ["orders"]
    # The leader's word counts, also where a candidate was in a higher term; then no unconfirmed hides it.
    assert learned(cache, sized(8, term=6, sequence=5), now_ms=10) == (8, "n0")
    assert cache.due(UNCONFIRMED_INTERVAL_MS + 10) == []
    assert learned(cache, sized(4, term=7, sequence=4, leader="n1"), now_ms=20, unconfirmed=True) == (8, "n1")
    assert learned(cache, sized(9, term=7, sequence=6, leader="n1"), now_ms=30, unconfirmed=True) == (8, "n1")


def test_a_broker_that_restarts_its_counters_is_accepted_after_a_long_silence() -> None:
    cache = RouteCache()
    learned(cache, sized(8, term=9, sequence=50), now_ms=0)

    assert learned(cache, sized(4, term=1, sequence=1), OLD_QUEUES_MS - 1) == (8, "n0")
    assert learned(cache, sized(4, term=1, sequence=1), OLD_QUEUES_MS) == (4, "n0")
    assert learned(cache, sized(5, term=1, sequence=2), OLD_QUEUES_MS + 1) == (5, "n0")
