"""Metrics of the gate in front of a log of raw entries; those of brokers are in `cluster.broker.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from dledger.metrics import MetricKind, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from cluster.audit.log import AuditLog

TABLE: Final = (
    Row(
        "dledger_access_refused", MetricKind.COUNTER, "Requests of certificates without the right, by reason.", "reason"
    ),
    Row("dledger_quota_refused", MetricKind.COUNTER, "Requests refused because a quota was used up."),
    Row("dledger_audit_records", MetricKind.COUNTER, "Records written to the audit log, by kind.", "kind"),
    Row("dledger_audit_lost", MetricKind.COUNTER, "Records that the audit log lost, by kind.", "kind"),
    Row(
        "dledger_audit_summarized",
        MetricKind.COUNTER,
        "Records without a line of their own: counted in summaries of the audit log, by kind.",
        "kind",
    ),
    Row(
        "dledger_audit_oldest_record_age_seconds",
        MetricKind.GAUGE,
        "Age of the oldest record of the audit log, by series of files.",
        "series",
    ),
)


class GateMetrics:
    """The metrics of one node; registers itself with `registry`.

    Args:
        registry: of the process.
        group: of the node.
        self_id: of the node.
        audit: of the node; None: nothing is recorded, and its counters are absent.
    """

    def __init__(self, registry: CollectorRegistry, group: str, self_id: str, audit: AuditLog | None) -> None:
        self._labels = {"group": group, "self_id": self_id}
        self._audit = audit
        self._quota_refused = 0
        self._access_refused: dict[str, int] = {}
        registry.register(self)

    def count_refusal(self, reason: str) -> None:
        """Count a request without a right."""
        self._access_refused[reason] = self._access_refused.get(reason, 0) + 1

    def count_quota_refused(self) -> None:
        """Count a request above a quota."""
        self._quota_refused += 1

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the table (prometheus calls this, in a thread of its own)."""
        # A copy: the loop adds items while the scraping thread reads.
        refused = dict(self._access_refused)
        for row, series in zip(TABLE, (refused, {"": self._quota_refused}, *self._of_audit()), strict=True):
            names = [*self._labels, row.label] if row.label else list(self._labels)
            make = CounterMetricFamily if row.kind is MetricKind.COUNTER else GaugeMetricFamily
            family = make(row.name, row.help, labels=names)
            for kind, number in series.items():
                values = list(self._labels.values())
                family.add_metric([*values, kind] if row.label else values, number)
            yield family

    def _of_audit(self) -> tuple[Mapping[str, float], ...]:
        """Return the series of the audit log, as the rows of the table."""
        if self._audit is None:
            return ({},) * 4
        return self._audit.written, self._audit.lost, self._audit.summarized, self._audit.ages_s()
