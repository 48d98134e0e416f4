"""The header of a send: the short names of version 2, or the long ones of version 1.

Source: RocketMQ `SendMessageRequestHeader`, `SendMessageRequestHeaderV2`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.remoting.command import Rejected, RemotingCode
from cluster.remoting.fields import bool_of, int_of, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONG_NAMES: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "brokerName",
}
_NAME_LENGTH_MAX: Final = 255
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_QUEUES_MAX: Final = 65_536


class SendHeader(NamedTuple):
    """What a producer says about a message, or a batch.

    Attributes:
        fields: all fields, by their long names.
        topic: of the message.
        default_topic: by which the topic may be created; empty: it may not.
        default_queues: number of queues with which it is created.
        queue_id: below 0: the broker chooses.
        sys_flag: RocketMQ's `MessageSysFlag`.
        born_ms: when the client made it, milliseconds since 1970.
        flag: of the application.
        properties: encoded.
        reconsume_times: deliveries that failed, of a message that a consumer returns.
        max_reconsume_times: redeliveries that this consumer allows; None: as many as its group.
        is_batch: whether the body is a batch.
    """

    fields: Mapping[str, str]
    topic: str
    default_topic: str
    default_queues: int
    queue_id: int
    sys_flag: int
    born_ms: int
    flag: int
    properties: bytes
    reconsume_times: int
    max_reconsume_times: int | None
    is_batch: bool


def send_header(fields: Mapping[str, str], *, is_short: bool) -> SendHeader:
    """Return the header of a send.

    Args:
        fields: of the request.
        is_short: whether they have the names of version 2.

    Raises:
        Rejected: INVALID_PARAMETER, MESSAGE_ILLEGAL.
    """
    if is_short:
        fields = {_LONG_NAMES[name]: value for name, value in fields.items() if name in _LONG_NAMES}
    text_of(fields, "producerGroup", _NAME_LENGTH_MAX)
    try:
        properties = fields.get("properties", "").encode()
    except UnicodeEncodeError:
        raise Rejected(RemotingCode.MESSAGE_ILLEGAL, "properties: expected text that UTF-8 can hold") from None
    maximum = int_of(fields, "maxReconsumeTimes", -_INT_MAX - 1, _INT_MAX) if fields.get("maxReconsumeTimes") else None
    return SendHeader(
        fields,
        text_of(fields, "topic", _NAME_LENGTH_MAX),
        fields.get("defaultTopic", ""),
        int_of(fields, "defaultTopicQueueNums", 0, _INT_MAX, 0),
        int_of(fields, "queueId", -_INT_MAX - 1, _QUEUES_MAX),
        int_of(fields, "sysFlag", -_INT_MAX - 1, _INT_MAX),
        int_of(fields, "bornTimestamp", 0, _LONG_MAX),
        int_of(fields, "flag", -_INT_MAX - 1, _INT_MAX),
        properties,
        int_of(fields, "reconsumeTimes", 0, _INT_MAX, 0),
        maximum,
        bool_of(fields, "batch"),
    )
