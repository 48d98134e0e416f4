"""Checks a node's messages: after an answer that renews a leader's lease it must not start an election too soon.

A leader that serves reads by lease depends on it (dissertation §6.4.1), also where the node considers the leader gone.
A process that did not run for a while violates it first if it
uses an outdated clock reading as the time of a heartbeat's arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.messages import Heartbeat, HeartbeatResponse, Message, VoteRequest
from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.node.node import Node


class LeaseWatch:
    """Checks the messages of one process of a node before they reach its transport.

    Args:
        node: a started node.
        step_ms: returns the start of the present step of the node's loop by its own clock, in milliseconds.
        now_ms: returns that clock's present time, including blocking work of the step.
        violate: records a violation.
        rounds: whether each round of heartbeats renews the lease, by leader, term and number; all nodes share it.
    """

    def __init__(
        self,
        node: Node,
        step_ms: Callable[[], int],
        now_ms: Callable[[], int],
        violate: Callable[[Exception], None],
        rounds: dict[tuple[str, int, int], bool],
    ) -> None:
        transport = node._transport  # noqa: SLF001 - a check looks inside
        self._raft = node._raft  # noqa: SLF001 - as above
        self._node_id = node.config.self_id
        self._timeout_ms = node.config.raft.min_election_timeout_ms
        self._step_ms = step_ms
        self._now_ms = now_ms
        self._violate = violate
        self._rounds = rounds
        # The term and time of the last answer. It binds this node only in that term: a later leader was elected by
        # voters that waited for all leases, or after a transfer, which voids the lease.
        self._granted: tuple[int, int] | None = None
        self._send = transport.send
        transport.send = self.send  # type: ignore[method-assign]

    def send(self, peer: str, message: Message) -> None:
        """Check a message and send it."""
        if isinstance(message, Heartbeat):
            number = (self._node_id, message.term, message.round)
            if self._rounds.setdefault(number, message.renews_lease) is not message.renews_lease:
                self._violate(Violation("lease", f"heartbeats of one round differ: {message}"))
        elif isinstance(message, HeartbeatResponse) and self._raft.state.leader_id == peer:
            # An answer of round 0 is to no heartbeat.
            if self._rounds.get((peer, message.term, message.round), False):
                self._granted = message.term, self._step_ms()
        elif isinstance(message, VoteRequest) and not message.is_transfer and self._granted is not None:
            term, granted_ms = self._granted
            since_ms = self._now_ms() - granted_ms
            # Pre-votes name the next term, too.
            is_of_the_next_term = message.term == term + 1
            if is_of_the_next_term and since_ms < self._timeout_ms - 1:
                text = f"{self._node_id} campaigns {since_ms} ms after it answered a heartbeat: {message}"
                self._violate(Violation("lease", text))
        self._send(peer, message)
