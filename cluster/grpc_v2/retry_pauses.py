"""The pauses of a group between the attempts to process a message, as its push consumers are to make them. Pure.

A push consumer makes a message that it failed to process invisible for the first pause after the first attempt, and so
on; after the last pause of the list for the last one again. Without a policy the pauses are RocketMQ's delay levels.
With one they are those of returned messages (`cluster.protocol.retry_policy`), not rounded to delay levels.

They are sent as a list in either case: a Python client does not understand a factor.

Source: RocketMQ `GrpcClientSettingsManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.protocol.retry_policy import policy_of
from store.model.topics import DELAY_LEVELS_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.protocol.topic_config import GroupConfig

# As long a message may be made invisible; a client repeats a refused request each second.
_PAUSE_MS_MAX: Final = 12 * 3_600_000
PAUSES_MAX: Final = 64


def pauses_ms(group: GroupConfig) -> Sequence[int]:
    """Return the pauses in milliseconds after the first, second, … attempt: 1 to `PAUSES_MAX`."""
    policy = policy_of(group)
    if policy is None:
        return DELAY_LEVELS_MS
    pauses = [min(policy.delay_ms(redeliveries), _PAUSE_MS_MAX) for redeliveries in range(PAUSES_MAX)]
    while len(pauses) > 1 and pauses[-1] == pauses[-2]:
        pauses.pop()
    return pauses
