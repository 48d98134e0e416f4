"""TLS between nodes over real sockets: what is accepted, what is refused, and what unknown hosts can use of a node."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from dledger.core.messages import Heartbeat
from dledger.peer import connection as peer_connection
from dledger.peer.handshake import Handshake
from dledger.peer.origin import RawOrigin
from dledger.peer.refusals import Refusal
from dledger.peer.transport import PeerTransport
from dledger.peer.wire.frames import encode_hello
from dledger.security import validity
from dledger.security.contexts import peer_contexts
from dledger.security.credentials import Credentials
from dledger.security.peers import PLAIN_PEERS, PeerKind, PeerSecurity
from dledger.security.revoked import NOTHING_REVOKED, Revoked
from tests.integration.dledger.peer.test_transport import Recorder, greeting, is_linked, members_of
from tests.support.certificates import new_authority, node_identity, node_pair, tls_of, user_pair, write_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from dledger.config import NodeConfig
    from dledger.security.settings import Tls

    Configs = dict[str, NodeConfig]
    Run = Callable[[Coroutine[Any, Any, None]], None]
    Eventually = Callable[[Callable[[], object]], Coroutine[Any, Any, None]]

GROUP = "test"
OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
LARGE = bytes(range(256)) * 8192


def tls_of_node(node_id: str, **how: Any) -> Tls:
    return tls_of(node_pair(OURS, node_id, group=GROUP, **how), OURS)


def secured(folder: Path, node_id: str, also: PeerKind | None = None) -> PeerSecurity:
    """Return the security of a node whose certificate is in separate files."""
    files = write_tls(folder / node_id, tls_of_node(node_id))
    return PeerSecurity(PeerKind.TLS, also, Credentials(files, expected=node_identity(node_id, GROUP)))


async def begun(
    stack: AsyncExitStack, config: NodeConfig, security: PeerSecurity = PLAIN_PEERS
) -> tuple[PeerTransport, Recorder]:
    recorder = Recorder()
    transport = PeerTransport(config, recorder, RawOrigin(), random=Random(), security=security)
    await transport.start()
    stack.push_async_callback(transport.stop)
    transport.set_members(members_of(config))
    return transport, recorder


async def dialed(config: NodeConfig, context: ssl.SSLContext | None) -> tuple[Any, Any]:
    address = config.self_address
    name = "" if context is not None else None
    return await asyncio.open_connection(address.host, address.port, ssl=context, server_hostname=name)


async def answer_to(config: NodeConfig, context: ssl.SSLContext | None, hello: bytes) -> bytes:
    """Return all bytes that a node sends to a process that greets it; empty if it closes without sending anything."""
    with suppress(OSError):
        reader, writer = await dialed(config, context)
        try:
            writer.write(hello)
            return bytes(await reader.read(1))
        finally:
            writer.transport.abort()
    return b""


async def at_end(reader: asyncio.StreamReader) -> bool:
    """Return whether the other side has closed a connection without sending anything."""
    with suppress(ConnectionError):
        return await reader.read(1) == b""
    return True


def context_of(tls: Tls) -> ssl.SSLContext:
    return peer_contexts(tls).dialing


def anonymous_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def old_version() -> ssl.SSLContext:
    context = context_of(tls_of_node("n1"))
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


UNTRUSTED_PEERS: dict[str, Callable[[], ssl.SSLContext | None]] = {
    "plain": lambda: None,
    "no certificate": anonymous_context,
    "expired": lambda: context_of(tls_of_node("n1", is_expired=True)),
    "foreign authority": lambda: context_of(tls_of(node_pair(FOREIGN, "n1", group=GROUP), OURS)),
    "self-signed": lambda: context_of(tls_of(FOREIGN, OURS)),
    "of another node": lambda: context_of(tls_of_node("n2")),
    "of another group": lambda: context_of(tls_of(node_pair(OURS, "n1", group="other"), OURS)),
    "of a user": lambda: context_of(tls_of(user_pair(OURS, "n1", group=GROUP), OURS)),
    "old version of TLS": old_version,
}


# --------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("case", "refusal"),
    [
        ("plain", Refusal.INSECURE),
        ("no certificate", Refusal.HANDSHAKE),
        ("expired", Refusal.HANDSHAKE),
        ("foreign authority", Refusal.HANDSHAKE),
        ("self-signed", Refusal.HANDSHAKE),
        ("of another node", Refusal.IDENTITY),
        ("of another group", Refusal.IDENTITY),
        ("of a user", Refusal.IDENTITY),
        ("old version of TLS", Refusal.HANDSHAKE),
    ],
)
def test_untrusted_peer_gets_no_answer_and_is_counted(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, case: str, refusal: Refusal
) -> None:
    """The greeting is that of n1 in all cases: only the certificate differs."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            n0, received = await begun(stack, configs["n0"], secured(tmp_path, "n0"))
            assert await answer_to(configs["n0"], UNTRUSTED_PEERS[case](), greeting(configs["n1"], "n0")) == b""
            await eventually(lambda: n0.refused_counts[refusal] == 1)
            assert not received.messages
            assert sum(n0.refused_counts.values()) == 1

    run(main())


def test_revoked_node_gets_no_answer(run: Run, configs: Configs, eventually: Eventually, tmp_path: Path) -> None:
    """A certificate that is as good as that of n1, and older than the revocation."""
    now = Revoked({node_identity("n1", GROUP).uri: datetime.now(UTC)})

    async def main() -> None:
        async with AsyncExitStack() as stack:
            security = replace(secured(tmp_path, "n0"), revoked=lambda: now)
            n0, received = await begun(stack, configs["n0"], security)
            assert await answer_to(configs["n0"], context_of(tls_of_node("n1")), greeting(configs["n1"], "n0")) == b""
            await eventually(lambda: n0.refused_counts[Refusal.IDENTITY] == 1)
            assert not received.messages

    run(main())


