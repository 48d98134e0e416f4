"""Read-only views of consume queues: without repairs.

A queue is a directory `<root>/<topic>/<queue id>` of equally large files of 20-byte units; a file's name is 20 times
the queue offset of its first unit. Zeros follow the last unit.

Source: RocketMQ `ConsumeQueue`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store.errors import StorageFailed
from store.model.finding import Area, Finding
from store.model.message import QueueKey
from store.queues.unit import BLANK_SIZE, UNIT_SIZE, UNIT_TYPE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from store.fs.read_only_files import OpenFiles, ReadOnlyFiles

NAME_DIGITS = 20
_REBUILD = "`dledger rebuild` rebuilds the queues from the log"
# Units per read in the search for the last unit.
_CHUNK_UNITS = 4096


class StoredUnit(NamedTuple):
    """One stored unit.

    Attributes:
        queue_offset: of the unit.
        offset: of the message in the log.
        size: of the message.
        tags_code: the hash of its tags, or a delivery time.
    """

    queue_offset: int
    offset: int
    size: int
    tags_code: int

    @property
    def is_blank(self) -> bool:
        """Whether it is only padding before a queue's first unit."""
        return self.size == BLANK_SIZE and not self.offset


@dataclass(frozen=True, slots=True)
class QueueFile:
    """One file of a queue.

    Attributes:
        path: its path.
        begin: queue offset of its first unit.
        count: capacity in units.
    """

    path: str
    begin: int
    count: int


class QueueView:
    """One queue.

    Args:
        open_files: opens its files when they are read.
        key: of the queue.
        directory: of its files.
        queue_files: in order.

    Attributes:
        begin: queue offset of the first unit of its files.
        end: queue offset after the last non-zero unit.
    """

    __slots__ = ("_open_files", "begin", "directory", "end", "key", "queue_files")

    def __init__(self, open_files: OpenFiles, key: QueueKey, directory: str, queue_files: Sequence[QueueFile]) -> None:
        self._open_files = open_files
        self.key = key
        self.directory = directory
        self.queue_files = queue_files
        self.begin = queue_files[0].begin if queue_files else 0
        self.end = self.begin
        self.search_end()

    def search_end(self) -> None:
        """Find the end again; a running program may have appended units."""
        for file in reversed(self.queue_files):
            opened = self._open_files.get(file.path)
            for begin, end in reversed(opened.data_ranges(0)):
                first, last = begin // UNIT_SIZE, min(-(-end // UNIT_SIZE), file.count)
                # Backwards, in chunks: the last unit is usually close to the end of the allocated blocks.
                while last > first:
                    after, last = last, max(first, last - _CHUNK_UNITS)
                    # A read call: the first access to a map costs ten times as much, and most queues need no other
                    # access.
                    content = opened.read(last * UNIT_SIZE, (after - last) * UNIT_SIZE)
                    used = np.flatnonzero(np.frombuffer(content, np.uint8))
                    if len(used):
                        self.end = file.begin + last + int(used[-1]) // UNIT_SIZE + 1
                        return
        self.end = self.begin

    def units(self, begin: int, end: int) -> NDArray[np.void]:
        """Return the stored units `[begin, end)`; zeros where there is no file."""
        parts = [part for _, _, part in self.unit_runs(begin, end)]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, UNIT_TYPE), *parts])

    def unit_runs(self, begin: int, end: int) -> Iterator[tuple[QueueFile | None, int, NDArray[np.void]]]:
        """Yield (file, queue offset of the first, units) for `[begin, end)`; without a file, zeros."""
        while begin < end:
            file = self.file_of(begin)
            if file is None:
                after = [other.begin for other in self.queue_files if other.begin > begin]
                stop = min([end, *after])
                yield None, begin, np.zeros(stop - begin, UNIT_TYPE)
            else:
                stop = min(end, file.begin + file.count)
                view = self._open_files.get(file.path).view()
                yield file, begin, np.frombuffer(view, UNIT_TYPE, stop - begin, (begin - file.begin) * UNIT_SIZE)
            begin = stop

    def file_of(self, queue_offset: int) -> QueueFile | None:
        """Return the file of a unit."""
        for file in reversed(self.queue_files):
            if file.begin <= queue_offset:
                return file if queue_offset < file.begin + file.count else None
        return None

    def place_of(self, queue_offset: int) -> tuple[str, int]:
        """Return (file, position) of a unit; the directory if its file is missing."""
        file = self.file_of(queue_offset)
        return (self.directory, 0) if file is None else (file.path, (queue_offset - file.begin) * UNIT_SIZE)

    def unit(self, queue_offset: int) -> StoredUnit:
        """Return one unit."""
        found = self.units(queue_offset, queue_offset + 1)[0]
        return StoredUnit(queue_offset, int(found["physical_offset"]), int(found["size"]), int(found["tags_code"]))


