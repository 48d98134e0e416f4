"""Diverts the put of a delayed message to the queue of its level; the broker copies it to its topic later.

| property | in the diverted message |
| --- | --- |
| DELAY | the level; one above the last is the last |
| TIMER_… | removed: a delay level has precedence |
| REAL_TOPIC, REAL_QID | topic and queue of the put |

Queue `level - 1` of SCHEDULE_TOPIC_XXXX has the messages of a level. Everything else is unchanged.

Source: RocketMQ `HookUtils.transformDelayLevelMessage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commitlog.record.properties import PROPERTIES_SIZE_MAX, RawProperties, decode_properties, encode_properties
from store.errors import IllegalMessage
from store.model.message import DELAY
from store.model.topics import DELAY_LEVELS_MS, REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC, TIMER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.model.message import Message

# For the effect that the copy carries.
_SPACE: Final = 64


def diverted(messages: Sequence[Message], levels: Sequence[int]) -> list[Message]:
    """Return the messages of a put, the delayed ones diverted.

    Args:
        messages: of one put.
        levels: delay level of each; 0: it is not delayed.

    Raises:
        IllegalMessage: the properties of one are too large.
    """
    return [_diverted(message, level) if level else message for message, level in zip(messages, levels, strict=True)]


def _diverted(message: Message, level: int) -> Message:
    level = min(level, len(DELAY_LEVELS_MS))
    raw = message.properties.raw if isinstance(message.properties, RawProperties) else b""
    properties = decode_properties(raw) if raw else dict(message.properties)
    kept = {name: value for name, value in properties.items() if not name.startswith(TIMER_PREFIX)}
    kept |= {DELAY: str(level), REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)}
    encoded = encode_properties(kept)
    if len(encoded) > PROPERTIES_SIZE_MAX - _SPACE:
        expected = f"at most {PROPERTIES_SIZE_MAX - _SPACE} bytes, with topic and queue, of a delayed message"
        raise IllegalMessage("properties size", expected, str(len(encoded)))
    return message._replace(topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=RawProperties(encoded))
