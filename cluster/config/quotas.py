"""Settings of quotas; their buckets are in `cluster.access.quotas`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Smaller ones would keep a user waiting for minutes after one answer of 4 MiB.
BYTES_PER_S_MIN: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """What one user, and one address, may take of each node; 0: no limit.

    Attributes:
        quota_user_requests_per_s: requests of one user.
        quota_user_bytes_per_s: bytes of requests and answers of one user.
        quota_address_requests_per_s: requests from one address, of all users.
        quota_address_bytes_per_s: bytes of requests and answers of one address.
    """

    quota_user_requests_per_s: int = 0
    quota_user_bytes_per_s: int = 0
    quota_address_requests_per_s: int = 0
    quota_address_bytes_per_s: int = 0

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no quota at all."""
        return self == _UNLIMITED


_UNLIMITED: Final = QuotaSettings()
