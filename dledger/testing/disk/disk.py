"""A simulated disk: for each file the page cache, which programs see, and the durable copy, which survives a power cut.

A write changes the page cache at once and waits in a list until a sync covers it; creating, replacing and removing a
name waits until its directory is synced. So does the name of a new directory: without it, a power cut loses everything
below it, even if that was synced. A killed process loses none of this. A power cut decides each waiting change by the
seed: the disk may have written a 512-byte sector at any time since its last sync, so each sector survives in the state
after any number of the writes that touched it, independently of other sectors. Directory changes survive as a prefix (a
journal) or as any subset (POSIX guarantees no more).

After a failed sync the writes that it covered are no longer dirty, as on Linux: some reached the disk, the others are
only in the page cache, and the next sync succeeds without them ("fsyncgate").

The content of this disk outlives the simulated processes; `disk.files` is the interface for one process.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from dledger.testing.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from dledger.testing.disk.inode import Inode
    from dledger.testing.faults import FaultCounts

SECTOR_SIZE_BYTES = 512
UNLIMITED_BYTES = 1 << 60


class Digest(Protocol):
    """The interface of `hashlib` objects."""

    def update(self, data: bytes | bytearray, /) -> None:
        """Add these bytes."""
        ...


class Survival(Enum):
    """How a power cut treats the waiting writes."""

    NOTHING = 0
    ALL = 1
    PREFIX = 2
    SECTORS = 3


@dataclass(slots=True)
class Directory:
    """Names of one directory: the cached and the durable ones, and the changes between the two.

    A change maps each name to its new inode, or to None when it is removed. It is atomic.
    """

    cached: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)
    pending: list[dict[str, Inode | None]] = field(default_factory=list)

    def change(self, name: str, inode: Inode | None) -> None:
        """Bind a name now, and durably after the next sync."""
        self._change({name: inode})

    def rename(self, name: str, new_name: str) -> None:
        """Rename a file now, and durably after the next sync."""
        self._change({name: None, new_name: self.cached[name]})

    def _change(self, change: dict[str, Inode | None]) -> None:
        _bind(self.cached, change)
        self.pending.append(change)

    def sync(self) -> None:
        """Make all changes durable."""
        for change in self.pending:
            _bind(self.durable, change)
        self.pending.clear()


class IoFault:
    """Selects the operations of one kind that fail with EIO: none, or a later one, and optionally all after it."""

    __slots__ = ("_is_lasting", "_remaining")

    def __init__(self) -> None:
        self._remaining = 0
        self._is_lasting = False

    def arm(self, operations: int, *, is_lasting: bool) -> None:
        """Fail the `operations`-th (>= 1) operation from now on, and (`is_lasting`) every one after it."""
        assert operations >= 1, operations
        self._remaining = operations
        self._is_lasting = is_lasting

    @property
    def is_armed(self) -> bool:
        """Whether a later operation will fail."""
        return self._remaining > 0

    def heal(self) -> None:
        """Stop failing operations."""
        self._remaining = 0

    def strikes(self) -> bool:
        """Count one operation; return whether it fails."""
        if self._remaining == 0:
            return False
        if self._remaining == 1:
            self._remaining = int(self._is_lasting)
            return True
        self._remaining -= 1
        return False


class SimDisk:
    """All directories and files of one simulated machine.

    Attributes:
        directories: by absolute path.
        made: directories whose names wait for a sync of their parents, in the order of their creation.
        moves: (old path, new path) of renamed directories whose new parent was not synced since.
        capacity_bytes: creating a file fails when the sizes of all files would exceed this.
        others_ratio: part of the disk, from 0 to 1, that is reported as used by other programs.
        spares: paths for whose replacement space was reserved.
        read_fault, write_fault, sync_fault: select the reads, writes and syncs that fail.
    """

    __slots__ = (
        "_counts",
        "_random",
        "capacity_bytes",
        "directories",
        "made",
        "moves",
        "others_ratio",
        "read_fault",
        "spares",
        "sync_fault",
        "write_fault",
    )

    def __init__(self, random: Random, counts: FaultCounts) -> None:
        self._random = random
        self._counts = counts
        self.directories: dict[str, Directory] = {}
        self.made: dict[str, None] = {}
        self.moves: list[tuple[str, str]] = []
        self.capacity_bytes = UNLIMITED_BYTES
        self.others_ratio = 0.0
        self.spares: dict[str, None] = {}
        self.read_fault = IoFault()
        self.write_fault = IoFault()
        self.sync_fault = IoFault()

    @property
    def used_bytes(self) -> int:
        """Total size of all files that have a name."""
        return sum(len(inode.cache) for directory in self.directories.values() for inode in directory.cached.values())

    def has_space(self, size: int) -> bool:
        """Whether a file of `size` bytes can be created."""
        return self.capacity_bytes >= UNLIMITED_BYTES or self.used_bytes + size <= self.capacity_bytes

    def lookup(self, path: str) -> Inode | None:
        """Return the file that programs find at `path`."""
        directory, _, name = path.rpartition("/")
        entries = self.directories.get(directory)
        return None if entries is None else entries.cached.get(name)

    def lookup_durable(self, path: str) -> Inode | None:
        """Return the file at `path` if every waiting directory change is lost."""
        directory, _, name = path.rpartition("/")
        entries = self.directories.get(directory)
        return None if entries is None else entries.durable.get(name)

    def wipe(self) -> None:
        """Become a new, empty disk."""
        self.directories.clear()
        self.made.clear()
        self.moves.clear()
        self.spares.clear()

    def forget(self, path: str, position: int) -> None:
        """Delete, durably, the data files in a directory that begin before `position`, as another program would."""
        directory = self.directories[path]
        for name in [name for name in directory.cached if int(name) < position]:
            directory.change(name, None)
        directory.sync()

    def move(self, path: str, new_path: str) -> None:
        """Rename a directory without subdirectories."""
        self.directories[new_path] = self.directories.pop(path)
        self.moves.append((path, new_path))
        if path in self.made:
            del self.made[path]
            self.made[new_path] = None

    def lose_directory(self, path: str) -> None:
        """Delete a directory with its whole content, durably."""
        for lost in [each for each in self.directories if f"{each}/".startswith(f"{path}/")]:
            del self.directories[lost]
            self.made.pop(lost, None)

    def settle_directories(self, parent: str) -> None:
        """Make names of new and of renamed directories durable, after a sync of their parent."""
        self.made = {path: None for path in self.made if posixpath.dirname(path) != parent}
        self.moves = [move for move in self.moves if posixpath.dirname(move[1]) != parent]

    def undo_moves(self) -> None:
        """Undo the renames that are not durable, and drop later files under the old path."""
        for path, new_path in reversed(self.moves):
            if new_path in self.directories:
                self.directories[path] = self.directories.pop(new_path)
        self.moves.clear()

    def cut_power(self) -> None:
        """Keep or lose every waiting write and directory change, by the seed; the page cache becomes what survived."""
        if self.moves and self._random.random() < 0.5:
            self.undo_moves()
        self.moves.clear()
        for path in tuple(self.made):
            if path in self.made and self._random.random() < 0.5:
                self._counts.add(Fault.LOST_NAME)
                self.lose_directory(path)
        self.made.clear()
        for directory in self.directories.values():
            self._settle_names(directory)
        survival = self._draw_survival()
        for inode in self.inodes():
            self._settle_writes(inode, survival)

    def inodes(self) -> Iterator[Inode]:
        """Yield all files that have a durable name."""
        for directory in self.directories.values():
            yield from directory.durable.values()

    def fail_sync(self, inode: Inode, written_count: int) -> None:
        """Lose writes of a file that a sync covered, or some sectors of them, without any error.

        A sector that was written after the sync began is still dirty, with its whole content in the page cache.
        """
        count = max(0, written_count - (inode.written_count - len(inode.pending)))
        covered, later = inode.pending[:count], inode.pending[count:]
        inode.is_size_durable = True
        image = bytearray(inode.durable)
        for position, data in covered:
            image[position : position + len(data)] = data
        inode.pending = covered
        self._keep_sectors(inode)
        inode.pending = [_widened(image, position, data) for position, data in later]

    def unflip(self) -> None:
        """Restore all bits that the disk changed, as from a backup."""
        for directory in self.directories.values():
            for inode in (*directory.durable.values(), *directory.cached.values()):
                inode.unflip()

    def add_to(self, digest: Digest, name: str) -> None:
        """Add the content of every file, cached and durable, to a digest that differs between different runs.

        Args:
            digest: of `hashlib`.
            name: of the machine.
        """
        for path, directory in sorted(self.directories.items()):
            for file_name, inode in sorted(directory.cached.items(), key=lambda item: item[0]):
                digest.update(f"{name}{path}/{file_name}".encode())
                digest.update(inode.cache)
                digest.update(inode.durable)

    def _draw_survival(self) -> Survival:
        return self._random.choices(tuple(Survival), weights=(3, 1, 2, 4))[0]

    def _settle_names(self, directory: Directory) -> None:
        pending = directory.pending
        if pending:
            random = self._random
            if random.random() < 0.5:
                kept = pending[: random.randint(0, len(pending))]
            else:
                kept = [change for change in pending if random.random() < 0.5]
            self._counts.add(Fault.LOST_NAME, len(pending) - len(kept))
            for change in kept:
                _bind(directory.durable, change)
            pending.clear()
        directory.cached = dict(directory.durable)

    def _settle_writes(self, inode: Inode, survival: Survival) -> None:
        if not inode.is_size_durable and self._random.random() < 0.5:
            inode.lose_size()
        inode.is_size_durable = True
        pending = inode.pending
        if pending:
            if survival is Survival.ALL:
                inode.make_durable(inode.written_count)
            elif survival is Survival.PREFIX:
                self._keep_prefix(inode)
            elif survival is Survival.SECTORS:
                self._keep_sectors(inode)
            else:
                self._counts.add(Fault.LOST_SECTOR, len(_touches(pending)))
            pending.clear()
        inode.cache = bytearray(inode.durable)
        inode.cache_flips = dict(inode.durable_flips)

    def _keep_prefix(self, inode: Inode) -> None:
        """Keep the oldest writes, and the first sectors of the next one."""
        kept = self._random.randint(0, len(inode.pending))
        inode.make_durable(inode.written_count - len(inode.pending) + kept)
        if not inode.pending:
            return
        position, data = inode.pending[0]
        boundary = self._random.randint(position // SECTOR_SIZE_BYTES, (position + len(data)) // SECTOR_SIZE_BYTES)
        size = max(0, boundary * SECTOR_SIZE_BYTES - position)
        inode.put_durable(position, data[:size])
        self._counts.add(Fault.TORN_WRITE if size else Fault.LOST_SECTOR)

    def _keep_sectors(self, inode: Inode) -> None:
        """Leave each sector in the state after a random number of the writes that touched it."""
        random = self._random
        touches = _touches(inode.pending)
        kept = {sector: random.randint(0, count) for sector, count in touches.items()}
        for position, data in inode.pending:
            parts = list(_parts(position, len(data)))
            lost = 0
            for sector, begin, end in parts:
                if kept[sector] > 0:
                    kept[sector] -= 1
                    inode.put_durable(begin, data[begin - position : end - position])
                else:
                    lost += 1
            self._counts.add(Fault.LOST_SECTOR, lost)
            self._counts.add(Fault.TORN_WRITE, 1 if 0 < lost < len(parts) else 0)


def _bind(names: dict[str, Inode], change: dict[str, Inode | None]) -> None:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _parts(position: int, size: int) -> list[tuple[int, int, int]]:
    """Split a write at the sector boundaries: (sector, begin, end) with file positions."""
    end = position + size
    first = position // SECTOR_SIZE_BYTES
    last = (end - 1) // SECTOR_SIZE_BYTES
    return [
        (sector, max(position, sector * SECTOR_SIZE_BYTES), min(end, (sector + 1) * SECTOR_SIZE_BYTES))
        for sector in range(first, last + 1)
    ]


def _widened(image: bytearray, position: int, data: bytes) -> tuple[int, bytes]:
    """Apply a write to the image of a file and return it widened to whole sectors."""
    end = position + len(data)
    image[position:end] = data
    begin = position - position % SECTOR_SIZE_BYTES
    return begin, bytes(image[begin : end + -end % SECTOR_SIZE_BYTES])


def _touches(pending: list[tuple[int, bytes]]) -> dict[int, int]:
    """Count the writes that touched each sector."""
    touches: dict[int, int] = {}
    for position, data in pending:
        for sector, _, _ in _parts(position, len(data)):
            touches[sector] = touches.get(sector, 0) + 1
    return touches
