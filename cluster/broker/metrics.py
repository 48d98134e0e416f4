"""The values of a broker's metrics, and the collector that exports them to Prometheus (`cluster.broker.metric_table`).

As in `dledger.metrics`, requests only add to plain numbers; a scrape formats them in the metrics server's thread. Every
series has the labels `broker` and `self_id`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from cluster.broker.metric_table import TABLE
from dledger.metrics import Histogram, MetricKind, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry

    from cluster.state.effects import Ending

_LATENCY_BOUNDS_S: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)
_MS_PER_S: Final = 1_000
# Groups with a series of their own: each series costs the monitoring system memory. No group has the name of the rest.
_GROUPS_MAX: Final = 100
_OTHER_GROUPS: Final = "(other)"
_COUNT_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(slots=True)
class BrokerGauges:
    """The gauges that a scrape reads from the broker; fields are named as in `TABLE`, without the prefix."""

    dispatch_behind_bytes: float = 0
    dispatched_messages: float = 0
    long_polls: float = 0
    queues: float = 0
    topics: float = 0
    groups: float = 0
    group_members: float = 0
    min_physical_offset: float = 0
    max_physical_offset: float = 0
    disk_used_ratio: float = 0
    serving_puts: float = 0
    not_ready_bytes: float = 0
    divided_offset: float = -1
    audit_oldest_record_age_seconds: dict[str, float] = field(default_factory=dict)
    feature_level: float = 0
    unfit_effects: float = 0
    timers_waiting: float = 0
    timers_put_again: float = 0
    delayed_put_again: float = 0
    halves_put_again: float = 0
    compacted_messages: float = 0
    compaction_behind_bytes: float = 0
    compaction_copied: float = 0
    transactions_open: float = 0
    transaction_producers: float = 0
    pop_in_flight: float = 0
    pop_lost: float = 0
    spans: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Counts:
    put_messages: int = 0
    put_bytes: int = 0
    put_repeated: int = 0
    get_messages: int = 0
    get_bytes: int = 0
    subscribe_streams: int = 0
    puts: dict[str, int] = field(default_factory=dict)
    gets: dict[str, int] = field(default_factory=dict)
    skipped_messages: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    quota_refused: int = 0
    limited: dict[str, int] = field(default_factory=dict)
    delayed_delivered: int = 0
    pop_taken: int = 0
    pop_redelivered: int = 0
    pop_acknowledged: int = 0
    pop_stale: int = 0
    pop_dead: int = 0
    pop_moved: int = 0
    delayed_not_delivered: dict[str, int] = field(default_factory=dict)
    returned_messages: dict[str, int] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    transactions_ended: dict[str, int] = field(default_factory=dict)
    transaction_checks: int = 0
    # Replaced by the dictionaries of the audit log, which have every kind from the start.
    audit_records: dict[str, int] = field(default_factory=dict)
    audit_lost: dict[str, int] = field(default_factory=dict)
    audit_summarized: dict[str, int] = field(default_factory=dict)

    def count_dead_letter(self, group: str) -> None:
        """Count a dead letter of a group."""
        dead = self.dead_letters
        name = group if group in dead or len(dead) < _GROUPS_MAX else _OTHER_GROUPS
        dead[name] = dead.get(name, 0) + 1


class BrokerMetrics:
    """The metrics of one broker; registered with `registry`, if one is given.

    Attributes:
        counts: the counters, to which callers add.
        put_latency_s, put_batch_messages, flush_latency_s, delayed_lateness_s: histograms, which callers observe.
    """

    def __init__(self, registry: CollectorRegistry | None, broker: str, self_id: str) -> None:
        self._labels = {"broker": broker, "self_id": self_id}
        self._source: Callable[[], BrokerGauges] | None = None
        self.counts = _Counts()
        self.put_latency_s = Histogram(_LATENCY_BOUNDS_S)
        self.put_batch_messages = Histogram(_COUNT_BOUNDS)
        self.flush_latency_s = Histogram(_LATENCY_BOUNDS_S)
        self.delayed_lateness_s = Histogram(_LATENCY_BOUNDS_S)
        if registry is not None:
            registry.register(self)

    def watch(self, source: Callable[[], BrokerGauges] | None) -> None:
        """Read gauges from `source` at every scrape, in the scraping thread; None: the broker has stopped."""
        self._source = source

    def count_put(self, status: str, messages_count: int, latency_s: float) -> None:
        """Count a completed request to put."""
        puts = self.counts.puts
        puts[status] = puts.get(status, 0) + 1
        self.put_latency_s.observe(latency_s)
        self.put_batch_messages.observe(messages_count)

    def count_get(self, status: str) -> None:
        """Count an answer to Get."""
        gets = self.counts.gets
        gets[status] = gets.get(status, 0) + 1

    def count_skipped(self, cause: str, messages_count: int) -> None:
        """Count messages that were reported to a reader as skipped instead of delivered."""
        skipped = self.counts.skipped_messages
        skipped[cause] = skipped.get(cause, 0) + messages_count

    def count_refusal(self, reason: str) -> None:
        """Count a request that was refused."""
        refusals = self.counts.refusals
        refusals[reason] = refusals.get(reason, 0) + 1

    def count_delayed(self, lateness_ms: list[int]) -> None:
        """Count delivered messages with their lateness."""
        self.counts.delayed_delivered += len(lateness_ms)
        for each in lateness_ms:
            self.delayed_lateness_s.observe(each / _MS_PER_S)

    def count_not_delivered(self, reason: str, count: int = 1) -> None:
        """Count delayed messages that cannot be delivered."""
        found = self.counts.delayed_not_delivered
        found[reason] = found.get(reason, 0) + count

    def count_returned(self, group: str, *, is_dead: bool) -> None:
        """Count a message that a consumer of the group returned, and its copy."""
        returned = self.counts.returned_messages
        destination = "dead_letter" if is_dead else "retry"
        returned[destination] = returned.get(destination, 0) + 1
        if is_dead:
            self.counts.count_dead_letter(group)

    def count_transaction_end(self, ending: Ending) -> None:
        """Count a transaction that this node ended."""
        found, name = self.counts.transactions_ended, ending.name.lower()
        found[name] = found.get(name, 0) + 1

    def count_transaction_checks(self, count: int) -> None:
        """Count questions to producers."""
        self.counts.transaction_checks += count

    def count_quota_refused(self) -> None:
        """Count a request above a quota."""
        self.counts.quota_refused += 1

    def count_limited(self, limit: str) -> None:
        """Count a request or response that a limit refused or delayed."""
        limited = self.counts.limited
        limited[limit] = limited.get(limit, 0) + 1

    def count_records(self, written: dict[str, int], summarized: dict[str, int], lost: dict[str, int]) -> None:
        """Show the counters of an audit log, by kind of record, which the log itself adds to."""
        counts = self.counts
        counts.audit_records, counts.audit_summarized, counts.audit_lost = written, summarized, lost

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the table (prometheus calls this)."""
        gauges = BrokerGauges() if self._source is None else self._source()
        for row in TABLE:
            name = row.name.removeprefix("dledger_broker_")
            if row.kind is MetricKind.HISTOGRAM:
                yield self._histogram_family(row, getattr(self, name.replace("_seconds", "_s")))
            else:
                value = getattr(self.counts, name, None)
                yield self._value_family(row, getattr(gauges, name) if value is None else value)

    def _histogram_family(self, row: Row, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(row.name, row.help, labels=list(self._labels))
        buckets, total = histogram.cumulated()
        family.add_metric(list(self._labels.values()), buckets=buckets, sum_value=total)
        return family

    def _value_family(self, row: Row, value: float | dict[str, int] | dict[str, float]) -> Metric:
        labels = [*self._labels, row.label] if row.label else list(self._labels)
        make = CounterMetricFamily if row.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = make(row.name, row.help, labels=labels)
        own = list(self._labels.values())
        # A copy: the loop adds items while the scraping thread reads.
        series = dict(value) if isinstance(value, dict) else {"": value}
        for label_value, number in series.items():
            family.add_metric([*own, label_value] if row.label else own, number)
        return family
