"""Membership changes and leadership transfers of node processes: by command, by client, by script."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from cluster.cli.app import app
from cluster.local.cluster import LocalCluster
from dledger.client import AdminClient, AdminFailed, AppendUnknown, AsyncAdminClient, AsyncLogClient, NotAppended
from dledger.errors import ResponseCode
from tests.integration.cluster.local_nodes.conftest import OPTIONS, client_of
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Return a running cluster of this module: tests change its members, and leave all of them as voters."""
    with LocalCluster.create(tmp_path_factory.mktemp("members"), options=OPTIONS) as running:
        running.wait_for_leader(PATIENCE_S)
        yield running


def dledger(cluster: LocalCluster, *arguments: object) -> Result:
    """Run a command in this process, because these tests check its output, not its start."""
    environment = {"DLEDGER_ENDPOINTS": cluster.endpoints, "COLUMNS": "100"}
    return CliRunner().invoke(app, [*map(str, arguments)], env=environment)


def output_of(cluster: LocalCluster, *arguments: object) -> str:
    """Repeat a command until it succeeds, because it needs a leader; return its output."""

    def succeeded() -> str | None:
        result = dledger(cluster, *arguments)
        return result.stdout if result.exit_code == 0 else None

    return str(wait_until(succeeded, f"success of {arguments}"))


def voters_of(admin: AdminClient) -> set[str]:
    """Return the ids of the voters, as soon as a leader answers."""

    def voters() -> set[str] | None:
        with suppress(AdminFailed):
            return {member.id for member in admin.members().members if member.is_voter}
        return None

    return set(wait_until(voters, "a leader lists the members"))


