"""Three real node processes, shared by the tests of a module: all of them append, none may assume an empty log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.local_cluster import LocalCluster

OPTIONS = {
    "heart_beat_time_interval_ms": 50,
    "min_election_timeout_ms": 300,
    "max_election_timeout_ms": 600,
    "mapped_file_size_for_entry_data": 1 << 20,
    "mapped_file_size_for_entry_index": 1 << 20,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder as slow: they run real processes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Return a running cluster that has a leader."""
    with LocalCluster.create(tmp_path_factory.mktemp("cluster"), options=OPTIONS) as running:
        running.wait_for_leader()
        yield running
