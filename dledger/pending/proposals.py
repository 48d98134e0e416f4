"""Proposals that wait for a turn, and how many of them make a batch.

A batch costs one write, one push to each peer, one sync and one acknowledgement of each peer, whatever its size. So
while some batches are in flight what comes in is joined and waits for one of them to be committed, which the
batches in flight hide; a lone proposal finds nothing in flight and never waits (Nagle's idea, with a window).

Not here: bounds of the whole backlog (`dledger.pending.appends`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.driver.driver import Proposal

# Batches in flight before proposals wait. With one, the disks of leader and followers would idle in turns; with
# many, sixty-four single callers make sixty-four batches.
BATCHES_IN_FLIGHT_MAX = 4
# So much is a good batch by itself: waiting would save nothing.
GOOD_SIZE_BYTES = 256 * 1024
# One batch; more would keep heartbeats waiting for too long. A larger proposal goes alone.
BATCH_SIZE_BYTES_MAX = 8 << 20


class ProposalQueue:
    """First in, first out; the callers of `add` bound it."""

    def __init__(self) -> None:
        self._proposals: deque[tuple[Proposal, int]] = deque()
        self._size_bytes = 0
        self._in_flight: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._proposals)

    def add(self, proposal: Proposal, size_bytes: int) -> None:
        """Queue `proposal`, with bodies of `size_bytes`, for the next turn."""
        self._proposals.append((proposal, size_bytes))
        self._size_bytes += size_bytes

    def take(self, commit_index: int) -> tuple[list[Proposal], int]:
        """Return the next batch and the size of its bodies; no proposals if there are none, or they should wait."""
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
        """Take note that the batch just taken ends with `last_index`."""
        self._in_flight.append(last_index)

    def forget_in_flight(self) -> None:
        """Release what waits, whatever happened to the batches in flight (lost, truncated, never committed)."""
        self._in_flight.clear()
