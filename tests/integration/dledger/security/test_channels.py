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
from dledger.security.channels import open_aio_channel, open_channel
from dledger.security.credentials import Credentials
from dledger.security.server_port import add_server_port
from dledger.security.settings import PLAIN, Tls
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
    """Return the status that a server answers, or why there is no connection, as users read it."""
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
    async def story() -> None:
        async with serving(free_address(), server) as address:
            assert await check(address, client) == SERVING
            assert await asyncio.to_thread(check_blocking, address, client) == SERVING

    run(story())


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
    ],
)
def test_client_and_server_that_do_not_fit_are_not_connected(
    run: Run, free_address: Callable[[], Address], server: PortSecurity, client: Security, reason: str
) -> None:
    async def story() -> None:
        async with serving(free_address(), server) as address:
            found = await check(address, client)
            assert reason in found
            assert found.startswith(f"{address} is not reachable (")

    run(story())


def test_name_of_the_server_may_differ_from_the_dialed_address(run: Run, free_address: Callable[[], Address]) -> None:
    async def story() -> None:
        async with serving(free_address(), tls_of(OTHER_HOST, OURS)) as address:
            named = Tls(OURS.certificate_pem(), server_name="db0.example.net")
            assert await check(address, named) == SERVING

    run(story())


def test_port_shows_renewed_certificates_and_forgets_an_old_authority(
    run: Run, free_address: Callable[[], Address], tmp_path: Path
) -> None:
    """Goal: change of certificate and authority without a restart, while a connection stays open."""
    used = Credentials(write_tls(tmp_path, MUTUAL), is_certificate_required=True)

    async def story() -> None:
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

    run(story())


def test_port_without_a_certificate_is_refused(run: Run) -> None:
    async def story() -> None:
        with pytest.raises(ValueError, match="needs a certificate and its key"):
            add_server_port(grpc.aio.server(), "127.0.0.1:0", Tls(OURS.certificate_pem()))

    run(story())
