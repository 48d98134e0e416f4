"""Which brokers a producer passes by for a while, because they were slow or failed. Pure.

| a call took at least | its broker is passed by for |
| ---: | ---: |
| 550 ms | 30 s |
| 1 s | 60 s |
| 2 s | 120 s |
| 3 s, or it failed | 180 s |
| 15 s | 600 s |

A quicker answer ends that. When all brokers of a topic are passed by, all of them are taken.

Source: RocketMQ `MQFaultStrategy`, `LatencyFaultToleranceImpl`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

# From (milliseconds), for (milliseconds).
AVOIDANCE: Final = ((550, 30_000), (1_000, 60_000), (2_000, 120_000), (3_000, 180_000), (15_000, 600_000))
# What a failed call counts as.
FAILED_LATENCY_MS: Final = 10_000
_BROKERS_MAX: Final = 1_000


def avoidance_ms(latency_ms: float) -> int:
    """Return for how long a broker is passed by that took so long to answer."""
    return max((avoided for limit, avoided in AVOIDANCE if latency_ms >= limit), default=0)


class FaultAvoidance:
    """Remembers brokers that were slow. Times are milliseconds of a monotonic clock."""

    def __init__(self) -> None:
        # In order of when they were last slow.
        self._avoided_until: OrderedDict[str, float] = OrderedDict()

    def observed(self, broker: str, latency_ms: float, now_ms: float) -> None:
        """Take note of how long a broker took to answer."""
        avoided = avoidance_ms(latency_ms)
        self._avoided_until.pop(broker, None)
        if avoided:
            self._avoided_until[broker] = now_ms + avoided
            if len(self._avoided_until) > _BROKERS_MAX:
                self._avoided_until.popitem(last=False)

    def is_available(self, broker: str, now_ms: float) -> bool:
        """Return whether a broker need not be passed by."""
        return now_ms >= self._avoided_until.get(broker, now_ms)
