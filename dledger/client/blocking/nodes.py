"""Connections of a blocking client: one gRPC channel per node, and leader discovery."""

from __future__ import annotations

import time
from functools import partial
from queue import Empty, SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Final

import grpc

from dledger.client.blocking.frame_calls import FrameCalls
from dledger.client.connections import Connections
from dledger.client.endpoints import LeaderTracker, is_enough, pick_follower, pick_leader, refusal_without_leader
from dledger.client.failures import CHANNEL_OPTIONS, answer_of_failure
from dledger.client.outcomes import Refused
from dledger.client.reaching import status_timeout_s
from dledger.errors import ResponseCode
from dledger.security.channels import open_channel
from dledger.security.settings import PLAIN
from dledger.v1.admin_pb2_grpc import AdminServiceStub
from dledger.v1.log_pb2 import AppendRequest, AppendResponse, StatusRequest, StatusResponse
from dledger.v1.log_pb2_grpc import LogServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from dledger.security.settings import Security

_APPEND: Final = "/dledger.v1.LogService/Append"


class GroupConnections:
    """Connections to the nodes of one group, opened when first used. Every method may be called by any thread.

    Args:
        endpoints: `host:port` of the nodes' LogService.
        group: the replication group.
        security: of the connections.
        may_use_frames: appends are sent by frames to nodes that have a port for them.

    Attributes:
        status_timeout_s: of a request for the status of a node.
    """

    def __init__(
        self, endpoints: str | Iterable[str], group: str, security: Security = PLAIN, *, may_use_frames: bool = True
    ) -> None:
        self._frames = FrameCalls(security) if may_use_frames else None
        self.tracker = LeaderTracker(endpoints)
        self.status_timeout_s = status_timeout_s(security)
        self._group = group
        self._random = Random()
        self._connections = Connections(
            partial(open_channel, security=security, options=CHANNEL_OPTIONS), LogServiceStub
        )

    def stub(self, address: str) -> LogServiceStub:
        """Return the stub for the node at `address`; the channel connects at the first call."""
        return self._connections.stub(address)

    def stream_stub(self, address: str) -> AbstractContextManager[LogServiceStub]:
        """Lend a stub for the node at `address` for one stream that may stay open."""
        return self._connections.stream_stub(address)

    def admin_stub(self, address: str) -> AdminServiceStub:
        """Return the AdminService stub for the node at `address`."""
        return AdminServiceStub(self._connections.channel(address))

    def close(self) -> None:
        """Close all connections; calls in flight end with CANCELLED."""
        if self._frames is not None:
            self._frames.close()
        for channel in self._connections.channels():
            channel.close()

    def ask(self, address: str, timeout_s: float) -> StatusResponse | str:
        """Return the node's status, or a description of why it does not answer."""
        try:
            answer = self.stub(address).Status(StatusRequest(group=self._group), timeout=timeout_s)
        except grpc.RpcError as error:
            self.tracker.failed(address)
            return answer_of_failure(address, error.code(), error.details() or "")
        self._learn(address, answer)
        return answer

    def append_by_frames(self, address: str, request: AppendRequest, timeout_s: float) -> AppendResponse | None:
        """Return the response to an append; None: it must be sent by gRPC.

        Raises:
            FrameCallFailed: as by gRPC.
        """
        if self._frames is None:
            return None
        response: AppendResponse | None = self._frames.call(address, _APPEND, request, AppendResponse, timeout_s)
        return response

    def reach(self, address: str, timeout_s: float) -> None:
        """Check that a node answers at `address` before a request is sent whose outcome could be unknown.

        Raises:
            Refused: it does not answer; the message says why.
        """
        if not self.tracker.has_answered(address):
            answer = self.ask(address, timeout_s)
            if isinstance(answer, str):
                raise Refused(ResponseCode.NETWORK_ERROR, answer)

    def ask_all(self, timeout_s: float, *, is_majority_enough: bool = False) -> dict[str, StatusResponse | str]:
        """Ask all nodes at once.

        Args:
            timeout_s: bounds the wait for a silent node.
            is_majority_enough: return as soon as a majority has answered and a leader is named.
        """
        asked = self.tracker.addresses
        arrived: SimpleQueue[str] = SimpleQueue()
        calls: dict[str, grpc.Future[StatusResponse]] = {}
        for address in asked:
            calls[address] = self.stub(address).Status.future(StatusRequest(group=self._group), timeout=timeout_s)
            calls[address].add_done_callback(partial(_put_address, arrived, address))
        answers: dict[str, StatusResponse | str] = {}
        # Every call ends by its own timeout; this one only guards against a lost notification.
        give_up_at = time.monotonic() + 2 * timeout_s
        while len(answers) < len(asked) and not (is_majority_enough and is_enough(answers, len(asked))):
            try:
                address = arrived.get(timeout=max(give_up_at - time.monotonic(), 0))
            except Empty:
                break
            answers[address] = self._answer_of(address, calls[address])
        return answers

    def _answer_of(self, address: str, call: grpc.Future[StatusResponse]) -> StatusResponse | str:
        try:
            answer = call.result()
        except grpc.RpcError as error:
            self.tracker.failed(address)
            return answer_of_failure(address, error.code(), error.details() or "")
        self._learn(address, answer)
        return answer

    def _learn(self, address: str, answer: StatusResponse) -> None:
        self.tracker.answered(address)
        if self._frames is not None:
            self._frames.ports.learn(address, answer.frame_address)

    def find_leader(self) -> str | None:
        """Ask the nodes for the leader; return the leader's `host:port`, None while none of them knows."""
        leader = pick_leader(self.ask_all(self.status_timeout_s, is_majority_enough=True))
        return None if leader is None else self.tracker.follow(leader)

    def leader(self) -> str:
        """Return the address to try as the leader: the last known one, else the one that the nodes name.

        Raises:
            Refused: no node knows a leader; the message contains each node's answer.
        """
        known = self.tracker.leader
        if known is not None:
            return known
        answers = self.ask_all(self.status_timeout_s, is_majority_enough=True)
        leader = pick_leader(answers)
        if leader is None:
            raise refusal_without_leader(answers)
        return self.tracker.follow(leader)

    def status_of_leader(self, timeout_s: float) -> tuple[str, StatusResponse | str]:
        """Return the leader's address, and its status or the reason why there is none.

        If the presumed leader does not answer or was deposed, the leader is searched for once more.

        Raises:
            Refused: as `leader`.
        """
        address = self.leader()
        answer = self.ask(address, timeout_s)
        if isinstance(answer, str) or answer.role != "LEADER":
            self.tracker.forget(address)
            address = self.leader()
            answer = self.ask(address, timeout_s)
        return address, answer

    def follower(self) -> str:
        """Return a follower, or the leader if there is none.

        Raises:
            Refused: no node knows a leader.
        """
        follower = pick_follower(self.ask_all(self.status_timeout_s, is_majority_enough=True), self._random)
        return follower or self.leader()

    def any_node(self) -> str:
        """Return a node that answers, for reads that every node serves.

        Raises:
            Refused: none does.
        """
        answers = self.ask_all(self.status_timeout_s, is_majority_enough=True)
        for address, answer in answers.items():
            if not isinstance(answer, str) and answer.code == ResponseCode.SUCCESS:
                return address
        raise refusal_without_leader(answers)


def _put_address(arrived: SimpleQueue[str], address: str, _call: grpc.Future[StatusResponse]) -> None:
    arrived.put(address)
