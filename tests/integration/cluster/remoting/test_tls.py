"""The port of the remoting front with TLS: what it takes in each mode, and what a slow handshake costs others."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cluster.remoting.codec import Reply, decode_frame, encode_request
from cluster.remoting.command import Request, Response
from cluster.remoting.front import Front
from cluster.remoting.limits import RemotingLimits
from cluster.remoting.port import RemotingPort
from cluster.remoting.server import RemotingServer
from dledger.config import Address
from dledger.event_loop import new_event_loop
from dledger.security.server_port import WithoutClientCertificates
from tests.support.brokers.front_callers import any_callers
from tests.support.certificates import new_authority, node_pair, tls_of
from tests.support.waiting import SCENARIO_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from dledger.security.settings import Tls

OURS = new_authority()
OLD, NEW = (node_pair(OURS, "n0") for _ in range(2))
LIMITS = RemotingLimits(greeting_s=0.5)


class Port:
    """A port with one handler, which echoes."""

    def __init__(self) -> None:
        # As of a port with client_tls = mutual.
        self.tls: Tls = replace(tls_of(OLD, OURS), is_certificate_required=True)
        self.number = self.second = 0

    @contextlib.asynccontextmanager
    async def open(self, limits: RemotingLimits | None = None, *, is_permissive: bool = False) -> AsyncIterator[Port]:
        async def echo(request: Request, _client: Any) -> Response:
            return Response(body=request.body)

        server = RemotingServer(
            [Address("127.0.0.1", 0), Address("127.0.0.1", 0)],
            Front({1: echo}, any_callers(), "C"),  # type: ignore[no-untyped-call]
            limits,
            security=WithoutClientCertificates(lambda: self.tls),
            is_permissive=is_permissive,
        )
        await server.start()
        self.number, self.second = server.ports
        try:
            yield self
        finally:
            await server.stop(SCENARIO_LIMIT_S)

    @contextlib.asynccontextmanager
    async def connect(self, context: ssl.SSLContext | None) -> AsyncIterator[Peer]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number, ssl=context)
        try:
            yield Peer(reader, writer)
        finally:
            writer.close()

    @contextlib.asynccontextmanager
    async def patiently(self) -> AsyncIterator[Peer]:
        """Connect; again if this process has stopped for longer than the port waits."""
        while True:
            with contextlib.suppress(OSError, EOFError):
                async with self.connect(unverified()) as peer:
                    assert await peer.echoed(b"x") == b"x"
                    yield peer
                    return


class Peer:
    """A client's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def echoed(self, body: bytes) -> bytes:
        self.writer.write(encode_request(Request(1, {}, body, 7)))
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        found = decode_frame(await self.reader.readexactly(size))
        assert isinstance(found, Reply)
        return bytes(found.response.body)

    async def is_closed(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return not await self.reader.read(1)
        return True

    def certificate(self) -> bytes:
        """Return the certificate that the server has shown."""
        shown: bytes = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return shown


def unverified(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """Return the context of a client that verifies nothing and shows nothing, as RocketMQ's by default."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    return context


@pytest.fixture(params=[new_event_loop, asyncio.new_event_loop], ids=["production", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Return a function that runs a scenario, in each kind of event loop."""

    def in_loop(scenario: Coroutine[Any, Any, None]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(SCENARIO_LIMIT_S):
                await scenario

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(limited())

    return in_loop


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_of_either_version_of_tls_is_served_without_a_certificate_of_its_own(
    run: Callable[..., None], version: ssl.TLSVersion
) -> None:
    async def scenario() -> None:
        async with Port().open() as port, port.connect(unverified(version)) as peer:
            large = bytes(range(256)) * (1 << 13)
            assert [await peer.echoed(body) for body in (b"one", large)] == [b"one", large]

    run(scenario())


def test_a_plain_connection_is_refused_before_its_request_is_read_and_the_log_names_the_remedy(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Port().open() as port:
            for _ in range(3):
                async with port.connect(None) as peer:
                    peer.writer.write(encode_request(Request(1, {}, b"plain", 7)))
                    assert await peer.is_closed()

    run(scenario())
    line = next(each for each in caplog.messages if each.startswith("remoting_refused"))
    assert "client=127.0.0.1 " in line
    assert "tls.enable=true" in line


def test_a_permissive_port_distinguishes_tls_from_plain_frames_by_the_first_byte(run: Callable[..., None]) -> None:
    async def scenario() -> None:
        async with (
            Port().open(is_permissive=True) as port,
            port.connect(None) as plain,
            port.connect(unverified()) as secured,
        ):
            assert [await each.echoed(b"x") for each in (plain, secured, plain)] == [b"x"] * 3

    run(scenario())


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"], ids=["nothing", "byte", "half"])
def test_a_handshake_that_does_not_end_is_closed_at_its_limit_and_delays_no_other_client(
    run: Callable[..., None], sent: bytes
) -> None:
    async def scenario() -> None:
        async with Port().open(LIMITS) as port, contextlib.AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(port.connect(None)) for _ in range(8)]
            for each in silent:
                each.writer.write(sent)
            peer = await stack.enter_async_context(port.patiently())
            for each in silent:
                assert await each.is_closed()
            # The limit is that of the beginning only.
            assert await peer.echoed(b"later") == b"later"

    run(scenario())


def test_the_oldest_unfinished_handshake_is_closed_for_a_new_one_beyond_their_bound(run: Callable[..., None]) -> None:
    limits = RemotingLimits(ungreeted_max=4, ungreeted_address_max=4, greeting_s=SCENARIO_LIMIT_S)

    async def scenario() -> None:
        async with Port().open(limits) as port, contextlib.AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(port.connect(None)) for _ in range(4)]
            for each in silent:
                each.writer.write(b"\x16")
            async with port.connect(unverified()) as peer:
                assert await peer.echoed(b"x") == b"x"
            assert await silent[0].is_closed()

    run(scenario())


def test_the_second_address_of_older_clients_has_the_same_tls(run: Callable[..., None]) -> None:
    async def scenario() -> None:
        async with Port().open() as port:
            port.number = port.second
            async with port.connect(unverified()) as secured, port.connect(None) as plain:
                assert await secured.echoed(b"x") == b"x"
                plain.writer.write(encode_request(Request(1, {}, b"plain", 7)))
                assert await plain.is_closed()

    run(scenario())
    address, vip = Address("127.0.0.1", 10911), Address("127.0.0.1", 10909)
    assert RemotingPort(address, {}, "").listened == (address,)
    assert RemotingPort(address, {}, "", vip).listened == (address, vip)


def test_a_changed_certificate_is_shown_to_new_connections_and_open_ones_stay(run: Callable[..., None]) -> None:
    async def scenario() -> None:
        async with Port().open() as port, port.connect(unverified()) as before:
            assert await before.echoed(b"x") == b"x"
            port.tls = replace(port.tls, certificate=NEW.certificate_pem(), key=NEW.key_pem())
            async with port.connect(unverified()) as after:
                assert await after.echoed(b"x") == b"x"
                shown = [ssl.DER_cert_to_PEM_cert(each.certificate()) for each in (before, after)]
            assert await before.echoed(b"y") == b"y"
        assert shown == [each.certificate_pem().decode() for each in (OLD, NEW)]

    run(scenario())


def test_a_port_that_stops_leaves_no_connection_in_a_handshake(run: Callable[..., None]) -> None:
    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with Port().open() as port:
                silent = await stack.enter_async_context(port.connect(None))
                silent.writer.write(b"\x16\x03\x01")
                async with port.connect(unverified()) as peer:
                    assert await peer.echoed(b"x") == b"x"
            assert await silent.is_closed()

    run(scenario())
