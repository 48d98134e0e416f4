"""Opens the export of spans of a process, if its settings want it; otherwise nothing of OpenTelemetry is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from cluster.broker.core import BrokerOptions
    from cluster.server.span_export import SpanExport


class OpenTelemetryMissing(DLedgerError):
    """Spans are to be exported, and the packages are not installed: install them, or remove the setting."""

    def __init__(self) -> None:
        super().__init__(
            "otlp_endpoint needs the packages of OpenTelemetry, which are not installed here: `pip install "
            "'dledger-py[otel]'`, or remove the setting"
        )


def opened_spans(endpoint: str, options: BrokerOptions, stack: AsyncExitStack) -> SpanExport | None:
    """Return the export of the spans of a node, which is closed with `stack`; None: nothing is exported.

    Args:
        endpoint: URL of a collector; empty: none.
        options: name the node.
        stack: closes the export.

    Raises:
        OpenTelemetryMissing: the packages are not installed.
    """
    if not endpoint:
        return None
    try:
        # Imported here, because the packages are an extra.
        from cluster.server.span_export import SpanExport, otlp_exporter  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise OpenTelemetryMissing from error
    export = SpanExport(otlp_exporter(endpoint), options.cluster, options.broker, options.self_id)
    stack.push_async_callback(export.close)
    return export
