"""Creates the possible disks after a crash: one for each class of lost unsynced writes.

After a crash, each unsynced sector has the state after any of the writes to it, and any unsynced names may be lost.
There are too many combinations, so classes of them are tested (docs/testing.md lists them). Method: ALICE (Pillai et
al., OSDI 2014), CrashMonkey (Mohan et al., OSDI 2018).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from random import Random

from dledger.testing.disk.disk import SECTOR_SIZE_BYTES, Directory, SimDisk
from dledger.testing.disk.inode import Inode
from dledger.testing.faults import FaultCounts

# Begin and end of headers, checksums and bodies: the most important positions of torn writes.
TELLING_BYTES = (1, 4, 8, 16, 36, 40, 44, 47, 48, 49, 56)
# What the label of an image says in which a sector is not written whole: less than the disk that is assumed guarantees.
TORN_IN_A_SECTOR = "torn inside a sector"


@dataclass(frozen=True)
class Image:
    """One possible disk; `label` names the class and the operation.

    The disk is built at the first use, because most tests use only a sample of the images. Images with equal keys are
    equal disks; None: not known.
    """

    label: str
    build: Callable[[], SimDisk]
    key: int | None = None

    @cached_property
    def disk(self):
        return self.build()


class Settled:
    """Contents of all files after a crash: the durable contents, changed by the class."""

    def __init__(self, inodes):
        self.inodes = inodes

    def lost(self):
        return {}

    def kept(self):
        return {id(inode): bytes(inode.cache) for inode in self.inodes}

    def sectors(self, is_kept, *, is_older_kept):
        """Compute each sector from the writes to it that are kept.

        A sector holds what all writes up to some point made of it: up to the last one that is kept (`is_older_kept`),
        or up to the first one that is not.
        """
        return {id(inode): _settle(inode, is_kept, is_older_kept=is_older_kept) for inode in self.inodes}


def _settle(inode, is_kept, *, is_older_kept):
    content = bytearray(inode.durable)
    by_sector = {}
    for number, (position, data) in enumerate(inode.pending):
        for sector, begin, end in parts(position, len(data)):
            by_sector.setdefault(sector, []).append((is_kept(inode, number, sector), begin, end, position, data))
    for touches in by_sector.values():
        kept = [is_there for is_there, *_ in touches]
        if is_older_kept:
            count = len(kept) - kept[::-1].index(True) if True in kept else 0
        else:
            count = kept.index(False) if False in kept else len(kept)
        for _, begin, end, position, data in touches[:count]:
            content[begin:end] = data[begin - position : end - position]
    return bytes(content)


def parts(position, size):
    """Cut a write at the boundaries of sectors: (sector, begin, end)."""
    at, end = position, position + size
    while at < end:
        sector = at // SECTOR_SIZE_BYTES
        upto = min(end, (sector + 1) * SECTOR_SIZE_BYTES)
        yield sector, at, upto
        at = upto


def write_classes(disk, *, is_every_byte=False):
    """Yield (label, contents by id of inode) for each class of waiting writes."""
    inodes = [inode for inode in reachable(disk) if inode.pending]
    settled = Settled(inodes)
    writes = [(inode, number) for inode in inodes for number in range(len(inode.pending))]
    yield "no write", settled.lost()
    if not writes:
        return
    yield "all writes", settled.kept()
    numbers = {(id(inode), number): at for at, (inode, number) in enumerate(writes)}

    def at(inode, number):
        return numbers[id(inode), number]

    if len(writes) > 1:
        for one in range(len(writes)):
            yield (
                f"all but write {one}",
                settled.sectors(lambda inode, number, _, one=one: at(inode, number) != one, is_older_kept=False),
            )
            yield (
                f"only write {one}",
                settled.sectors(lambda inode, number, _, one=one: at(inode, number) == one, is_older_kept=True),
            )
        half = len(writes) // 2
        yield "first half", settled.sectors(lambda inode, number, _: at(inode, number) < half, is_older_kept=False)
        yield "second half", settled.sectors(lambda inode, number, _: at(inode, number) >= half, is_older_kept=True)
    yield from _torn_at_sectors(settled, writes, at)
    yield from _torn_at_bytes(settled, inodes, is_every_byte=is_every_byte)


def _torn_at_sectors(settled, writes, at):
    for one, (inode, number) in enumerate(writes):
        position, data = inode.pending[number]
        sectors = [sector for sector, _, _ in parts(position, len(data))]
        for boundary in sectors[1:]:
            for name, is_in in (("before", lambda s, b=boundary: s < b), ("from", lambda s, b=boundary: s >= b)):
                yield (
                    f"write {one} only {name} sector {boundary}",
                    settled.sectors(
                        lambda inode, number, sector, one=one, is_in=is_in: at(inode, number) != one or is_in(sector),
                        is_older_kept=False,
                    ),
                )


def _torn_at_bytes(settled, inodes, *, is_every_byte):
    """Tear the newest write of each file, if it appends; a process that is killed within a write leaves this."""
    for inode in inodes:
        position, data = inode.pending[-1]
        if not any(data):
            continue
        sizes = range(1, len(data)) if is_every_byte else (*TELLING_BYTES, len(data) // 2, len(data) - 1)
        for size in sorted({size for size in sizes if 0 < size < len(data)}):
            contents = settled.kept()
            content = bytearray(inode.durable)
            for older_position, older in inode.pending[:-1]:
                content[older_position : older_position + len(older)] = older
            content[position : position + size] = data[:size]
            contents[id(inode)] = bytes(content)
            is_whole = (position + size) % SECTOR_SIZE_BYTES == 0
            yield f"newest write {'torn between sectors' if is_whole else TORN_IN_A_SECTOR} at {size}", contents


def name_classes(disk):
    """Yield (label, names by directory) for each class of waiting names; a name maps to (inode, is_empty)."""
    waiting = [(path, number) for path, entries in disk.directories.items() for number in range(len(entries.pending))]
    yield "no name", _names(disk, lambda _: False)
    if not waiting:
        return
    yield "all names", _names(disk, lambda _: True)
    yield "all names, sizes lost", _names(disk, lambda _: True, is_size_lost=True)
    if len(waiting) > 1:
        for number, one in enumerate(waiting):
            yield f"names before {number}", _names(disk, lambda change, kept=waiting[:number]: change in kept)
            yield f"all names but {number}", _names(disk, lambda change, one=one: change != one)


def _names(disk, is_kept, *, is_size_lost=False):
    names = {}
    for path, entries in disk.directories.items():
        bound = {name: (inode, False) for name, inode in entries.durable.items()}
        for number, change in enumerate(entries.pending):
            for name, inode in change.items() if is_kept((path, number)) else ():
                bound.pop(name, None)
                if inode is not None:
                    is_empty = is_size_lost and (inode.written_count == 0 or not inode.is_size_durable)
                    bound[name] = (inode, is_empty)
        names[path] = bound
    return names


def reachable(disk):
    """Return every file that may have a name after a crash, once, in a deterministic order."""
    found = {}
    for _, entries in sorted(disk.directories.items()):
        waiting = [inode for change in entries.pending for inode in change.values()]
        for inode in [*(entries.durable[name] for name in sorted(entries.durable)), *waiting]:
            if inode is not None:
                found[id(inode)] = inode
    return list(found.values())


def crash_images(disk, *, is_every_byte=False):
    """Yield the distinct disks that are possible after a power cut; `disk` is not changed."""
    for label, without in _without_new_directories(disk):
        for image in crash_images(without, is_every_byte=is_every_byte):
            yield Image(f"{image.label}, {label}", image.build, image.key)
    if disk.moves:
        before = SimDisk(Random(0), FaultCounts())
        before.directories, before.spares, before.moves = dict(disk.directories), disk.spares, list(disk.moves)
        before.undo_moves()
        for image in crash_images(before, is_every_byte=is_every_byte):
            yield Image(f"{image.label}, directories not renamed", image.build, image.key)
    seen = set()
    durable = {id(inode): bytes(inode.durable) for inode in reachable(disk)}
    settled = [(label, durable | lost) for label, lost in write_classes(disk, is_every_byte=is_every_byte)]
    spares = dict(disk.spares)
    frame = (tuple(sorted(disk.directories)), tuple(sorted(spares)))
    for name_label, names in name_classes(disk):
        bound = [(path, name, *file) for path, files in names.items() for name, file in files.items()]
        # Names in an order of their own, so that images compare by their contents in that order.
        order = sorted(range(len(bound)), key=lambda at, bound=bound: bound[at][:2])
        places = hash(tuple(bound[at][:2] for at in order))
        for write_label, contents in settled:
            found = [b"" if is_empty else contents[id(inode)] for _, _, inode, is_empty in bound]
            key = hash((frame, places, tuple([found[at] for at in order])))
            if key not in seen:
                seen.add(key)
                yield Image(f"{write_label}, {name_label}", partial(_build, list(names), bound, found, spares), key)


def _without_new_directories(disk):
    """Yield (label, disk) for each class of new directories whose names a power cut takes, with all below them."""
    new = list(disk.made)
    classes = [("new directories lost", new)] if new else []
    if len(new) > 1:
        classes += [(f"new directory {path} lost", [path]) for path in new]
    for label, lost in classes:
        without = SimDisk(Random(0), FaultCounts())
        without.directories, without.spares, without.moves = dict(disk.directories), disk.spares, list(disk.moves)
        for path in lost:
            without.lose_directory(path)
        yield label, without


def _build(paths, bound, contents, spares):
    image = SimDisk(Random(0), FaultCounts())
    image.directories = {path: Directory() for path in paths}
    copies = {}
    for (path, name, inode, _), content in zip(bound, contents, strict=True):
        if id(inode) not in copies:
            copies[id(inode)] = _inode(content)
        directory = image.directories[path]
        directory.durable[name] = directory.cached[name] = copies[id(inode)]
    image.spares = dict(spares)
    return image


def _inode(content):
    inode = Inode(len(content))
    inode.cache[:] = content
    inode.durable[:] = content
    return inode


def killed(disk):
    """Return the disk after a kill of the process: programs see all writes, and no further writes are durable."""
    image = SimDisk(Random(0), FaultCounts())
    copies = {}

    def copy(inode):
        if id(inode) not in copies:
            clone = copies[id(inode)] = Inode(len(inode.cache))
            clone.cache[:] = inode.cache
            clone.durable[:] = inode.durable
            clone.pending[:] = inode.pending
            clone.written_count = inode.written_count
            clone.is_size_durable = inode.is_size_durable
        return copies[id(inode)]

    for path, entries in disk.directories.items():
        image.directories[path] = Directory(
            {name: copy(inode) for name, inode in entries.cached.items()},
            {name: copy(inode) for name, inode in entries.durable.items()},
            [{name: inode and copy(inode) for name, inode in change.items()} for change in entries.pending],
        )
    image.spares = dict(disk.spares)
    image.made, image.moves = dict(disk.made), list(disk.moves)
    return Image("process killed", lambda: image)
