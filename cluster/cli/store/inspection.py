"""Reads the files of a node offline, without changing them: entries, index units, term and vote.

The node may be running: nothing is locked, and an entry that is being written is read again before it is reported as
damaged. Directories of the Java program are supported.

Every entry is checked as by recovery (`dledger.entries.recovery`), but after a fault the check continues with the next
intact entry.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from commitlog.record.system_records import MessageEntryCodec
from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.format.entry import (
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE_MIN,
    ENTRY_MAGICS,
    ENTRY_NORMAL,
    HEADER_SIZE,
    INDEX_UNIT,
    NO_CHAIN,
    Entry,
    decode,
)
from dledger.entries.format.walk import UNKNOWN, WalkState, describe_fault, walk
from dledger.entries.log_head import LogHeadFile, LogHeadUnreadable
from dledger.entries.tail import (
    BadEntryPlace,
    find_good_after,
    holds_data,
    is_lost_write,
    is_ours,
    is_unfinished_step,
)
from dledger.storage.checkpoint import FILE_NAME as CHECKPOINT_NAME
from dledger.storage.hard_state import FILE_NAME as HARD_STATE_NAME
from dledger.storage.hard_state import HardStateFile
from dledger.storage.properties import parse_properties
from store.errors import StorageFailed
from store.fs.linux.files import OsFiles
from store.fs.linux.regular_files import read_regular
from store.fs.mapped.mapped_file import MappedFile
from store.fs.read_only_files import ReadOnlyFile, ReadOnlyFiles

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from dledger.types import HardState

_NAME_DIGITS = 20
# The delay after which an entry that is being written is complete.
_LOOKS_MAX = 4
_LOOK_PAUSE_S = 0.02
# After this many invalid units in a row the rest of the file is not read: it is not an index.
_FAULTS_MAX = 1000


class _AnyCodec(MessageEntryCodec):
    """Accepts entries of message logs and raw logs, because the files do not show which kind it is."""

    kinds = RAW_ENTRY_CODEC.kinds | MessageEntryCodec.kinds

    def find_fault(self, magic: int, channel: int, position: int, body: memoryview) -> tuple[str, str] | None:
        return super().find_fault(magic, channel, position, body) if magic == ENTRY_NORMAL else None


_CODEC = _AnyCodec(clock=lambda: 0)


class NotANode(Exception):
    """The directory has the files of no node, or of several nodes; the text has what was found."""


@dataclass(frozen=True, slots=True)
class FileFault:
    """Bytes that violate the format.

    Attributes:
        path: the file.
        position: position in the file, in bytes.
        text: expected, found, and the consequence.
    """

    path: str
    position: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}: at byte {self.position}: {self.text}"


@dataclass(frozen=True, slots=True)
class StoredIndexUnit:
    """One index unit as stored in its file.

    Attributes:
        slot: index of the entry to which its position belongs.
        magic, position, size, index, term: its fields.
    """

    slot: int
    magic: int
    position: int
    size: int
    index: int
    term: int


def find_store(directory: Path) -> Path:
    """Return the node's own directory: `directory` itself, or the only one of a node in it.

    Raises:
        NotANode: there is none, or more than one.
    """
    if (directory / "data").is_dir():
        return directory
    if not directory.is_dir():
        raise NotANode(f"{directory} is not a directory")
    found = [child for child in sorted(directory.glob("dledger-*")) if (child / "data").is_dir()]
    if len(found) == 1:
        return found[0]
    names = ", ".join(child.name for child in found)
    raise NotANode(
        f"{directory} contains several nodes: choose one of {names}"
        if found
        else f"{directory} contains no node's files: expected a directory dledger-<id> with data/ and index/"
    )


def entries_of(directory: Path) -> Iterator[Entry | FileFault]:
    """Yield every entry of the log in order, and every fault at its position.

    Args:
        directory: the node's own directory.
    """
    files = _queue(directory / "data")
    durable_index = _durable_index(directory)
    number = offset = 0
    state = _first_state(files)
    while number < len(files):
        file = files[number]
        offset, state = yield from _entries_in(file, offset, state)
        if offset == file.file.size:
            number, offset = number + 1, 0
            continue
        place = BadEntryPlace(files[number:], offset, state, 0, _CODEC, is_after_ours=state.chain_crc > NO_CHAIN)
        if not holds_data(place):
            return
        next_good = find_good_after(place)
        yield _fault_at(place, next_good, durable_index)
        if next_good is None:
            return
        number = next(n for n, file in enumerate(files) if file.begin_offset <= next_good < file.end_offset)
        offset = next_good - files[number].begin_offset
        state = WalkState(UNKNOWN, state.term, UNKNOWN)


def _first_state(files: list[MappedFile]) -> WalkState:
    """Return the state before the first entry, which is known only if the log begins at position 0."""
    is_whole = bool(files) and files[0].begin_offset == 0 and BLANK.unpack_from(files[0].view(), 0)[0] != BLANK_MAGIC
    return WalkState(0, 0, NO_CHAIN) if is_whole else WalkState(UNKNOWN, 0, UNKNOWN)


def _entries_in(file: MappedFile, offset: int, state: WalkState) -> Generator[Entry, None, tuple[int, WalkState]]:
    """Yield the intact entries of one file from `offset` on; return where they end, the file's size at most."""
    view, size = file.view(), file.file.size
    looks = 0
    while offset <= size - BLANK_SIZE_MIN:
        magic, blank_size = BLANK.unpack_from(view, offset)
        if magic == BLANK_MAGIC and BLANK_SIZE_MIN <= blank_size <= size - offset:
            offset += blank_size
            continue
        found = walk(view, offset, size, file.begin_offset + offset, state, codec=_CODEC)
        if found.offset == offset:
            looks += 1
            if looks == _LOOKS_MAX or magic == 0:
                return offset, state
            time.sleep(_LOOK_PAUSE_S)
            continue
        looks, state = 0, found.state
        while offset < found.offset:
            entry = decode(view, offset)
            yield entry
            offset += entry.size
    return size, state


