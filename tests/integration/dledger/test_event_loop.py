"""Loops that follow one another in a process, as those of commands, blocking clients and tests do."""

import asyncio

import grpc
import grpc.aio
import pytest

from dledger import event_loop
from tests.support.waiting import PATIENCE_S, run


def test_unfinished_call_of_a_closed_loop_is_no_error_of_the_next_loop(caplog: pytest.LogCaptureFixture) -> None:
    """gRPC ends the call at its deadline, and passes the event to the loop that runs then."""
    left = []

    async def leave() -> None:
        channel = grpc.aio.insecure_channel("127.0.0.1:1")
        call = channel.unary_unary("/none/None")(b"", timeout=0.2, wait_for_ready=True)
        left.append((channel, call))

    async def come_after() -> None:
        async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary("/none/None")(b"", timeout=min(1.0, PATIENCE_S), wait_for_ready=True)

    loop = event_loop.new_event_loop()
    loop.run_until_complete(leave())
    loop.close()
    run(come_after())

    assert [] == caplog.records


def test_error_that_no_task_receives_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)

    event_loop.run(fail())

    assert "division by zero" in caplog.text
