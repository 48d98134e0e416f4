"""The rules of a broker on a simulated process, for the calls of its services."""

import asyncio

from cluster.broker.core import BrokerCore, BrokerOptions
from cluster.broker.metrics import BrokerMetrics

BROKER = "broker-a"


class LoopTime:
    """Replaces the module `time`: the monotonic clock is that of the machine whose code runs."""

    @staticmethod
    def monotonic():
        """Return seconds."""
        return asyncio.get_running_loop().time()


def core_of(process):
    """Return the rules of the broker on a process; within its loop."""
    core = BrokerCore(
        process.replica, BrokerOptions(BROKER, self_id=process.node_id), BrokerMetrics(None, BROKER, process.node_id)
    )
    core.clock_ms = process.wall_ms
    return core


async def stop_at_end(parts):
    """Stop parts when this coroutine is cancelled, as the services of a broker do."""
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        for part in parts:
            await part.stop()
