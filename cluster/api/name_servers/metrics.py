"""All metrics of a name server in one table, and the collector that exports them to Prometheus.

As in `cluster.broker.metrics`, calls only add to plain numbers, which the thread of the metrics page reads. A process
has one name server, so its series have no label but those of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from dledger.metrics import MetricKind, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from cluster.audit.log import AuditLog

TABLE: Final = (
    Row("dledger_nameserver_brokers", MetricKind.GAUGE, "Registered brokers."),
    Row("dledger_nameserver_topics", MetricKind.GAUGE, "Topics of all brokers, those of incomplete registrations too."),
    Row("dledger_nameserver_dropped_brokers", MetricKind.COUNTER, "Brokers dropped because they were silent."),
    Row("dledger_nameserver_registrations", MetricKind.COUNTER, "Accepted registrations, by result.", "result"),
    Row("dledger_nameserver_heartbeats", MetricKind.COUNTER, "Heartbeats of registered brokers."),
    Row("dledger_nameserver_routes", MetricKind.COUNTER, "Topics whose routes were looked up."),
    Row("dledger_nameserver_refusals", MetricKind.COUNTER, "Requests refused, by reason.", "reason"),
    Row("dledger_nameserver_quota_refused", MetricKind.COUNTER, "Requests refused because a quota was used up."),
    Row("dledger_nameserver_audit_records", MetricKind.COUNTER, "Records written to the audit log, by kind.", "kind"),
    Row("dledger_nameserver_audit_lost", MetricKind.COUNTER, "Records that the audit log lost, by kind.", "kind"),
    Row(
        "dledger_nameserver_audit_summarized",
        MetricKind.COUNTER,
        "Records without a line of their own: counted in summaries of the audit log, by kind.",
        "kind",
    ),
    Row(
        "dledger_nameserver_audit_oldest_record_age_seconds",
        MetricKind.GAUGE,
        "Age of the oldest record of the audit log, by series of files.",
        "series",
    ),
)


class NameServerGauges(NamedTuple):
    """What a scrape reads from the routes."""

    brokers: int
    topics: int


class NameServerMetrics:
    """The metrics of one name server; registered with `registry`, if one is given.

    Attributes:
        dropped_brokers, heartbeats, routes, quota_refused: counters, to which callers add.
        registrations, refusals: counters by label.
        audit: log whose counters are shown; None: nothing is recorded, and they are absent.
        gauges: reads the gauges, in the scraping thread; None: the name server does not serve yet.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.dropped_brokers = 0
        self.heartbeats = 0
        self.routes = 0
        self.quota_refused = 0
        self.registrations: dict[str, int] = {}
        self.refusals: dict[str, int] = {}
        self.audit: AuditLog | None = None
        self.gauges: Callable[[], NameServerGauges] | None = None
        if registry is not None:
            registry.register(self)

    def count_registration(self, result: str) -> None:
        """Count an accepted registration."""
        self.registrations[result] = self.registrations.get(result, 0) + 1

    def count_refusal(self, reason: str) -> None:
        """Count a refused request."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def count_quota_refused(self) -> None:
        """Count a request above a quota."""
        self.quota_refused += 1

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the table (prometheus calls this)."""
        values = self._values()
        for row in TABLE:
            make = CounterMetricFamily if row.kind is MetricKind.COUNTER else GaugeMetricFamily
            family = make(row.name, row.help, labels=[row.label] if row.label else [])
            # A copy: the loop adds items while the scraping thread reads.
            for label, number in dict(values[row.name.removeprefix("dledger_nameserver_")]).items():
                family.add_metric([label] if row.label else [], number)
            yield family

    def _values(self) -> dict[str, Mapping[str, float]]:
        """Return the series of each row by label; a row without a label has one series."""
        gauges = NameServerGauges(0, 0) if self.gauges is None else self.gauges()
        nothing: Mapping[str, int] = {}
        return {
            "brokers": {"": gauges.brokers},
            "topics": {"": gauges.topics},
            "dropped_brokers": {"": self.dropped_brokers},
            "registrations": self.registrations,
            "heartbeats": {"": self.heartbeats},
            "routes": {"": self.routes},
            "refusals": self.refusals,
            "quota_refused": {"": self.quota_refused},
            "audit_records": nothing if self.audit is None else self.audit.written,
            "audit_lost": nothing if self.audit is None else self.audit.lost,
            "audit_summarized": nothing if self.audit is None else self.audit.summarized,
            "audit_oldest_record_age_seconds": nothing if self.audit is None else self.audit.ages_s(),
        }