def script(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/local_cluster.py", *arguments, "--folder", str(cluster.folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=SCENARIO_LIMIT_S, text=True)


def follower_of(cluster: LocalCluster) -> str:
    leader = cluster.wait_for_leader(PATIENCE_S)
    return next(node_id for node_id in cluster.node_ids if node_id != leader)


def test_node_that_is_added_by_command_is_listed_promoted_and_removed(group: LocalCluster) -> None:
    members = output_of(group, "members", "list")
    assert members.count("voter") == 2
    assert "leader" in members

    added = dledger(group, "members", "add", "n9-127.0.0.1:9")
    assert added.exit_code == 0, added.stderr
    assert "is_joining = true" in added.stdout
    assert "n9-127.0.0.1:9" in added.stdout
    assert dledger(group, "members", "add", "n9-127.0.0.1:9").exit_code == 0, "asking twice does no harm"
    rows = [json.loads(line) for line in output_of(group, "members", "list", "--json").splitlines()]
    assert [row["role"] for row in rows if row["id"] == "n9"] == ["learner"]
    group_id = rows[0]["group_id"]
    assert len(group_id) == 16
    assert {row["group_id"] for row in rows} == {group_id}
    assert f"({group_id})" in output_of(group, "status", "--timeout", PATIENCE_S)
    assert "learner" in output_of(group, "status", "--timeout", PATIENCE_S)

    promoted = dledger(group, "members", "promote", "n9", "--deadline", "3")
    assert promoted.exit_code == 1
    assert "n9 does not answer" in promoted.stderr
    assert "`dledger status`" in promoted.stderr
    moved = dledger(group, "members", "add", "n9-127.0.0.1:10")
    assert "402 UNEXPECTED_MEMBER" in moved.stderr
    assert dledger(group, "members", "remove", "n9").exit_code == 0
    gone = dledger(group, "members", "remove", "n9")
    assert gone.exit_code == 1
    assert "401 UNKNOWN_MEMBER" in gone.stderr
    assert "`dledger members list`" in gone.stderr
    assert dledger(group, "members", "add", "nonsense").exit_code == 2

    expected = {
        ("AdminService/AddMember", "Node:n9", "OK"),
        ("AdminService/AddMember", "Node:n9", "UNEXPECTED_MEMBER"),
        ("AdminService/RemoveMember", "Node:n9", "UNKNOWN_MEMBER"),
    }
    wait_until(lambda: expected <= recorded(group), "the audit logs have all changes")


def recorded(cluster: LocalCluster) -> set[tuple[str, ...]]:
    """Return method, resource and result of the changes in the audit logs of all nodes."""
    files = [cluster.directory_of(node_id).parent / f"audit/{node_id}-admin.jsonl" for node_id in cluster.node_ids]
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {(line["method"], *line["resources"], line["result"]) for line in lines}


def test_fourth_node_joins_votes_and_is_removed_by_script(group: LocalCluster) -> None:
    with client_of(group.endpoints) as log:
        place = log.append(b"before the fourth")
    added = script(group, "add")
    assert added.returncode == 0, added.stderr
    cluster = LocalCluster.attach(group.folder)
    (node_id,) = set(cluster.node_ids) - set(group.node_ids)
    with client_of(cluster.endpoint_of(node_id)) as log:
        found = list(log.read(place.index, max_entries=1, endpoint=cluster.endpoint_of(node_id)))
        assert [entry.body for entry in found] == [b"before the fourth"]
    shown = output_of(group, "status", "--timeout", PATIENCE_S)
    assert cluster.endpoint_of(node_id) in shown, "the leader names a node that the caller does not know"
    with AdminClient(group.endpoints) as admin:
        assert voters_of(admin) == set(cluster.node_ids)
    removed = script(group, "remove", node_id)
    assert removed.returncode == 0, removed.stderr
    assert not cluster.directory_of(node_id).exists()
    assert set(LocalCluster.attach(group.folder).node_ids) == set(group.node_ids)
    unknown = script(group, "remove", node_id)
    assert unknown.returncode == 1
    assert "there is no node" in unknown.stderr


def test_wiped_node_is_re_synced_and_readmitted(group: LocalCluster) -> None:
    with client_of(group.endpoints) as log:
        places = [log.append(b"%d" % number) for number in range(50)]
        wiped = follower_of(group)
        group.stop_node(wiped)
        group.wipe(wiped)
        group.start_node(wiped)
        group.wait_counted(wiped, PATIENCE_S)
        third = next(node for node in group.node_ids if node not in (wiped, group.wait_for_leader(PATIENCE_S)))
        group.stop_node(third)
        last = log.append(b"with the vote of the wiped one")
        group.start_node(third)
        found = log.read(places[0].index, mode="linearizable", endpoint=group.endpoint_of(wiped))
        bodies = [entry.body for entry in found]
        assert bodies == [*(b"%d" % number for number in range(50)), b"with the vote of the wiped one"]
        assert last.index > places[-1].index


async def transfer_when_fit(admin: AsyncAdminClient, target: str) -> None:
    """Transfer to `target`, which may not have answered a new leader yet."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            await admin.transfer(target)
        except AdminFailed as failed:
            if failed.code != ResponseCode.TAKE_LEADERSHIP_FAILED or time.monotonic() > deadline_s:
                raise
            with suppress(AdminFailed):
                await admin.members()
        else:
            return


def test_node_counts_again_after_an_election(group: LocalCluster) -> None:
    leader = group.wait_for_leader(PATIENCE_S)
    other = next(node_id for node_id in group.node_ids if node_id != leader)
    group.kill(leader)
    group.wait_counted(other, PATIENCE_S)
    group.start_node(leader)
    group.wait_counted(leader, PATIENCE_S)


def test_leadership_moves_by_command_and_by_client(group: LocalCluster) -> None:
    target = follower_of(group)
    # It may not have answered a new leader yet.
    assert f"{target} is the leader" in output_of(group, "transfer", target)
    assert group.wait_for_leader(PATIENCE_S) == target
    assert dledger(group, "transfer", target).exit_code == 0, "a leader needs no transfer"
    unknown = dledger(group, "transfer", "n77")
    assert unknown.exit_code == 1
    assert "401 UNKNOWN_MEMBER" in unknown.stderr

    async def by_client() -> str:
        target = follower_of(group)
        async with AsyncAdminClient(group.endpoints) as admin, AsyncLogClient(group.endpoints) as log:
            await log.append(b"before")
            await transfer_when_fit(admin, target)
            await log.append(b"after")
            assert (await admin.members()).leader.id == target
            with pytest.raises(AdminFailed, match="401"):
                await admin.remove("n77")
        return target

    assert asyncio.run(by_client()) == group.wait_for_leader(PATIENCE_S)


def test_dead_node_is_replaced_while_appends_continue_and_no_acknowledged_entry_is_lost(
    group: LocalCluster,
) -> None:
    is_over = threading.Event()
    acknowledged: list[bytes] = []

    def load() -> None:
        with client_of(group.endpoints) as log:
            number = 0
            while not is_over.is_set():
                body = b"replace-%d" % number
                number += 1
                with suppress(AppendUnknown, NotAppended):
                    log.append(body)
                    acknowledged.append(body)

    with client_of(group.endpoints) as log:
        begin = log.append(b"begin").index
    thread = threading.Thread(target=load)
    thread.start()
    try:
        dead = follower_of(group)
        group.kill(dead)
        new = group.add_node(PATIENCE_S)
        group.remove_node(dead, PATIENCE_S)
        group.wait_counted(new, PATIENCE_S)
        count = len(acknowledged)
        group.kill(group.wait_for_leader(PATIENCE_S))
        wait_until(lambda: len(acknowledged) >= count + 10, "appends continue")
    finally:
        is_over.set()
        thread.join()
    group.start()
    with client_of(group.endpoints) as log:
        found = {entry.body for entry in log.read(begin, endpoint=group.endpoint_of(new))}
        assert not set(acknowledged) - found
    assert dead not in group.node_ids
    assert len(group.node_ids) == 3


def test_followers_serve_linearizable_reads(group: LocalCluster) -> None:
    with client_of(group.endpoints) as log:
        for number in range(5):
            place = log.append(b"%d" % number)
            for node_id in group.node_ids:
                for mode in ("linearizable", "lease"):
                    found = list(log.read(place.index, mode=mode, endpoint=group.endpoint_of(node_id)))
                    assert [entry.body for entry in found] == [b"%d" % number]
            assert [entry.index for entry in log.read(place.index, prefer_followers=True)] == [place.index]


def test_nodes_may_be_started_and_stopped_by_several_threads_concurrently(group: LocalCluster) -> None:
    faults: list[Exception] = []

    def restart(node_id: str) -> None:
        try:
            for _ in range(2):
                group.restart(node_id)
        except Exception as error:  # noqa: BLE001  (raised in the main thread)
            faults.append(error)

    threads = [threading.Thread(target=restart, args=(node_id,)) for node_id in group.node_ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert set(LocalCluster.attach(group.folder).running_ids) == set(group.node_ids)
    group.wait_for_leader(PATIENCE_S)
