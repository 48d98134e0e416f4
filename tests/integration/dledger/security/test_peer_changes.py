"""Three nodes with TLS: changes from plain connections and between authorities, and unknown hosts at their ports."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from dledger.metrics import NodeMetrics
from dledger.node.node import Node
from dledger.peer.listening import HANDSHAKES_PER_ADDRESS_MAX
from dledger.security.credentials import Credentials
from dledger.security.peers import PLAIN_PEERS, PeerKind, PeerSecurity
from tests.integration.dledger.peer.test_connections_bound import resident_bytes
from tests.support.certificates import KeyPair, new_authority, node_identity, node_pair, tls_of, write_tls
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path
    from typing import Any

    import pytest

    from tests.integration.dledger.conftest import Cluster

    Run = Callable[[Coroutine[Any, Any, None]], None]

GROUP = "test"
OURS = new_authority()
FLOOD = 300
# Nothing, half a handshake, a plain frame, another protocol, half a greeting of another kind.
FIRST_BYTES = (b"", b"\x16\x03\x01\x02\0\x01", b"\0\0\1\0\0\0\0\xf0", b"GET / HTTP/1.1\r\n", b"DLS1\0\x80")


def write(folder: Path, node_id: str, signer: KeyPair, trusted: Sequence[KeyPair]) -> Credentials:
    files = write_tls(folder / node_id, tls_of(node_pair(signer, node_id, group=GROUP), *trusted))
    return Credentials(files, expected=node_identity(node_id, GROUP))


async def start(cluster: Cluster, node_id: str, security: PeerSecurity) -> None:
    config = cluster.configs[node_id]
    node = Node(config, NodeMetrics(CollectorRegistry(), config.group, node_id), peer_security=security)
    await node.start()
    cluster.nodes[node_id] = node


def test_group_changes_from_plain_to_tls_without_downtime(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    """Goal: two nodes of three always commit. Method: append while each node is down and after it is back."""

    async def main() -> None:
        used = {node_id: write(tmp_path, node_id, OURS, [OURS]) for node_id in cluster.configs}
        for node_id in cluster.configs:
            await start(cluster, node_id, PLAIN_PEERS)
        await cluster.append(b"plain")
        for also in (PeerKind.PLAIN, None):
            leader = await cluster.in_contact()
            # The leader last: one election per step.
            for node_id in sorted(cluster.configs, key=lambda each: each == leader.config.self_id):
                await cluster.stop(node_id)
                await cluster.append(b"one is down")
                await start(cluster, node_id, PeerSecurity(PeerKind.TLS, also, used[node_id]))
                await cluster.in_contact()
                await cluster.append(b"all are back")
        counts = [node._transport.connection_counts() for node in cluster.nodes.values()]
        assert [each["off"] for each in counts] == [0, 0, 0]
        assert all(each["tls"] for each in counts)
        await cluster.stop()

    run(main())


def test_authority_of_nodes_is_replaced_without_a_restart(
    cluster: Cluster, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each step all connections are reopened with the current files."""
    monkeypatch.setattr("dledger.peer.transport._RENEW_INTERVAL_S", 0.0)
    monkeypatch.setattr("dledger.peer.transport._NON_MEMBER_CHECK_S", 0.01)
    new = new_authority("the next authority")

    async def main() -> None:
        used = {node_id: write(tmp_path, node_id, OURS, [OURS]) for node_id in cluster.configs}
        for node_id in cluster.configs:
            await start(cluster, node_id, PeerSecurity(PeerKind.TLS, None, used[node_id]))
        await cluster.append(b"signed by the old authority")
        steps = ((OURS, (OURS, new)), (new, (OURS, new)), (new, (new,)))
        for generation, (signer, trusted) in enumerate(steps, start=2):
            for node_id, credentials in used.items():
                write(tmp_path, node_id, signer, trusted)
                assert await asyncio.to_thread(credentials.reload_if_changed), credentials.fault
                await cluster.append(b"while others have the files of the step before")
            await until(partial(are_renewed, cluster, generation))
            await cluster.append(b"after a step")
        await cluster.stop()

    run(main())


def are_renewed(cluster: Cluster, generation: int) -> bool:
    """Return whether all connections are open, and began with the certificates of `generation`."""
    links = [link for node in cluster.nodes.values() for link in node._transport._links.values()]
    found = [connection.generation for link in links for connection in link.connections()]
    return found == [generation] * 4 * len(links)


def test_leader_stays_while_untrusted_peers_flood_its_port(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    """They send the start of a handshake, or nothing, and read nothing."""

    async def main() -> None:
        for node_id in cluster.configs:
            own = write(tmp_path, node_id, OURS, [OURS])
            await start(cluster, node_id, PeerSecurity(PeerKind.TLS, None, own))
        leader = await cluster.in_contact()
        address, term = leader.config.self_address, leader.term
        before = resident_bytes()
        flood = []
        for number in range(FLOOD):
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(FIRST_BYTES[number % len(FIRST_BYTES)])
            flood.append(writer)
            if number % 100 == 0:
                await cluster.append(b"while untrusted peers connect")
        await until(lambda: sum(leader._transport.refused_counts.values()) >= FLOOD - HANDSHAKES_PER_ADDRESS_MAX)
        await cluster.append(b"after them")
        assert resident_bytes() - before < 32 << 20
        # Elections of a slow machine are no fault; a term from an unknown host would be far higher.
        assert leader.term < term + 100
        for writer in flood:
            writer.transport.abort()
        await cluster.stop()

    run(main())
