# ruff: noqa: N802  (gRPC prescribes the names of the methods)
"""The cost of hostile HTTP/2 connections for other clients: floods of resets, unread answers, connections."""

import asyncio
import contextlib
import socket
import struct
import threading
import time

import grpc.aio
import pytest

import dledger.service.grpc_server
import dledger.service.limits.connections_by_address
from cluster.local.node import choose_ports
from cluster.process.tasks import end_tasks
from dledger import AsyncLogClient
from dledger.client.connections import STREAMS_PER_CONNECTION_MAX
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.config import Address
from dledger.service.grpc_server import STREAMS_MAX, Served, start_grpc_server
from dledger.service.guarded_method import Guard
from dledger.service.limits.connections_by_address import ConnectionsByAddress
from dledger.service.limits.open_connections import OtherEnd, close_connections, list_peers, peer_of
from dledger.service.limits.request_bounds import LOG_BOUNDS
from dledger.service.limits.unread_answers import UnreadAnswers
from dledger.v1 import log_pb2
from dledger.v1.log_pb2_grpc import LogServiceServicer, LogServiceStub, add_LogServiceServicer_to_server
from tests.support.network.http2 import MAX_CONCURRENT_STREAMS, call, opening, read_frame, reset_calls
from tests.support.waiting import PATIENCE_S

CHECK = "/grpc.health.v1.Health/Check"
LARGE = 1 << 20
# Of one connection: at a time, in all.
RESETS, RESETS_MAX = 100, 100_000
SERVICE = log_pb2.DESCRIPTOR.services_by_name["LogService"]


class LargeAnswers(LogServiceServicer):
    """Answers a status and a read with a mebibyte, and never a read that follows the log."""

    def __init__(self):
        self.following = asyncio.Semaphore(0)

    async def Status(self, request, context):
        return log_pb2.StatusResponse(code=200, message="x" * LARGE)

    async def Read(self, request, context):
        if request.follow:
            self.following.release()
            await asyncio.Event().wait()
        yield log_pb2.ReadResponse(code=200, encoded=b"x" * LARGE)


@contextlib.asynccontextmanager
async def serving(*servicers):
    address = Address("127.0.0.1", choose_ports(1, None)[0])
    guard = Guard(LOG_BOUNDS)
    served = [Served(add_LogServiceServicer_to_server, each, SERVICE, guard) for each in servicers]
    server = await start_grpc_server(address, served)
    async with grpc.aio.insecure_channel(str(address), options=CHANNEL_OPTIONS) as channel:
        try:
            yield address, channel
        finally:
            await server.stop(None)


# ---------------------------------------------------------------------------------------------------- rapid reset


def send_resets(address, is_over):
    """Open and reset calls on ten connections, until the server closes them."""
    pieces = [reset_calls(first, RESETS, CHECK) for first in range(1, 2 * RESETS_MAX, 2 * RESETS)]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection((address.host, address.port))) for _ in range(10)]
        for connection in connections:
            connection.sendall(opening())
        for piece in pieces:
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sendall(piece)
                    while connection.recv(1 << 16, socket.MSG_DONTWAIT):
                        pass
                if is_over.is_set():
                    return


def test_rapid_resets_of_ten_connections_fail_no_call_of_another_client():
    """With 1,024 streams a connection some calls of the other client end with CANCELLED."""

    async def main():
        async with serving() as (address, channel):
            check = channel.unary_unary(CHECK)
            await check(b"", wait_for_ready=True)
            is_over, times_s = threading.Event(), []
            attack = asyncio.ensure_future(asyncio.to_thread(send_resets, address, is_over))
            for _ in range(20):
                begin_s = time.monotonic()
                await check(b"", timeout=PATIENCE_S)
                times_s.append(time.monotonic() - begin_s)
            is_over.set()
            await attack
            print(f"slowest of {len(times_s)} calls: {1000 * max(times_s):.0f} ms")
            assert max(times_s) < PATIENCE_S / 2

    asyncio.run(main())


