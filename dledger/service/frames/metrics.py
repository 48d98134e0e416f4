"""The metrics of a frame port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from dledger.metrics import MetricKind, Row
from dledger.service.frames.port import FramePort

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry

    from dledger.config import Address
    from dledger.security.server_port import PortSecurity
    from dledger.service.frames.limits import FrameCounts

TABLE: Final = (
    Row("dledger_frame_connections", MetricKind.GAUGE, "Open connections of clients that call by frames."),
    Row("dledger_frame_calls", MetricKind.COUNTER, "Calls by frames, also refused ones."),
    Row(
        "dledger_frame_connections_closed",
        MetricKind.COUNTER,
        "Connections of clients that the frame port has closed, by reason.",
        "reason",
    ),
)


def frame_port(
    address: Address | None, security: PortSecurity, registry: CollectorRegistry, *, group: str, self_id: str
) -> FramePort | None:
    """Return a frame port that is not started, with its metrics; None: there is none.

    Args:
        address: of the port; None: there is none.
        security: of the port for clients.
        registry: where prometheus looks.
        group: label of every series.
        self_id: label of every series.
    """
    if address is None:
        return None
    port = FramePort(address, security)
    registry.register(_Collector(port.counts, {"group": group, "self_id": self_id}))
    return port


class _Collector:
    def __init__(self, counts: FrameCounts, labels: dict[str, str]) -> None:
        self._counts = counts
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the table (prometheus calls this, in a thread of its own)."""
        counts = self._counts
        closed = {str(reason): count for reason, count in counts.closed.items()}
        series: tuple[dict[str, int], ...] = ({"": counts.connections}, {"": counts.calls}, closed)
        for row, values in zip(TABLE, series, strict=True):
            kind = GaugeMetricFamily if row.kind is MetricKind.GAUGE else CounterMetricFamily
            names = [*self._labels, row.label] if row.label else list(self._labels)
            family = kind(row.name, row.help, labels=names)
            for label, value in values.items():
                own = list(self._labels.values())
                family.add_metric([*own, label] if row.label else own, value)
            yield family
