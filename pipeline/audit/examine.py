"""Examines a window in which replicas differ, entry by entry: finds the faulty replica, or the point of divergence.

The begins of entries are determined on each replica, from a valid one before the window on, skipping damage; the result
of the replica with the least damage is used for all. If two valid entries differ, it is a divergence if the following
entries differ, too; else one of them was changed in a way that its checksums do not detect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from commitlog.record.record import BLANK_MAGIC, HEAD, MAGICS, RECORD_SIZE_MIN, RecordFault, find_fault
from commitlog.record.resync import find_good, resync
from commitlog.record.rows import HEADER_TYPE
from dledger.entries.format.entry import BLANK_MAGIC as ENTRY_BLANK_MAGIC
from dledger.entries.format.entry import CHAIN, ENTRY_MAGICS, ENTRY_NORMAL, ENTRY_SIZE_MAX, HEADER, HEADER_SIZE
from pipeline.audit.compare import NO_NUMBER, AuditFinding, AuditKind, Suspect
from pipeline.audit.replica import NO_OFFSET, AuditedReplica
from store.fs.read_only_files import OpenFiles, ReadOnlyFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from commitlog.offline.directory import LogFileInfo
    from pipeline.audit.digests import DigestWindow

# The size of the longest entry: a search from this distance before a window finds a valid entry that leads to the
# window's first.
_BACK: Final = ENTRY_SIZE_MAX + (1 << 16)


def examine(replicas: Sequence[AuditedReplica], suspect: Suspect) -> list[AuditFinding]:
    """Return the differences in a window, in order; after a divergence the rest is not compared."""
    open_files = OpenFiles(ReadOnlyFiles())
    committed = max(replica.committed for replica in replicas)
    found: list[AuditFinding] = []
    try:
        for sides in _places_that_differ(
            [replicas[number] for number, _ in suspect.digests], suspect.window, open_files
        ):
            found += _bad(sides)
            found += _differing([side for side in sides if side.fault() is None], committed)
            if any(finding.kind in {AuditKind.DIVERGENCE, AuditKind.UNCOMMITTED_TAIL} for finding in found):
                break
    finally:
        open_files.close_all()
    return found


class _Places(NamedTuple):
    """The ranges `[begin, end)` of entries, records and blanks of a window in the file, and the amount of damage."""

    bounds: list[tuple[int, int]]
    damage: int


@dataclass(frozen=True, slots=True)
class _Side:
    """One replica at one position of its file."""

    replica: AuditedReplica
    file: LogFileInfo
    view: memoryview
    begin: int
    end: int
    before: int | None

    @property
    def content(self) -> bytes:
        return bytes(self.view[self.begin : self.end])

    @property
    def following(self) -> bytes:
        return bytes(self.view[self.end : self.end + HEADER_SIZE])

    def head(self) -> tuple[int, int]:
        """Return index and term; -1 if there are none."""
        if not self.file.header_size or self.begin + HEADER_SIZE > len(self.view):
            return NO_NUMBER, NO_NUMBER
        _, _, index, term, *_ = HEADER.unpack_from(self.view, self.begin)
        return index, term

    def fault(self) -> RecordFault | None:
        """Return the fault here; None: it is a valid entry, record or blank."""
        return self._entry_fault() if self.file.header_size else self._record_fault(self.begin, len(self.view))

    def _entry_fault(self) -> RecordFault | None:
        position, view = self.begin, self.view
        if position + HEADER_SIZE > len(view):
            return RecordFault(position, "an entry", f"{len(view) - position} bytes")
        magic, size, _, _, at, channel, _, _, body_size = HEADER.unpack_from(view, position)
        if magic == ENTRY_BLANK_MAGIC:
            return None
        fault = None
        if magic not in ENTRY_MAGICS:
            fault = RecordFault(position, "an entry of magic 1, 2 or 3", f"magic {magic}")
        elif size != HEADER_SIZE + body_size or body_size < 0 or position + size > len(view):
            fault = RecordFault(
                position + _place_of("entry_size"), f"an entry of {HEADER_SIZE + body_size} bytes", f"one of {size}"
            )
        elif at != self.file.begin_offset + position:
            fault = RecordFault(
                position + _place_of("position"), f"position {self.file.begin_offset + position}", f"position {at}"
            )
        fault = fault or self._checksum_fault(size)
        if fault is not None or magic != ENTRY_NORMAL or channel:
            return fault
        return self._record_fault(position + HEADER_SIZE, position + size)

    def _checksum_fault(self, size: int) -> RecordFault | None:
        position, view = self.begin, self.view
        magic, _, index, term, _, _, chain_crc, body_crc, _ = HEADER.unpack_from(view, position)
        found = crc32c(view[position + HEADER_SIZE : position + size])
        if body_crc and found != body_crc:
            return RecordFault(
                position + _place_of("entry_crc"), f"a body with CRC-32C {body_crc:#010x}", f"{found:#010x}"
            )
        chain_before = 0 if self.before is None else HEADER.unpack_from(view, self.before)[6]
        if chain_crc and chain_before:
            expected = crc32c(CHAIN.pack(chain_before, magic, index, term, body_crc))
            if expected != chain_crc:
                return RecordFault(
                    position + _place_of("chain_crc"), f"chain checksum {expected:#010x}", f"{chain_crc:#010x}"
                )
        return None

    def _record_fault(self, position: int, end: int) -> RecordFault | None:
        size, magic = HEAD.unpack_from(self.view, position) if position + HEAD.size <= end else (0, 0)
        if magic == BLANK_MAGIC and size:
            return None
        return find_fault(self.view, position, end, physical_offset=self.file.begin_offset + position)


def _place_of(field: str) -> int:
    """Return the position of a field in the header of an entry."""
    assert HEADER_TYPE.fields is not None
    return int(HEADER_TYPE.fields[field][1])


def _places_that_differ(
    replicas: Sequence[AuditedReplica], window: DigestWindow, open_files: OpenFiles
) -> Iterator[list[_Side]]:
    holders = [(replica, file) for replica in replicas if (file := replica.file_at(window.begin)) is not None]
    views = [open_files.get(file.path).view() for _, file in holders]
    found = [_places(view, file, window) for view, (_, file) in zip(views, holders, strict=True)]
    before: int | None = None
    for begin, end in min(found, key=lambda places: places.damage).bounds:
        sides = [
            _Side(replica, file, view, begin, end, before) for view, (replica, file) in zip(views, holders, strict=True)
        ]
        if len({side.content for side in sides}) > 1:
            yield sides
        before = begin


def _places(view: memoryview, file: LogFileInfo, window: DigestWindow) -> _Places:
    base, header_size = file.begin_offset, file.header_size
    first, end = window.begin - base, min(window.end - base, len(view))
    position = find_good(view, max(first - _BACK, 0), len(view), base_offset=base, header_size=header_size)
    bounds: list[tuple[int, int]] = []
    damage = 0
    if position > first:
        bounds.append((first, min(position, end)))
        damage += 1
    while position < end:
        size = _size_at(view, position, header_size)
        if not size:
            damage += 1
            size = resync(view, position, len(view), base_offset=base, header_size=header_size) - position
        if position + size > first:
            bounds.append((position, position + size))
        position += size
    return _Places(bounds, damage)


def _size_at(view: memoryview, position: int, header_size: int) -> int:
    """Return the size of the apparent entry, record or blank at `position`; 0: none."""
    space = len(view) - position
    if space < HEAD.size:
        return space
    one, other = HEAD.unpack_from(view, position)
    magic, size = (one, other) if header_size else (other, one)
    if magic == (ENTRY_BLANK_MAGIC if header_size else BLANK_MAGIC):
        return min(size, space) if size >= HEAD.size else 0
    is_kind, size_min = (magic in ENTRY_MAGICS, HEADER_SIZE) if header_size else (magic in MAGICS, RECORD_SIZE_MIN)
    return size if is_kind and size_min <= size <= space else 0


def _bad(sides: Sequence[_Side]) -> Iterator[AuditFinding]:
    heads = [side.head() for side in sides if side.fault() is None] or [(NO_NUMBER, NO_NUMBER)]
    for side in sides:
        fault = side.fault()
        if fault is not None:
            begin, end = side.file.begin_offset + side.begin, side.file.begin_offset + side.end
            yield AuditFinding(
                AuditKind.BAD_CHECKSUM,
                side.replica.name,
                begin,
                end,
                *heads[0],
                side.file.path,
                fault.position,
                fault.expected,
                fault.found,
            )


def _differing(good: Sequence[_Side], committed: int) -> Iterator[AuditFinding]:
    """Yield a finding for each replica whose valid entry at one position differs from that of most replicas."""
    contents = [side.content for side in good]
    if len(set(contents)) < 2:
        return
    most = good[contents.index(max(contents, key=contents.count))]
    for side in good:
        if side.content == most.content:
            continue
        begin = side.file.begin_offset + side.begin
        kind, end = AuditKind.DIFFERENT, side.file.begin_offset + side.end
        if side.following != most.following:
            is_committed = committed == NO_OFFSET or begin < committed
            kind, end = AuditKind.DIVERGENCE if is_committed else AuditKind.UNCOMMITTED_TAIL, side.replica.end
        expected, found = (
            f"index {index}, term {term}" if index != NO_NUMBER else f"a record of {size} bytes"
            for (index, term), size in ((most.head(), len(most.content)), (side.head(), len(side.content)))
        )
        expected = f"{expected}, as in {most.replica.name}"
        yield AuditFinding(
            kind, side.replica.name, begin, end, *side.head(), side.file.path, side.begin, expected, found
        )
