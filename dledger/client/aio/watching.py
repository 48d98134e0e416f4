"""Watches one node: the stream of `AdminService.Watch`, continued after each break.

Not here: the meaning of the events for people (`dledger.client.watch_text`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from dledger.client.failures import code_of_failure, describe
from dledger.client.outcomes import name_of
from dledger.errors import ResponseCode
from dledger.v1.admin_pb2_grpc import AdminServiceStub
from dledger.v1.watch_pb2 import WatchRequest, WatchResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dledger.client.aio.host import ClientHost
    from dledger.v1.admin_pb2_grpc import AdminServiceAsyncStub

_RETRY_S: Final = 1.0
# A node sends its state once a second, or once in an interval that is longer.
_SILENCE_MIN_S: Final = 5.0
# After these the same request may succeed later; any other refusal is final.
_PASSING: Final = frozenset(
    {ResponseCode.NETWORK_ERROR, ResponseCode.INTERNAL_ERROR, ResponseCode.DISK_ERROR, ResponseCode.LEADER_PENDING_FULL}
)


@dataclass(frozen=True, slots=True)
class WatchBroken:
    """The stream of a node broke; the last known state is out of date.

    Attributes:
        code: the node's, 302 if it does not answer.
        message: the cause, for people.
        is_final: the node refuses this client, and would refuse it again: nothing follows.
    """

    code: int
    message: str
    is_final: bool


async def watch_node(
    address: str, *, group: str, host: ClientHost, interval_ms: int = 0, has_history: bool = False
) -> AsyncGenerator[WatchResponse | WatchBroken, None]:
    """Yield the responses of a node while the caller reads; after a break, reconnect and continue without loss.

    Args:
        address: `host:port` of the node's LogService.
        group: the replication group.
        host: connections.
        interval_ms: the shortest time between two states, 100 to 60,000; 0: 100.
        has_history: begin with the events that the node still has.
    """
    request = WatchRequest(group=group, interval_ms=interval_ms)
    if has_history:
        request.after_sequence = 0
    silence_s = max(_SILENCE_MIN_S, 3 * interval_ms / 1_000)
    channel = host.connect(address)
    stub: AdminServiceAsyncStub = AdminServiceStub(channel)
    try:
        while True:
            broken: WatchBroken | None = None
            async for answer in _stream(stub, address, request, silence_s):
                if isinstance(answer, WatchResponse):
                    request.after_sequence, request.process = answer.sequence, answer.process
                else:
                    broken = answer
                yield answer
            if broken is not None and broken.is_final:
                return
            await asyncio.sleep(_RETRY_S)
    finally:
        await channel.close()


async def _stream(
    stub: AdminServiceAsyncStub, address: str, request: WatchRequest, silence_s: float
) -> AsyncGenerator[WatchResponse | WatchBroken, None]:
    """Yield the responses of one call, then why it ended."""
    call = stub.Watch(request)
    try:
        while True:
            async with asyncio.timeout(silence_s):
                response = await call.read()
            if not isinstance(response, WatchResponse):
                yield WatchBroken(ResponseCode.NETWORK_ERROR, f"{address} ended the stream", is_final=False)
                return
            if response.code != ResponseCode.SUCCESS:
                text = f"{address} answered: {response.message or name_of(response.code)}"
                yield WatchBroken(response.code, text, is_final=response.code not in _PASSING)
                return
            yield response
    except TimeoutError:
        text = f"{address} has sent nothing for {silence_s:g} s"
        yield WatchBroken(ResponseCode.NETWORK_ERROR, text, is_final=False)
    except grpc.aio.AioRpcError as error:
        details = error.details() or ""
        code = code_of_failure(error.code(), details)
        is_missing = error.code() is grpc.StatusCode.UNIMPLEMENTED
        text = f"{address} is of a version without Watch" if is_missing else ""
        text = text or describe(address, error.code(), details, "AdminService")
        yield WatchBroken(code, text, is_final=is_missing or code not in _PASSING)
    finally:
        call.cancel()
