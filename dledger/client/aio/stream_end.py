"""Reads a stream of responses to its end, and distinguishes a cancelled call from a cancelled task.

gRPC raises `asyncio.CancelledError` for both. Only a cancelled task must continue unwinding; a cancelled call has ended
like any other.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar, cast

import grpc
import grpc.aio

ResponseT = TypeVar("ResponseT")


class StreamEnded(Exception):
    """The stream has ended: there are no more responses.

    Attributes:
        code: of gRPC; OK when the server ended the stream normally.
        details: gRPC's text for it; may be empty.
    """

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self.code = code
        self.details = details
        super().__init__(f"{code.name} {details}".rstrip())


async def next_response(
    call: grpc.aio.UnaryStreamCall[Any, ResponseT] | grpc.aio.StreamStreamCall[Any, ResponseT], given_up: str
) -> ResponseT:
    """Return the next response of a stream.

    Args:
        call: the stream.
        given_up: the details to report if the owner cancelled the call.

    Raises:
        StreamEnded: there is no further response.
    """
    try:
        response = await call.read()
        if response is not grpc.aio.EOF:
            return cast("ResponseT", response)
        code, details = await call.code(), (await call.details()) or ""
    except grpc.aio.AioRpcError as error:
        code, details = error.code(), error.details() or ""
    except asyncio.CancelledError:
        if is_this_task_cancelled():
            raise
        code, details = grpc.StatusCode.CANCELLED, given_up
    raise StreamEnded(code, details)


def is_this_task_cancelled() -> bool:
    """Return whether a `CancelledError` is for the running task, and not only for a call that it waited on."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