def _fault_at(place: BadEntryPlace, next_good: int | None, durable_index: int) -> FileFault:
    """Return the fault at a position, with the effect on recovery."""
    view = place.file.view()
    expected, found = describe_fault(view, place.offset, len(view), place.position, place.state, _CODEC)
    if next_good is not None:
        meaning = f"corrupt: intact entries follow at position {next_good}"
    elif UNKNOWN < place.state.index <= durable_index:
        meaning = f"corrupt: by the checkpoint, entries up to {durable_index} were durable"
    elif is_ours(place) and not (is_lost_write(place) or is_unfinished_step(place)):
        meaning = (
            "damage in the log's last entry, which was durable: after the next start the node does not vote until the "
            "leader has sent it again (or refuses to start if its vote is needed), unless it is being written now"
        )
    else:
        meaning = "a torn tail of a crash, which the next start cuts off, unless it is being written now"
    return FileFault(place.file.path, place.offset, f"expected {expected}, found {found}; {meaning}")


def _durable_index(directory: Path) -> int:
    """Return the index up to which entries were durable, from the checkpoint; -1: unknown."""
    try:
        return int(parse_properties(read_regular(str(directory / CHECKPOINT_NAME))).get("endIndex", "-1"))
    except (OSError, ValueError):  # ignored here; `dledger verify` reports its fault
        return -1


# ------------------------------------------------------------------------------------------- index units, hard state


def units_of(directory: Path) -> Iterator[StoredIndexUnit | FileFault]:
    """Yield every index unit of the log in order, and a fault for each invalid one.

    Args:
        directory: the node's own directory.
    """
    try:
        head = LogHeadFile(OsFiles(), str(directory)).load()
    except (LogHeadUnreadable, StorageFailed):
        head = None  # `dledger verify` reports its fault
    begin_offset = 0 if head is None else head.begin_index * INDEX_UNIT.size
    for file in _queue(directory / "index"):
        view, offset = file.view(), max(0, begin_offset - file.begin_offset)
        magic, blank_size = BLANK.unpack_from(view, 0)
        if magic == BLANK_MAGIC:
            offset = max(offset, blank_size)
        fault_count = 0
        for position in range(offset, len(view) - INDEX_UNIT.size + 1, INDEX_UNIT.size):
            unit = StoredIndexUnit(
                (file.begin_offset + position) // INDEX_UNIT.size, *INDEX_UNIT.unpack_from(view, position)
            )
            if unit.magic == 0:
                return
            text = _unit_fault(unit)
            yield FileFault(file.path, position, text) if text else unit
            fault_count = fault_count + 1 if text else 0
            if fault_count == _FAULTS_MAX:
                break


