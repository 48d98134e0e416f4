"""Settings of quotas and limits; what enforces them is in `cluster.access.quotas` and `cluster.broker`."""

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

# As `cluster.state.broker_state` has it.
_STATE_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What callers may create, and how many readers a topic or a group may have at each node.

    Attributes:
        quota_creations_per_min: topics and groups that one user, or one address without users, creates in a minute, by
            request or by use; 0: no limit.
        topics_max: topics of the broker, without those of the system.
        groups_max: consumer groups of the broker.
        topic_waits_max: waits of readers for a next message of one topic; a stream waits in each of its queues.
        group_waits_max: the same for one group, in all topics.
        group_streams_max: open Subscribe streams of one group.
    """

    quota_creations_per_min: int = 0
    topics_max: int = _STATE_MAX
    groups_max: int = _STATE_MAX
    topic_waits_max: int = 50_000
    group_waits_max: int = 20_000
    group_streams_max: int = 512
