"""Measures appends to a log of raw entries by concurrent callers of one client: a point of most axes.

The clients of all axes are opened here. They are patient, so that a stall of the machine is part of the latencies.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from shape_figures import point_between
from shape_group import running_group
from shape_load import LoadTimes, closed_loop

from cluster.bench.group_queues import PATIENT
from cluster.bench.workloads import first_failure
from cluster.client.producer.producer import Producer
from dledger.client import AsyncLogClient
from dledger.event_loop import new_event_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shape_axis import Plan
    from shape_figures import Point
    from shape_group import Group
    from shape_load import Window

    from cluster.client.producer.async_producer import AsyncProducer

BODY_SIZE_BYTES: Final = 1024
CALLERS: Final = 64
# Above the nodes' own limits.
_ANSWER_TIMEOUT_S: Final = 25.0
_DEADLINE_S: Final = 50.0
_FILL_CALLERS: Final = 8
_FILL_ENTRIES: Final = 1_000
# The disk writes some 100 MB/s for each of three nodes.
_FILL_LIMIT_S: Final = 60.0
_FILL_BYTES_A_SECOND_MIN: Final = 5_000_000


@asynccontextmanager
async def log_client(group: Group) -> AsyncIterator[AsyncLogClient]:
    """Open a client of a log."""
    async with AsyncLogClient(
        group.cluster.endpoints,
        group=group.cluster.group,
        deadline_s=_DEADLINE_S,
        answer_timeout_s=_ANSWER_TIMEOUT_S,
    ) as client:
        yield client


@asynccontextmanager
async def broker_client(group: Group) -> AsyncIterator[AsyncProducer]:
    """Open a producer of a broker, without compression."""
    async with Producer(group.cluster.endpoints, **PATIENT) as producer:
        yield producer


def measure_new_log(
    plan: Plan, *, x: float, run: int, callers: int = CALLERS, body_size_bytes: int = BODY_SIZE_BYTES, nodes: int = 3
) -> Point:
    """Measure appends to nodes that are started for it with an empty log.

    Args:
        plan: the settings.
        x: value of the axis.
        run: number of the run.
        callers: number of callers, each of which waits for its answer before the next append.
        body_size_bytes: size of every body.
        nodes: number of nodes.

    Raises:
        ClusterError: a node did not start.
        NotAppended, AppendUnknown: an append failed.
    """
    with running_group(plan, nodes=nodes) as group:
        return measure_log(group, plan, x=x, run=run, callers=callers, body_size_bytes=body_size_bytes)


def measure_log(
    group: Group,
    plan: Plan,
    *,
    x: float,
    run: int,
    series: str = "",
    callers: int = CALLERS,
    body_size_bytes: int = BODY_SIZE_BYTES,
) -> Point:
    """Measure appends to running nodes; see `measure_new_log`."""
    term = group.term()
    windows: list[Window] = []

    def keep(window: Window) -> bool:
        windows.append(window)
        return True

    async def load() -> None:
        # Incompressible, so that no layer can save bytes by compression.
        bodies = (os.urandom(body_size_bytes),)
        async with log_client(group) as client:
            times = LoadTimes(plan.warm_up_s, plan.seconds)
            await closed_loop(lambda: client.append_many(bodies), callers, times, group.read, keep)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(load())
    (window,) = windows
    return point_between(
        window.before,
        window.after,
        window.calls.count,
        window.calls.quantiles_ms,
        x=x,
        run=run,
        series=series,
        elections=group.term() - term,
    )


def fill_log(group: Group, size_bytes: int) -> None:
    """Append bodies of `size_bytes` together, in large batches.

    Raises:
        NotAppended, AppendUnknown: an append failed.
        TimeoutError: it takes too long.
    """
    bodies = [os.urandom(BODY_SIZE_BYTES)] * _FILL_ENTRIES
    left = -(-size_bytes // (BODY_SIZE_BYTES * _FILL_ENTRIES))

    async def fill(client: AsyncLogClient) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await client.append_many(bodies)

    async def fill_all() -> None:
        limit_s = _FILL_LIMIT_S + size_bytes / _FILL_BYTES_A_SECOND_MIN
        async with log_client(group) as client:
            with first_failure():
                async with asyncio.timeout(limit_s), asyncio.TaskGroup() as tasks:
                    for _ in range(_FILL_CALLERS):
                        tasks.create_task(fill(client))

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(fill_all())
