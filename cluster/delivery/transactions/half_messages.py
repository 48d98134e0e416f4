"""Half messages: prepared by a producer, and stored in a topic of the broker until the transaction ends.

| property | in the half message |
| --- | --- |
| TRAN_MSG | `true`: it makes a message a half message; the transaction bits of the sysFlag are not read, and cleared |
| REAL_TOPIC, REAL_QID | topic and queue of the put |
| PGROUP | the producer group; the topic's name where the producer gives none |
| `__transactionId__` | the UNIQ_KEY |
| CHECK_IMMUNITY_TIME_IN_SECONDS | kept: seconds in which the producer is not asked; at most an hour |
| DELAY | kept: it counts from the commit |

A message that has REAL_TOPIC already was delivered once, and is put again (restored, replayed): it is stored like any
other. Source: RocketMQ `SendMessageProcessor`, `TransactionalMessageBridge.parseHalfMessageInner`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.delivery.copies import joined
from cluster.protocol.errors import Reason, RequestFailed
from cluster.state.effects import IMMUNITY_S_MAX, Prepared, encode_effect
from cluster.state.transactions import name_hash
from commitlog.record.effects import properties_with_effect
from commitlog.record.properties import PROPERTIES_SIZE_MAX, RawProperties, decode_properties, encode_properties
from store.errors import IllegalMessage
from store.model.message import IMMUNITY, PRODUCER_GROUP, TRANSACTION, TRANSACTION_ID, UNIQUE_KEY, Message
from store.model.sys_flag import CARRIES_EFFECT, TRANSACTION_MASK
from store.model.topics import HALF_TOPIC, REAL_QUEUE_ID, REAL_TOPIC, TIMER_PREFIX, check_group

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARK: Final = TRANSACTION.encode()
# For the effects that the half message and the committed one carry.
_SPACE: Final = 96


def half_rows(properties: Sequence[bytes]) -> list[int]:
    """Return the numbers of the half messages of a put.

    Args:
        properties: encoded properties of each message.
    """
    # One check for all messages together: such properties are rare.
    if _MARK not in b"\x02".join(properties):
        return []
    return [row for row, raw in enumerate(properties) if _MARK in raw and is_half(decode_properties(raw))]


def is_half(properties: dict[str, str]) -> bool:
    """Return whether the properties are those of a message that a producer prepares."""
    return properties.get(TRANSACTION, "").lower() == "true" and REAL_TOPIC not in properties


def with_halves(messages: Sequence[Message], rows: Sequence[int]) -> list[Message]:
    """Return the messages of a put, the half messages among them diverted.

    Args:
        messages: of one put.
        rows: see `half_rows`.

    Raises:
        RequestFailed: UNSUPPORTED: one has an unknown immunity, or is for a time.
        IllegalMessage: the properties of one are too large, or it has no UNIQ_KEY or no valid group.
    """
    halves = frozenset(rows)
    # The put may carry effects: the others must not, whatever their clients have sent.
    return [
        _half(row, message) if row in halves else message._replace(sys_flag=message.sys_flag & ~CARRIES_EFFECT)
        for row, message in enumerate(messages)
    ]


def _half(row: int, message: Message) -> Message:
    raw = (
        message.properties.raw
        if isinstance(message.properties, RawProperties)
        else encode_properties(message.properties)
    )
    properties = decode_properties(raw)
    if any(name.startswith(TIMER_PREFIX) for name in properties):
        text = f"message {row} has {TRANSACTION} and a time. Nothing was stored; use a delay level, or no transaction"
        raise RequestFailed(Reason.UNSUPPORTED, text)
    transaction_id = properties.get(UNIQUE_KEY, "")
    if not transaction_id:
        raise IllegalMessage("UNIQ_KEY", "an id for the transaction", "none")
    group = properties.get(PRODUCER_GROUP, message.topic)
    check_group(group)
    # Of equal names the last one counts.
    more = {REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id), TRANSACTION_ID: transaction_id}
    if PRODUCER_GROUP not in properties:
        more[PRODUCER_GROUP] = group
    encoded = joined(raw, encode_properties(more))
    if len(encoded) > PROPERTIES_SIZE_MAX - _SPACE:
        expected = f"at most {PROPERTIES_SIZE_MAX - _SPACE} bytes, with topic and queue, of a half message"
        raise IllegalMessage("properties size", expected, str(len(encoded)))
    effect = Prepared(_immunity_s(row, properties.get(IMMUNITY, "0")), name_hash(group), name_hash(transaction_id))
    # One object, and no `_replace`: thousands are made in a second.
    return Message(
        HALF_TOPIC,
        message.body,
        0,
        properties_with_effect(encoded, encode_effect(effect)),
        message.flag,
        message.sys_flag & ~TRANSACTION_MASK | CARRIES_EFFECT,
        message.born_timestamp,
        message.born_host,
        message.reconsume_times,
    )


def _immunity_s(row: int, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(IMMUNITY_S_MAX))):
        raise IllegalMessage(f"{IMMUNITY} of message {row}", f"0 to {IMMUNITY_S_MAX} seconds", repr(text[:80]))
    return min(int(text), IMMUNITY_S_MAX)
