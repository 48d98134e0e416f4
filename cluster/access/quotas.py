"""Quotas of users and addresses at one node: requests and bytes a second, as token buckets.

A request is refused while one of its buckets is in debt, and else taken as a whole: so a large request is served, and
those after it wait until it is paid for. What was served already (answers) is charged without asking. A bucket in
credit holds at most one second's worth.

Not here: the user and address of a request (`cluster.api.gates.quota_gate`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.config.quotas import QuotaSettings

# Of users and addresses that sent something in the last second or are in debt; some 2 MiB.
BUCKETS_MAX: Final = 10_000
_BURST_S: Final = 1.0
_EXACT_S: Final = 1e-6


class Quotas:
    """The buckets of one node. For the loop thread; a restart forgets them.

    Args:
        settings: the rates.
        now_s: a monotonic clock.
    """

    def __init__(self, settings: QuotaSettings, now_s: Callable[[], float]) -> None:
        self._of_user = (settings.quota_user_requests_per_s, settings.quota_user_bytes_per_s)
        self._of_address = (settings.quota_address_requests_per_s, settings.quota_address_bytes_per_s)
        self._now_s = now_s
        # By (user or address, which of its rates): when the bucket is paid for, on the clock; the latest change last.
        self._paid_at: dict[tuple[str, int], float] = {}

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._paid_at)

    def take(self, user: str, address: str, size_bytes: int) -> float:
        """Take a request; return 0, or for how many seconds to wait: then nothing was taken.

        Args:
            user: empty: not known, only the address has a quota then.
            address: of the client, or a network of it.
            size_bytes: of the request.
        """
        now_s = self._now_s()
        rates = list(self._rates(user, address))
        wait_s = max((self._paid_at.get(key, now_s) - now_s for key, _ in rates), default=0.0)
        # Sums of small costs are not exact.
        if wait_s > _EXACT_S:
            return wait_s
        for key, rate in rates:
            self._charge(key, (1, size_bytes)[key[1] & 1] / rate, now_s)
        return 0.0

    def charge(self, user: str, address: str, size_bytes: int) -> float:
        """Charge bytes that were sent; return after how many seconds they are paid for."""
        now_s = self._now_s()
        wait_s = 0.0
        for key, rate in self._rates(user, address):
            if key[1] & 1:
                wait_s = max(wait_s, self._charge(key, size_bytes / rate, now_s) - now_s)
        return wait_s

    def _rates(self, user: str, address: str) -> Iterator[tuple[tuple[str, int], int]]:
        """Yield key and rate of each bucket: of numbers 0 and 1 for a user, 2 and 3 for an address; bytes are odd."""
        if user:
            yield from (((user, number), rate) for number, rate in enumerate(self._of_user) if rate)
        yield from (((address, 2 + number), rate) for number, rate in enumerate(self._of_address) if rate)

    def _charge(self, key: tuple[str, int], cost_s: float, now_s: float) -> float:
        paid_at = max(self._paid_at.pop(key, 0.0), now_s - _BURST_S) + cost_s
        if len(self._paid_at) >= BUCKETS_MAX:
            # The one that was changed longest ago: it is paid for, unless very many are in use at the same time.
            del self._paid_at[next(iter(self._paid_at))]
        self._paid_at[key] = paid_at
        return paid_at
