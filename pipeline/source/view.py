"""The readable range of a source at one moment: the interface between planning and the logs.

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

# For smaller parts the overhead of a task is larger than the time saved.
_PART_BYTES_MIN: Final = 4 << 20


def parts_min(size_bytes: int) -> int:
    """Return the default for the least number of parts of this many bytes: at most one for each processor."""
    return max(1, min(os.cpu_count() or 1, size_bytes // _PART_BYTES_MIN))


def queue_ranges(spans: Spans) -> dict[tuple[str, int], Span]:
    """Return spans as ranges of a selection."""
    return {(key.topic, key.queue_id): span for key, span in spans.items()}


def spans_of(ranges: Mapping[tuple[str, int], Span]) -> dict[QueueKey, Span]:
    """Return a selection's ranges as spans."""
    return {QueueKey(*key): span for key, span in ranges.items()}


class SourceView(Protocol):
    """The available data, and its division into parts."""

    @property
    def name(self) -> str:
        """Name of the source, for error messages."""
        ...

    @property
    def spans(self) -> Spans:
        """The readable range of each queue."""
        ...

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics, including topics without messages."""
        ...

    @property
    def index_range(self) -> Span | None:
        """The readable range of entry indexes; None: not known."""
        ...

    def offsets_at(self, keys: Spans, timestamp_ms: int) -> dict[QueueKey, int]:
        """Return the offset of each queue's first message stored at or after a time; its end if there is none."""
        ...

    def first(self, spans: Spans, messages_max: int | None, size_bytes_max: int | None) -> dict[QueueKey, int]:
        """Return the ends of these spans, limited to the first messages in log order."""
        ...

    def physical_offset(self, key: QueueKey, offset: int) -> int | None:
        """Return the physical offset of a message; None if it does not exist or is not known."""
        ...

    def parts(
        self, selection: Selection, partitions_min: int | None, rows_max: int | None, *, fail_on_data_loss: bool
    ) -> list[Part]:
        """Return the parts for tasks. Together they contain each selected message once.

        Raises: pipeline.common.errors.DataLost: messages that are selected by offset do not exist.
        """
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...
