"""Token buckets that may be in debt: what is taken is paid for by waiting. Pure but for its clock.

A bucket in credit holds the tokens of `burst_s` seconds at most. What is taken beyond them is a debt, and others
wait until it is paid. So a large request is served, and those after it wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

# Of keys that were charged in the last `burst_s` or are in debt; some 2 MiB.
BUCKETS_MAX: Final = 10_000
# Sums of small costs are not exact.
_EXACT_S: Final = 1e-6

K = TypeVar("K", bound="Hashable")


class TokenBuckets(Generic[K]):
    """Buckets by key. For one thread; a restart forgets them.

    Args:
        now_s: a monotonic clock.
        burst_s: seconds whose tokens a bucket holds.
    """

    def __init__(self, now_s: Callable[[], float], burst_s: float = 1.0) -> None:
        self._now_s = now_s
        self._burst_s = burst_s
        # When the bucket is paid for, on the clock; the latest change last.
        self._paid_at: dict[K, float] = {}

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._paid_at)

    def wait_s(self, key: K) -> float:
        """Return after how many seconds the bucket is paid for; 0: it is."""
        wait_s = self._paid_at.get(key, 0.0) - self._now_s()
        return wait_s if wait_s > _EXACT_S else 0.0

    def charge(self, key: K, cost_s: float) -> float:
        """Charge a cost in seconds (an amount divided by its rate); return after how many seconds it is paid for."""
        now_s = self._now_s()
        paid_at = max(self._paid_at.pop(key, 0.0), now_s - self._burst_s) + cost_s
        if len(self._paid_at) >= BUCKETS_MAX:
            # The one that was changed longest ago: it is paid for, unless very many are in use at the same time.
            del self._paid_at[next(iter(self._paid_at))]
        self._paid_at[key] = paid_at
        return max(paid_at - now_s, 0.0)
