# ruff: noqa: N802  (gRPC prescribes the names of the methods)
"""Methods that are answered at once: served beyond the share of other calls, with a time limit and own shares."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc.aio

import dledger.service.guarded_method
from cluster.local.node import choose_ports
from dledger.config import Address
from dledger.service.grpc_server import AT_ONCE_PART, Served, start_grpc_server
from dledger.service.guarded_method import Guard
from dledger.service.limits.request_bounds import LOG_BOUNDS
from dledger.v1 import log_pb2
from dledger.v1.log_pb2_grpc import LogServiceServicer, LogServiceStub, add_LogServiceServicer_to_server
from tests.support.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

CALLS_MAX = 64
AT_ONCE_MAX = CALLS_MAX // AT_ONCE_PART
SERVICE = log_pb2.DESCRIPTOR.services_by_name["LogService"]


class HeldAnswers(LogServiceServicer):
    """Answers a status and an append when the test says so."""

    def __init__(self) -> None:
        self.statuses = 0
        self.appends = 0
        self.is_answered = asyncio.Event()

    async def Status(self, _request: Any, _context: Any) -> log_pb2.StatusResponse:
        self.statuses += 1
        await self.is_answered.wait()
        return log_pb2.StatusResponse(code=200)

    async def Append(self, _request: Any, _context: Any) -> log_pb2.AppendResponse:
        self.appends += 1
        await self.is_answered.wait()
        return log_pb2.AppendResponse(code=200)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[HeldAnswers, Any]]:
    """Serve a log whose status is answered at once, as far as the guard knows."""
    address, service = Address("127.0.0.1", choose_ports(1, None)[0]), HeldAnswers()
    guard = Guard(LOG_BOUNDS, at_once=frozenset({"Status"}))
    served = Served(add_LogServiceServicer_to_server, service, SERVICE, guard)
    server = await start_grpc_server(address, [served], calls_max=CALLS_MAX)
    async with grpc.aio.insecure_channel(str(address)) as channel:
        try:
            yield service, LogServiceStub(channel)
        finally:
            service.is_answered.set()
            await server.stop(None)


def ended(calls: list[Any]) -> list[Any]:
    return [each for each in calls if each.done()]


async def code_of(call: Any) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def fill_share(service: HeldAnswers, stub: Any) -> list[Any]:
    """Append until one is refused; return the calls that wait."""
    calls: list[Any] = []
    while not (refused := ended(calls)):
        calls.append(stub.Append(log_pb2.AppendRequest()))
        await until(lambda: service.appends == len(calls) or ended(calls))
    assert await code_of(refused[0]) is grpc.StatusCode.RESOURCE_EXHAUSTED
    return calls[:-1]


def test_caller_with_its_share_is_served_by_a_method_that_is_answered_at_once() -> None:
    async def main() -> None:
        async with serving() as (service, stub), asyncio.timeout(PATIENCE_S):
            waiting = await fill_share(service, stub)
            status = stub.Status(log_pb2.StatusRequest())
            await until(lambda: service.statuses == 1)
            service.is_answered.set()
            assert (await status).code == 200
            assert {await code_of(each) for each in waiting} == {grpc.StatusCode.OK}

    asyncio.run(main())


def test_calls_that_are_answered_at_once_have_shares_of_their_own_places() -> None:
    async def main() -> None:
        async with serving() as (service, stub), asyncio.timeout(PATIENCE_S):
            held = [stub.Status(log_pb2.StatusRequest()) for _ in range(AT_ONCE_MAX // 2)]
            await until(lambda: service.statuses == len(held))
            assert await code_of(stub.Status(log_pb2.StatusRequest())) is grpc.StatusCode.RESOURCE_EXHAUSTED
            # The others are not affected.
            append = stub.Append(log_pb2.AppendRequest())
            service.is_answered.set()
            assert {await code_of(each) for each in (*held, append)} == {grpc.StatusCode.OK}

    asyncio.run(main())


def test_call_that_is_not_answered_at_once_ends_and_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dledger.service.guarded_method, "AT_ONCE_LIMIT_S", 0.05)

    async def main() -> None:
        async with serving() as (service, stub), asyncio.timeout(PATIENCE_S):
            # More than there are places: each has to be given back.
            for _ in range(AT_ONCE_MAX + 1):
                assert await code_of(stub.Status(log_pb2.StatusRequest())) is grpc.StatusCode.DEADLINE_EXCEEDED
            assert service.statuses == AT_ONCE_MAX + 1
            append = stub.Append(log_pb2.AppendRequest())
            service.is_answered.set()
            assert (await append).code == 200

    asyncio.run(main())
