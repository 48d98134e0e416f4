"""Positions of entries: contiguous, or at the start of the next data file if an entry does not fit.

An entry fits into a file only if eight bytes remain after it, so that the rest can always be marked as a blank. All
replicas apply this rule, so they agree on every position. Source: DLedger `MmapFileList.preAppend`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.entries.format.entry import BLANK_SIZE_MIN, HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries of a batch that are contiguous in one data file.

    Attributes:
        begin: number of its first body in the batch.
        end: one more than the number of its last entry.
        position: of its first entry.
        end_position: after its last entry.
    """

    begin: int
    end: int
    position: int
    end_position: int


def place(end_position: int, size: int, data_file_size: int) -> int:
    """Return the position of an entry of `size` bytes: `end_position`, or the start of the next data file."""
    file_end = end_position - end_position % data_file_size + data_file_size
    return end_position if end_position + size + BLANK_SIZE_MIN <= file_end else file_end


def lay_out(sizes_of_bodies: Sequence[int], end_position: int, data_file_size: int) -> list[EntryRun]:
    """Return the runs of entries with bodies of these sizes (at least one), if appended at `end_position`."""
    count = len(sizes_of_bodies)
    begin_position = place(end_position, sizes_of_bodies[0] + HEADER_SIZE, data_file_size)
    total = sum(sizes_of_bodies) + HEADER_SIZE * count
    # Fast path: nearly every batch fits as a whole.
    if place(begin_position, total, data_file_size) == begin_position:
        return [EntryRun(0, count, begin_position, begin_position + total)]
    runs: list[EntryRun] = []
    begin, position = 0, begin_position
    for number, body_size in enumerate(sizes_of_bodies):
        at = place(position, body_size + HEADER_SIZE, data_file_size)
        if at != position:
            runs.append(EntryRun(begin, number, begin_position, position))
            begin, begin_position = number, at
        position = at + body_size + HEADER_SIZE
    return [*runs, EntryRun(begin, count, begin_position, position)]
