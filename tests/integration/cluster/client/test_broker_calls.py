"""The simple client of the command line against brokers in memory: a subscription follows the leader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from cluster.client.broker_calls import BrokerCalls, records_in
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from tests.support.waiting import PATIENCE_S

MakeBroker = Callable[..., Any]
REQUEST = pb.SubscribeRequest(topic="orders", queue_ids=[0], offsets=[0], form=pb.MESSAGE_FORM_RECORDS)


def offsets_of(calls: BrokerCalls) -> Iterator[int]:
    for response in calls.subscribe(REQUEST):
        for record in records_in(response.records):
            yield record.queue_offset


def test_subscription_at_a_follower_moves_to_the_leader(make_broker: MakeBroker) -> None:
    leader = make_broker({"orders": 1})
    follower = make_broker(beside=leader)
    leader.stored.fill("orders", 250)
    with BrokerCalls(follower.address, PATIENCE_S) as calls:
        assert list(range(250)) == list(islice(offsets_of(calls), 250))
    assert (1, 1) == (len(leader.subscribed), len(follower.subscribed))


def test_subscription_continues_over_lost_streams_and_new_leaders_and_repeats_nothing(make_broker: MakeBroker) -> None:
    first = make_broker({"orders": 1})
    second = make_broker(beside=first)
    found: list[int] = []
    with BrokerCalls(f"{first.address},{second.address}", PATIENCE_S) as calls:
        offsets = offsets_of(calls)
        for number in range(4):
            first.stored.fill("orders", 150)
            found += islice(offsets, 150)
            if number % 2:
                first.break_streams()
            else:
                second.leader = second
                first.follow(second)
    assert list(range(600)) == found


@pytest.mark.parametrize("is_dead_first", [True, False])
def test_request_waits_for_the_next_leader_while_the_last_one_is_down(
    make_broker: MakeBroker, is_dead_first: bool
) -> None:
    dead = make_broker({"orders": 1})
    next_one = make_broker(beside=dead)
    dead.stop()

    def lead() -> None:
        next_one.leader = next_one

    nodes = [dead, next_one] if is_dead_first else [next_one, dead]
    with BrokerCalls(",".join(node.address for node in nodes), PATIENCE_S) as calls:
        election = threading.Timer(0.1, lead)
        election.start()
        found = calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic="orders", queue_ids=[0]))
        election.join()
    assert [0] == list(found.max_offsets)


def test_subscription_ends_if_no_node_can_continue_it(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 3)
    with BrokerCalls(broker.address, 0.2) as calls:
        offsets = offsets_of(calls)
        assert [0, 1, 2] == list(islice(offsets, 3))
        broker.stop()
        with pytest.raises(RequestFailed) as ended:
            next(offsets)
        assert ended.value.reason is Reason.NOT_REACHED
