"""The queue of the next message: round robin without failed brokers, or always the same queue of a key."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from cluster.client.producer.fault_avoidance import FAILED_LATENCY_MS, FaultAvoidance, avoidance_ms
from cluster.client.routing.queue_choice import (
    BrokerQueue,
    RoundRobin,
    fixed_queues,
    queue_of_key,
    readable_queues,
    writable_queues,
)
from cluster.protocol.route_table import BrokerRoute, Registration, TopicQueues
from store.model.java_hash import java_hash

QUEUES = tuple(BrokerQueue(broker, "orders", queue) for broker in ("b0", "b1") for queue in range(4))


def turns(count: int, **how: object) -> list[BrokerQueue]:
    choice = RoundRobin(random.Random(7))
    return [choice.choose(QUEUES, **how) for _ in range(count)]


def test_all_queues_are_chosen_round_robin_from_a_random_one_on() -> None:
    chosen = turns(24)

    assert Counter(chosen) == dict.fromkeys(QUEUES, 3)
    assert all(QUEUES.index(b) == (QUEUES.index(a) + 1) % 8 for a, b in pairwise(chosen))
    assert len({RoundRobin(random.Random(seed)).choose(QUEUES) for seed in range(40)}) > 1


def test_each_topic_has_its_own_rotation() -> None:
    choice = RoundRobin(random.Random(7))
    others = tuple(queue._replace(topic="events") for queue in QUEUES)

    chosen = [choice.choose(QUEUES if turn % 2 else others) for turn in range(32)]

    assert Counter(chosen) == dict.fromkeys((*QUEUES, *others), 2)


def test_a_failed_broker_is_avoided_and_its_share_is_distributed_evenly() -> None:
    chosen = turns(400, is_available=lambda broker: broker != "b0")

    assert Counter(chosen) == dict.fromkeys(QUEUES[4:], 100)


def test_a_repeated_message_goes_to_another_broker_while_there_is_one() -> None:
    assert {queue.broker for queue in turns(8, avoided="b0")} == {"b1"}
    assert {queue.broker for queue in turns(8, avoided="b0", is_available=lambda broker: broker == "b0")} == {"b1"}
    only = QUEUES[:4]
    assert RoundRobin(random.Random(7)).choose(only, avoided="b0") in only


def test_when_all_brokers_failed_they_are_used_round_robin() -> None:
    assert Counter(turns(16, is_available=lambda _: False)) == dict.fromkeys(QUEUES, 2)


def test_a_key_keeps_its_queue() -> None:
    for key in ("o-17", "", "ключ", "polygenelubricants"):
        assert queue_of_key(QUEUES, key) == queue_of_key(QUEUES, key)
    assert queue_of_key(QUEUES, "o-17") == QUEUES[abs(java_hash("o-17")) % 8]
    # Its hash is the lowest number there is, which has no absolute value in 32 bits.
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert queue_of_key(QUEUES, "polygenelubricants") == QUEUES[0]
    assert len({queue_of_key(QUEUES, f"key-{number}") for number in range(200)}) == 8


def test_queues_of_a_route_are_the_permitted_ones_in_order() -> None:
    def route(broker: str, permission: int) -> BrokerRoute:
        queues = TopicQueues("orders", 2, 1, permission)
        return BrokerRoute(Registration(broker, "c", 1, 0, "n0", (), (queues,)), queues)

    routes = [route("b2", 6), route("b1", 4), route("b0", 2)]

    assert readable_queues(routes) == tuple(BrokerQueue(b, "orders", q) for b in ("b1", "b2") for q in (0, 1))
    assert writable_queues(routes) == tuple(BrokerQueue(b, "orders", 0) for b in ("b0", "b2"))


@pytest.mark.parametrize(
    ("latency_ms", "penalty"),
    [
        (0, 0),
        (549, 0),
        (550, 30_000),
        (999, 30_000),
        (1_000, 60_000),
        (2_000, 120_000),
        (3_000, 180_000),
        (14_999, 180_000),
        (15_000, 600_000),
    ],
)
def test_the_slower_an_answer_the_longer_a_broker_is_avoided(latency_ms: int, penalty: int) -> None:
    assert avoidance_ms(latency_ms) == penalty
    avoidance = FaultAvoidance()

    avoidance.observed("b0", latency_ms, 1_000)

    assert avoidance.is_available("b0", 1_000 + penalty)
    assert penalty == 0 or not avoidance.is_available("b0", 1_000 + penalty - 1)
    assert avoidance.is_available("b1", 1_000)


def test_a_failed_broker_is_avoided_for_three_minutes_or_until_a_quick_answer() -> None:
    avoidance = FaultAvoidance()
    avoidance.observed("b0", FAILED_LATENCY_MS, 0)
    assert not avoidance.is_available("b0", 179_999)

    avoidance.observed("b0", 3, 10)

    assert avoidance.is_available("b0", 10)


def test_a_slow_broker_has_not_failed() -> None:
    avoidance = FaultAvoidance()
    avoidance.observed("slow", 9_999, 0)
    avoidance.observed("failed", FAILED_LATENCY_MS, 0)

    names = ("slow", "failed", "new")
    assert [avoidance.has_failed(name, 179_999) for name in names] == [False, True, False]
    assert not avoidance.has_failed("failed", 180_000)


def test_the_number_of_recorded_brokers_is_bounded() -> None:
    avoidance = FaultAvoidance()
    for number in range(1_001):
        avoidance.observed(f"b{number}", FAILED_LATENCY_MS, 0)

    assert avoidance.is_available("b0", 0)
    assert not avoidance.is_available("b1", 0)


def test_fixed_list_of_an_ordered_topic_has_the_queues_in_the_order_of_routes() -> None:
    assert fixed_queues("orders", "b1:4;b0:4;") == QUEUES


@pytest.mark.parametrize("text", ["", "b0", "b0:", ":4", "b0:-1", "b0:x", "b0:1;b0:2", "b0:0", "b0:65537", "b0:1,b1:2"])
def test_wrong_fixed_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ordered topic orders"):
        fixed_queues("orders", text)
