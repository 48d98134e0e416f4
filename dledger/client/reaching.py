"""Chooses the next host to call, when some hosts may not answer.

A connection to a host that is switched off, or whose firewall drops packets, is not refused but times out: gRPC's limit
is three seconds (`dledger.client.failures`). So a caller with several hosts waits `PATIENCE_S` for the first one, then
tries all in parallel and uses the one that answers first. The first attempt continues meanwhile, because the host may
only be busy.
"""

from __future__ import annotations

import asyncio
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from dledger.security.settings import Tls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.security.settings import Security


PATIENCE_S: Final = 0.5
# A live node answers a request for its status in a millisecond; this bounds the delay that a silent one causes.
STATUS_TIMEOUT_S = 0.5
# The same for a new connection with TLS: two or three round trips more, and processor time of both ends.
TLS_STATUS_TIMEOUT_S = 2.0
# gRPC's own time limit of an attempt to connect.
ATTEMPT_S = 3.0
_HEALTH_CHECK: Final = "/grpc.health.v1.Health/Check"
_SILENT: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def status_timeout_s(security: Security) -> float:
    """Return the timeout of a request for the status of a node, in seconds."""
    return TLS_STATUS_TIMEOUT_S if isinstance(security, Tls) else STATUS_TIMEOUT_S


def next_to_ask(channels: Sequence[grpc.Channel]) -> grpc.Channel:
    """Return the first of some channels if its host answers soon, or else the one whose host answers first.

    If no host answers, the first one is returned; a call to it reports the reason.
    """
    return channels[0] if len(channels) == 1 else reached_soon(channels, ATTEMPT_S) or channels[0]


def reached_soon(channels: Sequence[grpc.Channel], patience_s: float) -> grpc.Channel | None:
    """Return the channel that `next_to_ask` chooses, or None if no host answers; all are tried for `patience_s`."""
    first = _first_reached(channels[:1], PATIENCE_S)
    return first if first or len(channels) == 1 else _first_reached(channels, patience_s)


def _first_reached(channels: Sequence[grpc.Channel], patience_s: float) -> grpc.Channel | None:
    # Any answer is enough. Watching the channel's state instead needs a thread, which fails when the channel is closed.
    asked: dict[grpc.Future[bytes], grpc.Channel] = {}
    ended: SimpleQueue[grpc.Future[bytes]] = SimpleQueue()
    for channel in channels:
        check = channel.unary_unary(_HEALTH_CHECK, request_serializer=bytes, response_deserializer=bytes)
        call = check.future(b"", timeout=patience_s)
        asked[call] = channel
        call.add_done_callback(ended.put)
    # Every call ends by its own time limit.
    return next((asked[call] for call in (ended.get() for _ in asked) if _is_answered(call)), None)


async def next_to_ask_soon(channels: Sequence[grpc.aio.Channel]) -> grpc.aio.Channel:
    """Return the channel that `next_to_ask` chooses."""
    if len(channels) == 1 or await _answers_soon(channels[0], PATIENCE_S):
        return channels[0]
    tries = {asyncio.ensure_future(_answers_soon(channel, ATTEMPT_S)): channel for channel in channels}
    waiting = list(tries)
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            # In the order of the channels: of two that answer at once, the first is taken in every process.
            ended = [task for task in waiting if task in done]
            waiting = [task for task in waiting if task not in done]
            for task in ended:
                if task.result():
                    return tries[task]
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return channels[0]


async def _answers_soon(channel: grpc.aio.Channel, patience_s: float) -> bool:
    if channel.get_state() is grpc.ChannelConnectivity.READY:
        return True
    # Not by watching the channel's state: a watch that outlives the event loop would call a closed loop.
    check = channel.unary_unary(_HEALTH_CHECK, request_serializer=bytes, response_deserializer=bytes)
    try:
        await check(b"", timeout=patience_s)
    except grpc.aio.AioRpcError as error:
        return error.code() not in _SILENT
    return True


def _is_answered(call: grpc.Future[bytes]) -> bool:
    error = call.exception()
    return not isinstance(error, grpc.RpcError) or error.code() not in _SILENT
