"""Connections of an asyncio client: one gRPC channel per node, and leader discovery."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from dledger.client.aio.frame_link import FrameLinks
from dledger.client.connections import Connections
from dledger.client.endpoints import LeaderTracker, is_enough, pick_follower, pick_leader, refusal_without_leader
from dledger.client.failures import answer_of_failure
from dledger.client.outcomes import Refused
from dledger.errors import ResponseCode
from dledger.v1.admin_pb2_grpc import AdminServiceStub
from dledger.v1.log_pb2 import StatusRequest, StatusResponse
from dledger.v1.log_pb2_grpc import LogServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from dledger.client.aio.host import ClientHost
    from dledger.v1.admin_pb2_grpc import AdminServiceAsyncStub
    from dledger.v1.log_pb2_grpc import LogServiceAsyncStub


class AsyncNodes:
    """Connections to the nodes of one group, opened when first used. For use by one event loop.

    Args:
        endpoints: `host:port` of the nodes' LogService.
        group: the replication group.
        host: clock, randomness and connections.

    Attributes:
        status_timeout_s: of a request for the status of a node.
        frames: links to the nodes' frame ports; None: they are not used.
    """

    def __init__(self, endpoints: str | Iterable[str], group: str, host: ClientHost) -> None:
        self.tracker = LeaderTracker(endpoints)
        self._group = group
        self._host = host
        self.status_timeout_s = host.status_timeout_s
        self.frames = None if host.frames is None else FrameLinks(host.frames, host.now_s)
        stub_of: Callable[[grpc.aio.Channel], LogServiceAsyncStub] = LogServiceStub
        self._connections = Connections(host.connect, stub_of)

    def stub(self, address: str) -> LogServiceAsyncStub:
        """Return the stub for the node at `address`; the channel connects at the first call."""
        return self._connections.stub(address)

    def stream_stub(self, address: str) -> AbstractContextManager[LogServiceAsyncStub]:
        """Lend a stub for the node at `address` for one stream that may stay open."""
        return self._connections.stream_stub(address)

    def admin_stub(self, address: str) -> AdminServiceAsyncStub:
        """Return the AdminService stub for the node at `address`."""
        return AdminServiceStub(self._connections.channel(address))

    async def close(self) -> None:
        """Close all connections; calls in flight end with CANCELLED."""
        if self.frames is not None:
            await self.frames.close()
        for channel in self._connections.channels():
            await channel.close()

    async def ask(self, address: str, timeout_s: float) -> StatusResponse | str:
        """Return the node's status, or a description of why it does not answer."""
        try:
            answer = await self.stub(address).Status(StatusRequest(group=self._group), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            self.tracker.failed(address)
            return answer_of_failure(address, error.code(), error.details() or "")
        self.tracker.answered(address)
        if self.frames is not None:
            self.frames.ports.learn(address, answer.frame_address)
        return answer

    async def reach(self, address: str, timeout_s: float) -> None:
        """Check that a node answers at `address` before a request is sent whose outcome could be unknown.

        Raises:
            Refused: it does not answer; the message says why.
        """
        if not self.tracker.has_answered(address):
            answer = await self.ask(address, timeout_s)
            if isinstance(answer, str):
                raise Refused(ResponseCode.NETWORK_ERROR, answer)

    async def ask_all(self, timeout_s: float, *, is_majority_enough: bool = False) -> dict[str, StatusResponse | str]:
        """Ask all nodes at once.

        Args:
            timeout_s: bounds the wait for a silent node.
            is_majority_enough: return as soon as a majority has answered and a leader is named.
        """
        asked = self.tracker.addresses
        tasks = {asyncio.ensure_future(self.ask(address, timeout_s)): address for address in asked}
        answers: dict[str, StatusResponse | str] = {}
        waiting = list(tasks)
        try:
            while waiting and not (is_majority_enough and is_enough(answers, len(asked))):
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                # In the order of the addresses: the first of equal answers is taken.
                answers.update({tasks[task]: task.result() for task in waiting if task in done})
                waiting = [task for task in waiting if task not in done]
        finally:
            # In the same order: the order of a set would differ between processes.
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait(waiting)
        return answers

    async def find_leader(self) -> str | None:
        """Ask the nodes for the leader; return the leader's `host:port`, None while none of them knows."""
        leader = pick_leader(await self.ask_all(self.status_timeout_s, is_majority_enough=True))
        return None if leader is None else self.tracker.follow(leader)

    async def leader(self) -> str:
        """Return the address to try as the leader: the last known one, else the one that the nodes name.

        Raises:
            Refused: no node knows a leader; the message contains each node's answer.
        """
        if self.tracker.leader is not None:
            return self.tracker.leader
        answers = await self.ask_all(self.status_timeout_s, is_majority_enough=True)
        leader = pick_leader(answers)
        if leader is None:
            raise refusal_without_leader(answers)
        return self.tracker.follow(leader)

    async def status_of_leader(self, timeout_s: float) -> tuple[str, StatusResponse | str]:
        """Return the leader's address, and its status or the reason why there is none.

        If the presumed leader does not answer or was deposed, the leader is searched for once more.

        Raises:
            Refused: as `leader`.
        """
        address = await self.leader()
        answer = await self.ask(address, timeout_s)
        if isinstance(answer, str) or answer.role != "LEADER":
            self.tracker.forget(address)
            address = await self.leader()
            answer = await self.ask(address, timeout_s)
        return address, answer

    async def follower(self) -> str:
        """Return a follower, or the leader if there is none.

        Raises:
            Refused: no node knows a leader.
        """
        follower = pick_follower(await self.ask_all(self.status_timeout_s, is_majority_enough=True), self._host.random)
        return follower or await self.leader()

    async def any_node(self) -> str:
        """Return a node that answers, for reads that every node serves.

        Raises:
            Refused: none does.
        """
        answers = await self.ask_all(self.status_timeout_s, is_majority_enough=True)
        for address, answer in answers.items():
            if not isinstance(answer, str) and answer.code == ResponseCode.SUCCESS:
                return address
        raise refusal_without_leader(answers)
