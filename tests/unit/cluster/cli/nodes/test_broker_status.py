"""The broker table of `dledger status`."""

from __future__ import annotations

import pytest
from rich.console import Console

from cluster.cli.nodes.broker_status import broker_table
from cluster.v1.broker_pb2 import BrokerStatusResponse
from dledger.v1.log_pb2 import LeaderHint


def status(self_id: str, **fields: object) -> BrokerStatusResponse:
    base = {"broker": "b", "self_id": self_id, "role": "FOLLOWER", "leader": LeaderHint(id="n0"), "divided_offset": -1}
    return BrokerStatusResponse(**{**base, **fields})


def row(found: BrokerStatusResponse) -> list[str]:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(broker_table({"h:1": found}))
    (line,) = [line for line in capture.get().splitlines() if line.startswith(f" {found.self_id} ")]
    return line.split(maxsplit=7)


@pytest.mark.parametrize(
    ("fields", "puts"),
    [
        ({}, "at the leader"),
        ({"leader": LeaderHint()}, "no leader"),
        ({"role": "LEADER", "is_serving_puts": True}, "taken"),
        ({"role": "LEADER", "not_serving_reason": "its no-op is not committed"}, "its no-op is not committed"),
        ({"role": "LEADER", "not_serving_reason": "[x] lags", "behind_bytes": 70}, "[x] lags (70 bytes to go)"),
        ({"role": "LEADER"}, "not yet"),
    ],
)
def test_row_shows_which_node_accepts_puts_and_why_others_do_not(fields: dict[str, object], puts: str) -> None:
    assert row(status("n1", **fields))[7].rstrip() == puts


def test_row_shows_the_end_of_the_base_log_and_the_undispatched_bytes() -> None:
    counts = {"topics_count": 3, "groups_count": 2, "queues_count": 12}
    offsets = {"divided_offset": 4096, "max_physical_offset": 9000, "dispatched_physical_offset": 8500}

    assert row(status("n1", **counts, **offsets))[:7] == ["n1", "3", "2", "12", "4096", "9000", "500"]
    assert row(status("n1", max_physical_offset=7, dispatched_physical_offset=7))[4:7] == ["-", "7", "0"]
