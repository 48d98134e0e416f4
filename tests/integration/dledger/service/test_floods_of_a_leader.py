"""Hostile connections to the leader of three nodes: it keeps its term, and appends are acknowledged meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dledger import AsyncLogClient
from dledger.core.config import RaftConfig
from dledger.service.log import start_server
from tests.integration.dledger.service.test_connection_floods import (
    CHECK,
    RESETS,
    requests_without_reading,
)
from tests.support.network.http2 import opening, reset_calls
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.config import Address, NodeConfig
    from tests.integration.dledger.conftest import Cluster, Run

STATUS = "/dledger.v1.LogService/Status"
APPENDS, CONNECTIONS, ROUNDS_MAX = 20, 10, 100
# In one process all nodes share its stalls; an attack that takes seconds of the loop would still cost the lead.
PATIENT = RaftConfig(heart_beat_time_interval_ms=200, min_election_timeout_ms=3_000, max_election_timeout_ms=6_000)


def reset_rapidly(address: Address, is_over: threading.Event) -> int:
    """Open and reset calls on ten connections, a bounded number; return how many were sent."""
    sent = 0
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connected(address)) for _ in range(CONNECTIONS)]
        for number in range(ROUNDS_MAX):
            piece = reset_calls(1 + 2 * RESETS * number, RESETS, CHECK)
            for connection in connections:
                # A server may close a connection that resets too much.
                with contextlib.suppress(OSError):
                    connection.sendall(piece if number else opening() + piece)
                    sent += RESETS
                    while connection.recv(1 << 16, socket.MSG_DONTWAIT):
                        pass
            if is_over.is_set():
                break
    return sent


def read_nothing(address: Address, is_over: threading.Event) -> int:
    """Make calls whose answers are never read, on as many connections as rounds; return how many were made."""
    made = 0
    with contextlib.ExitStack() as stack:
        for _ in range(ROUNDS_MAX):
            stack.enter_context(requests_without_reading(address, RESETS, STATUS, b""))
            made += RESETS
            if is_over.is_set():
                break
        is_over.wait(PATIENCE_S)
    return made


def connect_only(address: Address, is_over: threading.Event) -> int:
    """Open connections that send nothing, or half a greeting of HTTP/2; return their number."""
    with contextlib.ExitStack() as stack:
        for number in range(ROUNDS_MAX):
            connection = stack.enter_context(connected(address))
            connection.sendall(opening()[: 12 * (number % 2)])
        is_over.wait(PATIENCE_S)
    return ROUNDS_MAX


def connected(address: Address) -> socket.socket:
    return socket.create_connection((address.host, address.port))


@pytest.mark.parametrize("attack", [reset_rapidly, read_nothing, connect_only])
def test_leader_under_a_flood_keeps_its_term_and_acknowledges_appends(
    run: Run, cluster: Cluster, attack: Callable[[Address, threading.Event], int]
) -> None:
    """Goal: clients without credentials cannot cost the lead. Method: floods of the leader's port, and 20 appends."""
    cluster.configs = patient(cluster.configs)

    async def main() -> None:
        await cluster.start()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(cluster.stop)
            for node in cluster.nodes.values():
                server = await start_server(node, node.config.client_address)
                stack.push_async_callback(server.stop, None)
            leader = await cluster.in_contact()
            address, term = leader.config.client_address, leader.status().term
            client: Any = AsyncLogClient(str(address), group="test", deadline_s=PATIENCE_S)
            log = await stack.enter_async_context(client)
            await log.append(b"before")

            is_over = threading.Event()
            flood = asyncio.ensure_future(asyncio.to_thread(attack, address, is_over))
            try:
                indexes = [(await log.append(b"%d" % number)).index for number in range(APPENDS)]
            finally:
                is_over.set()
                print(f"{attack.__name__}: {await flood} calls or connections")

            assert indexes == list(range(indexes[0], indexes[0] + APPENDS))
            assert leader.is_leader
            assert {node.status().term for node in cluster.nodes.values()} == {term}

    run(main())


def patient(configs: dict[str, NodeConfig]) -> dict[str, NodeConfig]:
    return {node_id: replace(config, raft=PATIENT) for node_id, config in configs.items()}
