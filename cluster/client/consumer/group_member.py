"""Keeps one consumer in its group at one broker: a JoinGroup stream, reopened to the new leader after a change."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc.aio

from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import check_answer, failure_of_call
from dledger.client.aio.stream_end import StreamEnded, next_response
from dledger.client.retry import Repetition

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.client.routing.broker_nodes import BrokerNodes
    from cluster.v1.broker_pb2 import JoinGroupRequest, JoinGroupResponse

logger = logging.getLogger(__name__)

_BEAT_S = 30.0
_RETRIABLE = frozenset({Reason.ANSWER_LOST, Reason.ANSWER_LATE})


class GroupMember:
    """The membership of one consumer at one broker. For use by one event loop.

    Args:
        broker: name of the broker.
        nodes: the connections.
        request: the JoinGroup request, sent at once and then every 30 s.
        on_members: called with the group's members, in order, after joining and at each change.
        on_left: called when the stream has ended, and with it the consumer's locks at that broker.
        on_refused: called when the consumer cannot join the group; it is not retried.

    Attributes:
        broker: name of the broker.
        address: address of the node that the stream is open to; empty without one.
        client_ids: the members as last received; empty at first. Kept while the broker cannot be reached.
        failure: the reason of the last end of the stream; None before that.
    """

    def __init__(
        self,
        broker: str,
        nodes: BrokerNodes,
        request: JoinGroupRequest,
        on_members: Callable[[], None],
        on_left: Callable[[str], None],
        on_refused: Callable[[RequestFailed], None],
    ) -> None:
        self.address = ""
        self.broker = broker
        self.client_ids: tuple[str, ...] = ()
        self.failure: RequestFailed | None = None
        self._call: grpc.aio.StreamStreamCall[JoinGroupRequest, JoinGroupResponse] | None = None
        self._nodes = nodes
        self._request = request
        self._on_members = on_members
        self._on_left = on_left
        self._on_refused = on_refused
        self._task = asyncio.get_running_loop().create_task(self._run())

    def reopen(self) -> None:
        """Join again at the current leader: the stream may be broken without an error."""
        if self._call is not None:
            self._call.cancel()

    async def stop(self) -> None:
        """Leave the group."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        repetition = Repetition()
        while True:
            address = self._nodes.leader(self.broker)
            before = self.client_ids
            try:
                await self._nodes.reach(address)
                await self._run_stream(address)
            except RequestFailed as failure:
                self.failure = failure
                if self.client_ids != before:
                    repetition.reset()
                is_named = self._nodes.observe(self.broker, address, failure)
                # If a group is disabled while this consumer is in it, the consumer waits until it is enabled.
                is_held_up = failure.reason is Reason.GROUP_NOT_ENABLED and bool(self.client_ids)
                if not (failure.is_worth_trying or failure.reason in _RETRIABLE or is_held_up):
                    self._on_refused(failure)
                    return
                logger.info("group_left_for_a_moment broker=%s: %s", self.broker, failure.message)
                await asyncio.sleep(repetition.next_s(failure.repeat_after_s, is_named=is_named))

    async def _run_stream(self, address: str) -> None:
        """Stay in the group until the stream ends.

        Raises:
            RequestFailed: the stream ended, for this reason.
        """
        call = self._call = self._nodes.stub(address).JoinGroup()
        self.address = address
        beats = asyncio.ensure_future(self._send_heartbeats(call))
        try:
            while True:
                response = await next_response(call, "another node leads now")
                check_answer(response.answer, address)
                self.client_ids = tuple(response.client_ids)
                self._on_members()
        except StreamEnded as end:
            raise failure_of_call(address, end.code, end.details, "BrokerService") from None
        finally:
            self._call = None
            self.address = ""
            call.cancel()
            self._on_left(self.broker)
            # Last, because `stop` may cancel this task here.
            await end_tasks([beats])

    async def _send_heartbeats(self, call: grpc.aio.StreamStreamCall[JoinGroupRequest, JoinGroupResponse]) -> None:
        # The reader of the call handles its end.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await call.write(self._request)
                await asyncio.sleep(_BEAT_S)
