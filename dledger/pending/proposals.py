"""Queues proposals for the next event batch, and decides the size of each batch.

A batch costs one write, one push to each peer, one sync and one acknowledgement of each peer, whatever its size. So
while some batches are in flight, new proposals are joined and wait until one of them is committed; a single proposal
with nothing in flight never waits (Nagle's algorithm, with a window).

Not here: bounds of the whole backlog (`dledger.pending.appends`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.driver.driver import Proposal

# Batches in flight before proposals wait. With one, either the leader's disk or the followers' would be idle; with
# many, sixty-four single callers would produce sixty-four batches.
BATCHES_IN_FLIGHT_MAX = 4
# A batch of this size is large enough: waiting would save nothing.
GOOD_SIZE_BYTES = 256 * 1024
# One batch; a larger one would delay heartbeats too much. A larger proposal is a batch of its own.
BATCH_SIZE_BYTES_MAX = 8 << 20


class ProposalQueue:
    """A FIFO queue of proposals; the callers of `add` bound it."""

    def __init__(self) -> None:
        # Oldest first, each with the size of its bodies; `_size_bytes` is the sum of these sizes.
        self._proposals: deque[tuple[Proposal, int]] = deque()
        self._size_bytes = 0
        # The last index of each batch that was not committed at the last `take`, oldest first. Its entries may have
        # been truncated since: without `forget_in_flight` at each tick, proposals could wait for it permanently.
        self._in_flight: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._proposals)

    def add(self, proposal: Proposal, size_bytes: int) -> None:
        """Queue `proposal`, with bodies of `size_bytes`, for the next event batch."""
        self._proposals.append((proposal, size_bytes))
        self._size_bytes += size_bytes

    def take(self, commit_index: int) -> tuple[list[Proposal], int]:
        """Return the next batch and the size of its bodies; empty if there are no proposals, or they should wait."""
        in_flight = self._in_flight
        while in_flight and in_flight[0] <= commit_index:
            in_flight.popleft()
        batch: list[Proposal] = []
        if len(in_flight) >= BATCHES_IN_FLIGHT_MAX and self._size_bytes < GOOD_SIZE_BYTES:
            return batch, 0
        proposals = self._proposals
        total_size_bytes = 0
        while proposals:
            proposal, size_bytes = proposals[0]
            if batch and total_size_bytes + size_bytes > BATCH_SIZE_BYTES_MAX:
                break
            proposals.popleft()
            batch.append(proposal)
            total_size_bytes += size_bytes
        self._size_bytes -= total_size_bytes
        return batch, total_size_bytes

    def proposed(self, last_index: int) -> None:
        """Record that the batch of the last `take` ends with `last_index`."""
        self._in_flight.append(last_index)

    def forget_in_flight(self) -> None:
        """Stop waiting for the batches in flight (lost, truncated, never committed)."""
        self._in_flight.clear()
