"""The port of the remoting front answers in any order, asks its clients, and ends connections that misuse it."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest

from cluster.remoting.codec import Reply, decode_frame, encode_request, encode_response
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.front import Front, RemotingClient
from cluster.remoting.limits import RemotingLimits
from cluster.remoting.server import RemotingServer
from dledger.config import Address
from tests.support.brokers.front_callers import any_callers
from tests.support.waiting import run, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

LIMIT_S = 20.0


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def wrapped(*args: Any, **named: Any) -> None:
        run(test(*args, **named))

    return wrapped


class Peer:
    """A client: writes requests, and reads what the server sends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, code: int, opaque: int = 0, body: bytes = b"", *, is_oneway: bool = False) -> None:
        self.writer.write(encode_request(Request(code, {}, body, opaque, is_oneway=is_oneway)))

    async def receive(self) -> Request | Reply:
        async with asyncio.timeout(LIMIT_S):
            size = await self.reader.readexactly(4)
            return decode_frame(await self.reader.readexactly(struct.unpack(">I", size)[0]))

    async def opaque(self) -> int:
        found = await self.receive()
        assert isinstance(found, Reply)
        return found.opaque

    async def ended(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            with suppress(ConnectionError):
                while await self.reader.read(1 << 16):
                    pass


class Handlers:
    """Code 1 echoes, 2 is held until `gate`, 3 fails, 4 keeps the client, 5 answers with a large body."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.held = self.held_max = self.echoed = 0
        self.client: RemotingClient | None = None

    async def echo(self, request: Request, _client: RemotingClient) -> Response:
        self.echoed += 1
        return Response(body=request.body)

    async def hold(self, _request: Request, _client: RemotingClient) -> Response:
        self.held += 1
        self.held_max = max(self.held_max, self.held)
        await self.gate.wait()
        self.held -= 1
        return Response()

    async def fail(self, _request: Request, _client: RemotingClient) -> Response:
        raise ZeroDivisionError

    async def keep(self, _request: Request, client: RemotingClient) -> Response:
        self.client = client
        return Response()

    async def large(self, _request: Request, _client: RemotingClient) -> Response:
        return Response(body=bytes(1 << 20))


class Served:
    def __init__(self, server: RemotingServer, handlers: Handlers, port: int) -> None:
        self.server, self.handlers, self.port = server, handlers, port
        self.peers: list[Peer] = []

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self.peers.append(peer)
        return peer

    async def connect_from(self, host: str) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0)))
        self.peers.append(peer)
        return peer


@asynccontextmanager
async def served(limits: RemotingLimits | None = None) -> AsyncIterator[Served]:
    handlers = Handlers()
    table = {1: handlers.echo, 2: handlers.hold, 3: handlers.fail, 4: handlers.keep, 5: handlers.large}
    server = RemotingServer([Address("127.0.0.1", 0)], Front(table, any_callers(), "C"), limits)
    await server.start()
    found = Served(server, handlers, server.ports[0])
    try:
        yield found
    finally:
        handlers.gate.set()
        await server.stop(LIMIT_S)
        for peer in found.peers:
            peer.writer.close()


@in_loop
async def test_requests_are_answered_in_the_order_in_which_they_are_done() -> None:
    async with served() as port:
        peer = await port.connect()
        peer.send(2, 1)
        peer.send(1, 2)
        assert await peer.opaque() == 2
        port.handlers.gate.set()
        assert await peer.opaque() == 1


@in_loop
async def test_unknown_codes_and_faults_of_handlers_get_responses() -> None:
    async with served() as port:
        peer = await port.connect()
        peer.send(999, 1)
        peer.send(3, 2)
        codes = {found.opaque: found.response.code for found in [await peer.receive(), await peer.receive()]}  # type: ignore[union-attr]
        assert codes == {1: RemotingCode.REQUEST_CODE_NOT_SUPPORTED, 2: RemotingCode.SYSTEM_ERROR}


@in_loop
async def test_a_oneway_request_is_never_answered_also_not_in_a_flood() -> None:
    async with served() as port:
        peer = await port.connect()
        for _ in range(2_000):
            peer.send(1, 1, is_oneway=True)
            peer.send(999, 1, is_oneway=True)
        peer.send(1, 2)
        assert await peer.opaque() == 2
        assert port.handlers.echoed == 2_001


@in_loop
async def test_the_server_asks_a_client_whose_numbers_may_be_the_same() -> None:
    async with served() as port:
        peer = await port.connect()
        peer.send(4, 1)
        assert await peer.opaque() == 1
        client = port.handlers.client
        assert client is not None
        peer.send(2, 1)
        asking = asyncio.create_task(client.ask(Request(307), LIMIT_S))
        asked = await peer.receive()
        assert isinstance(asked, Request)
        assert (asked.code, asked.opaque, asked.is_oneway) == (307, 1, False)
        peer.writer.write(encode_response(Response(body=b"own"), asked.opaque))
        assert (await asking).body == b"own"
        client.push(Request(40))
        pushed = await peer.receive()
        assert isinstance(pushed, Request)
        assert pushed.is_oneway
        with pytest.raises(Rejected) as late:
            await client.ask(Request(307), 0.01)
        assert late.value.code == RemotingCode.CONSUME_MSG_TIMEOUT


@in_loop
async def test_a_closed_connection_ends_what_is_asked_and_calls_back_once() -> None:
    async with served() as port:
        peer = await port.connect()
        peer.send(4, 1)
        await peer.opaque()
        client = port.handlers.client
        assert client is not None
        closed = asyncio.Event()
        client.when_closed(closed.set)
        asking = asyncio.create_task(client.ask(Request(307), LIMIT_S))
        await peer.receive()
        peer.writer.close()
        with pytest.raises(Rejected) as refused:
            await asking
        assert refused.value.code == RemotingCode.CONSUMER_NOT_ONLINE
        async with asyncio.timeout(LIMIT_S):
            await closed.wait()
        with pytest.raises(Rejected):
            await client.ask(Request(307), LIMIT_S)


@in_loop
async def test_of_a_flood_only_the_bounded_number_is_in_flight() -> None:
    async with served(RemotingLimits(calls_max=4)) as port:
        peer = await port.connect()
        for opaque in range(100):
            peer.send(2, opaque)
        await until(lambda: port.handlers.held == 4)
        port.handlers.gate.set()
        assert sorted([await peer.opaque() for _ in range(100)]) == list(range(100))
        assert port.handlers.held_max == 4
        assert port.server.calls == port.server.call_bytes == 0


@in_loop
async def test_one_address_has_half_of_all_requests_in_flight_and_another_one_still_has_places() -> None:
    async with served(RemotingLimits(all_calls_max=8)) as port:
        greedy = [await port.connect() for _ in range(2)]
        for peer in greedy:
            for opaque in range(100):
                peer.send(2, opaque)
        # One more for a connection that would have none.
        await until(lambda: port.handlers.held in (4, 5))
        other = await port.connect_from("127.0.0.2")
        for opaque in range(3):
            other.send(2, opaque)
        await until(lambda: port.handlers.held in (6, 7, 8))
        other.send(1, 9)
        port.handlers.gate.set()
        assert sorted([await other.opaque() for _ in range(4)]) == [0, 1, 2, 9]
        for peer in greedy:
            assert sorted([await peer.opaque() for _ in range(100)]) == list(range(100))
        assert port.server._of_clients == {}


@in_loop
async def test_a_client_that_does_not_read_is_not_read_from_and_ends() -> None:
    async with served(RemotingLimits(unread_bytes_max=8 << 20)) as port:
        peer = await port.connect()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for opaque in range(64):
            peer.send(5, opaque)
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        other = await port.connect()
        other.send(1, 9)
        assert await other.opaque() == 9


@pytest.mark.parametrize(
    "sent", [struct.pack(">I", 16 << 20), b"GET / HTTP/1.1\r\n\r\n", struct.pack(">II", 4, 0x02000000)], ids=range(3)
)
@in_loop
async def test_bytes_that_are_no_frame_end_the_connection(sent: bytes) -> None:
    async with served() as port:
        peer = await port.connect()
        peer.writer.write(sent)
        await peer.ended()


@in_loop
async def test_connections_without_a_whole_frame_and_idle_ones_are_ended_by_time() -> None:
    async with served(RemotingLimits(greeting_s=0.1, partial_s=0.1, idle_s=0.1)) as port:
        silent, half, later_half, idle = [await port.connect() for _ in range(4)]
        half.writer.write(struct.pack(">I", 100) + b"x")
        for peer in (later_half, idle):
            peer.send(1, 1)
            assert await peer.opaque() == 1
        later_half.writer.write(struct.pack(">I", 100) + b"x")
        for peer in (silent, half, later_half, idle):
            await peer.ended()


@in_loop
async def test_half_frames_of_many_connections_are_bounded_together() -> None:
    async with served(RemotingLimits(partial_bytes_max=1 << 20)) as port:
        peers = [await port.connect() for _ in range(4)]
        for peer in peers:
            peer.writer.write(struct.pack(">I", 1 << 20) + bytes(400 << 10))
        async with asyncio.timeout(LIMIT_S):
            ends = [asyncio.create_task(peer.ended()) for peer in peers]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()


@in_loop
async def test_a_client_has_its_share_of_the_connections() -> None:
    async with served(RemotingLimits(connections_max=4)) as port:
        peers = [await port.connect() for _ in range(3)]
        await peers[-1].ended()


@in_loop
async def test_a_stop_leaves_no_request_without_a_response() -> None:
    async with served() as port:
        peer = await port.connect()
        peer.send(2, 1)
        await until(lambda: port.handlers.held)
        await port.server.stop(0.05)
        found = await peer.receive()
        assert isinstance(found, Reply)
        assert found.response.code == RemotingCode.SERVICE_NOT_AVAILABLE
        await peer.ended()
