"""`dledger top`: rates between samples, nodes that fail and return, the size of the terminal, and keys."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cluster.cli.app import app
from cluster.cli.client_target import LogNodes
from cluster.cli.nodes.top_samples import PAIRS_MAX, ConsumerRow, GroupRow, NodeRow, Sample, Sampler
from cluster.cli.nodes.top_view import Page, number, tables
from cluster.v1.broker_pb2 import BrokerStatusResponse
from dledger.v1.log_pb2 import PeerStatus, StatusResponse
from dledger.v1.member_pb2 import Member
from tests.support.waiting import PATIENCE_S

UNREACHABLE = "127.0.0.1:9"
MEMBERS = [Member(id=f"n{number}", address=f"h:{number}", is_voter=True) for number in range(3)]
PEERS = [PeerStatus(id="n1", client_address="h:2", is_live=True, is_voter=True, is_counted=True, match_index=5)]


def answer(self_id: str, role: str = "FOLLOWER", **fields: object) -> StatusResponse:
    base = {"code": 200, "group": "g", "self_id": self_id, "role": role, "term": 3, "members": MEMBERS}
    return StatusResponse(**{**base, **fields})


def leader(commit: int, reads: int, **fields: object) -> StatusResponse:
    base = {"commit_index": commit, "end_index": commit, "commit_position": commit * 100, "read_entries": reads}
    return answer("n0", "LEADER", peers=PEERS, **{**base, **fields})


def sampler() -> Sampler:
    return Sampler([LogNodes("h:1,h:2", "g")], 0.1)


def test_rates_are_differences_over_time_and_begin_again_with_a_process() -> None:
    taking = sampler()
    first = taking.group_row("g", {"h:1": leader(100, 50)}, {}, 10.0)
    assert (None, None, None) == (first.appends_per_s, first.append_bytes_per_s, first.reads_per_s)
    second = taking.group_row("g", {"h:1": leader(300, 90)}, {}, 12.0)
    assert (100.0, 10_000.0, 20.0) == (second.appends_per_s, second.append_bytes_per_s, second.reads_per_s)
    again = taking.group_row("g", {"h:1": leader(300, 6)}, {}, 14.0)
    assert (0.0, 3.0) == (again.appends_per_s, again.reads_per_s)
    # Deliveries of a broker are reads, too.
    brokers = {"h:1": BrokerStatusResponse(delivered_messages=20, is_serving_puts=True)}
    assert 10.0 == taking.group_row("g", {"h:1": leader(300, 6)}, brokers, 16.0).reads_per_s


def test_node_that_dies_is_shown_with_its_name_and_again_when_it_returns() -> None:
    taking = sampler()
    alive = {"h:1": leader(9, 0), "h:2": answer("n1", end_index=4, disk_used_ratio=0.5)}
    row = taking.group_row("g", dict(alive), {}, 1.0).nodes[1]
    assert ("n1", 5, 0.5, "ok") == (row.id, row.lag_entries, row.disk_used_ratio, row.state)
    dead = taking.group_row("g", {"h:1": leader(9, 0), "h:2": "h:2 is not reachable (Connection refused)"}, {}, 2.0)
    assert [("n0", "ok"), ("n1", "is not reachable (Connection refused)")] == [
        (node.id, node.state) for node in dead.nodes
    ]
    assert "n1" == taking.group_row("g", dict(alive), {}, 3.0).nodes[1].id
    unreachable = taking.group_row("g", {"h:1": "h:1 x", "h:2": "h:2 x"}, {}, 4.0)
    assert ("", 0, None) == (unreachable.leader, unreachable.term, unreachable.appends_per_s)


@pytest.mark.parametrize("pairs", [0, 1, PAIRS_MAX, PAIRS_MAX + 1, 5 * PAIRS_MAX])
def test_each_pair_of_group_and_topic_is_sampled_in_turn_within_the_bound(pairs: int) -> None:
    taking, all_pairs = sampler(), [(None, f"t{number}") for number in range(pairs)]
    turns = [taking._next_pairs("b", all_pairs) for _ in range(6)]

    assert all(len(turn) <= PAIRS_MAX for turn in turns)
    assert set(all_pairs) == {pair for turn in turns for pair in turn}


def big_sample() -> Sample:
    node = NodeRow("n0", "10.20.30.140:20921", "FOLLOWER", 1234, 10**12, 10**6, 12345.6, 0.9, "disk stalls or is full")
    dead = NodeRow("n1", "10.20.30.141:20921", "-", None, None, None, None, None, "is not reachable (Refused)")
    group = GroupRow("broker-a-with-a-name", "n0", 1234, 123456.0, 1.5e9, None, (node, dead))
    rows = tuple(ConsumerRow("broker-a", f"group-{number}", "t" * 100, 3, 10**9, 12.0) for number in range(60))
    return Sample((group, group), rows)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 12), (10, 2)])
def test_page_fits_and_scrolls_to_the_last_line(width: int, height: int) -> None:
    def shown(first: int) -> tuple[Page, list[str]]:
        console = Console(width=width, height=height, force_terminal=True, color_system=None)
        page = Page(console, big_sample(), first, " every 2 s  |  q quit")
        with console.capture() as capture:
            console.print(page.renderable(), end="")
        return page, capture.get().split("\n")

    page, lines = shown(0)
    assert height == len(lines)
    assert all(len(line) <= width for line in lines)
    assert lines[-1].startswith(" every 2 s"[:width])
    page, _ = shown(10_000)
    assert shown(page.first)[1] == shown(page.first + 5)[1]
    if width >= 80:
        assert any("12.3k" in line and "90%" in line for line in lines)
        assert ("10.20.30.140:20921" in "".join(lines)) == (width >= 100)


def test_long_states_and_names_wrap_and_do_not_narrow_numbers() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(tables(big_sample(), 80))
    text = console.file.getvalue()  # type: ignore[attr-defined]

    assert "…" not in text
    assert [2, 60, 60] == [text.count(str(number)) for number in (10**12, f" {10**9} ", "group-")]
    assert 60 * 100 == sum(line.count("t") for line in text.splitlines() if "ttt" in line)


def test_numbers_are_short() -> None:
    values = (None, 0.0, 0.25, 9.96, 12.4, 9999.0, 12_345.0, 1.2e6, 3.4e9)
    assert ["-", "0", "0.2", "10.0", "12", "9999", "12.3k", "1.2M", "3.4G"] == [number(value) for value in values]
    assert tables(Sample((), ()), 80) is not None


def test_once_and_json_serve_scripts() -> None:
    where = ("--endpoints", UNREACHABLE, "--timeout", "0.1", "--interval", "0.2")
    found = json.loads(CliRunner().invoke(app, ["top", "--json", "--once", *where]).stdout)
    assert UNREACHABLE == found["groups"][0]["nodes"][0]["endpoint"]
    text = CliRunner().invoke(app, ["top", *where])
    assert 0 == text.exit_code
    assert "no leader" in text.stdout
    assert 2 == CliRunner().invoke(app, ["top", "--endpoints", "nonsense", "--once"]).exit_code


def test_key_ends_the_live_view_and_restores_the_terminal() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "cluster.cli", "top", "--endpoints", UNREACHABLE, "--timeout", "0.1"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        seen = b""
        while b"q quit" not in seen:
            seen += os.read(ours, 4096)
        os.write(ours, b"+- jkq")
        # What it writes must be read, or it waits for space.
        while b"\x1b[?1049l" not in seen:
            seen += os.read(ours, 4096)
        assert 0 == process.wait(PATIENCE_S)
    assert before == termios.tcgetattr(theirs)
    os.close(ours)
    os.close(theirs)
