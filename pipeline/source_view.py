"""What a query can read, seen at one moment: the port between planning and where the messages are.

Two implementations: `pipeline.path_view` (files) and `pipeline.broker_view` (a running broker).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pipeline.selection import Selection
from pipeline.source_parts import Part
from store.message import QueueKey

Span = tuple[int, int]
Spans = Mapping[QueueKey, Span]


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
        """All queues: from the first message that is kept to behind the last that may be read."""
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
        """Return where these spans end when only the messages are taken that come first in the log."""
        ...

    def physical_offset(self, key: QueueKey, offset: int) -> int | None:
        """Return where a message stands in the log; None when it is not there, or that is not known."""
        ...

    def parts(
        self, selection: Selection, partitions_min: int | None, rows_max: int | None, *, fail_on_data_loss: bool
    ) -> list[Part]:
        """Return what tasks read: together all that is selected, each message once.

        Raises:
            pipeline.errors.DataLost: something selected by offset is gone.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...
