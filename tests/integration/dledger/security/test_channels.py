"""gRPC over TLS between the two functions of this project: certificates in every relation, and their change."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from dledger.client.failures import CHANNEL_OPTIONS, describe, never_left
from dledger.security import channels
from dledger.security.channels import open_aio_channel, open_channel
from dledger.security.credentials import Credentials
from dledger.security.server_port import WithoutClientCertificates, add_server_port
from dledger.security.settings import PLAIN, Plain, Tls
from dledger.service.call_gate import admit
from dledger.service.grpc_server import start_grpc_server
from tests.support.certificates import new_authority, node_pair, tls_of, user_pair, write_tls
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from dledger.config import Address
    from dledger.security.server_port import PortSecurity
    from dledger.security.settings import Security

    Run = Callable[[Coroutine[Any, Any, None]], None]

OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
N0 = node_pair(OURS, "n0")
SERVER = tls_of(N0, OURS)
MUTUAL = tls_of(N0, OURS, is_certificate_required=True)
TRUSTING = Tls(OURS.certificate_pem())
ALICE = tls_of(user_pair(OURS, "alice"), OURS)
SERVING = HealthCheckResponse.SERVING


@asynccontextmanager
async def serving(address: Address, security: PortSecurity) -> AsyncIterator[str]:
    server = await start_grpc_server(address, [], security=security)
    try:
        yield str(address)
    finally:
        await server.stop(None)


async def check(address: str, security: Security, *, name: str = "") -> Any:
    """Return the status that a server answers, or the user's error text without a connection."""
    async with open_aio_channel(address, security, CHANNEL_OPTIONS) as channel:
        try:
            stub: Any = HealthStub(channel)
            return (await stub.Check(HealthCheckRequest(service=name), timeout=PATIENCE_S)).status
        except grpc.aio.AioRpcError as error:
            if not never_left(error.code(), error.details() or ""):
                raise
            return describe(address, error.code(), error.details() or "")


@pytest.mark.parametrize(
    ("server", "client"),
    [(PLAIN, PLAIN), (SERVER, TRUSTING), (SERVER, ALICE), (MUTUAL, ALICE), (MUTUAL, SERVER)],
    ids=["plain", "TLS", "TLS, certificate unasked", "mutual", "mutual, a node as client"],
)
def test_client_with_the_right_certificates_is_served(
    run: Run, free_address: Callable[[], Address], server: PortSecurity, client: Security
) -> None:
    async def scenario() -> None:
        async with serving(free_address(), server) as address:
            assert await check(address, client) == SERVING
            assert await asyncio.to_thread(check_blocking, address, client) == SERVING

    run(scenario())


def check_blocking(address: str, security: Security) -> Any:
    with open_channel(address, security, CHANNEL_OPTIONS) as channel:
        stub: Any = HealthStub(channel)
        return stub.Check(HealthCheckRequest(), timeout=PATIENCE_S).status


OTHER_HOST = node_pair(OURS, "n0", hosts=["db0.example.net"])


@pytest.mark.parametrize(
    ("server", "client", "reason"),
    [
        (SERVER, PLAIN, "may require TLS, or another certificate"),
        (PLAIN, TRUSTING, "it does not use TLS"),
        (SERVER, Tls(FOREIGN.certificate_pem()), "is refused: unable to get local issuer certificate"),
        (tls_of(OTHER_HOST, OURS), TRUSTING, "certificate does not have the host of this address"),
        (tls_of(node_pair(OURS, "n0", is_expired=True), OURS), TRUSTING, "is refused: certificate has expired"),
        (tls_of(user_pair(OURS, "n0"), OURS), TRUSTING, "is refused: unsupported certificate purpose"),
        (MUTUAL, TRUSTING, "may require TLS, or another certificate"),
        (MUTUAL, tls_of(user_pair(FOREIGN, "alice"), OURS), "may require TLS, or another certificate"),
        (MUTUAL, tls_of(user_pair(OURS, "alice", is_expired=True), OURS), "may require TLS, or another certificate"),
    ],
    ids=[
        "plain client",
        "plain server",
        "foreign server",
        "other host",
        "expired server",
        "user as server",
        "no certificate",
        "foreign client",
        "expired client",
    ],
)
def test_client_and_server_that_do_not_fit_are_not_connected(
    run: Run, free_address: Callable[[], Address], server: PortSecurity, client: Security, reason: str
) -> None:
    async def scenario() -> None:
        async with serving(free_address(), server) as address:
            found = await check(address, client)
            assert reason in found
            assert found.startswith(f"{address} is not reachable (")

    run(scenario())


def test_name_of_the_server_may_differ_from_the_dialed_address(run: Run, free_address: Callable[[], Address]) -> None:
    async def scenario() -> None:
        async with serving(free_address(), tls_of(OTHER_HOST, OURS)) as address:
            named = Tls(OURS.certificate_pem(), server_name="db0.example.net")
            assert await check(address, named) == SERVING

    run(scenario())


