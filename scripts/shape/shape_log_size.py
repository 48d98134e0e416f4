"""The axis of log sizes: the same load on an empty log, and after the log has grown."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from shape_appends import fill_log, measure_log
from shape_axis import Axis, bytes_of_a_point
from shape_group import running_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shape_axis import Plan
    from shape_figures import Point

_GIB: Final = 1 << 30
_NODES: Final = 3
# The size of an entry on the disk with its index, as a multiple of its body of 1 KiB; and the file in advance.
_ENTRY_RATIO: Final = 1.1
_FILE_BYTES: Final = 300 << 20


def sizes_gib(largest_gib: float) -> tuple[float, ...]:
    """Return the log sizes: an empty log, 1 GiB, and the largest one."""
    return (0.0, *sorted({min(1.0, largest_gib), largest_gib} - {0.0}))


def _measure(plan: Plan) -> Iterator[Point]:
    sizes = sizes_gib(plan.log_gib)
    for run in range(plan.runs):
        with running_group(plan) as group:
            plan.progress("an empty log")
            yield measure_log(group, plan, x=0.0, run=run)
            for before, after in pairwise(sizes):
                plan.progress(f"filling the log up to {after:g} GiB")
                fill_log(group, int((after - before) * _GIB))
                plan.progress(f"a log of {after:g} GiB")
                yield measure_log(group, plan, x=after, run=run)


def _needed_bytes(plan: Plan) -> int:
    log = int(plan.log_gib * _GIB * _ENTRY_RATIO) + _FILE_BYTES
    return _NODES * log + len(sizes_gib(plan.log_gib)) * bytes_of_a_point(plan)


AXIS: Final = Axis("log-size", _measure, _needed_bytes)
