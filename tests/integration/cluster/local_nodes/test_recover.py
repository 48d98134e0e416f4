"""Drills with real nodes: two of three are lost while entries are appended; the third becomes a group of its own."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.local.cluster import LocalCluster
from dledger import AppendUnknown, LogClient, NotAppended
from tests.integration.cluster.local_nodes.conftest import OPTIONS
from tests.integration.cluster.local_nodes.test_commands import dledger
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[tuple[LocalCluster, dict[int, bytes]]]:
    """Return a group whose leader and another node were killed under load, and what was acknowledged, by index."""
    with LocalCluster.create(tmp_path / "run", options=OPTIONS) as cluster:
        acknowledged: dict[int, bytes] = {}
        is_over = threading.Event()

        def append() -> None:
            # Short: once the majority is lost, no append succeeds.
            with LogClient(cluster.endpoints, deadline_s=1.0, answer_timeout_s=1.0) as client:
                while not is_over.is_set():
                    with suppress(NotAppended, AppendUnknown):
                        body = b"%d" % len(acknowledged) * 30
                        acknowledged[client.append(body).index] = body

        leader = cluster.wait_for_leader(PATIENCE_S)
        thread = threading.Thread(target=append)
        thread.start()
        try:
            wait_until(lambda: len(acknowledged) > 200, "acknowledged entries")
            cluster.kill(leader)
            cluster.kill(next(node_id for node_id in cluster.node_ids if node_id != leader))
        finally:
            is_over.set()
            thread.join()
        yield cluster, acknowledged


def plan_of(text: str) -> dict[str, list[int]]:
    """Return the numbers in each line of a plan, by the words that the line begins with."""
    rows = (line.split("  ", 1) for line in text.splitlines())
    return {row[0]: [int(each) for each in re.findall(r"\b\d+\b", row[1])] for row in rows}


def test_survivor_has_all_acknowledged_entries_up_to_its_end_and_old_nodes_are_refused(
    lost: tuple[LocalCluster, dict[int, bytes]],
) -> None:
    cluster, acknowledged = lost
    (survivor,) = cluster.running_ids
    config = ("recover", "--config", cluster.config_of(survivor))
    running = dledger(cluster, *config)
    assert (1, True) == (running.returncode, b"in use" in running.stderr or b"locked" in running.stderr), running.stderr
    cluster.kill(survivor)

    planned = dledger(cluster, *config)
    assert 0 == planned.returncode, planned.stderr
    plan = plan_of(planned.stdout.decode())
    (group_id,) = re.findall(r"group id +([0-9a-f]{16})", planned.stdout.decode())
    begin, last, _ = plan["log"]
    # The checkpoint of a node that was killed is some seconds old, or there is none yet.
    committed = max(plan["kept, committed"], default=begin - 1)
    assert (0, last - committed) == (begin, plan["kept, not certain"][0])
    assert committed <= last
    refused = dledger(cluster, *config, "--unsafe", "--group-id", "0" * 15 + "1")
    assert (1, True) == (refused.returncode, f"expected group id {group_id}".encode() in refused.stderr)
    done = dledger(cluster, *config, "--unsafe", "--group-id", group_id)
    assert 0 == done.returncode, done.stderr
    cluster.start_node(survivor, PATIENCE_S)

    with LogClient(cluster.endpoint_of(survivor), deadline_s=PATIENCE_S) as client:
        kept = {entry.index: entry.body for entry in client.read(0)}
        # What may be lost are entries after the end that the plan names, and no others.
        assert {index: body for index, body in acknowledged.items() if index <= last}.items() <= kept.items()
        place = client.append(b"after the recovery")
        assert place.index > last
        assert group_id != client.status().group_id
        members = [member.id for member in client.status().members]
        assert [survivor] == members

        # An old node that returns is refused, and changes nothing.
        old = next(node_id for node_id in cluster.node_ids if node_id != survivor)
        cluster.start_node(old, PATIENCE_S)
        both = (old, survivor)
        wait_until(
            lambda: any("to another of this name" in cluster.log_of(each).read_text() for each in both), "a refusal"
        )
        assert b"after the recovery" == next(client.read(place.index)).body
        assert [survivor] == [member.id for member in client.status().members]
        cluster.kill(old)


def test_recovered_group_grows_by_new_nodes(lost: tuple[LocalCluster, dict[int, bytes]]) -> None:
    cluster, _ = lost
    (survivor,) = cluster.running_ids
    cluster.kill(survivor)
    config = ("recover", "--config", cluster.config_of(survivor))
    (group_id,) = re.findall(r"group id +([0-9a-f]{16})", dledger(cluster, *config).stdout.decode())
    assert 0 == dledger(cluster, *config, "--unsafe", "--group-id", group_id).returncode
    cluster.start_node(survivor, PATIENCE_S)

    added = [cluster.add_node(PATIENCE_S) for _ in range(2)]
    cluster.kill(added[0])

    with LogClient(f"{cluster.endpoint_of(survivor)},{cluster.endpoint_of(added[1])}", deadline_s=PATIENCE_S) as client:
        place = client.append(b"by two of three")
        assert {survivor, *added} == {member.id for member in client.status().members}
    cluster.kill(survivor)
    cluster.start_node(added[0], PATIENCE_S)
    with LogClient(",".join(map(cluster.endpoint_of, added)), deadline_s=PATIENCE_S) as client:
        assert b"by two of three" == next(client.read(place.index)).body
