"""The axis of body sizes: 64 callers, or fewer for large bodies, append to a log of three nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shape_appends import CALLERS, measure_new_log
from shape_axis import Axis, bytes_of_a_point

from dledger.entries.format.entry import MAX_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shape_axis import Plan
    from shape_figures import Point

# The last is 4 MiB less the header of an entry.
SIZES: Final = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, MAX_BODY_BYTES)
# Half of what a node accepts as pending appends, so that none is refused.
_IN_FLIGHT_BYTES_MAX: Final = 32 << 20


def callers_of(body_size_bytes: int) -> int:
    """Return the number of callers whose bodies a node accepts at a time."""
    return max(min(CALLERS, _IN_FLIGHT_BYTES_MAX // max(body_size_bytes, 1)), 1)


def _measure(plan: Plan) -> Iterator[Point]:
    for run, size in plan.runs_of(SIZES):
        callers = callers_of(size)
        plan.progress(f"bodies of {size:,} bytes, {callers} callers")
        yield measure_new_log(plan, x=size, run=run, callers=callers, body_size_bytes=size)


def _needed_bytes(plan: Plan) -> int:
    # Large bodies fill the disk faster.
    return 4 * bytes_of_a_point(plan)


AXIS: Final = Axis("body", _measure, _needed_bytes)
