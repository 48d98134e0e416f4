"""All futures of one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from dledger.errors import ResponseCode
from dledger.pending.appends import AppendResult, PendingAppends
from dledger.pending.reads import CommitWaiters, PendingReads, RequestRefused
from dledger.pending.requests import PendingRequests, RequestResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.config import NodeConfig
    from dledger.metrics import NodeMetrics


@dataclass(frozen=True, slots=True)
class Waiters:
    """The futures of one node.

    Attributes:
        appends: for the answer to an append.
        reads: for a read index.
        requests: for the result of a request to change the group.
        commits: for the next commit.
        applies: for the next entries that the state machine applies.
        events: for the next event that watchers get.
        listeners: called when the commit index, role, term or leader have changed, or when the log was reset.
    """

    appends: PendingAppends
    reads: PendingReads
    requests: PendingRequests
    commits: CommitWaiters
    applies: CommitWaiters
    events: CommitWaiters
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def notify_listeners(self) -> None:
        """Call all listeners."""
        for listener in self.listeners:
            listener()

    @classmethod
    def of(cls, config: NodeConfig, metrics: NodeMetrics) -> Self:
        """Return the waiters for a node with these settings, without any future yet."""
        timeout_s = config.max_wait_ack_time_ms / 1000
        appends = PendingAppends(
            config.max_pending_requests_num,
            config.max_pending_size_bytes,
            timeout_s,
            metrics.append_latency_s.observe,
        )
        # The core aborts a transfer after one election timeout.
        request_timeout_ms = max(config.max_wait_ack_time_ms, 2 * config.raft.max_election_timeout_ms)
        requests = PendingRequests(request_timeout_ms / 1000)
        return cls(appends, PendingReads(timeout_s), requests, CommitWaiters(), CommitWaiters(), CommitWaiters())

    def expire(self, now_s: float) -> None:
        """Answer appends, reads and requests whose deadline has passed."""
        self.appends.expire(now_s)
        self.reads.expire(now_s)
        self.requests.expire(now_s)

    def end(self, code: ResponseCode, message: str) -> None:
        """Answer all futures: the node stops.

        Readers always get the answer that the node has stopped, because another node may serve them; the code of a
        failed disk (414) would mean that the entry itself cannot be read.
        """
        self.appends.end(AppendResult(code, message))
        refused = RequestRefused(ResponseCode.INTERNAL_ERROR, message)
        self.reads.end(refused)
        self.commits.end(refused)
        self.applies.end(refused)
        self.events.end(refused)
        self.requests.end(RequestResult(code, message))
