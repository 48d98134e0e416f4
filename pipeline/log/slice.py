"""A slice: the part of a log that one task reads. Small, for a driver holds many of them.

A *slice of the log* is what begins in a range of physical offsets of one file. In a log of entries the range begins and
ends with an entry, by the index files. In the plain log it may begin and end anywhere: its reader takes the records
that begin in it, and finds the first one by itself.

A *slice of a queue* is a range of queue offsets of one queue. It is read through the consume queue, and so only the
messages of that queue are read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pipeline.log.places import NO_INDEX

NO_LIMIT: Final = -1


class Slice(NamedTuple):
    """What one task reads. Everything in it is a number or a text.

    Attributes:
        root: where the store is, as it was named.
        path: the file of the log; of a queue slice the queue's directory.
        begin, end: physical offsets: what begins there is read.
        header_size: bytes before each record: 0, or 48 where records are bodies of entries.
        begin_index, end_index: the same range in entries; -1: not known.
        is_begin_known, is_end_known: whether an entry or a record is known to begin there.
        topic, queue_id: of a queue slice; None: a slice of the log.
        begin_queue_offset, end_queue_offset: its range.
        size_bytes: about how much is read.
        limit: after `end`: up to where the file holds anything of the log; -1: to the file's end.
    """

    root: str
    path: str
    begin: int
    end: int
    header_size: int
    begin_index: int = NO_INDEX
    end_index: int = NO_INDEX
    is_begin_known: bool = True
    is_end_known: bool = True
    topic: str | None = None
    queue_id: int = -1
    begin_queue_offset: int = 0
    end_queue_offset: int = 0
    size_bytes: int = 0
    limit: int = NO_LIMIT

    @property
    def is_queue(self) -> bool:
        """Whether it is read through a consume queue."""
        return self.topic is not None
