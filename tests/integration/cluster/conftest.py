"""Three real node processes, shared by the tests of a module: all of them append, none may assume an empty log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.local_cluster import LocalCluster

# A leader is given up only by who has not heard of it for long, on a busy machine too.
OPTIONS = {
    "heart_beat_time_interval_ms": 50,
    "min_election_timeout_ms": 1_000,
    "max_election_timeout_ms": 2_000,
    "mapped_file_size_for_entry_data": 1 << 20,
    "mapped_file_size_for_entry_index": 1 << 20,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Return a running cluster that has a leader."""
    with LocalCluster.create(tmp_path_factory.mktemp("cluster"), options=OPTIONS) as running:
        running.wait_for_leader()
        yield running
