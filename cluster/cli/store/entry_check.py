"""Checks the entries of a replicated log, and its index units, and yields findings."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.cli.store.inspection import FileFault, StoredIndexUnit, entries_of, file_faults, units_of
from cluster.cli.store.node_files_check import NodeFilesCheck
from commitlog.offline.directory import StoreDirectory, StoreMode
from dledger.entries.aside import FOLDER_NAME as ASIDE_NAME
from dledger.entries.format.entry import INDEX_UNIT, Entry
from dledger.types import NO_INDEX
from store.fs.read_only_files import ReadOnlyFiles
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_NODE_REMEDY = "Another node of the group has the entry: see `a lost disk` in docs/operations.md, or restore a backup"
_NO_INDEX = "the node rebuilds its index, or does not start"
_INDEX_REMEDY = "Delete the node's index/ while it is stopped: it is rebuilt from the data"


class EntryCheck:
    """Checks a node's files: entries, index units, and the small files.

    Args:
        directory: the store; without entries nothing is checked.
        is_live: whether a process has it open, so that its newest units may not be written yet.

    Attributes:
        entry_count: number of intact entries.
        unit_count: number of index units.
    """

    def __init__(self, directory: StoreDirectory, *, is_live: bool = False) -> None:
        self._node = None if directory.node_directory is None else Path(directory.node_directory)
        self._has_messages = directory.mode is not StoreMode.RAW
        self._is_live = is_live
        self._missing: list[int] = []  # [first, last] entry of a run without units
        self.entry_count = 0
        self.unit_count = 0

    def findings(self) -> Iterator[Finding]:
        """Yield the faults of entries, index units, and the node's small files."""
        if self._node is None:
            return
        for fault in file_faults(self._node / "index"):
            yield Finding(Area.FILES, fault.path, 0, *_halves(fault.text), _NO_INDEX, _INDEX_REMEDY)
        units = units_of(self._node)
        unit = next(units, None)
        first_index, last_index, last_term = NO_INDEX, NO_INDEX, 0
        for entry in entries_of(self._node):
            if isinstance(entry, FileFault):
                yield _of_entry(entry)
                continue
            self.entry_count += 1
            first_index = entry.index if first_index == NO_INDEX else first_index
            last_index, last_term = entry.index, entry.term
            while isinstance(unit, FileFault) or (unit is not None and unit.slot < entry.index):
                yield from self._passed(unit)
                unit = next(units, None)
            if unit is not None and unit.slot == entry.index:
                self.unit_count += 1
                yield from self._compared(unit, entry)
                unit = next(units, None)
            else:
                yield from self._without_unit(entry.index)
        yield from self._end_missing()
        for rest in chain([] if unit is None else [unit], units):
            yield from self._passed(rest)
        if not self._is_live:
            names = [int(path.name) for path in self._node.glob("data/*") if path.name.isdecimal()]
            check = NodeFilesCheck(ReadOnlyFiles(), str(self._node), has_messages=self._has_messages)
            yield from check.findings(first_index, last_index, last_term, min(names, default=0))

    @property
    def has_aside(self) -> bool:
        """Whether the log that a reset replaced still exists."""
        return self._node is not None and (self._node / ASIDE_NAME / "data").is_dir()

    def _without_unit(self, index: int) -> Iterator[Finding]:
        """Record an entry without a unit; yield the previous run if the entry does not continue it."""
        if self._missing and self._missing[1] == index - 1:
            self._missing[1] = index
        else:
            yield from self._end_missing()
            self._missing = [index, index]

    def _end_missing(self) -> Iterator[Finding]:
        if self._missing and not self._is_live:
            first, last = self._missing
            yield Finding(
                Area.ENTRIES,
                f"{self._node}/index",
                first * INDEX_UNIT.size,
                f"the units of entries {first} to {last}",
                "none",
                "the entries cannot be found through the index",
                "The next start of the node rebuilds them from the data",
                is_unfinished=True,
                count=last - first + 1,
            )
        self._missing = []

    def _passed(self, unit: StoredIndexUnit | FileFault) -> Iterator[Finding]:
        """Yield the fault of a unit without an entry to compare with; nothing if the entry is unreadable."""
        if isinstance(unit, FileFault):
            meaning, remedy = "the entry cannot be found through it", _INDEX_REMEDY
            yield Finding(Area.ENTRIES, unit.path, unit.position, *_halves(unit.text), meaning, remedy)
        else:
            self.unit_count += 1

    def _compared(self, unit: StoredIndexUnit, entry: Entry) -> Iterator[Finding]:
        expected = (entry.position, entry.size, entry.term)
        found = (unit.position, unit.size, unit.term)
        if expected != found:
            yield Finding(
                Area.ENTRIES,
                f"{self._node}/index",
                unit.slot * INDEX_UNIT.size,
                "entry {} at position {}, of {} bytes, term {}".format(entry.index, *expected),
                "position {}, {} bytes, term {}".format(*found),
                "the entry cannot be found through its index unit",
                _INDEX_REMEDY,
            )


def _of_entry(fault: FileFault) -> Finding:
    expectation, _, meaning = fault.text.partition("; ")
    is_torn = meaning.startswith("a torn tail")
    remedy = "The next start cuts it off" if is_torn else _NODE_REMEDY
    return Finding(
        Area.ENTRIES, fault.path, fault.position, *_halves(expectation), meaning, remedy, is_unfinished=is_torn
    )


def _halves(text: str) -> tuple[str, str]:
    """Split the text of a fault into expected and found."""
    expected, _, found = text.removeprefix("expected ").partition(", found ")
    return expected, found
