"""Nodes without requests: the share of a core that each uses, of a log and of a broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from shape_axis import Axis, bytes_of_a_point
from shape_figures import point_between
from shape_group import running_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shape_axis import Plan
    from shape_figures import Point

# Node processes are still starting jobs in this time.
_SETTLING_S: Final = 5.0
# The system counts CPU time in hundredths of a second, and an idle node uses one in a second or two.
_TIMES_SECONDS: Final = 10


def _measure(plan: Plan) -> Iterator[Point]:
    for series, is_broker in (("log", False), ("broker", True)):
        plan.progress(f"idle nodes of a {series}, {plan.seconds * _TIMES_SECONDS:g} s")
        with running_group(plan, is_broker=is_broker) as group:
            term = group.term()
            time.sleep(min(_SETTLING_S, plan.seconds * _TIMES_SECONDS))
            before = group.read()
            time.sleep(plan.seconds * _TIMES_SECONDS)
            after = group.read()
            yield point_between(before, after, 0, (), x=0, series=series, elections=group.term() - term)


AXIS: Final = Axis("idle", _measure, bytes_of_a_point)
