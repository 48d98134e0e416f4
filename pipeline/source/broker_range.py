"""A range of a broker's log in a plan, and the chunks that are read: plain values that need no gRPC."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from store.model.message import QueueKey

# Default of `patience_s`: seconds for which calls to a broker are retried.
PATIENCE_S: Final = 60.0
# Environment variables with the host name of a Spark process.
_HOST_VARIABLES: Final = ("SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_IP")

Span = tuple[int, int]
Spans = Mapping[QueueKey, Span]


class BrokerRange(NamedTuple):
    """The range of a broker's log that one task reads. Sent to the task.

    Attributes:
        endpoints: of all nodes, separated by commas, in the order of calls.
        begin, end: physical offsets; of a queue: queue offsets.
        topic, queue_id: the queue to read; an empty topic: all messages.
    """

    endpoints: str
    begin: int
    end: int
    topic: str = ""
    queue_id: int = -1

    def nearest_first(self) -> BrokerRange:
        """Return the same range, whose first node is the one on this host, if there is one."""
        name = socket.gethostname()
        named = (os.environ.get(variable) for variable in _HOST_VARIABLES)
        hosts = {name, name.partition(".")[0], "localhost", *filter(None, named)}
        addresses = self.endpoints.split(",")
        addresses.sort(key=lambda address: address.rpartition(":")[0].strip("[]") not in hosts)
        return self._replace(endpoints=",".join(addresses))


class Chunk(NamedTuple):
    """Bytes of the log.

    Attributes:
        data: of the log: a piece of one file, cut anywhere; of a queue: complete messages.
        header_size: bytes before each message.
        offset: of the first byte; of a queue: of the first message.
        next_offset: after the chunk.
        physical_offsets, sizes: of a queue: of each message without the bytes before it.
        begins: of the log: see `ReadLogResponse.begins`.
    """

    data: bytes
    header_size: int
    offset: int
    next_offset: int
    physical_offsets: Sequence[int] = ()
    sizes: Sequence[int] = ()
    begins: bytes = b""
