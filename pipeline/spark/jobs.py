"""Runs functions that do not need Spark on the slices of a store: Spark schedules them and returns their results.

The JVM never receives bytes of the log. A task gets a run of adjacent slices, so that the driver's memory does not grow
with the log. Functions are pickled: unlike `mapInArrow`, this does not need pandas.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from pipeline.log.places import NO_INDEX
from pipeline.log.slice import Slice
from pipeline.reading.corrupt_policy import SKIP
from pipeline.report.partial import REPORT_COLUMNS, ReportPartial
from pipeline.source.parts import Part, ReadSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from store.model.dispatch_batch import Skipped

# More tasks are not faster, and the driver keeps the result of each in memory.
TASKS_MAX: Final = 256
# Approximate least size of a message in bytes, for an estimate of the number of keys in a log.
_MESSAGE_SIZE: Final = 250
_REPORTED: Final = ReadSettings(REPORT_COLUMNS, on_corrupt=SKIP)

_Piece = TypeVar("_Piece")
_Found = TypeVar("_Found")


def run_over(
    spark: SparkSession, groups: Sequence[Sequence[_Piece]], work: Callable[[Sequence[_Piece]], Iterable[_Found]]
) -> list[_Found]:
    """Return the results of `work` for each group, in their order; each group is a task.

    Args:
        spark: the session.
        groups: input of each task, picklable.
        work: runs in the tasks.
    """
    if not groups:
        return []
    found: list[_Found] = spark.sparkContext.parallelize(groups, len(groups)).flatMap(work).collect()
    return found


def split(pieces: Sequence[_Piece], count_max: int = TASKS_MAX) -> list[list[_Piece]]:
    """Divide pieces of equal size into at most this many runs, in order."""
    size = -(-len(pieces) // count_max) or 1
    return [list(pieces[begin : begin + size]) for begin in range(0, len(pieces), size)]


def run_each(
    spark: SparkSession,
    pieces: Sequence[_Piece],
    work: Callable[[_Piece], Iterable[_Found]],
    *,
    tasks_max: int = TASKS_MAX,
) -> list[_Found]:
    """Return the results of `work` for each piece, in order; adjacent pieces share a task.

    Args:
        spark: the session.
        pieces: of similar size, picklable.
        work: runs in the tasks, on one piece.
        tasks_max: most tasks.
    """
    return run_over(spark, split(pieces, tasks_max), lambda group: (found for piece in group for found in work(piece)))


def group_parts(parts: Sequence[Part], count_max: int = TASKS_MAX) -> list[list[Part]]:
    """Divide the parts into at most this many runs of about the same size."""
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
    spark: SparkSession, parts: Sequence[Part], *, keys_kept: int, how: ReadSettings = _REPORTED
) -> ReportPartial:
    """Return the partial report of these parts.

    Args:
        spark: the session.
        parts: of the log.
        keys_kept: most hashes of unique keys in the driver's memory.
        how: settings for reading; its columns are those of reports.
    """
    level = (sum(map(_messages_of, parts)) // keys_kept).bit_length()

    def work(group: Sequence[Part]) -> Iterator[tuple[str, bytes]]:
        yield partial_of(group, keys_kept=keys_kept, level=level, how=how).to_row()

    whole = ReportPartial(keys_kept=keys_kept)
    for row in run_over(spark, group_parts(parts), work):
        whole.merge(ReportPartial.from_row(*row, keys_kept=keys_kept))
    return whole


def size_of(part: Part) -> int:
    """Return the approximate number of bytes that are read of a part."""
    place = part.place
    if isinstance(place, Slice):
        return place.size_bytes
    return (place.end - place.begin) * (_MESSAGE_SIZE if place.topic else 1)


def _messages_of(part: Part) -> int:
    """Return an upper estimate of the number of messages of a part."""
    place = part.place
    if isinstance(place, Slice):
        if place.is_queue:
            return place.end_queue_offset - place.begin_queue_offset
        if place.end_index != NO_INDEX:
            return place.end_index - place.begin_index
    return size_of(part) // _MESSAGE_SIZE


def partial_of(parts: Sequence[Part], *, keys_kept: int, level: int, how: ReadSettings = _REPORTED) -> ReportPartial:
    """Return the partial report of some parts, computed in this process. Skipped records are counted."""
    partial = ReportPartial(keys_kept=keys_kept, level=level)
    skipped: list[Skipped] = []
    policy = replace(how.on_corrupt, on_skipped=skipped.append)
    counting = replace(how, on_corrupt=policy)
    for part in parts:
        for batch in counting.read(part):
            partial.add(batch)
    partial.skipped = len(skipped)
    return partial
