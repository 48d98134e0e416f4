"""The axis of concurrent callers of one client: bodies of 1 KiB to a log of three nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shape_appends import measure_new_log
from shape_axis import Axis, bytes_of_a_point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shape_axis import Plan
    from shape_figures import Point

CALLERS: Final = (1, 2, 8, 32, 64, 128, 256, 512)


def _measure(plan: Plan) -> Iterator[Point]:
    for run, callers in plan.runs_of(CALLERS):
        plan.progress(f"{callers} callers")
        yield measure_new_log(plan, x=callers, run=run, callers=callers)


AXIS: Final = Axis("callers", _measure, bytes_of_a_point)