def test_open_connections_end_when_their_node_is_revoked(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both kinds: those that it dialed, and those that were dialed to it; other nodes stay connected."""
    revoked = [NOTHING_REVOKED]

    async def main() -> None:
        async with AsyncExitStack() as stack:
            security = replace(secured(tmp_path, "n0"), revoked=lambda: revoked[-1])
            n0, _ = await begun(stack, configs["n0"], security)
            n1, _ = await begun(stack, configs["n1"], secured(tmp_path, "n1"))
            n2, _ = await begun(stack, configs["n2"], secured(tmp_path, "n2"))
            await eventually(lambda: is_linked(n0, "n0", n1, "n1") and is_linked(n0, "n0", n2, "n2"))
            others = n0._links["n2"].connections()

            revoked.append(Revoked({node_identity("n1", GROUP).uri: datetime.now(UTC)}))

            await eventually(lambda: not n0._links["n1"].connections())
            # It dials again, and is refused.
            await eventually(lambda: n0.refused_counts[Refusal.IDENTITY] >= 3)
            await eventually(lambda: "was revoked" in caplog.text)
            assert not n0._links["n1"].connections()
            assert n0._links["n2"].connections() == others

    run(main())


def test_open_connections_end_when_their_certificates_expire(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handshake checks the validity once; without this, a connection could stay open permanently."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            n0, _ = await begun(stack, configs["n0"], secured(tmp_path, "n0"))
            n1, _ = await begun(stack, configs["n1"], secured(tmp_path, "n1"))
            await eventually(lambda: is_linked(n0, "n0", n1, "n1"))

            monkeypatch.setattr(validity, "wall_clock_s", lambda: 1e11)

            await eventually(lambda: not n0._links["n1"].connections() and not n1._links["n0"].connections())
            await eventually(lambda: n0.refused_counts[Refusal.IDENTITY] >= 1)

    run(main())


def test_nodes_with_swapped_certificates_do_not_connect(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """n1 presents the certificate of n2: its connections are refused in both directions."""
    files = write_tls(tmp_path / "swapped", tls_of_node("n2"))
    swapped = PeerSecurity(PeerKind.TLS, None, Credentials(files, expected=node_identity("n2", GROUP)))

    async def main() -> None:
        async with AsyncExitStack() as stack:
            n0, _ = await begun(stack, configs["n0"], secured(tmp_path, "n0"))
            await begun(stack, configs["n1"], swapped)
            await eventually(lambda: n0.refused_counts[Refusal.IDENTITY] >= 2)
            await eventually(lambda: "expected the certificate of node n1 of group test, found that of" in caplog.text)
            await eventually(lambda: n0._links["n1"]._dialers[0].attempts_count >= 2)
            assert not n0._links["n1"].connections()

    run(main())


def test_node_with_tls_never_dials_plain(run: Run, configs: Configs, eventually: Eventually, tmp_path: Path) -> None:
    """A downgrade: the address of n1 is taken by a process that resets every TLS connection."""
    first_bytes = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first_bytes.append(await reader.read(1))
        writer.transport.abort()

    async def main() -> None:
        address = configs["n1"].self_address
        async with await asyncio.start_server(refuse, address.host, address.port), AsyncExitStack() as stack:
            await begun(stack, configs["n0"], secured(tmp_path, "n0"))
            await eventually(lambda: len(first_bytes) >= 6)
        assert set(first_bytes) == {b"\x16"}

    run(main())


# ------------------------------------------------------------------------------------------------- change of all nodes


def test_plain_and_tls_nodes_connect_while_one_of_them_also_allows_plain(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            n0, _ = await begun(stack, configs["n0"], secured(tmp_path, "n0", PeerKind.PLAIN))
            n1, _ = await begun(stack, configs["n1"])
            n2, _ = await begun(stack, configs["n2"], secured(tmp_path, "n2"))
            await eventually(lambda: is_linked(n0, "n0", n1, "n1") and is_linked(n0, "n0", n2, "n2"))
            assert n0.connection_counts() == {"off": 4, "secret": 0, "tls": 4}
            assert not n1.is_connected_to("n2")
            assert not n2.is_connected_to("n1")
            n1.send("n0", Heartbeat(1, -1, 1))

    run(main())


# --------------------------------------------------------------------------------------------------------- what floods


def test_greeting_time_covers_the_handshake(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent connection ends after the handshake's time limit; one that only completes it, after the greeting's."""
    monkeypatch.setattr(peer_connection, "HELLO_TIMEOUT_S", 0.3)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            n0, _ = await begun(stack, configs["n0"], secured(tmp_path, "n0"))
            for context in (None, context_of(tls_of_node("n1"))):
                # A slow machine may not even finish the handshake in time.
                with suppress(OSError):
                    reader, writer = await dialed(configs["n0"], context)
                    assert await at_end(reader)
                    writer.transport.abort()
            await eventually(lambda: n0.refused_counts[Refusal.SILENT] >= 1)

    run(main())


def test_hello_in_plain_bytes_is_no_greeting_of_a_tls_port(configs: Configs) -> None:
    """The first byte decides: that of a frame is 0, because its size is bounded."""
    hello = Handshake(configs["n0"], lambda _: True, RawOrigin()).hello("n1", is_bulk=True)
    plain = replace(PLAIN_PEERS, kind=PeerKind.PLAIN)
    assert encode_hello(hello)[0] == 0
    assert plain.kind_of(0) is PeerKind.PLAIN
    assert plain.kind_of(0x16) is None
