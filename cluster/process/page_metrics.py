"""The metric of the metrics page itself: connections that it closed without an answer, by reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily

from dledger.metrics import MetricKind, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

REFUSED: Final = Row(
    "dledger_metrics_refused_connections",
    MetricKind.COUNTER,
    "Connections that the metrics page closed without an answer, by reason.",
    "reason",
)
TABLE: Final = (REFUSED,)

# The handshake failed: no TLS, or a certificate that is missing or not trusted.
HANDSHAKE: Final = "handshake"
# Handshake, request and reading of the answer took too long.
SILENT: Final = "silent"
# Newer connections needed its place.
CROWDED: Final = "crowded"


class PageMetrics:
    """Counts refused connections; for use by the page's thread, which also reads the page."""

    def __init__(self) -> None:
        self._refused = dict.fromkeys((HANDSHAKE, SILENT, CROWDED), 0)

    def count(self, reason: str) -> None:
        """Count a refused connection."""
        self._refused[reason] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the table (prometheus calls this)."""
        family = CounterMetricFamily(REFUSED.name, REFUSED.help, labels=[str(REFUSED.label)])
        for reason, number in self._refused.items():
            family.add_metric([reason], number)
        yield family
