"""A part of a broker's log, as plans name it, and its results: plain values, so that reading files loads no gRPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from store.model.message import QueueKey

# This long the nodes of a broker are asked in turn before it is an error.
PATIENCE_S: Final = 60.0

Span = tuple[int, int]
Spans = Mapping[QueueKey, Span]


class BrokerRange(NamedTuple):
    """What one task reads of a broker; small, and it travels.

    Attributes:
        endpoints: of all nodes, with commas; those that come first are asked first.
        begin, end: physical offsets; of a queue: queue offsets.
        topic, queue_id: instead of all messages those of one queue; an empty topic: all.
    """

    endpoints: str
    begin: int
    end: int
    topic: str = ""
    queue_id: int = -1


class Chunk(NamedTuple):
    """Bytes of the log.

    Attributes:
        data: of all messages cut anywhere, within one file; of a queue whole messages.
        header_size: what is in front of each message.
        offset: of the first byte; of a queue: of the first message.
        next_offset: after it.
        physical_offsets, sizes: of a queue: of each message, without what is in front of it.
        begins: of all messages: see `ReadLogResponse.begins`.
    """

    data: bytes
    header_size: int
    offset: int
    next_offset: int
    physical_offsets: Sequence[int] = ()
    sizes: Sequence[int] = ()
    begins: bytes = b""
