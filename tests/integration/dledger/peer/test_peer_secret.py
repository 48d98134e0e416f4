"""A secret that nodes share, over real sockets; and a process between two nodes that alters what they send."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from dledger.core.messages import Heartbeat
from dledger.peer.origin import RawOrigin
from dledger.peer.refusals import Refusal
from dledger.peer.sealing import DialersGreeting
from dledger.peer.transport import PeerTransport
from dledger.security.peers import PLAIN_PEERS, PeerKind, PeerSecurity
from dledger.security.shared_secret import new_secret, open_shared_secret
from tests.integration.dledger.peer.test_peer_tls import at_end, begun, dialed, secured
from tests.integration.dledger.peer.test_transport import Recorder, greeting, is_linked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from dledger.config import Address, NodeConfig
    from dledger.peer.connection import PeerConnection

    Configs = dict[str, NodeConfig]
    Run = Callable[[Coroutine[Any, Any, None]], None]
    Eventually = Callable[[Callable[[], object]], Coroutine[Any, Any, None]]

OLD, NEW, FOREIGN = new_secret(), new_secret(), new_secret()
LARGE = bytes(range(256)) * 8192


def sharing(folder: Path, content: bytes = OLD, also: PeerKind | None = None, *, name: str = "secret") -> PeerSecurity:
    path = folder / name
    path.touch(mode=0o600)
    path.write_bytes(content)
    return PeerSecurity(PeerKind.SECRET, also, secret=open_shared_secret(str(path)))


@pytest.mark.parametrize("case", ["plain", "another secret", "another id", "recorded", "half a greeting", "TLS"])
def test_peer_without_the_secret_gets_nothing(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, case: str
) -> None:
    """What it sends first, in the place of a node's greeting; a recorded greeting is answered, and opens nothing."""
    ours = bytes.fromhex(OLD.decode())
    sent = {
        "plain": greeting(configs["n1"], "n0"),
        "another secret": DialersGreeting(bytes.fromhex(FOREIGN.decode()), "test", "n1", "n0").first,
        "another id": DialersGreeting(ours, "test", "n1", "n2").first,
        "recorded": DialersGreeting(ours, "test", "n1", "n0").first + greeting(configs["n1"], "n0"),
        "half a greeting": b"DLS1\0",
        "TLS": b"\x16\x03\x01\x02\0\x01",
    }[case]

    async def main() -> None:
        async with AsyncExitStack() as stack:
            n0, received = await begun(stack, configs["n0"], sharing(tmp_path))
            reader, writer = await dialed(configs["n0"], None)
            writer.write(sent)
            if case == "half a greeting":
                writer.write_eof()
            if case == "recorded":
                assert (await reader.readexactly(4)) == b"DLS1"
                await reader.read()
            else:
                assert await at_end(reader)
                refusal = Refusal.INSECURE if case in ("plain", "TLS") else Refusal.HANDSHAKE
                await eventually(lambda: n0.refused_counts[refusal] == 1)
            writer.transport.abort()
            assert not received.messages
            assert not n0.non_members

    run(main())