def test_server_accepts_128_streams_of_a_connection():
    async def main():
        async with serving() as (address, _):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(opening())
            async with asyncio.timeout(PATIENCE_S):
                first = await read_frame(reader)
            writer.close()
        settings = dict(struct.iter_unpack(">HI", first.content))
        assert settings[MAX_CONCURRENT_STREAMS] == STREAMS_MAX == 128

    asyncio.run(main())


# --------------------------------------------------------------------------------------------------- slow readers


def requests_without_reading(address, count, path, request):
    """Return a connection that has made calls and accepts not one byte of their answers."""
    connection = socket.create_connection((address.host, address.port))
    calls = (call(2 * number + 1, path, request) for number in range(count))
    connection.sendall(opening(window=0) + b"".join(calls))
    return connection


def end_of(connection):
    """Read to the end; return when the server has closed the connection."""
    connection.settimeout(PATIENCE_S)
    with connection, contextlib.suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass


@pytest.mark.parametrize("method", ["Status", "Read"])
def test_five_slow_readers_are_closed_before_their_answers_take_the_memory(monkeypatch, method):
    monkeypatch.setattr(dledger.service.grpc_server, "UnreadAnswers", kept := Kept(size_bytes_max=8 * LARGE))
    path = f"/{SERVICE.full_name}/{method}"

    async def main():
        async with serving(LargeAnswers()) as (address, channel):
            stub = LogServiceStub(channel)
            readers = [requests_without_reading(address, 8, path, b"") for _ in range(5)]
            ends = [asyncio.ensure_future(asyncio.to_thread(end_of, each)) for each in readers]
            async with asyncio.timeout(PATIENCE_S):
                # 40 MiB are requested and 8 MiB may be in flight: all but one of the connections are closed.
                while sum(end.done() for end in ends) < len(ends) - 1:
                    await asyncio.wait([end for end in ends if not end.done()], return_when=asyncio.FIRST_COMPLETED)
                assert len((await stub.Status(log_pb2.StatusRequest())).message) == LARGE
            assert kept.made[0].size_bytes <= 8 * LARGE
        await asyncio.gather(*ends)

    asyncio.run(main())


class Kept:
    """Creates the bounds of answers with another limit, and records them."""

    def __init__(self, size_bytes_max):
        self.made = []
        self._size_bytes_max = size_bytes_max

    def __call__(self, close):
        self.made.append(UnreadAnswers(close, self._size_bytes_max))
        return self.made[-1]


# ---------------------------------------------------------------------------------------------------- connections


