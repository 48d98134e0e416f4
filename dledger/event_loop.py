"""The event loop that a node runs on: uvloop where it is installed, else asyncio's own.

uvloop halves the cost of a peer message and writes the parts of a frame without joining them; nothing depends on it.
"""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, run in a new event loop as by `asyncio.run`."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, for `asyncio.Runner(loop_factory=new_event_loop)`."""
    loop = _new_event_loop()
    loop.set_exception_handler(_report)
    return loop


def _new_event_loop() -> asyncio.AbstractEventLoop:
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    import uvloop  # noqa: PLC0415  (not installed everywhere)

    return uvloop.new_event_loop()


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors that no task receives, except those of gRPC in a process with several loops.

    The loops share gRPC's event queue, and the first one that wakes up passes the events on. A call that was cancelled
    while its loop ended gets its last event after that; and if two loops wake up for one event, one finds nothing.
    """
    is_of_grpc_queue = "PollerCompletionQueue._handle_events" in context.get("message", "")
    error = context.get("exception")
    if is_of_grpc_queue and isinstance(error, BlockingIOError):
        return
    if is_of_grpc_queue and isinstance(error, RuntimeError) and str(error) == "Event loop is closed":
        return
    loop.default_exception_handler(context)
