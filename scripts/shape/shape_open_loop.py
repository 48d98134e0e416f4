"""The axis of load: latency of calls at a constant rate, as a share of the highest rate of 64 callers.

The highest rate is measured on the same nodes just before.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from shape_appends import BODY_SIZE_BYTES, CALLERS, broker_client, log_client
from shape_axis import Axis, bytes_of_a_point
from shape_figures import point_between
from shape_group import running_group
from shape_load import LoadTimes, closed_loop, open_loop

from dledger.event_loop import new_event_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from shape_axis import Plan
    from shape_figures import Point
    from shape_group import Group
    from shape_load import Call, Window

PERCENTS: Final = (25, 50, 75)
_TOPIC: Final = "shape"
# Of an open loop, so that each run has tens of calls above its 99.9th percentile.
_TIMES_SECONDS: Final = 3


def _measure(plan: Plan) -> Iterator[Point]:
    for run in range(plan.runs):
        for series in ("log", "broker"):
            with (
                running_group(plan, is_broker=series == "broker") as group,
                asyncio.Runner(loop_factory=new_event_loop) as runner,
            ):
                plan.progress(f"{series}: the highest rate")
                rate = runner.run(_highest_rate(plan, group, series))
                for percent in plan.values(PERCENTS):
                    share = rate * percent / 100
                    plan.progress(f"{series}: {share:,.0f} calls/s, {percent} % of the highest rate")
                    yield _point(plan, group, runner, series, share, x=percent, run=run)


@asynccontextmanager
async def _call_of(group: Group, series: str) -> AsyncIterator[Call]:
    body = os.urandom(BODY_SIZE_BYTES)
    if series == "log":
        async with log_client(group) as client:
            yield lambda: client.append_many((body,))
    else:
        async with broker_client(group) as producer:
            yield lambda: producer.send(_TOPIC, body)


async def _highest_rate(plan: Plan, group: Group, series: str) -> float:
    rates: list[float] = []

    def keep(window: Window) -> bool:
        rates.append(window.calls.count / (window.after.at_s - window.before.at_s))
        return True

    async with _call_of(group, series) as call:
        await closed_loop(call, CALLERS, LoadTimes(plan.warm_up_s, plan.seconds), group.read, keep)
    # A stalled machine may have acknowledged none.
    return max(rates[0], 1.0)


def _point(plan: Plan, group: Group, runner: asyncio.Runner, series: str, rate: float, *, x: float, run: int) -> Point:
    async def load() -> Window:
        async with _call_of(group, series) as call:
            times = LoadTimes(plan.warm_up_s, plan.seconds * _TIMES_SECONDS)
            return await open_loop(call, rate, times, group.read)

    term = group.term()
    window = runner.run(load())
    begin_s, end_s = window.before.at_s, window.after.at_s
    return point_between(
        window.before,
        window.after,
        window.calls.ended_between(begin_s, end_s).count,
        window.calls.began_between(begin_s, end_s).quantiles_ms,
        x=x,
        run=run,
        series=series,
        elections=group.term() - term,
    )


def _needed_bytes(plan: Plan) -> int:
    return bytes_of_a_point(plan) * (1 + _TIMES_SECONDS * len(PERCENTS))


AXIS: Final = Axis("open-loop", _measure, _needed_bytes)
