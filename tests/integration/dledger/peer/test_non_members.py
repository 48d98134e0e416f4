"""Nodes that are no members, as far as a node knows: few in all, and fewer of each address."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from dledger.config import Address, Peer
from dledger.core.messages import Push
from dledger.peer.handshake import Handshake
from dledger.peer.origin import RawOrigin
from dledger.peer.transport import PeerTransport
from dledger.peer.wire.encoder import encode
from dledger.peer.wire.frames import FRAME_HEAD, PAYLOAD_SIZE_BYTES_MAX, encode_hello
from dledger.types import Span
from tests.integration.dledger.peer.test_transport import Recorder, is_linked, started

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.integration.dledger.peer.test_transport import Configs, Eventually, Run


def test_non_members_beyond_the_bound_are_refused_with_the_reason(
    run: Run,
    configs: Configs,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("dledger.peer.transport.NON_MEMBERS_MAX", 1)

    async def main() -> None:
        n0 = PeerTransport(configs["n0"], Recorder(), RawOrigin(), random=Random())
        await n0.start()
        n1, _ = await started(configs["n1"])
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        n2, _ = await started(configs["n2"])
        await eventually(lambda: "too many such nodes" in caplog.text)
        assert n0.non_members == ["n1"]
        for transport in (n0, n1, n2):
            await transport.stop()

    run(main())


def test_one_address_cannot_exhaust_the_bound_of_non_members(
    run: Run,
    configs: Configs,
    eventually: Eventually,
    free_address: Callable[[], Address],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dledger.peer.transport.NON_MEMBERS_PER_ADDRESS_MAX", 1)
    peers = (*configs["n0"].peers, Peer("n3", free_address()))
    newcomer = replace(configs["n1"], self_id="n3", peers=peers, client_address=free_address())

    async def main() -> None:
        n0 = PeerTransport(configs["n0"], Recorder(), RawOrigin(), random=Random())
        await n0.start()
        n1, _ = await started(configs["n1"])
        await eventually(lambda: n0.non_members == ["n1"])
        n1.abort()
        n2, _ = await started(configs["n2"])
        await eventually(lambda: n0.non_members == ["n2"])
        monkeypatch.setattr("dledger.peer.transport.NON_MEMBERS_PER_ADDRESS_MAX", 2)
        n3, _ = await started(newcomer)
        await eventually(lambda: n0.non_members == ["n2", "n3"])
        for transport in (n0, n1, n2, n3):
            await transport.stop()

    run(main())


def test_incomplete_frames_of_non_members_share_one_bound(
    run: Run, configs: Configs, eventually: Eventually, free_address: Callable[[], Address]
) -> None:
    payload_size = PAYLOAD_SIZE_BYTES_MAX - 4096
    push = Push(1, -1, -1, -1, Span(0, 0, 1, 0, payload_size), bytes(payload_size))
    begin = encode(push)[0] + bytes(64)

    async def main() -> None:
        n0 = PeerTransport(configs["n0"], Recorder(), RawOrigin(), random=Random())
        await n0.start()
        writers = []
        for number in range(6):
            peers = (*configs["n0"].peers, Peer(f"g{number}", free_address()))
            other = replace(configs["n1"], self_id=f"g{number}", peers=peers)
            reader, writer = await asyncio.open_connection(other.peers[0].address.host, other.peers[0].address.port)
            writers.append(writer)
            hello = Handshake(other, lambda _: True, RawOrigin()).hello("n0", is_bulk=True)
            writer.write(encode_hello(hello))
            await reader.readexactly(FRAME_HEAD.size)
            writer.write(begin)
            await eventually(partial(large, n0, f"g{number}"))
            held = [each for each in n0._links if large(n0, each)]
            # The oldest was closed, and the newest has its place: a leader that is unknown here can connect.
            assert held == [f"g{each}" for each in range(number + 1)][-2:]
        for writer in writers:
            writer.close()
        await n0.stop()

    run(main())


def large(transport: PeerTransport, peer_id: str) -> bool:
    link = transport._links.get(peer_id)
    return link is not None and any(each.is_buffer_large for each in link.connections())
