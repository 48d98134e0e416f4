"""One gRPC server for all services of a process, with the standard services health and reflection.

`grpc.health.v1.Health` answers SERVING for the empty name and for each service of the server, as long as the server
runs, for load balancers and orchestrators. Whether a node leads is in its Status. `grpc.reflection` lists the methods
for tools such as grpcurl.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from dledger.errors import DLedgerError
from dledger.security.server_port import add_server_port
from dledger.security.settings import PLAIN
from dledger.service.frames.ports import FramedMethod
from dledger.service.guarded_method import CallBounds, Guard
from dledger.service.limits.connections_by_address import ConnectionsByAddress
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.open_connections import OtherEnd, close_connections
from dledger.service.limits.request_bounds import STANDARD_BOUNDS
from dledger.service.limits.retry_times import RetryTimes
from dledger.service.limits.unread_answers import UnreadAnswers
from dledger.service.limits.unread_calls import REQUEST_LIMIT_S, UnreadCalls
from dledger.service.open_streams import OpenStreams
from dledger.service.request_guard import RequestGuard
from store.fs.descriptors import connections_max

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.descriptor import ServiceDescriptor

    from dledger.config import Address
    from dledger.security.server_port import PortSecurity
    from dledger.service.call_gate import CallGate
    from dledger.service.frames.port import FramePort

# Above the largest batch of our client (8 MiB), so that a batch or body that is slightly too large gets a typed
# refusal; gRPC itself refuses what is larger than this (RESOURCE_EXHAUSTED).
MESSAGE_SIZE_BYTES_MAX = 9 << 20
CALLS_MAX = 2048
# Calls of one connection. With 1,024, ten connections that open and reset streams keep more calls waiting than gRPC
# accepts (`grpc.server.max_pending_requests`), and it cancels those of other clients; with 128, 200 connections do not.
STREAMS_MAX = 128
# Of all calls, those that may be without a request.
UNREAD_PART = 4
# Of all calls, the places of those that are answered at once (`Guard.at_once`), health checks and logins.
AT_ONCE_PART = 16
# Bytes of large requests in flight, of all callers: one alone has half, sixteen batches of 8 MiB.
REQUEST_BYTES_MAX = 256 << 20
# Connections without a call are closed after this time; a client dials again with its next call.
IDLE_MS_MAX = 300_000
# A connection without an HTTP/2 preface by then is not from a client.
HANDSHAKE_MS_MAX = 10_000

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_SIZE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_SIZE_BYTES_MAX),
    # A second process on the same address must fail, not share the clients.
    ("grpc.so_reuseport", 0),
    # A dead client is detected within half a minute; clients may ping every ten seconds.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_connection_idle_ms", IDLE_MS_MAX),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX),
    # The probe raises the window of all streams to megabytes, also of those whose requests are not read.
    ("grpc.http2.bdp_probe", 0),
)


_STANDARD: tuple[Any, ...] = (
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
)


# A loop keeps no reference to its tasks; these end with their servers.
_WATCHING: set[asyncio.Task[None]] = set()
_CLOSING: set[asyncio.Future[None]] = set()


class ServerNotStarted(DLedgerError):
    """The server cannot listen on its address; choose another one, or stop the process that uses it."""


@dataclass(frozen=True, slots=True)
class Served:
    """A service of a server.

    Attributes:
        add: adds the servicer to a server; a function of the generated stubs.
        servicer: the implementation.
        service: descriptor of the service.
        guard: checks its requests first.
    """

    add: Callable[[Any, grpc.aio.Server], None]
    servicer: object
    service: ServiceDescriptor
    guard: Guard


async def start_grpc_server(
    address: Address,
    services: Sequence[Served],
    *,
    security: PortSecurity = PLAIN,
    options: Sequence[tuple[str, Any]] = SERVER_OPTIONS,
    calls_max: int = CALLS_MAX,
    request_limit_s: float = REQUEST_LIMIT_S,
    gate: CallGate | None = None,
    count_overloaded: Callable[[], None] = lambda: None,
    frames: FramePort | None = None,
) -> grpc.aio.Server:
    """Serve on `address`; stop it with `await server.stop(grace)`.

    Connections are bounded by what the limit of descriptors allows (`store.fs.descriptors`); more are closed at once.
    One address has at most its fair share of them, half if it is alone (`connections_by_address`). The calls of one
    connection are bounded by `STREAMS_MAX`, and by half of all calls; a gRPC client delays further calls until others
    have ended, but if it has hundreds waiting, some are refused (UNAVAILABLE, RST_STREAM 7): gRPC's server frees the
    place of a call later than its client counts it as free. More connections avoid this. One user or address has at
    most its share of all calls, and of the bytes of their requests (`fair_shares`); health checks and logins have
    places of their own (`AT_ONCE_PART`). Calls that have not sent a request are bounded by a quarter of all calls
    (`unread_calls`), and the bytes of answers that are not read (`unread_answers`).

    Args:
        address: to listen on.
        services: in addition to health and reflection.
        security: of all connections of this port.
        options: of gRPC.
        calls_max: calls at the same time; gRPC refuses more.
        request_limit_s: time limit for the request of a unary call.
        gate: admits calls; None: all of them.
        count_overloaded: counts a call that is refused because its caller has its share of all calls.
        frames: is started as well, with the methods that it may serve (`Guard.framed`), the same servicers and the same
            checks and shares. The caller stops it.

    Raises:
        ServerNotStarted: an address is taken or wrong.
    """
    bounds = [
        ("grpc.max_allowed_incoming_connections", connections_max()),
        ("grpc.max_concurrent_streams", min(STREAMS_MAX, calls_max // 2)),
    ]
    guards = {each.service: each.guard for each in services}
    # `Watch` lasts until its client ends it, so it counts for its client's share.
    standard = Guard(STANDARD_BOUNDS, at_once=frozenset({"Check", "List"}))
    guards.update(dict.fromkeys(_STANDARD, standard))
    guard = RequestGuard(guards, _bounds_of_calls(address.port, calls_max, request_limit_s, count_overloaded), gate)
    server = grpc.aio.server(interceptors=[guard], options=[*options, *bounds], maximum_concurrent_rpcs=calls_max)
    for each in services:
        each.add(each.servicer, server)
    await _add_standard_services(server, [each.service.full_name for each in services])
    try:
        add_server_port(server, str(address), security)
    except RuntimeError as error:
        raise ServerNotStarted(f"cannot listen on {address}: {error}") from error
    if frames is not None:
        await _start_frames(frames, services, guard)
    await server.start()
    _watch_addresses(server, address.port)
    return server


async def _start_frames(frames: FramePort, services: Sequence[Served], guard: RequestGuard) -> None:
    try:
        await frames.start(framed_methods(services, guard))
    except OSError as error:
        raise ServerNotStarted(f"cannot listen on {frames.address}: {error}") from error


def _watch_addresses(server: grpc.aio.Server, port: int) -> None:
    by_address = ConnectionsByAddress(port, connections_max())
    watching = asyncio.get_running_loop().create_task(by_address.watch(server))
    _WATCHING.add(watching)
    watching.add_done_callback(_WATCHING.discard)


def _close_beside(port: int, peer: OtherEnd) -> None:
    """Close a connection of a client; in a thread, because it looks at all descriptors."""
    closing = asyncio.get_running_loop().run_in_executor(None, close_connections, port, {peer})
    _CLOSING.add(closing)
    closing.add_done_callback(_CLOSING.discard)


def framed_methods(services: Sequence[Served], guard: RequestGuard) -> list[FramedMethod]:
    """Return the methods of some services that frames may call, each with the check that it has on gRPC."""
    return [
        FramedMethod(guard.methods[f"/{each.service.full_name}/{method.name}"], getattr(each.servicer, method.name))
        for each in services
        for method in each.service.methods
        if method.name in each.guard.framed
    ]


def _bounds_of_calls(
    port: int, calls_max: int, request_limit_s: float, count_overloaded: Callable[[], None]
) -> CallBounds:
    """Return the bounds of all calls of a server; the places of all kinds are `calls_max` together."""
    answers = UnreadAnswers(lambda peer: _close_beside(port, peer))
    # Calls without a request have no known holder yet, so they have places of their own.
    unread_max = calls_max // UNREAD_PART
    at_once = FairShares(max(1, calls_max // AT_ONCE_PART))
    places = FairShares(calls_max - unread_max - at_once.size)
    retries = RetryTimes(asyncio.get_running_loop().time, count_overloaded)
    unread = UnreadCalls(unread_max, request_limit_s)
    request_bytes = FairShares(REQUEST_BYTES_MAX)
    return CallBounds(unread, answers, places, at_once, request_bytes, retries, OpenStreams())


async def _add_standard_services(server: grpc.aio.Server, names: Sequence[str]) -> None:
    """Add both to a server that is not started yet."""
    servicer = health.aio.HealthServicer()
    for name in names:
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