def _unit_fault(unit: StoredIndexUnit) -> str:
    if unit.magic not in ENTRY_MAGICS:
        return f"expected magic 1, 2 or 3 (index {unit.slot}), found {unit.magic}"
    if unit.index != unit.slot:
        return f"expected index {unit.slot}, found {unit.index}"
    if unit.size < HEADER_SIZE or unit.position < 0 or unit.term < 0:
        return f"expected the place of an entry (index {unit.slot}), found position {unit.position}, size {unit.size}"
    return ""


def hard_state_of(directory: Path) -> HardState | None:
    """Return term and vote; None if the node has taken part in no election.

    Raises:
        dledger.storage.hard_state.HardStateUnreadable: the file is damaged; a node would refuse to start on it.
    """
    path = directory / HARD_STATE_NAME
    return HardStateFile(OsFiles(), str(path)).load() if path.exists() else None


class _ClippedFile(ReadOnlyFile):
    """A file of which at most the file size of its queue is read."""

    __slots__ = ()

    def __init__(self, path: str, size: int) -> None:
        super().__init__(path)
        self.size = min(size, self.size)
        self._view = self.view()[: self.size]


def _queue(directory: Path) -> list[MappedFile]:
    """Open the files of a queue in order, read-only; foreign names and empty files are omitted.

    Bytes beyond the file size would be read twice, as those of the next file; `file_faults` reports them.

    Raises:
        store.errors.StorageFailed: a file cannot be read.
    """
    sizes = _sizes(directory)
    size = _row_size(sizes)
    try:
        return [
            MappedFile(_ClippedFile(f"{directory}/{name}", size), int(name), is_allocated=True)
            for name, found in sizes.items()
            if found
        ]
    except OSError as error:
        raise StorageFailed(str(error.filename or directory), "open", error) from error


def _sizes(directory: Path) -> dict[str, int]:
    """Return the size of each file of a queue, by name; a file that is being created has none yet."""
    files = ReadOnlyFiles()
    names = [name for name in files.list_directory(str(directory)) if len(name) == _NAME_DIGITS and name.isdecimal()]
    return {name: files.size_of(f"{directory}/{name}") for name in names if not (directory / name).is_dir()}


def _row_size(sizes: Mapping[str, int]) -> int:
    """Return the file size of a queue: the difference of two names, or else the most common size."""
    begins = sorted(map(int, sizes))
    likely = [*sizes.values(), *(later - earlier for earlier, later in pairwise(begins))]
    return max(sorted(set(likely)), key=likely.count, default=0)


def file_faults(directory: Path) -> Iterator[FileFault]:
    """Yield invalid names and sizes in a directory of index files."""
    sizes = _sizes(directory)
    size = _row_size(sizes)
    for name in ReadOnlyFiles().list_directory(str(directory)):
        path = f"{directory}/{name}"
        if name not in sizes:
            kind = "a directory" if Path(path).is_dir() else "this name"
            yield FileFault(path, 0, f"expected a file with a name of {_NAME_DIGITS} digits, found {kind}")
        elif sizes[name] != size or not size or size % INDEX_UNIT.size:
            expected = f"{size - size % INDEX_UNIT.size or INDEX_UNIT.size} bytes"
            yield FileFault(path, 0, f"expected {expected}, found {sizes[name]}")
    for earlier, later in pairwise(sorted(map(int, sizes))):
        if earlier + size < later:
            path = f"{directory}/{earlier + size:0{_NAME_DIGITS}d}"
            yield FileFault(path, 0, f"expected this file before {later:0{_NAME_DIGITS}d}, found none")
