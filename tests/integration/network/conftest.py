"""Fixtures of the network tests: an event loop to run in, free ports, settings of a cluster, a bounded wait."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest

from dledger.config import Address, NodeConfig, Peer
from dledger.core.config import RaftConfig
from dledger.event_loop import new_event_loop

Condition = Callable[[], object]


class Run(Protocol):
    def __call__(self, main: Coroutine[Any, Any, None]) -> None: ...


@pytest.fixture
def run() -> Run:
    """Run a coroutine on the event loop that a node uses, for at most a minute."""

    async def limited(main: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(60):
            await main

    def run_on_loop(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(limited(main))

    return run_on_loop


@pytest.fixture
def eventually() -> Callable[[Condition], Coroutine[Any, Any, None]]:
    """Wait until a condition holds; fail after 20 seconds."""

    async def wait(condition: Condition) -> None:
        deadline = asyncio.get_running_loop().time() + 20
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, "the condition did not come true in time"
            await asyncio.sleep(0.005)

    return wait


@pytest.fixture
def free_address() -> Callable[[], Address]:
    """Return loopback addresses that nobody listens on, each only once."""
    given: set[int] = set()

    def choose() -> Address:
        while True:
            with socket.socket() as holder:
                holder.bind(("127.0.0.1", 0))
                port = int(holder.getsockname()[1])
            if port not in given:
                given.add(port)
                return Address("127.0.0.1", port)

    return choose


@pytest.fixture
def configs(free_address: Callable[[], Address], tmp_path: Path) -> dict[str, NodeConfig]:
    """Return the settings of three nodes: small files, fast elections."""
    peers = tuple(Peer(f"n{number}", free_address()) for number in range(3))
    raft = RaftConfig(heart_beat_time_interval_ms=40, min_election_timeout_ms=200, max_election_timeout_ms=400)
    return {
        peer.id: NodeConfig(
            group="test",
            self_id=peer.id,
            peers=peers,
            store_base_dir=str(tmp_path),
            client_address=free_address(),
            mapped_file_size_for_entry_data=1 << 20,
            mapped_file_size_for_entry_index=32 << 12,
            raft=raft,
        )
        for peer in peers
    }
