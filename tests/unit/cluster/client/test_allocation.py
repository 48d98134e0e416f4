"""The allocation of queues: each to one member, evenly, with the same result for all members."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.client.consumer.allocation import ALLOCATIONS, AllocationName, allocate_average, allocate_by_circle
from cluster.client.routing.queue_choice import BrokerQueue

ALL = [BrokerQueue("b0", "orders", number) for number in range(7)]


def numbers(queues: list[BrokerQueue]) -> list[int]:
    return [queue.queue_id for queue in queues]


def test_the_example_of_the_documentation() -> None:
    assert [numbers(allocate_average(member, "abc", ALL)) for member in "abc"] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [numbers(allocate_by_circle(member, "abc", ALL)) for member in "abc"] == [[0, 3, 6], [1, 4], [2, 5]]


def reference(strategy: str, queues: list[BrokerQueue], ids: list[str], member: str) -> list[BrokerQueue]:
    """Compute the allocation in the same way as RocketMQ's classes."""
    index, mod = ids.index(member), len(queues) % len(ids)
    if strategy == "circle":
        return [queue for number, queue in enumerate(queues) if number % len(ids) == index]
    if len(queues) <= len(ids):
        size = 1
    elif mod > 0 and index < mod:
        size = len(queues) // len(ids) + 1
    else:
        size = len(queues) // len(ids)
    begin = index * size if mod > 0 and index < mod else index * size + mod
    count = min(size, len(queues) - begin)
    return [queues[(begin + number) % len(queues)] for number in range(count)]


@pytest.mark.parametrize("name", list(ALLOCATIONS))
@given(
    queues=st.lists(st.builds(BrokerQueue, st.sampled_from("ab"), st.just("t"), st.integers(0, 20)), unique=True),
    members=st.lists(st.text("xyz", min_size=1, max_size=4), min_size=1, max_size=9, unique=True),
    seed=st.integers(0, 99),
)
def test_every_queue_has_one_owner_whichever_member_computes_it(
    name: AllocationName, queues: list[BrokerQueue], members: list[str], seed: int
) -> None:
    allocate = ALLOCATIONS[name]
    shares = {}
    for member in members:
        seen_queues, seen_members = list(queues), list(members)
        random.Random(seed).shuffle(seen_queues)
        random.Random(seed + 1).shuffle(seen_members)
        shares[member] = allocate(member, [*seen_members, seen_members[0]], seen_queues)
        assert shares[member] == reference(name, sorted(queues), sorted(members), member)

    assert sorted(queue for share in shares.values() for queue in share) == sorted(queues)
    counts = {len(share) for share in shares.values()}
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("name", list(ALLOCATIONS))
def test_consumer_outside_the_group_gets_nothing(name: AllocationName) -> None:
    allocate = ALLOCATIONS[name]

    assert allocate("c", ["a", "b"], ALL) == []
    assert allocate("c", [], ALL) == []
    assert allocate("a", ["a"], []) == []
