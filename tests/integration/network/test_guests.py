"""Nodes that are no members, as far as a node knows: few in all, and fewer of each address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from dledger.config import Address, Peer
from dledger.origin import RawOrigin
from dledger.peer_transport import PeerTransport
from tests.integration.network.test_peer_transport import Recorder, is_linked, started

if TYPE_CHECKING:
    import pytest

    from tests.integration.network.test_peer_transport import Configs, Eventually, Run


def test_there_are_few_guests_and_the_next_one_is_told_so(
    run: Run,
    configs: Configs,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("dledger.peer_transport.GUESTS_MAX", 1)

    async def main() -> None:
        n0 = PeerTransport(configs["n0"], Recorder(), RawOrigin(), random=Random())
        await n0.start()
        n1, _ = await started(configs["n1"])
        await eventually(lambda: is_linked(n0, "n0", n1, "n1"))
        n2, _ = await started(configs["n2"])
        await eventually(lambda: "too many such nodes" in caplog.text)
        assert n0.guests == ["n1"]
        for transport in (n0, n1, n2):
            await transport.stop()

    run(main())


def test_one_address_cannot_take_all_places_of_guests(
    run: Run,
    configs: Configs,
    eventually: Eventually,
    free_address: Callable[[], Address],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dledger.peer_transport.GUESTS_PER_ADDRESS_MAX", 1)
    peers = (*configs["n0"].peers, Peer("n3", free_address()))
    newcomer = replace(configs["n1"], self_id="n3", peers=peers, client_address=free_address())

    async def main() -> None:
        n0 = PeerTransport(configs["n0"], Recorder(), RawOrigin(), random=Random())
        await n0.start()
        n1, _ = await started(configs["n1"])
        await eventually(lambda: n0.guests == ["n1"])
        n1.abort()
        n2, _ = await started(configs["n2"])
        await eventually(lambda: n0.guests == ["n2"])
        monkeypatch.setattr("dledger.peer_transport.GUESTS_PER_ADDRESS_MAX", 2)
        n3, _ = await started(newcomer)
        await eventually(lambda: n0.guests == ["n2", "n3"])
        for transport in (n0, n1, n2, n3):
            await transport.stop()

    run(main())