@pytest.mark.parametrize("hosts", [["127.0.0.1"], ["127.0.0.1", "127.0.0.3"]])
def test_connections_of_addresses_leave_space_for_those_of_another(monkeypatch, hosts):
    monkeypatch.setattr(dledger.service.grpc_server, "connections_max", lambda: 16)
    monkeypatch.setattr(dledger.service.limits.connections_by_address, "INTERVAL_S", 0.05)

    async def main():
        async with serving() as (address, _):
            flood = [
                await asyncio.open_connection(address.host, address.port, local_addr=(host, 0))
                for _ in range(16 // len(hosts))
                for host in hosts
            ]
            ends = [asyncio.ensure_future(is_closed(reader)) for reader, _ in flood]
            async with asyncio.timeout(PATIENCE_S):
                while sum(end.done() for end in ends) < 16 // (len(hosts) + 1):
                    await asyncio.wait([end for end in ends if not end.done()], return_when=asyncio.FIRST_COMPLETED)
            async with asyncio.timeout(PATIENCE_S):
                while not await is_accepted(address):
                    # gRPC counts a closed connection until it has freed it.
                    continue
            for _, writer in flood:
                writer.close()
            await asyncio.gather(*ends)

    asyncio.run(main())


async def is_accepted(address):
    reader, writer = await asyncio.open_connection(address.host, address.port, local_addr=("127.0.0.2", 0))
    writer.write(opening())
    try:
        # The settings of the server: it has accepted this client.
        return bool(await reader.readexactly(9))
    except (ConnectionResetError, asyncio.IncompleteReadError):
        return False
    finally:
        writer.close()


async def is_closed(reader):
    with contextlib.suppress(ConnectionResetError):
        while await reader.read(4096):
            continue
    return True


def test_the_longest_known_connections_of_an_address_stay():
    bound = ConnectionsByAddress(7, count_max=4)
    old = {OtherEnd("10.0.0.1", 9), OtherEnd("10.0.0.1", 8)}
    new = {OtherEnd("10.0.0.1", port) for port in range(5)} | {OtherEnd("10.0.0.2", 4)}
    assert bound.excess(old) == set()
    assert bound.excess(old | new) == {peer for peer in new if peer.host == "10.0.0.1"}


def test_two_addresses_that_take_all_they_can_get_leave_a_third_of_the_connections() -> None:
    bound = ConnectionsByAddress(7, count_max=12)
    floods = {OtherEnd(host, port) for host in ("10.0.0.1", "10.0.0.2") for port in range(12)}
    known = floods - bound.excess(floods)
    assert [sum(peer.host == host for peer in known) for host in ("10.0.0.1", "10.0.0.2")] == [4, 4]
    assert bound.excess(floods | {OtherEnd("10.0.0.3", 1)}) == floods - known


def test_connections_that_are_known_stay_when_others_come() -> None:
    bound = ConnectionsByAddress(7, count_max=12)
    one = {OtherEnd("10.0.0.1", port) for port in range(6)}
    assert bound.excess(one) == set()
    other = {OtherEnd("10.0.0.2", port) for port in range(6)}
    assert len(bound.excess(one | other) & other) == 3
    assert not bound.excess(one | other) & one


def test_only_accepted_connections_of_the_port_are_listed():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        accepted, _ = listener.accept()
        port = listener.getsockname()[1]
        with accepted:
            assert list_peers(port) == {OtherEnd(*ours.getsockname())}
            close_connections(port, {OtherEnd("127.0.0.1", 1)})
            close_connections(port + 1, {OtherEnd(*ours.getsockname())})
            accepted.sendall(b"open")
            assert ours.recv(8) == b"open"
            close_connections(port, {OtherEnd(*ours.getsockname())})
            assert ours.recv(8) == b""


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("ipv4:10.0.0.7:4711", OtherEnd("10.0.0.7", 4711)),
        ("ipv6:%5B::1%5D:4711", OtherEnd("::1", 4711)),
        ("unix:", None),
        ("", None),
    ],
)
def test_name_of_a_client_at_grpc_becomes_its_address(name, peer):
    assert peer_of(name) == peer


# -------------------------------------------------------------------------------------------- streams of our clients


def test_calls_are_answered_while_more_streams_are_open_than_a_connection_carries():
    """A consumer of many queues has a stream for each; on one connection they would delay all calls indefinitely."""

    async def main():
        service = LargeAnswers()
        async with serving(service) as (address, _), AsyncLogClient(str(address)) as client:
            readers = [client.read(follow=True, endpoint=str(address)) for _ in range(STREAMS_MAX + 1)]
            reading = [asyncio.ensure_future(anext(reader)) for reader in readers]
            try:
                async with asyncio.timeout(PATIENCE_S):
                    for _ in readers:
                        await service.following.acquire()
                    assert await client.status(str(address))
            finally:
                await end_tasks(reading)

    assert STREAMS_PER_CONNECTION_MAX < STREAMS_MAX
    asyncio.run(main())


def test_all_addresses_of_one_network_of_ipv6_are_one_client() -> None:
    bound = ConnectionsByAddress(1, 8)
    one = {OtherEnd(f"2001:db8::{number}", 40_000 + number) for number in range(1, 6)}
    other = {OtherEnd("2001:db8:0:1::1", 50_000), OtherEnd("fe80::1%eth0", 50_001)}

    excess = bound.excess(one | other)

    assert len(excess) == 2
    assert excess < one
