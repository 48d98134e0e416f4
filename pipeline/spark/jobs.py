"""Runs kernels that need no Spark over the slices of a store: Spark schedules, and brings back what each one found.

The bytes of the log never come near the JVM. A task gets a run of neighbouring slices, so that what the driver receives
does not grow with the log. Kernels travel as plain Python objects: no pandas is needed, as `mapInArrow` would.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from pipeline.log.places import NO_INDEX
from pipeline.log.slice import Slice
from pipeline.reading.corrupt_policy import SKIP
from pipeline.report.partial import REPORT_COLUMNS, ReportPartial
from pipeline.source.parts import HowToRead, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from store.model.dispatch_batch import Skipped

# More tasks than this gain nothing, and what each one found is held by the driver.
TASKS_MAX: Final = 256
# Bytes of log that a message takes at least, about: for how many keys a log may hold.
_MESSAGE_SIZE: Final = 250
_REPORTED: Final = HowToRead(REPORT_COLUMNS, on_corrupt=SKIP)

_Piece = TypeVar("_Piece")
_Found = TypeVar("_Found")


def run_over(
    spark: SparkSession, groups: Sequence[Sequence[_Piece]], work: Callable[[Sequence[_Piece]], Iterable[_Found]]
) -> list[_Found]:
    """Return the results of `work` for each group, in their order; each group is a task.

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
    """Return pieces of one size in at most this many runs, in their order."""
    size = -(-len(pieces) // count_max) or 1
    return [list(pieces[begin : begin + size]) for begin in range(0, len(pieces), size)]


def run_each(
    spark: SparkSession,
    pieces: Sequence[_Piece],
    work: Callable[[_Piece], Iterable[_Found]],
    *,
    tasks_max: int = TASKS_MAX,
) -> list[_Found]:
    """Return the results of `work` for each piece, in their order; neighbouring pieces share a task.

    Args:
        spark: where the tasks run.
        pieces: of one size, about; all of it must be picklable.
        work: runs in the tasks, on one piece.
        tasks_max: at most this many tasks.
    """
    return run_over(spark, split(pieces, tasks_max), lambda group: (found for piece in group for found in work(piece)))


def group_parts(parts: Sequence[Part], count_max: int = TASKS_MAX) -> list[list[Part]]:
    """Return the parts in at most this many runs of about as many bytes each."""
    if len(parts) <= count_max:
        return [[part] for part in parts]
    total = max(sum(map(size_of, parts)), 1)
    groups: list[list[Part]] = [[] for _ in range(count_max)]
    before = 0
    for part in parts:
        groups[min(before * count_max // total, count_max - 1)].append(part)
        before += size_of(part)
    return [group for group in groups if group]


def report_over(
    spark: SparkSession, parts: Sequence[Part], *, keys_kept: int, how: HowToRead = _REPORTED
) -> ReportPartial:
    """Return the partial report of these parts.

    Args:
        spark: where the tasks run.
        parts: of the log.
        keys_kept: hashes of unique keys that the driver is to hold at most.
        how: parts are read; its columns are those of reports.
    """
    level = (sum(map(_messages_of, parts)) // keys_kept).bit_length()

    def work(group: Sequence[Part]) -> Iterator[tuple[str, bytes]]:
        yield partial_of(group, keys_kept=keys_kept, level=level, how=how).to_row()

    whole = ReportPartial(keys_kept=keys_kept)
    for row in run_over(spark, group_parts(parts), work):
        whole.merge(ReportPartial.from_row(*row, keys_kept=keys_kept))
    return whole


def size_of(part: Part) -> int:
    """Return about how many bytes are read of a part."""
    place = part.place
    if isinstance(place, Slice):
        return place.size_bytes
    return (place.end - place.begin) * (_MESSAGE_SIZE if place.topic else 1)


def _messages_of(part: Part) -> int:
    """Return the approximate number of messages of a part; rather too high than too low."""
    place = part.place
    if isinstance(place, Slice):
        if place.is_queue:
            return place.end_queue_offset - place.begin_queue_offset
        if place.end_index != NO_INDEX:
            return place.end_index - place.begin_index
    return size_of(part) // _MESSAGE_SIZE


def partial_of(parts: Sequence[Part], *, keys_kept: int, level: int, how: HowToRead = _REPORTED) -> ReportPartial:
    """Return the same of some parts, in this process; records that are left out are counted."""
    partial = ReportPartial(keys_kept=keys_kept, level=level)
    skipped: list[Skipped] = []
    mended: list[Skipped] = []
    policy = replace(how.on_corrupt, on_skipped=skipped.append, on_mended=mended.append)
    counting = replace(how, on_corrupt=policy)
    for part in parts:
        for batch in counting.read(part):
            partial.add(batch)
    partial.skipped, partial.mended = len(skipped), len(mended)
    return partial
