"""The types of topics: which kinds of messages a topic takes (RocketMQ's attribute `message.type`).

| type | accepted messages |
| --- | --- |
| NORMAL | those without any of the properties below |
| FIFO | those with a message group (`__SHARDINGKEY`) |
| DELAY | those with a delay level or a delivery time |
| TRANSACTION | transactional ones |
| MIXED | all |
| UNSPECIFIED, or no attribute | all |

Source: RocketMQ `TopicMessageType`, `TopicAttributes.TOPIC_MESSAGE_TYPE_ATTRIBUTE`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from store.errors import IllegalMessage

if TYPE_CHECKING:
    from cluster.protocol.topic_config import Attributes

MESSAGE_TYPE: Final = "message.type"
# Types of newer versions of RocketMQ, whose topics may be imported: kept, but not enforced.
_NOT_ENFORCED: Final = frozenset({"PRIORITY", "LITE"})


class TopicType(StrEnum):
    """What a topic takes. The names are those of RocketMQ."""

    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"


def topic_type(attributes: Attributes) -> TopicType:
    """Return the type in the attributes of a topic; UNSPECIFIED without one, or if its value is not known here."""
    value = dict(attributes).get(MESSAGE_TYPE, "")
    return TopicType.__members__.get(value, TopicType.UNSPECIFIED)


def check_topic_type(attributes: Attributes) -> None:
    """Raise unless the type in the attributes of a topic is one of RocketMQ's.

    Raises:
        IllegalMessage: it is another text.
    """
    value = dict(attributes).get(MESSAGE_TYPE, TopicType.UNSPECIFIED)
    if value not in TopicType.__members__ and value not in _NOT_ENFORCED:
        raise IllegalMessage(f"attribute {MESSAGE_TYPE}", ", ".join(TopicType), repr(value)[:80])
