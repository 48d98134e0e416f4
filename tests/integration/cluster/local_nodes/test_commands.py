"""The commands on real nodes, run as processes with pipes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from cluster.local.cluster import LocalCluster
from cluster.local.node import choose_ports
from dledger.entries.format.entry import ENTRY_NOOP
from tests.integration.cluster.local_nodes.conftest import OPTIONS, client_of, transfer_leadership_once
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S, wait_until


def dledger(cluster: LocalCluster, *arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "DLEDGER_ENDPOINTS": cluster.endpoints, "COLUMNS": "120"}
    command = [sys.executable, "-m", "cluster.cli", *map(str, arguments)]
    return subprocess.run(
        command, input=stdin, env=environment, capture_output=True, check=False, timeout=SCENARIO_LIMIT_S
    )


def status_of_settled(cluster: LocalCluster, *arguments: object) -> bytes:
    """Return the output of `dledger status` when all nodes answer and one is leader."""

    def settled() -> bytes | None:
        done = dledger(cluster, "status", "--timeout", PATIENCE_S, *arguments)
        return done.stdout if done.returncode == 0 else None

    return wait_until(settled, "one leads")


def test_appended_file_is_read_back_unchanged(cluster: LocalCluster, tmp_path: Path) -> None:
    lines = [b"line %d \xff\x00" % number for number in range(2500)]
    file = tmp_path / "input"
    file.write_bytes(b"\n".join(lines) + b"\n")

    done = dledger(cluster, "append", file)
    assert 0 == done.returncode, done.stderr
    assert b"appended 2500 entries at indexes" in done.stdout

    assert b"\n".join(lines[-2000:]) + b"\n" == dledger(cluster, "tail", "-n", "2000").stdout


def test_standard_input_and_blocks_are_appended(cluster: LocalCluster) -> None:
    dledger(cluster, "append", stdin=b"one\ntwo\n")
    assert b"one\ntwo\n" == dledger(cluster, "tail", "-n", "2").stdout

    dledger(cluster, "append", "--block-size", "3", stdin=b"abcdefgh")
    rows = [json.loads(line) for line in dledger(cluster, "tail", "-n", "3", "--format", "jsonl").stdout.splitlines()]
    assert ["abc", "def", "gh"] == [row["body"] for row in rows]


def test_get_prints_exactly_the_body(cluster: LocalCluster) -> None:
    with client_of(cluster.endpoints) as log:
        place = log.append(b"\x00binary\n\xff")

    assert b"\x00binary\n\xff" == dledger(cluster, "get", place.index).stdout
    row = json.loads(dledger(cluster, "get", place.index, "--format", "jsonl").stdout)
    assert ("AGJpbmFyeQr/", place.position) == (row["bodyBase64"], row["pos"])
    beyond = dledger(cluster, "get", place.index + 1000)
    assert 1 == beyond.returncode
    assert b"410 INDEX_OUT_OF_RANGE" in beyond.stderr
    first = dledger(cluster, "get", 0)
    assert 0 == first.returncode
    # The first entry of a group is the membership that gives the group its id.
    membership = json.loads(first.stdout)
    assert list(cluster.node_ids) == [member["id"] for member in membership["members"]]
    assert membership["groupId"]
    assert b"entry 0 is a membership entry that the leader of term 1 wrote, not of a client" in first.stderr
    transfer_leadership_once(cluster)
    with client_of(cluster.endpoints) as log:
        log.append(b"after the no-op")
        no_op = next(entry.index for entry in log.read(include_internal=True) if entry.magic == ENTRY_NOOP)
    own = dledger(cluster, "get", no_op)
    assert (0, b"") == (own.returncode, own.stdout)
    assert b"entry %d is a no-op that the leader of term " % no_op in own.stderr
    assert b"wrote, not of a client; it has no body" in own.stderr
    # A leader that was elected since has an entry of its own there.
    after = itertools.count(place.index + 1)
    wait_until(lambda: b"there is no entry" in dledger(cluster, "get", next(after)).stderr, "the end of the log")


def test_tail_follows_until_it_is_interrupted(cluster: LocalCluster) -> None:
    with client_of(cluster.endpoints) as log:
        log.append(b"before")
        # Tests that are started in the background ignore the signal, and children inherit that.
        program = (
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import cluster.cli as c; c.main()"
        )
        command = [sys.executable, "-c", program, "tail", "-n", "1", "-f", "--endpoints", cluster.endpoints]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
            assert tail.stdout is not None
            assert b"before\n" == tail.stdout.readline()
            log.append(b"after")
            assert b"after\n" == tail.stdout.readline()
            tail.send_signal(signal.SIGINT)
            assert 0 == tail.wait(PATIENCE_S)


def test_status_shows_every_node_as_table_and_as_json(cluster: LocalCluster) -> None:
    table = status_of_settled(cluster)
    for node_id in cluster.node_ids:
        assert cluster.endpoint_of(node_id).encode() in table
    assert 1 == table.count(b"LEADER")
    assert all(len(line) <= 120 for line in table.decode().splitlines())

    rows = [json.loads(line) for line in status_of_settled(cluster, "--json").splitlines()]
    assert set(cluster.node_ids) == {row["self_id"] for row in rows}
    assert all(isinstance(row["commit_index"], int) for row in rows)


def test_files_of_a_running_node_can_be_inspected(cluster: LocalCluster) -> None:
    with client_of(cluster.endpoints) as log:
        end = log.append(b"x").index
    leader = cluster.wait_for_leader(PATIENCE_S)

    found = dledger(cluster, "inspect", "entries", cluster.directory_of(leader), "--format", "jsonl")
    assert 0 == found.returncode, found.stderr
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert list(range(len(rows))) == [row["index"] for row in rows]
    assert len(rows) > end

    def has_voted_for_itself() -> bool:
        leader = cluster.wait_for_leader(PATIENCE_S)
        term = json.loads(dledger(cluster, "inspect", "term", cluster.directory_of(leader)).stdout)
        return bool(term["voteLeader"] == leader)

    wait_until(has_voted_for_itself, "the vote of the leader is its own")


def test_metrics_are_served_on_their_own_port(cluster: LocalCluster) -> None:
    leader = cluster.wait_for_leader(PATIENCE_S)
    with urllib.request.urlopen(f"http://{cluster.metrics_of(leader)}/metrics", timeout=PATIENCE_S) as page:
        text = page.read().decode()

    for name in ("dledger_term{", "dledger_commit_index{", "process_cpu_seconds_total"):
        assert f"\n{name}" in text


def test_second_process_on_the_same_directory_is_refused(cluster: LocalCluster) -> None:
    node_id = cluster.node_ids[0]
    metrics = f"metrics_address=127.0.0.1:{choose_ports(1, None)[0]}"

    second = dledger(cluster, "server", "--config", cluster.config_of(node_id), "--set", metrics)

    assert 1 == second.returncode
    assert f"locked by process {cluster.pid_of(node_id)}".encode() in second.stderr
    assert b"Traceback" not in second.stderr


def test_metrics_address_in_use_is_reported(cluster: LocalCluster) -> None:
    second = dledger(cluster, "server", "--config", cluster.config_of(cluster.node_ids[0]))

    assert 1 == second.returncode
    assert b"metrics_address" in second.stderr
    assert b"cannot be listened on" in second.stderr


def test_node_refuses_to_run_without_its_assertions(cluster: LocalCluster) -> None:
    command = [sys.executable, "-O", "-m", "cluster.cli", "server", "--config", str(cluster.config_of("n0"))]
    refused = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)

    assert 2 == refused.returncode
    assert b"python -O" in refused.stderr


def test_bench_measures_other_nodes(cluster: LocalCluster) -> None:
    # A stall may take all of a short time; later acknowledgements are not counted.
    for seconds in (0.3, 3, 30):
        options = ("--runs", 1, "--seconds", seconds, "--json", "-")
        done = dledger(cluster, "bench", "conc64", "-e", cluster.endpoints, *options)
        assert 0 == done.returncode, done.stderr
        figures = json.loads(done.stdout)
        if figures["ops_s"]:
            break

    assert "conc64" == figures["workload"]
    assert figures["ops_s"] > 0
    assert figures["p50_ms"] <= figures["p99_ms"]
    assert {"mb_s", "cpu_s", "rss_mb", "fsync"} <= set(figures)


def test_bench_measures_a_temporary_cluster_and_leaves_no_files(cluster: LocalCluster, tmp_path: Path) -> None:
    arguments = ("batch100", "failover", "--runs", 1, "--seconds", 0.3, "--folder", tmp_path)
    done = dledger(cluster, "bench", *arguments)

    assert 0 == done.returncode, done.stderr
    (written,) = tmp_path.iterdir()
    batch, failover = (json.loads(line) for line in written.read_text().splitlines())
    assert batch["fsync"]
    assert batch["rss_mb"] > 0
    assert (batch["target"], failover["target"]) == (70_000, 400)
    assert batch["cpu_s"] > 0
    assert failover["ops_s"] is None
    assert 0 < failover["p50_ms"] < 1000 * PATIENCE_S


def test_stopped_nodes_end_cleanly_and_restart_with_their_log(tmp_path: Path) -> None:
    with LocalCluster.create(tmp_path, nodes=3, options=OPTIONS) as cluster:
        with client_of(cluster.endpoints) as log:
            place = log.append(b"kept")
        found = LocalCluster.attach(tmp_path)
        assert cluster.node_ids == found.running_ids
        found.stop()
        assert () == cluster.running_ids
        assert all("stopping signal=SIGTERM" in cluster.log_of(node_id).read_text() for node_id in cluster.node_ids)
        cluster.start()
        with client_of(cluster.endpoints) as log:
            assert [b"kept"] == [entry.body for entry in log.read(place.index, max_entries=1)]
