"""Appends to a log of raw entries that are not committed: one user has its share of them, and others are served."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import generate_latest

from dledger.client.failures import CHANNEL_OPTIONS
from dledger.errors import ResponseCode
from dledger.node.node import Node
from dledger.pending.appends import AppendResult
from dledger.security.channels import open_aio_channel
from dledger.v1.log_pb2 import AppendRequest, AppendResponse
from dledger.v1.log_pb2_grpc import LogServiceStub
from tests.integration.cluster.gates.test_raw_log_rights import GROUP, GUEST, LISTS, WRITER, raw_node
from tests.support.waiting import PATIENCE_S, in_a_loop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

OVERLOADED = ResponseCode.LEADER_PENDING_FULL
ENDED = AppendResult(ResponseCode.WAIT_QUORUM_ACK_TIMEOUT, "ended by the test")
ONE = AppendRequest(group=GROUP, bodies=[b"x"])


class HeldAppends:
    """Appends of a node whose disk does not answer until `release`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pending: list[asyncio.Future[AppendResult]] = []
        monkeypatch.setattr(Node, "append", lambda _node, _bodies: self.append())

    def append(self) -> asyncio.Future[AppendResult]:
        self.pending.append(asyncio.get_running_loop().create_future())
        return self.pending[-1]

    def release(self) -> None:
        for each in self.pending:
            each.set_result(ENDED)
        self.pending.clear()


async def answered(calls: list[asyncio.Future[AppendResponse]]) -> list[AppendResponse]:
    return [await each for each in calls if each.done()]


@in_a_loop
async def test_user_with_its_share_of_pending_appends_is_refused_and_another_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldAppends(monkeypatch)
    async with (
        raw_node(tmp_path, **LISTS, max_pending_requests_num="40") as node,
        open_aio_channel(node.address, WRITER, CHANNEL_OPTIONS) as channel,
        open_aio_channel(node.address, GUEST, CHANNEL_OPTIONS) as other,
    ):
        heavy, modest = LogServiceStub(channel), LogServiceStub(other)
        calls = [asyncio.ensure_future(heavy.Append(ONE, timeout=PATIENCE_S)) for _ in range(60)]
        await until(lambda: sum(each.done() for each in calls) == 40)
        refused = await answered(calls)
        assert {each.code for each in refused} == {OVERLOADED}
        assert "user/writer' has its share of the" in refused[0].message
        assert "repeat the request in" in refused[0].message
        assert len(held.pending) == 20
        others = [asyncio.ensure_future(modest.Append(ONE, timeout=PATIENCE_S)) for _ in range(9)]
        await until(lambda: len(held.pending) == 29)
        assert not any(each.done() for each in others)
        held.release()
        assert {(await each).code for each in others} == {ENDED.code}
        page = generate_latest(node.registry).decode()
    (counted,) = [
        line
        for line in page.splitlines()
        if line.startswith("dledger_refusals_total") and "LEADER_PENDING_FULL" in line
    ]
    assert float(counted.split()[-1]) == 40


@in_a_loop
async def test_share_is_kept_until_the_appends_are_decided_although_their_client_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldAppends(monkeypatch)
    async with (
        raw_node(tmp_path, **LISTS, max_pending_requests_num="8") as node,
        open_aio_channel(node.address, WRITER, CHANNEL_OPTIONS) as channel,
    ):
        stub = LogServiceStub(channel)
        calls = [asyncio.ensure_future(stub.Append(ONE, timeout=PATIENCE_S)) for _ in range(4)]
        await until(lambda: len(held.pending) == 4)
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
        # On a stream, too: it answers each request that is above the share.
        assert (await stub.Append(ONE, timeout=PATIENCE_S)).code == OVERLOADED
        assert [each.code async for each in stub.AppendStream(two(), timeout=PATIENCE_S)] == [OVERLOADED] * 2
        held.release()
        again = asyncio.ensure_future(stub.Append(ONE, timeout=PATIENCE_S))
        await until(lambda: len(held.pending) == 1)
        held.release()
        assert (await again).code == ENDED.code


async def two() -> AsyncIterator[AppendRequest]:
    for number in (1, 2):
        yield AppendRequest(group=GROUP, bodies=[b"x"], request_id=number)
