"""Three real node processes, shared by the tests of a module, which must not assume an empty log."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from cluster.local.cluster import LocalCluster
from dledger import LogClient
from dledger.client import AdminClient, AdminFailed
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

# Long election timeouts: a busy machine causes no election.
OPTIONS = {
    "heart_beat_time_interval_ms": 50,
    "min_election_timeout_ms": 1_000,
    "max_election_timeout_ms": 2_000,
    # A pause of the machine leaves no outcome unknown; `client_of` waits for longer.
    "max_wait_ack_time_ms": int(1000 * PATIENCE_S),
    "mapped_file_size_for_entry_data": 1 << 20,
    "mapped_file_size_for_entry_index": 1 << 20,
}


def client_of(endpoints: str) -> LogClient:
    """Return a client that does not mistake a slow node for a failed one."""
    return LogClient(endpoints, deadline_s=PATIENCE_S, answer_timeout_s=2 * PATIENCE_S)


def transfer_leadership_once(cluster: LocalCluster) -> None:
    """Make another node leader; it appends a no-op, and may refuse appends until its followers have answered."""

    def is_handed_on() -> bool:
        leader = cluster.wait_for_leader(PATIENCE_S)
        target = next(node_id for node_id in cluster.node_ids if node_id != leader)
        with suppress(AdminFailed), AdminClient(cluster.endpoints, deadline_s=PATIENCE_S) as admin:
            admin.transfer(target)
            return True
        return False

    wait_until(is_handed_on, "another node leads")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Return a running cluster that has a leader."""
    with LocalCluster.create(tmp_path_factory.mktemp("cluster"), options=OPTIONS) as running:
        running.wait_for_leader(PATIENCE_S)
        yield running
