"""`dledger watch` against real node processes: events as lines and as JSON, nodes that end and start again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cluster.local.cluster import LocalCluster
from cluster.local.node import choose_ports
from tests.integration.cluster.local_nodes.conftest import OPTIONS, transfer_leadership_once
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO


class Lines:
    """The lines that a running command has printed; threads read both of its streams."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.out: list[str] = []
        self.notes: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((process.stdout, self.out), (process.stderr, self.notes))
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: IO[str], lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))  # noqa: PERF401  (each line is seen when it comes)

    def rows(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in list(self.out)]


@contextmanager
def watching(endpoints: str, *options: str) -> Iterator[Lines]:
    """Run `dledger watch` for the block."""
    command = [sys.executable, "-m", "cluster.cli", "watch", "--endpoints", endpoints, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield Lines(process)
    finally:
        process.kill()
        process.communicate()


def test_a_transfer_is_printed_by_both_nodes_with_its_votes(cluster: LocalCluster) -> None:
    with watching(cluster.endpoints, "--json", "--states") as lines:
        wait_until(lambda: len({row["node"] for row in lines.rows()}) == 3, "all nodes are watched")
        begin = len(lines.out)
        transfer_leadership_once(cluster)

        def elected() -> dict[str, object] | None:
            return next((row for row in lines.rows()[begin:] if row["kind"] == "elected"), None)

        winner = wait_until(elected, "a leader is printed")
        term = winner["term"]
        wait_until(
            lambda: any(row["kind"] == "vote_answered" and row["vote_term"] == term for row in lines.rows()[begin:]),
            "a vote is printed",
        )
    assert winner["role"] == "LEADER"
    assert winner["leader_id"] == winner["node"]
    assert isinstance(winner["wall_ms"], int)
    states = [row for row in lines.rows() if row["kind"] == "state" and row["role"] == "LEADER"]
    assert {len(row["peers"]) for row in states} == {2}


def test_a_node_that_ends_is_reported_once_and_its_new_process_is_watched_again(tmp_path: Path) -> None:
    with LocalCluster.create(tmp_path, options=OPTIONS) as cluster:
        leader = cluster.wait_for_leader(PATIENCE_S)
        follower = next(node_id for node_id in cluster.node_ids if node_id != leader)
        with watching(cluster.endpoints, "--history") as lines:
            wait_until(lambda: [line for line in lines.out if line.split()[1] == follower], "its history is printed")
            cluster.kill(follower)
            wait_until(lambda: lines.notes, "its end is reported")
            before = len(lines.out)
            cluster.start_node(follower)
            wait_until(lambda: any("answers" in note for note in lines.notes), "it is watched again")
            wait_until(
                lambda: [line for line in lines.out[before:] if line.split()[1] == follower], "its events are printed"
            )
            # The broken connection, each reason for which a new one fails, and the end of that.
            assert len(set(lines.notes)) == len(lines.notes), lines.notes
            assert sum("answers" in note for note in lines.notes) == 1, lines.notes


def test_a_number_of_lines_ends_the_command(cluster: LocalCluster) -> None:
    command = [sys.executable, "-m", "cluster.cli", "watch", "--endpoints", cluster.endpoints]
    options = ["--states", "--interval", "0.1", "--count", "4"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=PATIENCE_S, check=True)

    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all(" in term " in line and "commit " in line for line in lines), lines


def test_a_node_that_refuses_ends_the_command_with_the_reason(cluster: LocalCluster) -> None:
    command = [sys.executable, "-m", "cluster.cli", "watch", "--endpoints", cluster.endpoints, "--group", "other"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert "this node serves group" in done.stderr
    assert "no node can be watched" in done.stderr


def test_an_address_where_nothing_listens_is_reported_once_and_asked_again(cluster: LocalCluster) -> None:
    (port,) = choose_ports(1, None)
    with watching(f"127.0.0.1:{port},{cluster.endpoints}", "--states", "--interval", "0.1") as lines:
        wait_until(lambda: any(str(port) in note for note in lines.notes), "it is reported")
        wait_until(lambda: len(lines.out) > 12, "the others are watched")
        assert sum(str(port) in note for note in lines.notes) == 1
