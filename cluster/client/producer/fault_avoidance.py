"""Brokers that a producer avoids for some time because they were slow or failed. Pure.

| a call took at least | its broker is avoided for |
| ---: | ---: |
| 550 ms | 30 s |
| 1 s | 60 s |
| 2 s | 120 s |
| 3 s, or it failed | 180 s |
| 15 s | 600 s |

A quicker answer ends the avoidance. If all brokers of a topic are avoided, all of them are used; a message that one of
them refuses goes to one that was only slow.

Source: RocketMQ `MQFaultStrategy`, `LatencyFaultToleranceImpl`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

# Minimum latency and duration of the avoidance, both in milliseconds.
AVOIDANCE: Final = ((550, 30_000), (1_000, 60_000), (2_000, 120_000), (3_000, 180_000), (15_000, 600_000))
# The latency that a failed call counts as.
FAILED_LATENCY_MS: Final = 10_000
_BROKERS_MAX: Final = 1_000


def avoidance_ms(latency_ms: float) -> int:
    """Return the time for which a broker with this latency is avoided, in milliseconds."""
    return max((avoided for limit, avoided in AVOIDANCE if latency_ms >= limit), default=0)


class FaultAvoidance:
    """Remembers brokers that were slow. Times are milliseconds of a monotonic clock."""

    def __init__(self) -> None:
        # In order of the last slow call: the end of the avoidance, and whether the call failed.
        self._avoided: OrderedDict[str, tuple[float, bool]] = OrderedDict()

    def observed(self, broker: str, latency_ms: float, now_ms: float) -> None:
        """Record the latency of a broker's answer."""
        avoided = avoidance_ms(latency_ms)
        self._avoided.pop(broker, None)
        if avoided:
            self._avoided[broker] = (now_ms + avoided, latency_ms >= FAILED_LATENCY_MS)
            if len(self._avoided) > _BROKERS_MAX:
                self._avoided.popitem(last=False)

    def is_available(self, broker: str, now_ms: float) -> bool:
        """Return whether a broker is not avoided."""
        until, _ = self._avoided.get(broker, (now_ms, False))
        return now_ms >= until

    def has_failed(self, broker: str, now_ms: float) -> bool:
        """Return whether a broker is avoided because it failed, or was as slow as a failed one."""
        until, is_failed = self._avoided.get(broker, (now_ms, False))
        return is_failed and now_ms < until