def test_port_beside_a_mutual_one_asks_no_certificate_and_shows_renewed_ones(
    run: Run, free_address: Callable[[], Address]
) -> None:
    """Method: a client trusts only the next authority, so it is served after the change only."""
    current = [MUTUAL]

    async def scenario() -> None:
        async with serving(free_address(), WithoutClientCertificates(lambda: current[0])) as address:
            assert await check(address, TRUSTING) == SERVING
            assert "is refused" in await check(address, Tls(FOREIGN.certificate_pem()))
            current[0] = tls_of(node_pair(FOREIGN, "n0"), FOREIGN, is_certificate_required=True)
            assert await check(address, Tls(FOREIGN.certificate_pem())) == SERVING

    run(scenario())


def test_port_shows_renewed_certificates_and_forgets_an_old_authority(
    run: Run, free_address: Callable[[], Address], tmp_path: Path
) -> None:
    """Goal: change of certificate and authority without a restart, while a connection stays open."""
    used = Credentials(write_tls(tmp_path, MUTUAL), is_certificate_required=True)

    async def scenario() -> None:
        async with (
            serving(free_address(), used.current_tls) as address,
            open_aio_channel(address, ALICE, CHANNEL_OPTIONS) as old,
        ):
            stub: Any = HealthStub(old)
            assert (await stub.Check(HealthCheckRequest(), timeout=PATIENCE_S)).status == SERVING

            write_tls(tmp_path, tls_of(node_pair(FOREIGN, "n0"), FOREIGN))
            assert await asyncio.to_thread(used.reload_if_changed)

            assert await check(address, tls_of(user_pair(FOREIGN, "alice"), FOREIGN)) == SERVING
            assert "certificate is refused" in await check(address, ALICE)
            assert "may require TLS" in await check(address, tls_of(user_pair(OURS, "alice"), FOREIGN))
            assert (await stub.Check(HealthCheckRequest(), timeout=PATIENCE_S)).status == SERVING

    run(scenario())


def test_port_without_a_certificate_is_refused(run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(ValueError, match="needs a certificate and its key"):
            add_server_port(grpc.aio.server(), "127.0.0.1:0", Tls(OURS.certificate_pem()))

    run(scenario())


# -------------------------------------------------------------------------------------------------------------- tokens


class Seen:
    """Admits all calls of a server; records their `authorization`."""

    def __init__(self) -> None:
        self.headers: list[list[Any]] = []

    def admit(self, _method: str, context: Any) -> Any:
        self.headers.append([value for name, value in context.invocation_metadata() if name == "authorization"])
        return admit(None, _method, context)


@pytest.mark.parametrize(
    ("server", "client", "host", "expected"),
    [
        (SERVER, Tls(OURS.certificate_pem(), token=lambda: "dla1_x"), "10.0.0.1", ["Bearer dla1_x"]),
        (PLAIN, Plain(lambda: "dla1_x"), "127.0.0.1", ["Bearer dla1_x"]),
        (PLAIN, Plain(lambda: "dla1_x", is_token_exposed=True), "10.0.0.1", ["Bearer dla1_x"]),
        (PLAIN, Plain(lambda: "dla1_x"), "10.0.0.1", []),
        (PLAIN, Plain(lambda: ""), "127.0.0.1", []),
    ],
    ids=["TLS", "plain on loopback", "plain and allowed", "plain", "no token yet"],
)
def test_token_is_sent_with_each_call_but_not_in_the_clear_to_another_machine(
    run: Run,
    free_address: Callable[[], Address],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    server: PortSecurity,
    client: Security,
    host: str,
    expected: list[str],
) -> None:
    seen = Seen()
    # All tests dial loopback; this one treats it as the address of another machine.
    monkeypatch.setattr(channels, "is_on_loopback", lambda _address: host == "127.0.0.1")

    def blocking(address: str) -> None:
        with open_channel(address, client, CHANNEL_OPTIONS) as channel:
            stub: Any = HealthStub(channel)
            stub.Check.future(HealthCheckRequest(), timeout=PATIENCE_S).result()
            assert next(iter(stub.Watch(HealthCheckRequest(), timeout=PATIENCE_S))).status == SERVING

    async def scenario() -> None:
        address = free_address()
        started = await start_grpc_server(address, [], security=server, gate=seen)
        try:
            assert await check(str(address), client) == SERVING
            async with open_aio_channel(str(address), client, CHANNEL_OPTIONS) as channel:
                stub: Any = HealthStub(channel)
                assert (await stub.Watch(HealthCheckRequest(), timeout=PATIENCE_S).read()).status == SERVING
            await asyncio.to_thread(blocking, str(address))
        finally:
            await started.stop(None)

    run(scenario())
    assert seen.headers == [expected] * 4
    assert ("token_not_sent" in caplog.text) is (host != "127.0.0.1" and not expected)


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        ("127.0.0.1:1", True),
        ("127.8.9.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/run/x", True),
        ("dns:///127.0.0.1:1", True),
        ("10.0.0.1:1", False),
        ("[fe80::1]:1", False),
        ("0.0.0.0:1", False),
        ("localhost.example.net:1", False),
        ("127.0.0.1.example.net:1", False),
        ("db0:1", False),
        ("", False),
    ],
)
def test_only_loopback_and_unix_sockets_count_as_this_machine(address: str, is_local: bool) -> None:
    assert channels.is_on_loopback(address) is is_local
