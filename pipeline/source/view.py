"""The readable range of a source at one moment: the port between planning and the logs.

Two implementations: `pipeline.source.path_view` (files) and `pipeline.source.broker_view` (a running broker).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

from pipeline.source.broker_range import Span, Spans
from store.model.message import QueueKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.log.selection import Selection
    from pipeline.source.parts import Part

__all__ = ["SourceView", "Span", "Spans", "parts_min", "queue_ranges", "spans_of"]

# Parts smaller than this cost more in tasks than they save in time.
_PART_BYTES_MIN: Final = 4 << 20


def parts_min(size_bytes: int) -> int:
    """Return the least number of parts for this many bytes, when no option says it: one for each processor."""
    return max(1, min(os.cpu_count() or 1, size_bytes // _PART_BYTES_MIN))


def queue_ranges(spans: Spans) -> dict[tuple[str, int], Span]:
    """Return spans as a selection takes them."""
    return {(key.topic, key.queue_id): span for key, span in spans.items()}


def spans_of(ranges: Mapping[tuple[str, int], Span]) -> dict[QueueKey, Span]:
    """Return a selection's ranges as spans."""
    return {QueueKey(*key): span for key, span in ranges.items()}


class SourceView(Protocol):
    """What there is, and how it is cut into parts."""

    @property
    def name(self) -> str:
        """Of the source, for errors."""
        ...

    @property
    def spans(self) -> Spans:
        """All queues: from the first message that is kept to after the last that may be read."""
        ...

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics, also those without a message."""
        ...

    @property
    def index_range(self) -> Span | None:
        """The entries that may be read; None: not known."""
        ...

    def offsets_at(self, keys: Spans, timestamp_ms: int) -> dict[QueueKey, int]:
        """Return the first message stored then or later, of each of these queues; its end if there is none."""
        ...

    def first(self, spans: Spans, messages_max: int | None, size_bytes_max: int | None) -> dict[QueueKey, int]:
        """Return the ends of these spans if only the first messages in the order of the log are taken."""
        ...

    def physical_offset(self, key: QueueKey, offset: int) -> int | None:
        """Return the physical offset of a message; None if it is not there, or not known."""
        ...

    def parts(
        self, selection: Selection, partitions_min: int | None, rows_max: int | None, *, fail_on_data_loss: bool
    ) -> list[Part]:
        """Return the parts for tasks, which together have each selected message once.

        Raises:
            pipeline.common.errors.DataLost: something selected by offset is gone.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...
