"""Common behaviour of TLS and a shared secret between nodes, over real sockets."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from dledger.core.messages import Push
from dledger.errors import DLedgerError
from dledger.peer.bootstrap import BootstrapConnection, BootstrapServer
from dledger.peer.handshake import Handshake
from dledger.peer.handshake_rate import HandshakeRate, Rate
from dledger.peer.listening import HANDSHAKES_PER_ADDRESS_MAX
from dledger.peer.origin import BootstrapMessage, RawOrigin
from dledger.peer.refusals import Refusal
from dledger.security.peers import PLAIN_PEERS
from dledger.types import Span
from tests.integration.dledger.peer.test_peer_secret import FOREIGN, sharing
from tests.integration.dledger.peer.test_peer_tls import at_end, begun, dialed, secured
from tests.integration.dledger.peer.test_transport import is_linked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from dledger.config import NodeConfig
    from dledger.security.peers import PeerSecurity

    Configs = dict[str, NodeConfig]
    Run = Callable[[Coroutine[Any, Any, None]], None]
    Eventually = Callable[[Callable[[], object]], Coroutine[Any, Any, None]]

LARGE = bytes(range(256)) * 8192


class Kind(NamedTuple):
    """A kind of security.

    Attributes:
        of_node: returns the security of a node.
        of_untrusted: returns that of a process with other files, which acts as n1.
        first_bytes: of a greeting or handshake that is not finished.
    """

    of_node: Callable[[Path, str], PeerSecurity]
    of_untrusted: Callable[[Path], PeerSecurity]
    first_bytes: bytes


KINDS = {
    "secret": Kind(
        lambda folder, _: sharing(folder), lambda folder: sharing(folder, FOREIGN, name="foreign"), b"DLS1\0\x80"
    ),
    "tls": Kind(secured, lambda folder: secured(folder, "n2"), b"\x16\x03\x01"),
}


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kind(name: str) -> Kind:
    return KINDS[name]


def test_messages_small_and_large_pass(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, name: str, kind: Kind
) -> None:
    pushes = [
        Push(1, -1, -1, -1, Span(0, 9, 1, 0, len(payload)), payload) for payload in (b"x" * 100, LARGE, b"y" * 20_000)
    ]

    async def main() -> None:
        async with AsyncExitStack() as stack:
            n0, _ = await begun(stack, configs["n0"], kind.of_node(tmp_path, "n0"))
            n1, received = await begun(stack, configs["n1"], kind.of_node(tmp_path, "n1"))
            await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
            for push in pushes:
                n0.send("n1", push)
            await eventually(lambda: len(received.messages) == len(pushes))
            assert [message for _, message in received.messages] == pushes
            assert n0.connection_counts() == {"off": 0, "secret": 0, "tls": 0} | {name: 4}

    run(main())


def test_bootstrap_questions_of_untrusted_peers_are_refused(
    run: Run, configs: Configs, tmp_path: Path, kind: Kind
) -> None:
    class Echo(RawOrigin):
        async def answer(self, peer_id: str, question: BootstrapMessage) -> BootstrapMessage:
            return BootstrapMessage(f"{peer_id} asks ".encode() + question.body, LARGE)

    def asking(security: PeerSecurity) -> Handshake:
        return Handshake(configs["n1"], lambda _: False, None, security=security)

    async def main() -> None:
        server = BootstrapServer(configs["n0"], Echo(), kind.of_node(tmp_path, "n0"))
        await server.start()
        address = configs["n0"].self_address
        connection = await BootstrapConnection.dial(asking(kind.of_node(tmp_path, "n1")), "n0", address)
        connection.ask(BootstrapMessage(b"all"))
        assert await connection.answer() == BootstrapMessage(b"n1 asks all", LARGE)
        connection.close()
        for untrusted in (PLAIN_PEERS, kind.of_untrusted(tmp_path)):
            with pytest.raises((OSError, DLedgerError)):
                await BootstrapConnection.dial(asking(untrusted), "n0", address)
        await server.stop()

    run(main())


def test_flood_of_half_handshakes_is_bounded_and_a_node_still_connects(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, kind: Kind
) -> None:
    """Connections that send nothing, or begin a handshake and stop, end for the next one of their address."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            n0, _ = await begun(stack, configs["n0"], kind.of_node(tmp_path, "n0"))
            flood = [await dialed(configs["n0"], None) for _ in range(6 * HANDSHAKES_PER_ADDRESS_MAX)]
            for _, writer in flood[::2]:
                writer.write(kind.first_bytes)
            count = len(flood) - HANDSHAKES_PER_ADDRESS_MAX
            await eventually(lambda: n0.refused_counts[Refusal.CROWDED] >= count)
            n1, _ = await begun(stack, configs["n1"], kind.of_node(tmp_path, "n1"))
            await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
            assert [await at_end(reader) for reader, _ in flood[:count]] == [True] * count
            for _, writer in flood:
                writer.transport.abort()

    run(main())


def test_address_that_is_no_members_begins_few_handshakes_in_a_second(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    burst, dials = 3, 20
    monkeypatch.setattr("dledger.peer.listening.HandshakeRate", lambda: HandshakeRate(Rate(1e-6, burst)))

    async def main() -> None:
        address = configs["n0"].self_address
        async with AsyncExitStack() as stack:
            n0, _ = await begun(stack, configs["n0"], kind.of_node(tmp_path, "n0"))
            for _ in range(dials):
                _, writer = await asyncio.open_connection(address.host, address.port, local_addr=("127.0.0.9", 0))
                # One after the other, so that few are in progress at a time.
                writer.transport.abort()
            await eventually(lambda: n0.refused_counts[Refusal.CROWDED] >= dials - burst)
            assert n0.refused_counts[Refusal.CROWDED] == dials - burst

    run(main())