def test_node_that_greets_with_another_id_than_it_proved_is_refused(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the secret; ids in greeting and Hello differ, as after a mistake in settings."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            n0, received = await begun(stack, configs["n0"], sharing(tmp_path))
            impostor = PeerTransport(
                configs["n1"], Recorder(), RawOrigin(), random=Random(), security=sharing(tmp_path)
            )
            dialed_as = impostor._handshake.dialed
            monkeypatch.setattr(impostor._handshake, "dialed", lambda peer: replace(dialed_as(peer), self_id="n2"))
            await impostor.start()
            stack.push_async_callback(impostor.stop)
            impostor.set_members({"n0": configs["n0"].self_address})
            await eventually(lambda: n0.refused_counts[Refusal.IDENTITY] >= 2)
            assert not received.messages

    run(main())


def test_secret_changes_while_nodes_stay_connected(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps, node by node; in each, connections are reopened with the current secrets."""
    monkeypatch.setattr("dledger.peer.transport._RENEW_INTERVAL_S", 0.0)
    monkeypatch.setattr("dledger.peer.transport._NON_MEMBER_CHECK_S", 0.01)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            used = {each: sharing(tmp_path, name=each) for each in ("n0", "n1")}
            n0, _ = await begun(stack, configs["n0"], used["n0"])
            n1, received = await begun(stack, configs["n1"], used["n1"])
            for step, content in enumerate((OLD, OLD + NEW, NEW + OLD, NEW)):
                for name, security in used.items():
                    (tmp_path / name).write_bytes(content)
                    assert security.secret is not None
                    assert security.secret.reload_if_changed() == bool(step)
                    await eventually(lambda: is_linked(n0, "n0", n1, "n1") and are_new(n0) and are_new(n1))
                    n0.send("n1", Heartbeat(1, -1, step))
            await eventually(lambda: received.messages)

    def are_new(transport: PeerTransport) -> bool:
        secret = transport._security.secret
        found = [each.generation for link in transport._links.values() for each in link.connections()]
        return secret is not None and found == [secret.generation] * 4

    run(main())


@pytest.mark.parametrize("also", [PeerKind.PLAIN, PeerKind.TLS])
def test_nodes_change_from_another_kind_to_a_secret(
    run: Run, configs: Configs, eventually: Eventually, tmp_path: Path, also: PeerKind
) -> None:
    def before(node_id: str) -> PeerSecurity:
        return PLAIN_PEERS if also is PeerKind.PLAIN else secured(tmp_path, node_id)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            both = replace(sharing(tmp_path), also=also, credentials=before("n0").credentials)
            n0, _ = await begun(stack, configs["n0"], both)
            n1, _ = await begun(stack, configs["n1"], before("n1"))
            n2, _ = await begun(stack, configs["n2"], sharing(tmp_path))
            await eventually(lambda: is_linked(n0, "n0", n1, "n1") and is_linked(n0, "n0", n2, "n2"))
            assert n0.connection_counts() == {"off": 0, "secret": 4, "tls": 0} | {also.value: 4}

    run(main())


# ------------------------------------------------------------------------------------------------ a process in between


class Relay:
    """Forwards bytes between dialers and the node at `address`; `tampered` may change those of dialers."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.tampered: Callable[[bytes], bytes] | None = None
        self.changes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._address.host, self._address.port)
        await asyncio.gather(
            self._pass(far_reader, writer, lambda chunk: chunk), self._pass(reader, far_writer, self._change)
        )

    def _change(self, chunk: bytes) -> bytes:
        if self.tampered is None:
            return chunk
        self.changes += 1
        return self.tampered(chunk)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Callable[[bytes], bytes]
    ) -> None:
        try:
            while chunk := await reader.read(1 << 20):
                writer.write(change(chunk))
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()


def accepted_by(transport: PeerTransport) -> list[PeerConnection]:
    """Return the connections that n0 dialed."""
    return [each for each in transport._links["n0"].connections() if not each.is_dialled]


def with_flipped_bit(chunk: bytes) -> bytes:
    place = len(chunk) // 2
    return chunk[:place] + bytes((chunk[place] ^ 1,)) + chunk[place + 1 :]


@pytest.mark.parametrize(
    "tampered",
    [with_flipped_bit, lambda chunk: chunk + chunk, lambda chunk: chunk[len(chunk) // 2 :], lambda _: b""],
    ids=["flipped bit", "repeated", "half left out", "left out"],
)
@pytest.mark.parametrize("kind", [PeerKind.SECRET, PeerKind.TLS])
def test_altered_bytes_end_the_connection_and_are_no_message(
    run: Run,
    configs: Configs,
    eventually: Eventually,
    free_address: Callable[[], Address],
    tmp_path: Path,
    kind: PeerKind,
    tampered: Callable[[bytes], bytes],
) -> None:
    """Goal: n1 receives what n0 sent, in order, or nothing. Method: a relay changes what n0 sends."""
    between = free_address()
    via_relay = tuple(replace(peer, address=between) if peer.id == "n1" else peer for peer in configs["n0"].peers)
    used = [sharing(tmp_path) if kind is PeerKind.SECRET else secured(tmp_path, node_id) for node_id in ("n0", "n1")]

    async def main() -> None:
        relay = Relay(configs["n1"].self_address)
        server = await asyncio.start_server(relay.serve, between.host, between.port)
        async with server, AsyncExitStack() as stack:
            n0, _ = await begun(stack, replace(configs["n0"], peers=via_relay), used[0])
            n1, received = await begun(stack, configs["n1"], used[1])
            await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
            n0.send("n1", Heartbeat(1, -1, 1))
            await eventually(lambda: received.messages)
            before = accepted_by(n1)
            relay.tampered = tampered
            n0.send("n1", Heartbeat(1, -1, 2))
            await eventually(lambda: relay.changes)
            relay.tampered = None
            # After a gap, only the next record shows it.
            n0.send("n1", Heartbeat(1, -1, 3))
            await eventually(lambda: any(each not in accepted_by(n1) for each in before))
            # The end of the old connection reaches n0 later than n1: what n0 sends until then is lost.
            later = count(4)

            def arrives() -> bool:
                n0.send("n1", Heartbeat(1, -1, next(later)))
                return any(isinstance(each, Heartbeat) and each.round >= 4 for _, each in received.messages)

            await eventually(arrives)
            rounds = [message.round for _, message in received.messages if isinstance(message, Heartbeat)]
            assert rounds == sorted(set(rounds)), rounds

    run(main())
