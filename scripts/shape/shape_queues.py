"""The axis of the number of queues of a broker: 64 callers, each message to the next queue.

Every queue has a message before the measured time, in which all queues with new messages are written to their files at
least once.
"""

from __future__ import annotations

import asyncio
import os
from itertools import count
from typing import TYPE_CHECKING, Final

from shape_appends import BODY_SIZE_BYTES, CALLERS, broker_client
from shape_axis import Axis, bytes_of_a_point
from shape_figures import point_between
from shape_group import running_group
from shape_load import LoadTimes, closed_loop

from cluster.bench.group_queues import place_of, set_topics
from dledger.event_loop import new_event_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shape_axis import Plan
    from shape_figures import Point
    from shape_group import Group
    from shape_load import Window

QUEUES: Final = (8, 100, 1_000, 10_000)
# A sixth of the default, so that a short measurement includes it: its cost is overestimated.
_WRITE_INTERVAL_MS: Final = 10_000
_SECONDS_MIN: Final = _WRITE_INTERVAL_MS / 1_000


def _measure(plan: Plan) -> Iterator[Point]:
    for run, queues in plan.runs_of(QUEUES):
        plan.progress(f"{queues:,} queues")
        options = {"flush_consume_queue_thorough_interval_ms": _WRITE_INTERVAL_MS}
        with running_group(plan, is_broker=True, **options) as group:
            set_topics(group.cluster, queues)
            term = group.term()
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                window = runner.run(_load(plan, group, queues))
            elections = group.term() - term
        calls = window.calls
        yield point_between(
            window.before, window.after, calls.count, calls.quantiles_ms, x=queues, run=run, elections=elections
        )


async def _load(plan: Plan, group: Group, queues: int) -> Window:
    body = os.urandom(BODY_SIZE_BYTES)
    numbers = count()
    windows: list[Window] = []
    # A shorter time is for tests only.
    seconds = max(plan.seconds, _SECONDS_MIN) if plan.seconds >= 1 else plan.seconds

    def keep(window: Window) -> bool:
        windows.append(window)
        return True

    async with broker_client(group) as producer:

        async def send() -> None:
            topic, queue_id = place_of(next(numbers), queues)
            await producer.send(topic, body, queue_id=queue_id)

        async def send_to_each() -> None:
            while next(left, None) is not None:
                await send()

        left = iter(range(queues))
        await asyncio.gather(*(send_to_each() for _ in range(CALLERS)))
        await closed_loop(send, CALLERS, LoadTimes(plan.warm_up_s, seconds), group.read, keep)
    return windows[0]


def _needed_bytes(plan: Plan) -> int:
    # Each of three nodes has a file of 6 MB for each queue, of which some pages are written.
    return 4 * bytes_of_a_point(plan) + 3 * max(plan.values(QUEUES)) * (64 << 10)


AXIS: Final = Axis("queues", _measure, _needed_bytes)
