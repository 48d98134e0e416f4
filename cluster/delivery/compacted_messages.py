"""The messages of compacted topics: what a put must have, and the copies that replace expiring records in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.delivery.copies import joined
from commitlog.record.effects import without_effect
from commitlog.record.properties import RawProperties, decode_properties
from store.errors import IllegalMessage
from store.model.message import COMPACTED_OFFSET, KEYS, Message
from store.model.sys_flag import CARRIES_EFFECT, TRANSACTION_MASK, TRANSACTION_PREPARED_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from commitlog.record.record import Record

# Of 32,767 bytes: a delayed message and a copy have further properties.
PROPERTIES_SIZE_MAX: Final = 31_743
_KEYS_MARK: Final = f"{KEYS}\x01".encode()
_COPY_MARK: Final = f"{COMPACTED_OFFSET}\x01".encode()


def check_keys(topic: str, properties: Sequence[bytes]) -> None:
    """Raise unless each message of a put to a compacted topic has keys.

    Args:
        topic: the topic's name.
        properties: encoded properties of each message; empty: none has any.

    Raises:
        IllegalMessage: one has none, or too large properties; nothing was stored. Source: RocketMQ
            `HookUtils.checkInnerBatch`: "Required message key is missing".
    """
    for number, raw in enumerate(properties or (b"",)):
        what = f"of message {number} for the compacted topic {topic!r}"
        if _KEYS_MARK not in raw or not decode_properties(raw).get(KEYS, "").strip():
            raise IllegalMessage(
                f"property {KEYS} {what}", "a key, of which the topic keeps the latest message", "none"
            )
        if len(raw) > PROPERTIES_SIZE_MAX:
            raise IllegalMessage(f"properties {what}", f"at most {PROPERTIES_SIZE_MAX} bytes", str(len(raw)))


def compaction_copy(record: Record) -> Message:
    """Return the copy of a message that keeps its topic, queue and queue offset.

    It is marked as prepared, so it is in no consume queue; the index of its queue takes its place in the log.
    """
    raw = without_effect(record.properties_raw)
    if _COPY_MARK not in raw:
        raw = joined(raw, f"{COMPACTED_OFFSET}\x01{record.queue_offset}\x02".encode())
    return Message(
        record.topic,
        record.body,
        record.queue_id,
        RawProperties(raw),
        record.flag,
        record.sys_flag & ~(TRANSACTION_MASK | CARRIES_EFFECT) | TRANSACTION_PREPARED_TYPE,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
    )
