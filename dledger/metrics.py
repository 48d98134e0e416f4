"""All metrics of a node in one table, and the collector that exports them to Prometheus.

Observations are plain additions to Python numbers, made once per batch or request, never per entry; a scrape, in the
metrics server's thread, does the formatting. Every series carries the labels `group` and `self_id`.

Not here: the HTTP server (the node process starts it), and decisions: no code reads a metric back.

Source: DLedger `DLedgerMetricsConstant` (append and push latency, batch sizes), plus the gauges that DLedger lacks.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dledger import native
from dledger.core.events import RejectReason
from dledger.errors import ResponseCode
from dledger.types import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client import CollectorRegistry


class MetricKind(Enum):
    """Counter, gauge or histogram."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric: its name, kind, help text, and the label that distinguishes its series (if any)."""

    name: str
    kind: MetricKind
    help: str
    label: str | None = None


TABLE = (
    Row("dledger_term", MetricKind.GAUGE, "Current term."),
    Row("dledger_role", MetricKind.GAUGE, "1 for the role that the node has in its term.", "role"),
    Row("dledger_begin_index", MetricKind.GAUGE, "First retained index."),
    Row("dledger_last_index", MetricKind.GAUGE, "Last index of the log, committed or not."),
    Row("dledger_commit_index", MetricKind.GAUGE, "Last index known to be committed."),
    Row("dledger_durable_index", MetricKind.GAUGE, "Last index that is synced to disk."),
    Row("dledger_pending_entries", MetricKind.GAUGE, "Entries appended and not yet committed."),
    Row("dledger_pending_bytes", MetricKind.GAUGE, "Bytes of bodies appended and not yet committed."),
    Row("dledger_disk_full", MetricKind.GAUGE, "1 while appends are refused because the disk is full."),
    Row("dledger_disk_used_ratio", MetricKind.GAUGE, "Used share of the disk, from 0 to 1."),
    Row("dledger_deleted_files", MetricKind.COUNTER, "Old data files deleted."),
    Row(
        "dledger_retention_silence_seconds",
        MetricKind.GAUGE,
        "Time between the last write before the start and the start: it ages no file. 0: less than five minutes.",
    ),
    Row(
        "dledger_aside_files", MetricKind.GAUGE, "Data files of the log that a reset replaced, until they are deleted."
    ),
    Row("dledger_applied_index", MetricKind.GAUGE, "Last entry that the state machine has applied; -1 without one."),
    Row("dledger_snapshot_index", MetricKind.GAUGE, "Last entry in the newest snapshot; -1 without one."),
    Row(
        "dledger_disk_stalled",
        MetricKind.GAUGE,
        "1 while the disk stalls: the node neither leads nor starts elections.",
    ),
    Row("dledger_has_leader", MetricKind.GAUGE, "1 if the node knows the leader of its term."),
    Row("dledger_members", MetricKind.GAUGE, "Members of the group as this node knows them, by kind.", "kind"),
    Row("dledger_membership_index", MetricKind.GAUGE, "Index of the membership entry in force; -1: the settings."),
    Row("dledger_non_members", MetricKind.GAUGE, "Connected nodes that are not members of the group."),
    Row("dledger_peer_lag_entries", MetricKind.GAUGE, "On a leader: entries that the peer lacks.", "peer"),
    Row(
        "dledger_peer_live", MetricKind.GAUGE, "On a leader: 1 if the peer answered within an election timeout.", "peer"
    ),
    Row("dledger_peer_healthy", MetricKind.GAUGE, "On a leader: 1 if the peer's disk is healthy.", "peer"),
    Row(
        "dledger_peer_counted",
        MetricKind.GAUGE,
        "On a leader: 1 if the peer counts in majorities; 0: a learner, or a wiped voter.",
        "peer",
    ),
    Row("dledger_elections", MetricKind.COUNTER, "Elections in which this node was a candidate."),
    Row("dledger_leader_changes", MetricKind.COUNTER, "Changes of the leader that this node knows."),
    Row("dledger_dropped_messages", MetricKind.COUNTER, "Messages to peers dropped: not connected, or buffer full."),
    Row("dledger_peer_connections", MetricKind.GAUGE, "Open connections with other nodes, by security.", "security"),
    Row(
        "dledger_refused_peer_connections",
        MetricKind.COUNTER,
        "Connections that a secured peer port refused, by reason.",
        "reason",
    ),
    Row("dledger_distrusted_messages", MetricKind.COUNTER, "Distrusted messages of peers, by reason.", "reason"),
    Row(
        "dledger_corrupt_pushes",
        MetricKind.COUNTER,
        "Pushes that did not verify: received here, or refused by a peer.",
        "where",
    ),
    Row(
        "dledger_entries_lost",
        MetricKind.COUNTER,
        "Losses of acknowledged entries that this node found in its own log.",
    ),
    Row("dledger_syncs", MetricKind.COUNTER, "Syncs of the log by where they ran.", "where"),
    Row("dledger_native", MetricKind.GAUGE, "1 if the native module is in use; 0: the same functions in Python."),
    Row("dledger_refusals", MetricKind.COUNTER, "Requests refused, by response code.", "code"),
    Row("dledger_append_latency_seconds", MetricKind.HISTOGRAM, "Time from the arrival of a request to its commit."),
    Row("dledger_fsync_latency_seconds", MetricKind.HISTOGRAM, "Duration of one sync of the log."),
    Row("dledger_append_batch_entries", MetricKind.HISTOGRAM, "Entries that the leader appended in one batch."),
    Row("dledger_append_batch_bytes", MetricKind.HISTOGRAM, "Bytes of bodies that the leader appended in one batch."),
)

