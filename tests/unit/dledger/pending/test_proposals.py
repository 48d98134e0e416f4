"""When proposals wait to be batched, and when they must not."""

from __future__ import annotations

from dledger.driver.driver import Proposal
from dledger.pending.proposals import BATCH_SIZE_BYTES_MAX, BATCHES_IN_FLIGHT_MAX, GOOD_SIZE_BYTES, ProposalQueue

FIRST_INDEX = 100


def filled(count: int, size_bytes: int = 10) -> tuple[ProposalQueue, list[Proposal]]:
    queue, proposals = ProposalQueue(), [Proposal([b"x"]) for _ in range(count)]
    for proposal in proposals:
        queue.add(proposal, size_bytes)
    return queue, proposals


def with_batches_in_flight(count: int) -> ProposalQueue:
    queue = ProposalQueue()
    for number in range(count):
        queue.add(Proposal([b"x"]), 10)
        queue.take(-1)
        queue.proposed(FIRST_INDEX + number)
    return queue


def test_lone_proposal_is_taken_at_once() -> None:
    queue, proposals = filled(1)
    assert queue.take(-1) == (proposals, 10)
    assert len(queue) == 0


def test_waiting_proposals_are_taken_together_and_in_order() -> None:
    queue, proposals = filled(50)
    assert queue.take(-1) == (proposals, 500)


def test_proposals_wait_after_the_batches_in_flight_until_one_is_committed() -> None:
    queue = with_batches_in_flight(BATCHES_IN_FLIGHT_MAX)
    proposals = [Proposal([b"x"]) for _ in range(3)]
    for proposal in proposals:
        queue.add(proposal, 10)
        assert queue.take(FIRST_INDEX - 1) == ([], 0)
    assert queue.take(FIRST_INDEX) == (proposals, 30)


def test_proposals_are_taken_while_the_window_is_not_full() -> None:
    queue = with_batches_in_flight(BATCHES_IN_FLIGHT_MAX - 1)
    proposal = Proposal([b"x"])
    queue.add(proposal, 10)
    assert queue.take(-1) == ([proposal], 10)


def test_a_good_batch_does_not_wait() -> None:
    queue = with_batches_in_flight(BATCHES_IN_FLIGHT_MAX)
    proposal = Proposal([b"x"])
    queue.add(proposal, GOOD_SIZE_BYTES)
    assert queue.take(-1) == ([proposal], GOOD_SIZE_BYTES)


def test_no_proposal_waits_for_a_forgotten_batch() -> None:
    queue = with_batches_in_flight(BATCHES_IN_FLIGHT_MAX)
    proposal = Proposal([b"x"])
    queue.add(proposal, 10)
    queue.forget_in_flight()
    assert queue.take(-1) == ([proposal], 10)


def test_one_batch_is_bounded_and_the_rest_follows() -> None:
    half = BATCH_SIZE_BYTES_MAX // 2
    queue, proposals = filled(3, half)
    assert queue.take(-1) == (proposals[:2], 2 * half)
    assert len(queue) == 1
    assert queue.take(-1) == (proposals[2:], half)


def test_a_proposal_above_the_bound_is_taken_alone() -> None:
    queue, proposals = filled(2, BATCH_SIZE_BYTES_MAX + 1)
    assert queue.take(-1) == (proposals[:1], BATCH_SIZE_BYTES_MAX + 1)
    assert queue.take(-1) == (proposals[1:], BATCH_SIZE_BYTES_MAX + 1)
