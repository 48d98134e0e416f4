"""The kinds of messages, and the check of a put: a topic with a type takes only messages of that kind.

The kind of a message is the first that matches of TRANSACTION (`TRAN_MSG` is true, or the flag of prepared messages),
DELAY (a delay level, or a property `TIMER_…`), FIFO (`__SHARDINGKEY`) and NORMAL. What was delivered after a delay and
is put again keeps its kind.

Copies that the broker itself makes are not checked: their puts were.

Source: RocketMQ `TopicMessageType.parseFromMessageProperty`, `DefaultTopicMessageTypeValidator`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_types import TopicType, topic_type
from commitlog.record.properties import decode_properties
from commitlog.record.tags_code import delay_level
from store.model.message import DELAY, SHARDING_KEY
from store.model.sys_flag import TRANSACTION_PREPARED_TYPE
from store.model.topics import TIMER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.protocol.topic_config import TopicConfig

_TRANSACTION: Final = "TRAN_MSG"
_MARKS: Final = tuple(name.encode() for name in (_TRANSACTION, DELAY, TIMER_PREFIX, SHARDING_KEY))
_TAKE_ALL: Final = frozenset({TopicType.UNSPECIFIED, TopicType.MIXED})
# What to add to a message so that its topic takes it.
_REMEDIES: Final = {
    TopicType.NORMAL: "without these properties",
    TopicType.FIFO: f"with a message group ({SHARDING_KEY})",
    TopicType.DELAY: f"with a delay ({DELAY})",
    TopicType.TRANSACTION: "in a transaction",
}


def check_kinds(topic: TopicConfig, properties: Sequence[bytes], sys_flags: Sequence[int]) -> None:
    """Raise unless a topic takes all messages of a put.

    Args:
        topic: the topic of the put.
        properties: encoded properties of each message; empty: none has any.
        sys_flags: flags of each message, one value for all, or none.

    Raises:
        RequestFailed: MESSAGE_TYPE_CONFLICT: a message is of another kind; nothing was stored.
    """
    wanted = topic_type(topic.attributes)
    if wanted in _TAKE_ALL:
        return
    properties = properties or (b"",)
    if wanted is TopicType.NORMAL and not any(flag & TRANSACTION_PREPARED_TYPE for flag in sys_flags):
        # One check for all messages together: other kinds are rare in such a topic.
        joined = b"\x02".join(properties)
        if not any(mark in joined for mark in _MARKS):
            return
    for number, raw in enumerate(properties):
        sys_flag = sys_flags[min(number, len(sys_flags) - 1)] if sys_flags else 0
        kind = kind_of(raw, sys_flag)
        if kind is not wanted:
            raise _conflict(topic.name, wanted, number, kind)


def kind_of(raw: bytes, sys_flag: int) -> TopicType:
    """Return the kind of a message: TRANSACTION, DELAY, FIFO or NORMAL.

    Args:
        raw: its encoded properties.
        sys_flag: its flags.
    """
    if sys_flag & TRANSACTION_PREPARED_TYPE:
        return TopicType.TRANSACTION
    if not any(mark in raw for mark in _MARKS):
        return TopicType.NORMAL
    properties = decode_properties(raw)
    if properties.get(_TRANSACTION, "").lower() == "true":
        return TopicType.TRANSACTION
    if delay_level(properties.get(DELAY)) or any(name.startswith(TIMER_PREFIX) for name in properties):
        return TopicType.DELAY
    return TopicType.FIFO if SHARDING_KEY in properties else TopicType.NORMAL


def _conflict(topic: str, wanted: TopicType, number: int, kind: TopicType) -> RequestFailed:
    return RequestFailed(
        Reason.MESSAGE_TYPE_CONFLICT,
        f"message {number} is of kind {kind}, and topic {topic!r} has type {wanted}. Nothing was stored; send it "
        f"{_REMEDIES[wanted]}, or to a topic of type {kind} or MIXED; `dledger topic alter {topic} --type MIXED` lets "
        "the topic take all kinds",
    )
