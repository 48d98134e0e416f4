"""The quotas of a topic or a group: attributes `quota.…` in their settings, which RocketMQ does not have.

| attribute | of | bounds |
| --- | --- | --- |
| `quota.put.messages` | topic | messages put to it in a second |
| `quota.put.bytes` | topic | bytes of the requests that put them |
| `quota.get.messages` | topic, group | messages delivered of the topic, or to the group, in a second |
| `quota.get.bytes` | topic, group | bytes of their records |

Values are whole numbers from 1 on, of bytes from 65,536 on. Without an attribute there is no limit. They are settings,
equal on all nodes; each node counts by itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from store.errors import IllegalMessage

if TYPE_CHECKING:
    from cluster.protocol.topic_config import Attributes

QUOTA_PREFIX: Final = "quota."
PUT_MESSAGES: Final = "quota.put.messages"
PUT_BYTES: Final = "quota.put.bytes"
GET_MESSAGES: Final = "quota.get.messages"
GET_BYTES: Final = "quota.get.bytes"

QUOTAS_OF_TOPIC: Final = (PUT_MESSAGES, PUT_BYTES, GET_MESSAGES, GET_BYTES)
QUOTAS_OF_GROUP: Final = (GET_MESSAGES, GET_BYTES)
_RATE_MAX: Final = 10**15
# As of quotas of users: smaller ones would keep readers waiting for minutes after one response of 4 MiB.
_BYTES_MIN: Final = 64 << 10
# Settings of different topics and groups whose rates are kept decoded.
_DECODED_MAX: Final = 4_096


class FlowRates(NamedTuple):
    """Rates in a second; 0: no limit."""

    put_messages: int = 0
    put_bytes: int = 0
    get_messages: int = 0
    get_bytes: int = 0


def owner_text(whose: str, name: str) -> str:
    """Return the beginning of the text of a refusal by a quota of a topic or group, by which clients know it.

    Args:
        whose: "topic" or "group".
        name: of it.
    """
    return f"{whose} {name!r} (quota."


def check_quotas(attributes: Attributes, names: tuple[str, ...]) -> None:
    """Raise unless the quotas among the attributes of a topic or group are valid.

    Args:
        attributes: of the topic or group.
        names: `QUOTAS_OF_TOPIC` or `QUOTAS_OF_GROUP`.

    Raises:
        IllegalMessage: an unknown quota, or an invalid rate.
    """
    for name, value in attributes:
        if not name.startswith(QUOTA_PREFIX):
            continue
        if name not in names:
            raise IllegalMessage("attributes", f"one of {', '.join(names)}", repr(name)[:80])
        if not _rate_of(name, value):
            raise IllegalMessage(f"attribute {name}", f"{_rate_min(name)} to {_RATE_MAX}", repr(value)[:80])


@lru_cache(maxsize=_DECODED_MAX)
def rates_of(attributes: Attributes) -> FlowRates:
    """Return the rates in the attributes of a topic or group; a value that is not valid is no limit.

    Such values are refused when they are set, but may be in state of other origin.
    """
    found = dict(attributes)
    return FlowRates(*(_rate_of(name, found.get(name, "")) for name in QUOTAS_OF_TOPIC))


def _rate_of(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(_RATE_MAX))):
        return 0
    rate = int(value)
    return rate if _rate_min(name) <= rate <= _RATE_MAX else 0


def _rate_min(name: str) -> int:
    return _BYTES_MIN if name in (PUT_BYTES, GET_BYTES) else 1
