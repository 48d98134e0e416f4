"""The peer transport over real sockets: delivery, refusal of wrong peers, garbage, loss and return of a peer."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dledger.config import Address, NodeConfig, Peer
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    Push,
    PushAccepted,
    PushRefused,
    ReadIndexRequest,
    ReadIndexResponse,
    ResetLog,
    SnapshotChunk,
    SnapshotProgress,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.errors import DLedgerError
from dledger.peer.connection import SILENCE_TIMEOUT_MS
from dledger.peer.handshake import Handshake
from dledger.peer.origin import RawOrigin
from dledger.peer.transport import PeerTransport
from dledger.peer.wire.frames import FRAME_HEAD, encode_hello
from dledger.types import Member, Membership, MembershipEntry, SnapshotInfo, Span

Configs = dict[str, NodeConfig]
Run = Callable[[Coroutine[Any, Any, None]], None]
Eventually = Callable[[Callable[[], object]], Coroutine[Any, Any, None]]


class Recorder:
    """A listener that records what it receives."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, list[Message]]] = []
        self.unreachable: list[str] = []
        self.gone: list[str] = []

    def on_messages(self, sender: str, messages: list[Message]) -> None:
        self.reads.append((sender, messages))

    def on_unreachable(self, peer: str) -> None:
        self.unreachable.append(peer)

    def on_gone(self, peer: str) -> None:
        self.gone.append(peer)

    def on_failed(self, error: Exception) -> None:
        raise AssertionError("nothing here stops a node") from error

    @property
    def messages(self) -> list[tuple[str, Message]]:
        return [(sender, message) for sender, read in self.reads for message in read]


async def started(config: NodeConfig) -> tuple[PeerTransport, Recorder]:
    recorder = Recorder()
    transport = PeerTransport(config, recorder, RawOrigin(), random=Random())
    await transport.start()
    transport.set_members(members_of(config))
    return transport, recorder


def members_of(config: NodeConfig) -> dict[str, Address]:
    return {peer.id: peer.address for peer in config.peers}


def greeting(config: NodeConfig, peer_id: str) -> bytes:
    return encode_hello(Handshake(config, lambda _: True, RawOrigin()).hello(peer_id, is_bulk=True))


def is_linked(one: PeerTransport, one_id: str, other: PeerTransport, other_id: str) -> bool:
    return one.is_connected_to(other_id) and other.is_connected_to(one_id)


def test_every_kind_of_message_arrives_with_its_sender(run: Run, configs: Configs, eventually: Eventually) -> None:
    payload = bytes(range(256)) * 8192
    push = Push(1, -1, -1, -1, Span(0, 9, 1, 0, len(payload)), payload)
    sent: list[Message] = [
        VoteRequest(1, True, -1, -1),
        VoteResponse(1, True, True),
        Heartbeat(1, -1, 1),
        HeartbeatResponse(1, 1),
        push,
        PushAccepted(1, 9),
        PushRefused(1, 9, 8, 1, 0),
        TimeoutNow(1),
        ReadIndexRequest(1, 5),
        ReadIndexResponse(1, 5, 9),
        SnapshotChunk(1, SnapshotInfo(9, 1, len(payload), 7), 0, len(payload), payload),
        SnapshotProgress(1, 9, 5),
        ResetLog(1, 10, 4096, 1, MembershipEntry(-1, Membership((Member("n0"), Member("n1")))), 9),
    ]

    async def main() -> None:
        n0, _ = await started(configs["n0"])
        n1, received = await started(configs["n1"])
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        for message in sent:
            n0.send("n1", message)
        await eventually(lambda: len(received.messages) == len(sent))
        assert all(sender == "n0" for sender, _ in received.messages)
        assert all(message in sent for _, message in received.messages)
        assert n1.client_address_of("n0") == str(configs["n0"].client_address)
        await n0.stop()
        await n1.stop()

    run(main())


def test_connections_detect_a_peer_that_vanished(run: Run, configs: Configs, eventually: Eventually) -> None:
    """The kernel ends half-open connections; that needs a pulled cable, so only the socket options are checked."""

    async def main() -> None:
        n0, _ = await started(configs["n0"])
        n1, _ = await started(configs["n1"])
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        for connection in n0._links["n1"].connections() + n1._links["n0"].connections():
            wire = connection._transport.get_extra_info("socket")
            assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENCE_TIMEOUT_MS
        await n0.stop()
        await n1.stop()

    run(main())


