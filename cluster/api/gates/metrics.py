"""Metrics of the gate in front of a log of raw entries; those of brokers are in `cluster.broker.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily

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
        nothing: Mapping[str, int] = {}
        written, lost = (nothing, nothing) if self._audit is None else (self._audit.written, self._audit.lost)
        # A copy: the loop adds items while the scraping thread reads.
        refused = dict(self._access_refused)
        for row, series in zip(TABLE, (refused, {"": self._quota_refused}, written, lost), strict=True):
            names = [*self._labels, row.label] if row.label else list(self._labels)
            family = CounterMetricFamily(row.name, row.help, labels=names)
            for kind, number in series.items():
                values = list(self._labels.values())
                family.add_metric([*values, kind] if row.label else values, number)
            yield family
