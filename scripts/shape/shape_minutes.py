"""Minutes of full load: the rate, the latency, and the memory of each node, in windows of some seconds."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from shape_appends import BODY_SIZE_BYTES, CALLERS, log_client
from shape_axis import Axis
from shape_figures import point_between
from shape_group import free_bytes, running_group
from shape_load import LoadTimes, closed_loop

from dledger.event_loop import new_event_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shape_axis import Plan
    from shape_figures import Point
    from shape_group import Group
    from shape_load import Window

# At most this long, and at least a tenth of the whole load.
_WINDOW_S: Final = 5.0
_WINDOWS_MIN: Final = 10
# An estimate for the disk; the load ends early if it is exceeded.
_MESSAGES_A_SECOND: Final = 28_000
_ENTRY_SIZE_BYTES: Final = BODY_SIZE_BYTES + 100
_NODES: Final = 3


def windows_of(minutes: float) -> tuple[float, int]:
    """Return the duration of a window in seconds, and the number of windows."""
    seconds = minutes * 60
    count = max(round(seconds / _WINDOW_S), _WINDOWS_MIN)
    return seconds / count, count


def _measure(plan: Plan) -> Iterator[Point]:
    with running_group(plan) as group:
        term = group.term()
        points: list[Point] = []
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_load(plan, group, points))
        elections = group.term() - term
    # The term is read once, so the first window has all elections.
    for number, point in enumerate(points):
        yield point if number else replace(point, elections=elections)


async def _load(plan: Plan, group: Group, points: list[Point]) -> None:
    bodies = (os.urandom(BODY_SIZE_BYTES),)
    window_s, count = windows_of(plan.minutes)
    begin_s = 0.0

    def keep(window: Window) -> bool:
        nonlocal begin_s
        begin_s = begin_s or window.before.at_s
        minutes = round((window.after.at_s - begin_s) / 60, 4)
        calls = window.calls
        points.append(point_between(window.before, window.after, calls.count, calls.quantiles_ms, x=minutes))
        plan.progress(f"full load, {minutes:.1f} of {plan.minutes:g} minutes: {points[-1].messages_s:,.0f} messages/s")
        if has_space := free_bytes(group.folder) > 0:
            return True
        plan.progress("full load: ended early, because the disk has too little free space")
        return has_space

    async with log_client(group) as client:
        times = LoadTimes(plan.warm_up_s, window_s, count)
        await closed_loop(lambda: client.append_many(bodies), CALLERS, times, group.read, keep)


def _needed_bytes(plan: Plan) -> int:
    return int(plan.minutes * 60 * _MESSAGES_A_SECOND * _ENTRY_SIZE_BYTES * _NODES)


AXIS: Final = Axis("minutes", _measure, _needed_bytes, reports_itself=True)
