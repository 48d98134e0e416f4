"""Quotas of users and addresses at one node: requests and bytes a second, as token buckets.

A request is refused while one of its buckets is in debt, and else taken as a whole: so a large request is served, and
those after it wait until it is paid for. What was served already (answers) is charged without asking.

Not here: the user and address of a request (`cluster.api.gates.quota_gate`), and quotas of topics and groups
(`cluster.broker.flow_quotas`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.access.token_buckets import TokenBuckets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.config.quotas import QuotaSettings


class Quotas:
    """The buckets of one node. For the loop thread; a restart forgets them.

    Args:
        settings: the rates.
        now_s: a monotonic clock.
    """

    def __init__(self, settings: QuotaSettings, now_s: Callable[[], float]) -> None:
        self._of_user = (settings.quota_user_requests_per_s, settings.quota_user_bytes_per_s)
        self._of_address = (settings.quota_address_requests_per_s, settings.quota_address_bytes_per_s)
        # By user or address, and which of its rates.
        self._buckets: TokenBuckets[tuple[str, int]] = TokenBuckets(now_s)

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._buckets)

    def take(self, user: str, address: str, size_bytes: int) -> float:
        """Take a request; return 0, or for how many seconds to wait: then nothing was taken.

        Args:
            user: empty: not known, only the address has a quota then.
            address: of the client, or a network of it.
            size_bytes: of the request.
        """
        rates = list(self._rates(user, address))
        wait_s = max((self._buckets.wait_s(key) for key, _ in rates), default=0.0)
        if wait_s:
            return wait_s
        for key, rate in rates:
            self._buckets.charge(key, (1, size_bytes)[key[1] & 1] / rate)
        return 0.0

    def charge(self, user: str, address: str, size_bytes: int) -> float:
        """Charge bytes that were sent; return after how many seconds they are paid for."""
        wait_s = 0.0
        for key, rate in self._rates(user, address):
            if key[1] & 1:
                wait_s = max(wait_s, self._buckets.charge(key, size_bytes / rate))
        return wait_s

    def _rates(self, user: str, address: str) -> Iterator[tuple[tuple[str, int], int]]:
        """Yield key and rate of each bucket: of numbers 0 and 1 for a user, 2 and 3 for an address; bytes are odd."""
        if user:
            yield from (((user, number), rate) for number, rate in enumerate(self._of_user) if rate)
        yield from (((address, 2 + number), rate) for number, rate in enumerate(self._of_address) if rate)
