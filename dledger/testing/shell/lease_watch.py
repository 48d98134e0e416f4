"""Checks a node's messages: after an answer to a leader's heartbeat it must not start an election too soon.

A leader's lease depends on it (dissertation §6.4.1). A process that did not run for a while violates it first if it
uses an outdated clock reading as the time of a heartbeat's arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.messages import HeartbeatResponse, Message, VoteRequest
from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.node.node import Node


class LeaseWatch:
    """Checks the messages of one process of a node before they reach its transport.

    Args:
        node: a started node.
        step_ms: returns the begin of the present step of the node's loop by its own clock, in milliseconds.
        now_ms: returns that clock's present time, including blocking work of the step.
        violate: records a violation.
    """

    def __init__(
        self, node: Node, step_ms: Callable[[], int], now_ms: Callable[[], int], violate: Callable[[Exception], None]
    ) -> None:
        transport = node._transport  # noqa: SLF001 - a check looks inside
        self._raft = node._raft  # noqa: SLF001 - as above
        self._node_id = node.config.self_id
        self._timeout_ms = node.config.raft.min_election_timeout_ms
        self._step_ms = step_ms
        self._now_ms = now_ms
        self._violate = violate
        self._lease_granted_ms: int | None = None
        self._send = transport.send
        transport.send = self.send  # type: ignore[method-assign]

    def send(self, peer: str, message: Message) -> None:
        """Check a message and send it."""
        if isinstance(message, HeartbeatResponse) and self._raft.state.leader_id == peer:
            self._lease_granted_ms = self._step_ms()
        elif isinstance(message, VoteRequest) and not message.is_transfer and self._lease_granted_ms is not None:
            since_ms = self._now_ms() - self._lease_granted_ms
            if since_ms < self._timeout_ms - 1:
                text = f"{self._node_id} campaigns {since_ms} ms after it answered a heartbeat: {message}"
                self._violate(Violation("lease", text))
        self._send(peer, message)