def test_silent_connection_is_closed(run: Run, configs: Configs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.peer.connection.HELLO_TIMEOUT_S", 0.05)

    async def main() -> None:
        n0, _ = await started(configs["n0"])
        address = configs["n0"].self_address
        reader, writer = await asyncio.open_connection(address.host, address.port)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        writer.close()
        await n0.stop()

    run(main())


def test_messages_sent_in_one_turn_arrive_in_order_and_mostly_together(
    run: Run, configs: Configs, eventually: Eventually
) -> None:
    async def main() -> None:
        n0, _ = await started(configs["n0"])
        n1, received = await started(configs["n1"])
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        for number in range(1000):
            n0.send("n1", Heartbeat(1, -1, number))
        await eventually(lambda: len(received.messages) == 1000)
        assert [message for _, message in received.messages] == [Heartbeat(1, -1, number) for number in range(1000)]
        assert len(received.reads) < 500
        await n0.stop()
        await n1.stop()

    run(main())


def test_lost_peer_is_reported_once_and_found_again(run: Run, configs: Configs, eventually: Eventually) -> None:
    async def main() -> None:
        n0, received = await started(configs["n0"])
        n1, _ = await started(configs["n1"])
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        await n1.stop()
        # The connection for bulk is reported; the end of that for control may be detected later.
        await eventually(lambda: received.unreachable and not n0._links["n1"].connections())
        n0.send("n1", Heartbeat(1, -1, 1))
        assert received.unreachable == ["n1"]
        assert n0.dropped_messages_count == 1
        n1, received_again = await started(configs["n1"])
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        n0.send("n1", Heartbeat(1, -1, 2))
        await eventually(lambda: received_again.messages)
        assert received_again.messages == [("n0", Heartbeat(1, -1, 2))]
        await n0.stop()
        await n1.stop()

    run(main())


def test_peer_is_gone_once_its_host_refuses_connections_and_no_connection_is_left(
    run: Run, configs: Configs, eventually: Eventually
) -> None:
    async def main() -> None:
        n0, received = await started(configs["n0"])
        n1, _ = await started(configs["n1"])
        await eventually(lambda: n0.is_connected_to("n1") and n1.is_connected_to("n0"))
        # Before n1 listened, n0 may have dialed it.
        received.gone.clear()

        # The port refuses connections, but those of n1 to n0 are open: n1 lives, and its messages still arrive.
        n1._port.close()
        for connection in n0._links["n1"].connections():
            if connection.is_dialled:
                connection.close(DLedgerError("the test ends it"))
        dialer = n0._links["n1"]._dialers[0]
        attempts_count = dialer.attempts_count
        await eventually(lambda: dialer.attempts_count > attempts_count + 2)
        gone_while_it_lives = list(received.gone)

        await n1.stop()
        await eventually(lambda: "n1" in received.gone)
        assert "n1" not in gone_while_it_lives
        await n0.stop()

    run(main())


def test_node_of_another_group_is_refused_and_the_reason_logged_once(
    run: Run, configs: Configs, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    def refusals() -> list[str]:
        # A code, not a part of a port number.
        return [record.getMessage() for record in caplog.records if re.search(r"\b400\b", record.getMessage())]

    async def main() -> None:
        n0, received = await started(configs["n0"])
        n1, received_by_other = await started(replace(configs["n1"], group="other"))
        _, dialer = n1._links["n0"]._dialers
        await eventually(lambda: dialer.attempts_count >= 4)
        assert not n0.is_connected_to("n1")
        assert not n1.is_connected_to("n0")
        assert not received.messages
        assert not received_by_other.messages
        assert any("group: expected" in line for line in refusals())
        assert len(refusals()) == len(set(refusals())) <= 4
        await n0.stop()
        await n1.stop()

    run(main())


@pytest.mark.parametrize("is_greeted", [False, True])
def test_garbage_ends_the_connection_and_not_the_node(
    run: Run, configs: Configs, eventually: Eventually, is_greeted: bool
) -> None:
    async def main() -> None:
        n0, received = await started(configs["n0"])
        address = configs["n0"].self_address
        reader, writer = await asyncio.open_connection(address.host, address.port)
        if is_greeted:
            writer.write(greeting(configs["n1"], "n0"))
            assert await reader.readexactly(FRAME_HEAD.size)
        writer.write(b"GET / HTTP/1.1\r\nHost: nowhere\r\n\r\n")
        rest = await reader.read()
        assert is_greeted == bool(rest)
        n1, _ = await started(configs["n1"])
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        assert not received.messages
        writer.close()
        await n0.stop()
        await n1.stop()

    run(main())


def test_messages_to_a_peer_that_reads_nothing_are_dropped_and_it_is_reported_once(
    run: Run, configs: Configs, eventually: Eventually
) -> None:
    """A listener that greets and then never reads represents a stopped process."""
    payload = b"x" * (1 << 20)
    push = Push(1, -1, -1, -1, Span(0, 9, 1, 0, len(payload)), payload)

    async def main() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(greeting(configs["n1"], "n0"))
            writer.transport.pause_reading()

        address = configs["n1"].self_address
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        holder.bind((address.host, address.port))
        server = await asyncio.start_server(greet, sock=holder)
        n0, received = await started(configs["n0"])
        await eventually(lambda: n0.is_connected_to("n1"))
        for _ in range(100):
            n0.send("n1", push)
        await eventually(lambda: received.unreachable)
        assert 0 < n0.dropped_messages_count < 100
        for _ in range(100):
            n0.send("n1", push)
        await asyncio.sleep(0)
        assert received.unreachable == ["n1"]
        server.close()
        await n0.stop()

    run(main())


# --------------------------------------------------------------------------------------------- members that change


def test_member_that_is_added_is_dialled_and_one_that_left_is_a_non_member_until_it_is_silent(
    run: Run, configs: Configs, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        addresses = members_of(configs["n0"])
        n0, n1 = (
            PeerTransport(configs["n0"], Recorder(), RawOrigin(), random=Random()),
            PeerTransport(configs["n1"], Recorder(), RawOrigin(), random=Random()),
        )
        for transport in (n0, n1):
            await transport.start()
            transport.set_members({})
        n0.send("n1", Heartbeat(1, -1, 1))
        assert n0.dropped_messages_count == 1
        for transport in (n0, n1):
            transport.set_members(addresses)
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        assert n0.non_members == n1.non_members == []

        n0.set_members({"n0": addresses["n0"]})
        assert n0.non_members == ["n1", "n2"]
        n0.send("n1", Heartbeat(1, -1, 2))
        assert n0.dropped_messages_count == 1, "a leaving peer still gets messages"
        await n1.stop()
        monkeypatch.setattr("dledger.peer.transport.NON_MEMBER_IDLE_S", 0.0)
        await eventually(lambda: n0.non_members == [])
        await n0.stop()

    run(main())


def test_member_that_moved_is_dialled_at_its_new_address(
    run: Run, configs: Configs, eventually: Eventually, free_address: Callable[[], Address]
) -> None:
    async def main() -> None:
        n0, _ = await started(configs["n0"])
        n1, _ = await started(configs["n1"])
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        await n1.stop()
        peers = tuple(
            Peer(peer.id, free_address() if peer.id == "n1" else peer.address) for peer in configs["n1"].peers
        )
        moved = replace(configs["n1"], peers=peers)
        n1, received = await started(moved)
        n0.set_members(members_of(moved))
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        n0.send("n1", Heartbeat(1, -1, 2))
        await eventually(lambda: received.messages)
        await n0.stop()
        await n1.stop()

    run(main())


def test_unknown_node_of_the_group_is_accepted_and_dialled_back(
    run: Run, configs: Configs, eventually: Eventually, free_address: Callable[[], Address]
) -> None:
    newcomer = replace(
        configs["n0"],
        self_id="n9",
        peers=(*configs["n0"].peers, Peer("n9", free_address())),
        client_address=free_address(),
    )

    async def main() -> None:
        n0, received = await started(configs["n0"])
        n9, received_by_newcomer = await started(newcomer)
        await eventually(lambda: is_linked(n0, "n0", n9, "n9"))
        assert n0.non_members == ["n9"]
        assert n0.client_address_of("n9") == str(newcomer.client_address)
        n9.send("n0", Heartbeat(1, -1, 1))
        n0.send("n9", ReadIndexRequest(1, 1))
        await eventually(lambda: received.messages and received_by_newcomer.messages)
        assert received.messages == [("n9", Heartbeat(1, -1, 1))]
        assert received_by_newcomer.messages == [("n0", ReadIndexRequest(1, 1))]

        n0.set_members(members_of(newcomer))
        assert n0.non_members == []
        assert n0.is_connected_to("n9"), "becoming a member breaks no connection"
        await n0.stop()
        await n9.stop()

    run(main())
