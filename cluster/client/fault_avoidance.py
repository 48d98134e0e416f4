"""Which brokers a producer leaves alone for a while, because they were slow. Pure.

| an answer took at least | the broker is passed by for |
| ---: | ---: |
| 550 ms | 30 s |
| 1 s | 60 s |
| 2 s | 120 s |
| 3 s | 180 s |
| 15 s, or there was none | 600 s |

A quicker answer ends that. What is passed by is a node, not a broker: when another node leads, it has no past.

Source: RocketMQ `MQFaultStrategy`, `LatencyFaultToleranceImpl`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

# From (milliseconds), for (milliseconds).
PENALTIES: Final = ((550, 30_000), (1_000, 60_000), (2_000, 120_000), (3_000, 180_000), (15_000, 600_000))
_NODES_MAX: Final = 1_000


class FaultAvoidance:
    """Remembers nodes, by address, that were slow. Times are milliseconds of a monotonic clock."""

    def __init__(self) -> None:
        # In order of when they were last slow.
        self._avoided_until: OrderedDict[str, int] = OrderedDict()

    def answered(self, address: str, latency_ms: float, now_ms: int) -> None:
        """Take note of how long a node took to answer."""
        self._avoid(address, penalty_ms(latency_ms), now_ms)

    def failed(self, address: str, now_ms: int) -> None:
        """Take note that a node did not answer, or was not reached."""
        self._avoid(address, PENALTIES[-1][1], now_ms)

    def is_available(self, address: str, now_ms: int) -> bool:
        """Return whether a node need not be passed by."""
        return now_ms >= self._avoided_until.get(address, now_ms)

    def _avoid(self, address: str, penalty: int, now_ms: int) -> None:
        self._avoided_until.pop(address, None)
        if penalty:
            self._avoided_until[address] = now_ms + penalty
            if len(self._avoided_until) > _NODES_MAX:
                self._avoided_until.popitem(last=False)


def penalty_ms(latency_ms: float) -> int:
    """Return for how long a node is passed by that took so long to answer."""
    return max((penalty for limit, penalty in PENALTIES if latency_ms >= limit), default=0)