_LATENCY_BOUNDS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)
_COUNT_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
_SIZE_BOUNDS_BYTES = tuple(1 << power for power in range(6, 28, 2))


class Histogram:
    """Counts observations by upper bound; cheap enough for every request (0.2 microseconds)."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def cumulated(self) -> tuple[list[tuple[str, float]], float]:
        """Return ((upper bound, observations up to it) ascending, +Inf last) and the sum of all observations."""
        total = 0.0
        buckets = []
        for bound, count in zip([*map(str, map(float, self._bounds)), "+Inf"], list(self._counts), strict=True):
            total += count
            buckets.append((bound, total))
        return buckets, self._sum


@dataclass(frozen=True, slots=True)
class PeerGauges:
    """The replication state of one peer, as its leader sees it."""

    lag_entries: int
    is_live: bool
    is_healthy: bool
    is_counted: bool


@dataclass(frozen=True, slots=True)
class NodeGauges:
    """The state of a node now; read at every scrape.

    Attributes:
        peers: on a leader, every other member by id; else empty.
    """

    role: Role
    term: int
    begin_index: int
    last_index: int
    commit_index: int
    durable_index: int
    pending_entries: int
    pending_bytes: int
    is_disk_full: bool
    disk_used_ratio: float
    deleted_files: int
    retention_silence_s: float
    aside_files: int
    applied_index: int
    snapshot_index: int
    is_disk_stalled: bool
    has_leader: bool
    voters: int
    learners: int
    membership_index: int
    non_members: int
    dropped_messages: int
    inline_syncs: int
    threaded_syncs: int
    peer_connections: Mapping[str, int]
    refused_connections: Mapping[str, int]
    peers: Mapping[str, PeerGauges] = field(default_factory=dict)


class NodeMetrics:
    """The metrics of one node; registers itself with `registry`.

    Args:
        registry: where prometheus looks.
        group: label of every series.
        self_id: label of every series.
    """

    def __init__(self, registry: CollectorRegistry, group: str, self_id: str) -> None:
        self._labels = {"group": group, "self_id": self_id}
        self._source: Callable[[], NodeGauges] | None = None
        self._refusals: dict[int, int] = {}
        self.elections = 0
        self.leader_changes = 0
        self.distrusted = dict.fromkeys(RejectReason, 0)
        self.entries_lost = 0
        self.corrupt_pushes = {"received": 0, "refused_by_peer": 0}
        self.append_latency_s = Histogram(_LATENCY_BOUNDS_S)
        self.fsync_latency_s = Histogram(_LATENCY_BOUNDS_S)
        self.append_batch_entries = Histogram(_COUNT_BOUNDS)
        self.append_batch_bytes = Histogram(_SIZE_BOUNDS_BYTES)
        registry.register(self)

    def watch(self, source: Callable[[], NodeGauges] | None) -> None:
        """Read gauges from `source` at every scrape, in the scraping thread; None: the node is gone."""
        self._source = source

    @property
    def disk_used_ratio(self) -> float:
        """How full the disk is, from 0 to 1; 0 without a node."""
        return self._source().disk_used_ratio if self._source else 0.0

    def count_refusal(self, code: int) -> None:
        """Count a request that was answered with `code`."""
        self._refusals[code] = self._refusals.get(code, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the table (prometheus calls this)."""
        gauges = self._source() if self._source else None
        values = self._own_values() | (_gauge_values(gauges) if gauges else {})
        histograms = self._histograms()
        for row in TABLE:
            if row.kind is MetricKind.HISTOGRAM:
                yield self._histogram_family(row, histograms[row.name])
            elif row.name in values:
                yield self._value_family(row, values[row.name])

    def _own_values(self) -> dict[str, dict[str, float]]:
        return {
            "dledger_elections": {"": self.elections},
            "dledger_leader_changes": {"": self.leader_changes},
            "dledger_distrusted_messages": {reason.value: count for reason, count in self.distrusted.items()},
            "dledger_entries_lost": {"": self.entries_lost},
            "dledger_corrupt_pushes": dict(self.corrupt_pushes),
            "dledger_refusals": {_code_name(code): count for code, count in dict(self._refusals).items()},
        }

    def _histograms(self) -> dict[str, Histogram]:
        return {
            "dledger_append_latency_seconds": self.append_latency_s,
            "dledger_fsync_latency_seconds": self.fsync_latency_s,
            "dledger_append_batch_entries": self.append_batch_entries,
            "dledger_append_batch_bytes": self.append_batch_bytes,
        }

    def _histogram_family(self, row: Row, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(row.name, row.help, labels=list(self._labels))
        buckets, total = histogram.cumulated()
        family.add_metric(list(self._labels.values()), buckets=buckets, sum_value=total)
        return family

    def _value_family(self, row: Row, series: Mapping[str, float]) -> Metric:
        labels = [*self._labels, row.label] if row.label else list(self._labels)
        make = CounterMetricFamily if row.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = make(row.name, row.help, labels=labels)
        for label_value, value in series.items():
            values = list(self._labels.values())
            family.add_metric([*values, label_value] if row.label else values, value)
        return family


def _gauge_values(gauges: NodeGauges) -> dict[str, dict[str, float]]:
    return {
        "dledger_term": {"": gauges.term},
        "dledger_role": {role.value: float(role is gauges.role) for role in Role},
        "dledger_begin_index": {"": gauges.begin_index},
        "dledger_last_index": {"": gauges.last_index},
        "dledger_commit_index": {"": gauges.commit_index},
        "dledger_durable_index": {"": gauges.durable_index},
        "dledger_pending_entries": {"": gauges.pending_entries},
        "dledger_pending_bytes": {"": gauges.pending_bytes},
        "dledger_disk_full": {"": float(gauges.is_disk_full)},
        "dledger_disk_used_ratio": {"": gauges.disk_used_ratio},
        "dledger_deleted_files": {"": gauges.deleted_files},
        "dledger_retention_silence_seconds": {"": gauges.retention_silence_s},
        "dledger_aside_files": {"": gauges.aside_files},
        "dledger_applied_index": {"": gauges.applied_index},
        "dledger_snapshot_index": {"": gauges.snapshot_index},
        "dledger_disk_stalled": {"": float(gauges.is_disk_stalled)},
        "dledger_has_leader": {"": float(gauges.has_leader)},
        "dledger_members": {"voter": gauges.voters, "learner": gauges.learners},
        "dledger_membership_index": {"": gauges.membership_index},
        "dledger_non_members": {"": gauges.non_members},
        "dledger_peer_healthy": {peer: float(values.is_healthy) for peer, values in gauges.peers.items()},
        "dledger_peer_counted": {peer: float(values.is_counted) for peer, values in gauges.peers.items()},
        "dledger_peer_lag_entries": {peer: values.lag_entries for peer, values in gauges.peers.items()},
        "dledger_peer_live": {peer: float(values.is_live) for peer, values in gauges.peers.items()},
        "dledger_dropped_messages": {"": gauges.dropped_messages},
        "dledger_peer_connections": dict(gauges.peer_connections),
        "dledger_refused_peer_connections": dict(gauges.refused_connections),
        "dledger_syncs": {"inline": gauges.inline_syncs, "thread": gauges.threaded_syncs},
        "dledger_native": {"": float(native.kernels is not None)},
    }


def _code_name(code: int) -> str:
    return ResponseCode(code).name if code in ResponseCode._value2member_map_ else str(code)