def load_queues(
    files: ReadOnlyFiles, open_files: OpenFiles, root: str, *, is_live: bool = False
) -> tuple[dict[QueueKey, QueueView], list[Finding]]:
    """Return all queues below `root` (`consumequeue`), and findings about other files.

    Args:
        files: the file system.
        open_files: opens the queues' files.
        root: the directory of all queues.
        is_live: a process is writing them; an empty file is then being created.

    Raises:
        store.errors.StorageFailed: a directory or a file cannot be read.
    """
    queues: dict[QueueKey, QueueView] = {}
    findings: list[Finding] = []
    for topic in _listed(files, root, findings) if files.is_taken(root) else ():
        topic_directory = f"{root}/{topic}"
        for name in _listed(files, topic_directory, findings):
            directory = f"{topic_directory}/{name}"
            if not (name.isascii() and name.isdigit()):
                findings.append(_foreign(directory, "a directory named by a queue id"))
                continue
            key = QueueKey(topic, int(name))
            queue_files = load_queue_files(files, open_files, directory, findings, is_live=is_live)
            queues[key] = QueueView(open_files, key, directory, queue_files)
    findings += _odd_sizes(queues.values())
    return queues, findings


def _odd_sizes(queues: Collection[QueueView]) -> Iterator[Finding]:
    """Yield the queues whose file size differs from that of the other queues."""
    lone = {each.queue_files[0].path: each.queue_files[0].count for each in queues if len(each.queue_files) == 1}
    counts = [file.count for each in queues for file in each.queue_files]
    count = max(sorted(set(counts)), key=counts.count, default=0)
    for path, found in lone.items():
        if found != count:
            yield _wrong_size(path, f"{count * UNIT_SIZE} bytes, as other queues have", found * UNIT_SIZE)


def _listed(files: ReadOnlyFiles, directory: str, findings: list[Finding]) -> list[str]:
    if files.is_directory(directory):
        return files.list_directory(directory)
    findings.append(_foreign(directory, "a directory"))
    return []


def load_queue_files(
    files: ReadOnlyFiles, open_files: OpenFiles, directory: str, findings: list[Finding], *, is_live: bool = False
) -> list[QueueFile]:
    """Return the files of a queue, except those whose size differs from most."""
    sizes: dict[str, int] = {}
    for name in _listed(files, directory, findings):
        if len(name) == NAME_DIGITS and name.isascii() and name.isdigit():
            path = f"{directory}/{name}"
            try:
                found = open_files.get(path).size
            except StorageFailed as error:
                if not is_live or not isinstance(error.reason, FileNotFoundError):
                    findings.append(unreadable_file(Area.FILES, path, error, _REBUILD))
                continue
            if found or not is_live:
                sizes[name] = found
        else:
            findings.append(_foreign(f"{directory}/{name}", f"a name of {NAME_DIGITS} digits"))
    if not sizes:
        return []
    size = _file_size_of(sizes)
    queue_files: list[QueueFile] = []
    for name, found in sorted(sizes.items()):
        path, begin = f"{directory}/{name}", int(name)
        if found != size or size % UNIT_SIZE or begin % max(size, 1):
            expected = f"{size} bytes" if found != size else f"a name and a size that are multiples of {UNIT_SIZE}"
            findings.append(_wrong_size(path, expected, found))
        if found // UNIT_SIZE and not begin % UNIT_SIZE:
            queue_files.append(QueueFile(path, begin // UNIT_SIZE, min(found, size) // UNIT_SIZE))
    for file, after in itertools.pairwise(queue_files):
        if file.begin * UNIT_SIZE + size < after.begin * UNIT_SIZE:
            missing = f"{directory}/{file.begin * UNIT_SIZE + size:0{NAME_DIGITS}d}"
            findings.append(_missing_file(missing, after.path))
    return queue_files


def _file_size_of(sizes: dict[str, int]) -> int:
    """Return the size with which the files were created: the distance of two names, else the most frequent."""
    begins = sorted(map(int, sizes))
    distances = [later - earlier for earlier, later in itertools.pairwise(begins)]
    likely = [*sizes.values(), *distances]
    return max(sorted(set(likely)), key=likely.count)


def unreadable_file(area: Area, path: str, error: StorageFailed, remedy: str) -> Finding:
    """Return the finding for a derived file that is not a regular file, or that the disk cannot read.

    Raises:
        store.errors.StorageFailed: this process lacks the permission, which is not a fault of the file.
    """
    if isinstance(error.reason, PermissionError):
        raise error
    found = error.reason.strerror or str(error.reason)
    return Finding(area, path, 0, "a readable file", found, "it is unusable", remedy)


def _foreign(path: str, expected: str) -> Finding:
    return Finding(
        Area.FILES, path, 0, expected, "this name", "it belongs to no queue", "Move it out of the store's directory"
    )


def _wrong_size(path: str, expected: str, found: int) -> Finding:
    return Finding(
        Area.FILES,
        path,
        0,
        expected,
        f"{found}",
        "RocketMQ does not load a store with such a file",
        _REBUILD,
    )


def _missing_file(path: str, after: str) -> Finding:
    return Finding(
        Area.FILES,
        path,
        0,
        f"this file before {after}",
        "none",
        "the messages of its units are not found by queue",
        _REBUILD,
    )
