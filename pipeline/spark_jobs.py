"""Runs kernels that need no Spark over the slices of a store: Spark schedules, and brings back what each one found.

The bytes of the log never come near the JVM. A task gets a run of neighbouring slices, so that what the driver receives
does not grow with the log. Kernels travel as plain Python objects: no pandas is needed, as `mapInArrow` would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from pipeline.corrupt_policy import CorruptPolicy, Kind
from pipeline.log_places import NO_INDEX
from pipeline.read_slice import read_slice
from pipeline.report_partial import REPORT_COLUMNS, ReportPartial
from pipeline.selection import Selection
from pipeline.slice import Slice
from store.dispatch_batch import Skipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# More tasks than this gain nothing, and what each one found is held by the driver.
TASKS_MAX: Final = 256
# Bytes of log that a message takes at least, about: for how many keys a log may hold.
_MESSAGE_SIZE: Final = 250

_Piece = TypeVar("_Piece")
_Found = TypeVar("_Found")


def run_over(
    spark: SparkSession, groups: Sequence[Sequence[_Piece]], work: Callable[[Sequence[_Piece]], Iterable[_Found]]
) -> list[_Found]:
    """Return what `work` finds in each group, in their order; each group is a task.

    Args:
        spark: where the tasks run.
        groups: what each task gets; all of it must be picklable.
        work: runs in the tasks.
    """
    if not groups:
        return []
    found: list[_Found] = spark.sparkContext.parallelize(groups, len(groups)).flatMap(work).collect()
    return found


def split(pieces: Sequence[_Piece], count_max: int = TASKS_MAX) -> list[list[_Piece]]:
    """Return pieces of one size in at most so many runs, in their order."""
    size = -(-len(pieces) // count_max) or 1
    return [list(pieces[begin : begin + size]) for begin in range(0, len(pieces), size)]


def group_slices(slices: Sequence[Slice], count_max: int = TASKS_MAX) -> list[list[Slice]]:
    """Return the slices in at most so many runs of about as many bytes each."""
    if len(slices) <= count_max:
        return [[part] for part in slices]
    total = max(sum(part.size_bytes for part in slices), 1)
    groups: list[list[Slice]] = [[] for _ in range(count_max)]
    before = 0
    for part in slices:
        groups[min(before * count_max // total, count_max - 1)].append(part)
        before += part.size_bytes
    return [group for group in groups if group]


def report_over(spark: SparkSession, slices: Sequence[Slice], selection: Selection, *, keys_kept: int) -> ReportPartial:
    """Return what a report needs to know of these slices.

    Args:
        spark: where the tasks run.
        slices: of the log.
        selection: that of their plan.
        keys_kept: hashes of unique keys that the driver is to hold at most.
    """
    level = (sum(map(_messages_of, slices)) // keys_kept).bit_length()

    def work(group: Sequence[Slice]) -> Iterator[tuple[str, bytes]]:
        yield partial_of(group, selection, keys_kept=keys_kept, level=level).to_row()

    whole = ReportPartial(keys_kept=keys_kept)
    for row in run_over(spark, group_slices(slices), work):
        whole.merge(ReportPartial.from_row(*row, keys_kept=keys_kept))
    return whole


def _messages_of(part: Slice) -> int:
    """Return how many messages a slice has, about; rather too many than too few."""
    if part.is_queue:
        return part.end_queue_offset - part.begin_queue_offset
    return part.end_index - part.begin_index if part.end_index != NO_INDEX else part.size_bytes // _MESSAGE_SIZE


def partial_of(slices: Sequence[Slice], selection: Selection, *, keys_kept: int, level: int) -> ReportPartial:
    """Return the same of some slices, in this process; records that cannot be read are left out and counted."""
    partial = ReportPartial(keys_kept=keys_kept, level=level)
    skipped: list[Skipped] = []
    policy = CorruptPolicy(Kind.SKIP, on_skipped=skipped.append)
    for part in slices:
        for batch in read_slice(part, REPORT_COLUMNS, selection=selection, on_corrupt=policy):
            partial.add(batch)
    partial.skipped = len(skipped)
    return partial
