"""Accepts appends into a node, or refuses them at once with the reason.

Place on the path of an append: `dledger.node.node` calls it first. A refused append has written nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from dledger.driver.driver import Proposal
from dledger.errors import ResponseCode
from dledger.pending.appends import AppendResult, PendingAppend, PendingAppends

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.config import NodeConfig
    from dledger.metrics import NodeMetrics


class AppendGate:
    """Checks bounds, leadership and disk space, and accepts or refuses appends. Construct it in the event loop.

    Args:
        config: the bounds.
        metrics: counts refusals.
        appends: stores the accepted appends.
        proposals: receives their bodies.
        leadership: reports whether this node leads.
        space: reports whether the disk is so full that appends are refused in advance.
        max_body_bytes: the size of the largest body that the store accepts.
        now_s: the clock of latencies and deadlines.

    Attributes:
        closed: the refusal of every append while the node does not run; None while it does.
    """

    def __init__(
        self,
        config: NodeConfig,
        metrics: NodeMetrics,
        appends: PendingAppends,
        *,
        proposals: Proposals,
        leadership: LeadershipGate,
        space: DiskSpace,
        max_body_bytes: int,
        now_s: Callable[[], float],
    ) -> None:
        # None only while the node runs: from the end of its start to its failure or the beginning of its stop.
        self.closed: AppendResult | None = AppendResult(ResponseCode.NOT_LEADER, "the node is not started")
        self._config = config
        self._metrics = metrics
        self._appends = appends
        self._proposals = proposals
        self._leadership = leadership
        self._space = space
        self._max_body_bytes = max_body_bytes
        self._now_s = now_s
        self._loop = asyncio.get_running_loop()

    def append(self, bodies: Sequence[bytes], stamp_at: int | None, channel: int) -> asyncio.Future[AppendResult]:
        """Accept `bodies` as consecutive entries, or refuse them; the future resolves when the outcome is known."""
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        sizes = list(map(len, bodies))
        size_bytes = sum(sizes)
        refusal = self.refusal_of(sizes, size_bytes)
        if refusal is not None:
            self._metrics.count_refusal(refusal.code)
            future.set_result(refusal)
            return future
        pending = PendingAppend(future, len(sizes), size_bytes, self._now_s())
        self._appends.take(pending)
        self._proposals.propose(Proposal(bodies, stamp_at, channel, pending), size_bytes)
        return future

    def refusal_of(self, sizes: Sequence[int], size_bytes: int) -> AppendResult | None:
        """Return the reason to refuse bodies of these sizes now; None if they are accepted."""
        if self.closed is not None or not sizes:
            empty = AppendResult(ResponseCode.REQUEST_WITH_EMPTY_BODYS, "expected at least one body, found none")
            return self.closed or empty
        config = self._config
        if (
            max(sizes) > self._max_body_bytes
            or len(sizes) > config.max_pending_requests_num
            or size_bytes > config.max_pending_size_bytes
        ):
            return AppendResult(ResponseCode.UNEXPECTED_ARGUMENT, self._fault_of(sizes, size_bytes))
        not_leading = self._leadership.refusal()
        if not_leading is not None:
            return AppendResult(ResponseCode.NOT_LEADER, not_leading)
        if self._space.is_disk_full:
            message = "the leader's disk is too full; appends continue when there is space"
            return AppendResult(ResponseCode.DISK_FULL, message)
        if not self._appends.has_space(len(sizes), size_bytes):
            message = f"{self._appends.entries_count} entries of {self._appends.size_bytes} bytes are not committed yet"
            return AppendResult(ResponseCode.LEADER_PENDING_FULL, f"{message}; {self._bounds()}")
        return None

    def _fault_of(self, sizes: Sequence[int], size_bytes: int) -> str:
        """Return the reason why no node of this group can ever accept this batch."""
        if max(sizes) > self._max_body_bytes:
            return f"a body has {max(sizes)} bytes; at most {self._max_body_bytes} are allowed"
        return f"{len(sizes)} bodies of {size_bytes} bytes in one request; {self._bounds()}"

    def _bounds(self) -> str:
        config = self._config
        return f"at most {config.max_pending_requests_num} of {config.max_pending_size_bytes} bytes are allowed"


class Proposals(Protocol):
    """Passes proposals to the driver."""

    def propose(self, proposal: Proposal, size_bytes: int) -> None:
        """Add a proposal with bodies of `size_bytes` to a batch."""


class LeadershipGate(Protocol):
    """Reports whether this node leads."""

    def refusal(self) -> str | None:
        """Return, for people, why this node does not accept appends; None while it leads."""


class DiskSpace(Protocol):
    """Reports whether the disk is full."""

    @property
    def is_disk_full(self) -> bool:
        """Whether appends are refused until space is free."""
