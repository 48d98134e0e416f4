"""The files of a journal: created, continued after a crash, and deleted.

A segment has a fixed size, and its blocks are written when it is created, under another name: so under its own name it
is complete, and a command in it needs no further space. Deleted ones are the oldest, in order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.replica.journal.format import SEGMENT_HEADER_SIZE, encode_segment_header
from cluster.replica.journal.reading import LOSS_ACCEPTED_NAME, numbers_in, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.replica.journal.reading import JournalContent
    from store.fs.ports import File, Files

SEGMENT_SIZE_BYTES: Final = 4 << 20
_CREATING_NAME: Final = "creating"
_CHUNK_SIZE_BYTES: Final = 1 << 20


class Segment:
    """A segment, its file open for writing.

    Attributes:
        number: its name.
        file: the file; closed when a later segment is written.
        position: where the next batch begins.
        last_index: index of the last command in it, or of the one before its first.
    """

    __slots__ = ("file", "last_index", "number", "position")

    def __init__(self, number: int, file: File, position: int, last_index: int) -> None:
        self.number = number
        self.file = file
        self.position = position
        self.last_index = last_index

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self.file.size


class OpenedJournal(NamedTuple):
    """A journal that was opened for writing.

    Attributes:
        segments: from the last one with commands on; at least one.
        old: number and last index of the segments before these, ascending.
        last_index: index of the last command.
    """

    segments: deque[Segment]
    old: deque[tuple[int, int]]
    last_index: int


class SegmentFiles:
    """The files of one journal. Once it is open, all methods belong to the storage thread.

    Args:
        files: the file system.
        directory: of the journal.
        size_bytes: of new segments.
    """

    def __init__(self, files: Files, directory: str, size_bytes: int = SEGMENT_SIZE_BYTES) -> None:
        self.size_bytes = size_bytes
        self._files = files
        self._directory = directory

    def begin(self, next_index: int) -> OpenedJournal:
        """Begin a journal with one empty segment; delete the files of an earlier one, which no snapshot refers to.

        Raises:
            store.errors.DiskFull, store.errors.StorageFailed: there is no journal.
        """
        self._files.make_directory(self._directory)
        self._remove(_CREATING_NAME)
        self.remove(numbers_in(self._files, self._directory))
        segment = self.create(1, next_index)
        # Last: until now a start would need it.
        self._remove(LOSS_ACCEPTED_NAME)
        return OpenedJournal(deque([segment]), deque(), next_index - 1)

    def resume(self, content: JournalContent) -> OpenedJournal:
        """Open a journal that was read, with at least one segment, for writing.

        What it contains is durable afterwards, and parts of a batch are removed.

        Raises:
            store.errors.StorageFailed: the process must stop.
        """
        self._remove(_CREATING_NAME)
        self._remove(LOSS_ACCEPTED_NAME)
        # A killed process may have left names in the page cache only.
        self._files.sync_directory(self._directory)
        used = [number for number, each in content.segments.items() if each.changes]
        first = used[-1] if used else next(iter(content.segments))
        opened = OpenedJournal(deque(), deque(), content.last_index)
        for number, each in content.segments.items():
            last_index = each.changes[-1].number if each.changes else each.begin_index - 1
            if number < first:
                opened.old.append((number, last_index))
                continue
            file = self._files.open(path_of(self._directory, number))
            if each.is_torn:
                # Else a later batch could end where a part of this one begins that looks like a batch.
                file.write(bytes(file.size - each.end), each.end)
            file.sync()
            opened.segments.append(Segment(number, file, each.end, last_index))
        return opened

    def create(self, number: int, next_index: int) -> Segment:
        """Create a segment, durably, name included.

        Raises:
            store.errors.DiskFull: nothing was changed.
            store.errors.StorageFailed: the process must stop.
        """
        path, creating = path_of(self._directory, number), f"{self._directory}/{_CREATING_NAME}"
        self._files.create_from(creating, self._empty(number, next_index))
        self._files.rename(creating, path)
        self._files.sync_directory(self._directory)
        file = self._files.open(path, is_cache_trusted=True)
        return Segment(number, file, SEGMENT_HEADER_SIZE, next_index - 1)

    def _empty(self, number: int, next_index: int) -> Iterator[bytes]:
        header = encode_segment_header(number, self.size_bytes, next_index)
        yield header
        for begin in range(len(header), self.size_bytes, _CHUNK_SIZE_BYTES):
            yield bytes(min(_CHUNK_SIZE_BYTES, self.size_bytes - begin))

    def remove(self, numbers: Sequence[int]) -> None:
        """Delete segments, in order: after a crash the remaining ones are still consecutive.

        Raises:
            store.errors.StorageFailed: the process must stop.
        """
        for number in numbers:
            self._files.remove(path_of(self._directory, number))
            self._files.sync_directory(self._directory)

    def _remove(self, name: str) -> None:
        path = f"{self._directory}/{name}"
        if self._files.exists(path):
            self._files.remove(path)
            self._files.sync_directory(self._directory)
