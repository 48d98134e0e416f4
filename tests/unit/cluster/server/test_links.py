"""The connection to a name server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import grpc

from cluster.api.name_servers import links
from cluster.api.name_servers.links import GrpcNameServer

if TYPE_CHECKING:
    import pytest

    from dledger.security.settings import Security


class FakeChannel:
    """A channel that needs some iterations of the loop to close."""

    def __init__(self) -> None:
        self.is_closed = False

    def get_state(self) -> grpc.ChannelConnectivity:
        return grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, _: object) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self.is_closed = True


def test_concurrent_requests_after_a_change_of_certificates_leave_no_connection_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[FakeChannel] = []

    def open_channel(*_: object) -> FakeChannel:
        opened.append(FakeChannel())
        return opened[-1]

    monkeypatch.setattr(links, "open_aio_channel", open_channel)
    monkeypatch.setattr(links, "NameServerStub", lambda channel: channel)
    certificates = iter(range(1000))
    current = [next(certificates)]

    async def run() -> None:
        server = GrpcNameServer("n:1", lambda: None, security=lambda: cast("Security", current[0]))
        await server._stub()
        for _ in range(5):
            current[0] = next(certificates)
            await asyncio.gather(*(server._stub() for _ in range(3)))
        assert sum(not channel.is_closed for channel in opened) == 1
        await server.close()

    asyncio.run(run())

    assert len(opened) == 6
    assert all(channel.is_closed for channel in opened)
