"""The metrics table: all of them are exposed, with labels and correct sums."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dledger.errors import ResponseCode
from dledger.metrics import TABLE, Histogram, NodeGauges, NodeMetrics, PeerGauges
from dledger.types import Role

GAUGES = NodeGauges(
    role=Role.LEADER,
    term=7,
    begin_index=0,
    last_index=41,
    commit_index=40,
    durable_index=39,
    pending_entries=1,
    pending_bytes=10,
    is_disk_full=False,
    disk_used_ratio=0.5,
    deleted_files=2,
    retention_silence_s=7200.0,
    aside_files=6,
    applied_index=-1,
    snapshot_index=-1,
    is_disk_stalled=True,
    has_leader=True,
    voters=3,
    learners=1,
    membership_index=12,
    non_members=0,
    dropped_messages=3,
    inline_syncs=4,
    threaded_syncs=5,
    peer_connections={"off": 0, "tls": 8},
    refused_connections={"handshake": 9, "identity": 1},
    peers={"n1": PeerGauges(2, True, True, True), "n2": PeerGauges(41, False, True, False)},
)


def exposed(registry: CollectorRegistry) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    series: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key not in ("group", "self_id")}
            assert sample.labels["group"] == "g"
            assert sample.labels["self_id"] == "n0"
            series.setdefault(sample.name, {})[tuple(labels.items())] = sample.value
    return series


def test_every_row_of_the_table_is_exposed() -> None:
    registry = CollectorRegistry()
    metrics = NodeMetrics(registry, "g", "n0")
    metrics.watch(lambda: GAUGES)
    metrics.count_refusal(ResponseCode.NOT_LEADER)
    names = set(exposed(registry))
    for row in TABLE:
        assert {row.name, f"{row.name}_total", f"{row.name}_bucket"} & names, row.name


def test_values_and_labels_are_those_of_the_node() -> None:
    registry = CollectorRegistry()
    metrics = NodeMetrics(registry, "g", "n0")
    metrics.watch(lambda: GAUGES)
    metrics.elections += 2
    metrics.count_refusal(ResponseCode.NOT_LEADER)
    metrics.count_refusal(ResponseCode.NOT_LEADER)
    series = exposed(registry)
    assert series["dledger_term"] == {(): 7}
    assert series["dledger_role"][("role", "LEADER"),] == 1
    assert series["dledger_role"][("role", "FOLLOWER"),] == 0
    assert series["dledger_peer_lag_entries"] == {(("peer", "n1"),): 2, (("peer", "n2"),): 41}
    assert series["dledger_peer_counted"] == {(("peer", "n1"),): 1, (("peer", "n2"),): 0}
    assert series["dledger_members"] == {(("kind", "voter"),): 3, (("kind", "learner"),): 1}
    assert series["dledger_disk_stalled"] == {(): 1}
    assert series["dledger_retention_silence_seconds"] == {(): 7200}
    assert series["dledger_elections_total"] == {(): 2}
    assert series["dledger_refusals_total"] == {(("code", "NOT_LEADER"),): 2}


def test_a_closed_node_exports_no_gauges() -> None:
    registry = CollectorRegistry()
    metrics = NodeMetrics(registry, "g", "n0")
    metrics.watch(lambda: GAUGES)
    metrics.watch(None)
    assert "dledger_term" not in exposed(registry)


def test_histogram_counts_up_to_and_including_each_bound() -> None:
    histogram = Histogram((1, 10))
    for value in (0, 1, 2, 10, 11):
        histogram.observe(value)
    assert histogram.cumulated() == ([("1.0", 2), ("10.0", 4), ("+Inf", 5)], 24)
