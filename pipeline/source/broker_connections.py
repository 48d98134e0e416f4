"""Connections to the nodes of one broker for blocking code: choice of the node, and the time limit of retries.

A channel cannot be used after a fork, and Spark forks its workers. So connections are opened at first use in each
process.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import grpc

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import check_answer, failure_of_call
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.client.retry import Backoff
from dledger.security.channels import open_channel
from dledger.security.settings import Tls
from pipeline.common.broker_security import broker_security
from pipeline.common.errors import BrokerRefused, BrokerUnreachable
from pipeline.source.broker_range import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.v1.answer_pb2 import Answer

# Detects a node that stops responding without closing the connection.
_KEEPALIVE: Final = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)
# Errors for which another node, or the same node later, may succeed.
_RETRIABLE: Final = frozenset(
    {
        Reason.NOT_REACHED,
        Reason.ANSWER_LOST,
        Reason.ANSWER_LATE,
        Reason.UNKNOWN_BROKER,
        Reason.WAIT_QUORUM_ACK_TIMEOUT,
    }
)
# Another node may have data that is missing, damaged or not yet replicated on this one.
_ELSEWHERE: Final = frozenset(
    {Reason.NO_MESSAGE, Reason.UNKNOWN_TOPIC, Reason.CORRUPT_DATA, Reason.INTERNAL_ERROR, Reason.DISK_ERROR}
)


class _Response(Protocol):
    @property
    def answer(self) -> Answer: ...


ResponseT = TypeVar("ResponseT", bound=_Response)


class BrokerConnections:
    """Connections to the nodes of a broker. Not thread-safe.

    Args:
        endpoints: `host:port` of the nodes, separated by commas.
        patience_s: seconds for which calls are retried on all nodes before an error is raised.

    Raises:
        SecurityUnusable: a file that the environment names cannot be used.

    Attributes:
        addresses: of the nodes, the one that answered last first.
    """

    def __init__(self, endpoints: str, patience_s: float = PATIENCE_S) -> None:
        self.endpoints = endpoints
        self.patience_s = patience_s
        self.addresses = endpoints.split(",")
        self._stubs: dict[str, Any] = {}
        self._channels: list[grpc.Channel] = []
        self._process_id = os.getpid()
        self._security = broker_security()

    @property
    def is_anonymous(self) -> bool:
        """Whether calls carry no user: neither a token nor a certificate."""
        return not (self._security.token or (isinstance(self._security, Tls) and self._security.certificate))

    def stub(self, address: str) -> Any:
        """Return the gRPC stub of a node."""
        if os.getpid() != self._process_id:
            self._channels, self._stubs, self._process_id = [], {}, os.getpid()
        if address not in self._stubs:
            channel = open_channel(address, self._security, (*CHANNEL_OPTIONS, *_KEEPALIVE))
            self._channels.append(channel)
            self._stubs[address] = BrokerServiceStub(channel)
        return self._stubs[address]

    def ask(self, call: Callable[[Any], ResponseT]) -> ResponseT:
        """Return the answer of the first node that answers.

        Raises: BrokerRefused: the request is refused permanently. BrokerUnreachable: no node answered within
        `patience_s`.
        """
        turn = Turn(self)
        while True:
            try:
                response = call(self.stub(turn.address))
                check_answer(response.answer, turn.address)
            except grpc.RpcError as error:
                turn.failed(failure(turn.address, error))
            except RequestFailed as refusal:
                turn.failed(refusal)
            else:
                self.addresses = [turn.address, *(each for each in self.addresses if each != turn.address)]
                return response

    def close(self) -> None:
        """Close all connections. They are reopened at the next use."""
        if os.getpid() == self._process_id:
            for channel in self._channels:
                channel.close()
        self._channels, self._stubs = [], {}


class Turn:
    """The next node to call, and the time limit of retries."""

    def __init__(self, nodes: BrokerConnections) -> None:
        self._nodes = nodes
        self._addresses = list(nodes.addresses)
        self._refused: set[str] = set()
        self._backoff = Backoff()
        self.succeeded()

    @property
    def address(self) -> str:
        """The address of the node to call next."""
        return self._addresses[0]

    @property
    def has_asked_all(self) -> bool:
        """Whether all other nodes have refused since the last success."""
        return self._refused >= {*self._addresses} - {self.address}

    def succeeded(self) -> None:
        """Reset the time limit after a success."""
        self._deadline_s = time.monotonic() + self._nodes.patience_s
        self._backoff.reset()
        self._refused.clear()

    def failed(self, failure: RequestFailed) -> None:
        """Select another node, after a pause.

        Raises: BrokerRefused: the request is refused permanently. BrokerUnreachable: the time limit is exceeded.
        """
        is_elsewhere = failure.reason in _ELSEWHERE and not self.has_asked_all
        if not (failure.is_worth_trying or failure.reason in _RETRIABLE or is_elsewhere):
            raise BrokerRefused(self._nodes.endpoints, str(failure)) from failure
        if time.monotonic() >= self._deadline_s:
            raise BrokerUnreachable(self._nodes.endpoints, str(failure)) from failure
        self._refused.add(self.address)
        if failure.leader and failure.leader != self.address:
            self._addresses = [failure.leader, *(each for each in self._addresses if each != failure.leader)]
        else:
            self._addresses = [*self._addresses[1:], self._addresses[0]]
        time.sleep(self._backoff.next_s())


def failure(address: str, error: grpc.RpcError) -> RequestFailed:
    """Return the error for a failed gRPC call."""
    assert isinstance(error, grpc.Call)
    return failure_of_call(address, error.code(), error.details() or "", "cluster.v1.BrokerService")
