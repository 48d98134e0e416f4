"""The axis of the number of nodes: 64 callers, bodies of 1 KiB, all nodes and the client on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shape_appends import measure_new_log
from shape_axis import Axis, bytes_of_a_point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shape_axis import Plan
    from shape_figures import Point

NODES: Final = (1, 3, 5)


def _measure(plan: Plan) -> Iterator[Point]:
    for run, nodes in plan.runs_of(NODES):
        plan.progress(f"{nodes} nodes")
        yield measure_new_log(plan, x=nodes, run=run, nodes=nodes)


def _needed_bytes(plan: Plan) -> int:
    return bytes_of_a_point(plan) * 5 // 3


AXIS: Final = Axis("nodes", _measure, _needed_bytes)
