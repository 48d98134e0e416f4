"""The delays between the attempts of a group to process a message.

| policy | as an attribute of the group | delay after n redeliveries |
| --- | --- | --- |
| none | absent | that of delay level 3 + n: 10 s, 30 s, 1 min, … 2 h |
| exponential | `exponential:<initial>,<maximum>,<multiplier>` | initial · multiplier^n, at most the maximum |
| customized | `customized:<delay>,<delay>,…` | item n + 2 of the list, counted from 0; after its end the last one |

Delays are in milliseconds. A returned message waits in the queue of a delay level, so a policy's delay is rounded up to
that of a level; one above two hours is two hours.

Source: RocketMQ `ExponentialRetryPolicy`, `CustomizedRetryPolicy`, where only the proxy follows them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store.errors import IllegalMessage
from store.model.topics import DELAY_LEVELS_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.protocol.topic_config import GroupConfig

POLICY_ATTRIBUTE: Final = "retry.policy"
# The level of the first retry.
FIRST_LEVEL: Final = 3
# The first items of a customized list are never used.
CUSTOMIZED_BEGIN: Final = 2
_EXPONENT_MAX: Final = 32
_DELAYS_MAX: Final = 64
_DELAY_MS_MAX: Final = 365 * 86_400_000
_MULTIPLIER_MAX: Final = 1_000
_EXPONENTIAL: Final = "exponential"
_CUSTOMIZED: Final = "customized"
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EXPECTED: Final = (
    "exponential:INITIAL,MAXIMUM,MULTIPLIER or customized:DELAY,DELAY,…, in milliseconds from 0 to a year, with a "
    f"multiplier of 1 to {_MULTIPLIER_MAX}, and 1 to {_DELAYS_MAX} delays"
)


@dataclass(frozen=True, slots=True)
class ExponentialPolicy:
    """Delays that grow by a factor; milliseconds."""

    initial_ms: int
    maximum_ms: int
    multiplier: int

    def delay_ms(self, reconsume_times: int) -> int:
        """Return the delay after a number of redeliveries, from 0."""
        factor: int = self.multiplier ** min(reconsume_times, _EXPONENT_MAX)
        return min(self.initial_ms * factor, self.maximum_ms)


@dataclass(frozen=True, slots=True)
class CustomizedPolicy:
    """A list of delays; milliseconds."""

    delays_ms: tuple[int, ...]

    def delay_ms(self, reconsume_times: int) -> int:
        """Return the delay after a number of redeliveries, from 0."""
        return self.delays_ms[min(reconsume_times + CUSTOMIZED_BEGIN, len(self.delays_ms) - 1)]


RetryPolicy = ExponentialPolicy | CustomizedPolicy


def parse_policy(text: str) -> RetryPolicy:
    """Return the policy in an attribute.

    Raises:
        IllegalMessage: it is none.
    """
    kind, _, rest = text.partition(":")
    parts = rest.split(",")
    # Short numbers only: a long one would take seconds to convert.
    if len(parts) <= _DELAYS_MAX and all(each.isascii() and each.isdecimal() and len(each) <= 11 for each in parts):
        numbers = tuple(map(int, parts))
        if kind == _CUSTOMIZED and max(numbers) <= _DELAY_MS_MAX:
            return CustomizedPolicy(numbers)
        if kind == _EXPONENTIAL and len(numbers) == 3 and max(numbers[:2]) <= _DELAY_MS_MAX:
            initial_ms, maximum_ms, multiplier = numbers
            if 1 <= multiplier <= _MULTIPLIER_MAX:
                return ExponentialPolicy(initial_ms, maximum_ms, multiplier)
    raise IllegalMessage(POLICY_ATTRIBUTE, _EXPECTED, repr(text[:80]))


def parse_shown_policy(text: str) -> str:
    """Return the attribute for a policy as users write it: `levels`, `exponential:5s,2h,2`, `custom:1s,1m,1h`.

    Returns:
        the attribute, empty for `levels`. In the list of an attribute two items precede those that are used.

    Raises:
        ValueError: it is none.
    """
    kind, _, rest = text.partition(":")
    expected = f"retry policy: expected levels, custom:1s,1m,1h or exponential:5s,2h,2 (ms, s, m, h, d), found {text!r}"
    parts = rest.split(",")
    try:
        if text == "levels":
            return ""
        if kind == _EXPONENTIAL:
            initial, maximum, multiplier = parts
            found = f"{_EXPONENTIAL}:{_ms(initial)},{_ms(maximum)},{multiplier}"
        else:
            delays = list(map(_ms, parts))
            found = f"{_CUSTOMIZED}:{','.join(map(str, [delays[0]] * CUSTOMIZED_BEGIN + delays))}"
        parse_policy(found)
    except (ValueError, IllegalMessage) as error:
        raise ValueError(expected) from error
    if kind not in (_EXPONENTIAL, "custom"):
        raise ValueError(expected)
    return found


def _ms(text: str) -> int:
    """Return the milliseconds in a text like 10s.

    Raises:
        ValueError: it is none.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS_MS[match[2]]


def policy_of(group: GroupConfig) -> RetryPolicy | None:
    """Return the policy of a group; None: it has none, or one that an older version did not check."""
    text = dict(group.attributes).get(POLICY_ATTRIBUTE)
    if text is None:
        return None
    try:
        return parse_policy(text)
    except IllegalMessage:
        return None


def retry_level(policy: RetryPolicy | None, reconsume_times: int, levels_ms: Sequence[int] = DELAY_LEVELS_MS) -> int:
    """Return the delay level of the next retry.

    Args:
        policy: of the group.
        reconsume_times: earlier redeliveries of the message.
        levels_ms: delay of each delay level, to one of which a delay is rounded up; the last one is the longest.
    """
    last = len(levels_ms)
    if policy is None:
        return min(FIRST_LEVEL + reconsume_times, last)
    delay_ms = policy.delay_ms(reconsume_times)
    return next((level for level, each_ms in enumerate(levels_ms, start=1) if each_ms >= delay_ms), last)
