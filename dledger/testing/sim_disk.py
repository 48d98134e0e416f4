"""A simulated disk: for each file what programs see (the page cache) and what a power cut leaves (the durable copy).

A write changes the page cache at once and waits in a list until a sync covers it; creating, replacing and removing a
name waits until its directory is synced. A killed process loses nothing of this. A power cut settles each waiting
thing by the seed: the disk may have written a 512-byte sector at any time since its last sync, so that a sector
survives in the state after any number of the writes that touched it, each sector on its own, in no common order.
Directory changes survive as a prefix (a journal) or as any part (POSIX promises no more).

What stands on this disk outlives the simulated processes; `sim_files` is how one process sees it.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from dledger.testing.faults import Fault

if TYPE_CHECKING:
    from random import Random

    from dledger.testing.faults import FaultCounts

SECTOR_SIZE_BYTES = 512
UNLIMITED_BYTES = 1 << 60


class Inode:
    """One file without its name: equal sizes of page cache and durable copy, and the writes between the two.

    Attributes:
        cache: the content that programs see.
        durable: the content after a power cut, were every waiting write lost.
        pending: (position, bytes) of writes that no sync has covered, oldest first.
        written_count: writes since creation; `written_count - len(pending)` of them are durable.
    """

    __slots__ = ("cache", "durable", "pending", "written_count")

    def __init__(self, size: int) -> None:
        self.cache = bytearray(size)
        self.durable = bytearray(size)
        self.pending: list[tuple[int, bytes]] = []
        self.written_count = 0

    def write(self, data: bytes, position: int) -> None:
        """Change the page cache; `data` must lie within the file."""
        end = position + len(data)
        assert 0 <= position <= end <= len(self.cache), (position, end, len(self.cache))
        self.cache[position:end] = data
        self.pending.append((position, data))
        self.written_count += 1

    def make_durable(self, written_count: int) -> None:
        """Make the first `written_count` writes since creation durable: those that a sync found when it began."""
        covered = written_count - (self.written_count - len(self.pending))
        if covered <= 0:
            return
        durable = self.durable
        for position, data in self.pending[:covered]:
            durable[position : position + len(data)] = data
        del self.pending[:covered]


class Survival(Enum):
    """What a power cut leaves of the waiting writes."""

    NOTHING = 0
    ALL = 1
    PREFIX = 2
    SECTORS = 3


@dataclass(slots=True)
class Directory:
    """Names of one directory: as programs see them, as they are durable, and the changes between the two.

    A change maps names to what each stands for from now on: an inode, or nothing (None). It happens whole or not.
    """

    cached: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)
    pending: list[dict[str, Inode | None]] = field(default_factory=list)

    def change(self, name: str, inode: Inode | None) -> None:
        """Bind a name now, and durably after the next sync."""
        self._change({name: inode})

    def rename(self, name: str, new_name: str) -> None:
        """Give a file another name now, and durably after the next sync."""
        self._change({name: None, new_name: self.cached[name]})

    def _change(self, change: dict[str, Inode | None]) -> None:
        _bind(self.cached, change)
        self.pending.append(change)

    def sync(self) -> None:
        """Make all changes durable."""
        for change in self.pending:
            _bind(self.durable, change)
        self.pending.clear()


class SimDisk:
    """All directories and files of one simulated machine.

    Attributes:
        directories: by absolute path; creating a directory is durable at once.
        capacity_bytes: creating a file fails when the sizes of all files would exceed this.
        spares: paths for whose replacement room was set aside.
    """

    __slots__ = ("_counts", "_random", "capacity_bytes", "directories", "spares")

    def __init__(self, random: Random, counts: FaultCounts) -> None:
        self._random = random
        self._counts = counts
        self.directories: dict[str, Directory] = {}
        self.capacity_bytes = UNLIMITED_BYTES
        self.spares: dict[str, None] = {}

    @property
    def used_bytes(self) -> int:
        """Sizes of all files that have a name."""
        return sum(len(inode.cache) for directory in self.directories.values() for inode in directory.cached.values())

    def lookup(self, path: str) -> Inode | None:
        """Return the file that programs find at `path`."""
        directory, name = posixpath.split(path)
        entries = self.directories.get(directory)
        return None if entries is None else entries.cached.get(name)

    def lookup_durable(self, path: str) -> Inode | None:
        """Return the file that would stand at `path` if every waiting directory change were lost."""
        directory, name = posixpath.split(path)
        entries = self.directories.get(directory)
        return None if entries is None else entries.durable.get(name)

    def cut_power(self) -> None:
        """Settle every waiting write and directory change by the seed; the page cache becomes what survived."""
        for directory in self.directories.values():
            self._settle_names(directory)
        survival = self._draw_survival()
        for directory in self.directories.values():
            for inode in directory.durable.values():
                self._settle_writes(inode, survival)

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

    def _keep_prefix(self, inode: Inode) -> None:
        """Keep the oldest writes whole, and of the next one the first sectors."""
        kept = self._random.randint(0, len(inode.pending))
        inode.make_durable(inode.written_count - len(inode.pending) + kept)
        if not inode.pending:
            return
        position, data = inode.pending[0]
        boundary = self._random.randint(position // SECTOR_SIZE_BYTES, (position + len(data)) // SECTOR_SIZE_BYTES)
        size = max(0, boundary * SECTOR_SIZE_BYTES - position)
        inode.durable[position : position + size] = data[:size]
        self._counts.add(Fault.TORN_WRITE if size else Fault.LOST_SECTOR)

    def _keep_sectors(self, inode: Inode) -> None:
        """Leave each sector in the state after a random number of the writes that touched it."""
        random = self._random
        touches = _touches(inode.pending)
        kept = {sector: random.randint(0, count) for sector, count in touches.items()}
        durable = inode.durable
        for position, data in inode.pending:
            parts = list(_parts(position, len(data)))
            lost = 0
            for sector, begin, end in parts:
                if kept[sector] > 0:
                    kept[sector] -= 1
                    durable[begin:end] = data[begin - position : end - position]
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
    """Cut a write at the sector boundaries: (sector, begin, end) with file positions."""
    end = position + size
    first = position // SECTOR_SIZE_BYTES
    last = (end - 1) // SECTOR_SIZE_BYTES
    return [
        (sector, max(position, sector * SECTOR_SIZE_BYTES), min(end, (sector + 1) * SECTOR_SIZE_BYTES))
        for sector in range(first, last + 1)
    ]


def _touches(pending: list[tuple[int, bytes]]) -> dict[int, int]:
    """Count the writes that touched each sector."""
    touches: dict[int, int] = {}
    for position, data in pending:
        for sector, _, _ in _parts(position, len(data)):
            touches[sector] = touches.get(sector, 0) + 1
    return touches
