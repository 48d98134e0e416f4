"""A slice: the part of a log that one task reads. Small, because a driver has many of them.

A *slice of the log* contains the records that begin in a range of physical offsets of one file. In a log of entries the
range begins and ends at an entry, by the index files. In the plain log it may begin and end anywhere: its reader
searches for the first record that begins in it.

A *slice of a queue* is a range of queue offsets of one queue. It is read through the consume queue, so only the
messages of that queue are read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pipeline.log.places import NO_INDEX

NO_LIMIT: Final = -1


class Slice(NamedTuple):
    """The input of one task; all fields are numbers or texts.

    Attributes:
        root: directory of the store, as given by the user.
        path: the file of the log, or the queue's directory.
        begin, end: range of physical offsets of the begins of records.
        header_size: bytes before each record: 0, or 48 if records are bodies of entries.
        begin_index, end_index: the same range in entries; -1: unknown.
        is_begin_known, is_end_known: whether an entry or a record is known to begin there.
        topic, queue_id: of a queue slice; None: a slice of the log.
        begin_queue_offset, end_queue_offset: its range.
        size_bytes: approximate size.
        limit: end of the log's data in the file, after `end`; -1: the file's end.
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
