"""Checks the entries of a replicated log, and its index units against them, as findings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from cluster.inspection import Fault, Unit, entries_of, units_of
from commitlog.store_directory import StoreDirectory
from dledger.entry import Entry
from store.finding import Area, Finding

_NODE_REMEDY = "Another node of the group has the entry: see `a lost disk` in docs/operations.md, or restore a backup"
_INDEX_REMEDY = "Delete the node's index/ while it is stopped: it is made anew from the data"


class EntryCheck:
    """One check of a node's entries.

    Args:
        directory: the store; without entries there is nothing to check.

    Attributes:
        entry_count: good entries that were seen.
        unit_count: index units that were seen.
    """

    def __init__(self, directory: StoreDirectory) -> None:
        self._node = None if directory.node_directory is None else Path(directory.node_directory)
        self.entry_count = 0
        self.unit_count = 0

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with entries and index units."""
        if self._node is None:
            return
        units = units_of(self._node)
        unit = next(units, None)
        for entry in entries_of(self._node):
            if isinstance(entry, Fault):
                yield _of_entry(entry)
                continue
            self.entry_count += 1
            while isinstance(unit, Fault) or (unit is not None and unit.slot < entry.index):
                yield from self._passed(unit)
                unit = next(units, None)
            if unit is not None and unit.slot == entry.index:
                self.unit_count += 1
                yield from self._compared(unit, entry)
                unit = next(units, None)
        for rest in chain([] if unit is None else [unit], units):
            yield from self._passed(rest)

    def _passed(self, unit: Unit | Fault) -> Iterator[Finding]:
        """Yield what a unit that was not compared means: one of an entry that cannot be read means nothing."""
        if isinstance(unit, Fault):
            meaning, remedy = "the entry cannot be found through it", _INDEX_REMEDY
            yield Finding(Area.ENTRIES, unit.path, unit.position, *_halves(unit.text), meaning, remedy)
        else:
            self.unit_count += 1

    def _compared(self, unit: Unit, entry: Entry) -> Iterator[Finding]:
        expected = (entry.position, entry.size, entry.term)
        found = (unit.position, unit.size, unit.term)
        if expected != found:
            yield Finding(
                Area.ENTRIES,
                f"{self._node}/index",
                unit.slot * 32,
                "entry {} at position {}, of {} bytes, term {}".format(entry.index, *expected),
                "position {}, {} bytes, term {}".format(*found),
                "the entry cannot be found through its index unit",
                _INDEX_REMEDY,
            )


def _of_entry(fault: Fault) -> Finding:
    expectation, _, meaning = fault.text.partition("; ")
    is_torn = meaning.startswith("a torn tail")
    remedy = "The next start cuts it off" if is_torn else _NODE_REMEDY
    return Finding(
        Area.ENTRIES, fault.path, fault.position, *_halves(expectation), meaning, remedy, is_unfinished=is_torn
    )


def _halves(text: str) -> tuple[str, str]:
    """Split what a fault says into expected and found."""
    expected, _, found = text.removeprefix("expected ").partition(", found ")
    return expected, found
