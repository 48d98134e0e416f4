"""Brokers of three real nodes and a name server, all of them processes on loopback; small files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.local_brokers import LocalBrokers

SMALL = {
    "mapped_file_size_for_entry_data": 1 << 20,
    "mapped_file_size_for_entry_index": 32 << 10,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[LocalBrokers]:
    """Return one broker of three nodes that serves, and a name server."""
    with LocalBrokers.create(tmp_path / "run", options=SMALL) as started:
        started.clusters["broker-a"].wait_for_leader()
        yield started
