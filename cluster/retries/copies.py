"""The copy of a returned message in the retry topic or among the dead letters of its group.

| part | in the copy |
| --- | --- |
| body, flag, compression, born time and host, other properties | as in the message |
| reconsumeTimes | one more |
| RETRY_TOPIC, ORIGIN_MESSAGE_ID | topic and offset message id of the first record, which returned copies keep |
| DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID | the same; in dead letters only |
| DELAY, REAL_…, TIMER_…, TRAN_MSG, POP_CK, transaction bits, effect | removed: they are about the old record |
| DELAY, REAL_…; then topic and queue of its level | as of any delayed message (`cluster.delivery.diversion`) |
| `__EFFECT` | the key, by which the message is not returned twice; of a pop group's: that the message is done |
| TRACE_CONTEXT | removed if the properties are too large with it |

RETRY_TOPIC and ORIGIN_MESSAGE_ID of a message in an ordinary topic are its producer's, and are replaced: a dead letter
may be put to that topic again, with the rights of an operator.

Source: RocketMQ `AbstractSendMessageProcessor.consumerSendMsgBack`; #2724 and #1648 are about properties that are kept.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from cluster.delivery.diversion import diverted
from cluster.state.effects import Returned, encode_effect
from cluster.state.returned_messages import KEY_SIZE
from commitlog.record.effects import EFFECT_NAME, properties_with_effect
from commitlog.record.properties import PROPERTIES_SIZE_MAX, RawProperties, encode_properties
from store.errors import IllegalMessage
from store.model.message import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    Message,
)
from store.model.sys_flag import CARRIES_EFFECT, TRANSACTION_MASK
from store.model.topics import REAL_QUEUE_ID, REAL_TOPIC, TIMER_PREFIX, is_retry_topic

if TYPE_CHECKING:
    from cluster.delivery.diversion import Delivery
    from cluster.retries.rule import Destination
    from cluster.state.effects import PopMoved
    from commitlog.record.record import Record

_TRACE_CONTEXT: Final = "TRACE_CONTEXT"
_OF_OLD_RECORD: Final = frozenset({DELAY, REAL_TOPIC, REAL_QUEUE_ID, "TRAN_MSG", "POP_CK", EFFECT_NAME})


def key_of(group: str, record: Record) -> bytes:
    """Return the key of a returned message: a hash of the group and the record.

    A hash, because a window of names of 120 characters would have six times the size. Its collisions are as improbable
    as those of 128 random bits. The store timestamp distinguishes records of a plain log that lost its end.
    """
    parts = (group, record.physical_offset, record.reconsume_times, record.store_timestamp)
    return blake2b(":".join(map(str, parts)).encode(), digest_size=KEY_SIZE).digest()


def returned_copy(
    record: Record, key: bytes, destination: Destination, queues: int, delivery: Delivery | None = None
) -> Message:
    """Return the message to put, with its effect; with a delay it is diverted to the queue of its level.

    Args:
        record: that was returned.
        key: see `key_of`.
        destination: where it goes.
        queues: number of queues of that topic, at least 1; one is chosen by the key.
        delivery: when it is delivered; None: after the delay of the destination's level.

    Raises:
        IllegalMessage: the properties are too large for the added ones.
    """
    kept = _kept_properties(record, destination)
    queue_id = int.from_bytes(key[:4]) % queues
    when = destination.level if delivery is None else delivery
    effect = Returned(key, destination.is_dead)
    return _fitting(record, kept, destination, queue_id, record.reconsume_times + 1, effect, when)


def moved_copy(record: Record, effect: PopMoved, destination: Destination, reconsume_times: int) -> Message:
    """Return the copy of a message in flight, with its effect, for queue 0 of its destination.

    Args:
        record: the message.
        effect: that the message is done.
        destination: where it goes, without delay.
        reconsume_times: how often consumers have had it.

    Raises:
        IllegalMessage: the properties are too large for the added ones.
    """
    return _fitting(record, _kept_properties(record, destination), destination, 0, reconsume_times, effect, 0)


def _fitting(
    record: Record,
    kept: dict[str, str],
    destination: Destination,
    queue_id: int,
    reconsume_times: int,
    effect: Returned | PopMoved,
    delivery: Delivery,
) -> Message:
    try:
        return _copy(record, kept, destination, queue_id, reconsume_times, effect, delivery)
    except IllegalMessage:
        if kept.pop(_TRACE_CONTEXT, None) is None:
            raise
        return _copy(record, kept, destination, queue_id, reconsume_times, effect, delivery)


def _kept_properties(record: Record, destination: Destination) -> dict[str, str]:
    found = {
        name: value
        for name, value in record.properties.items()
        if name not in _OF_OLD_RECORD and not name.startswith(TIMER_PREFIX)
    }
    if not is_retry_topic(record.topic):
        found |= {RETRY_TOPIC: record.topic, ORIGIN_MESSAGE_ID: record.message_id}
    found.setdefault(RETRY_TOPIC, record.topic)
    found.setdefault(ORIGIN_MESSAGE_ID, record.message_id)
    if destination.is_dead:
        found |= {DLQ_ORIGIN_TOPIC: found[RETRY_TOPIC], DLQ_ORIGIN_MESSAGE_ID: found[ORIGIN_MESSAGE_ID]}
    return found


def _copy(
    record: Record,
    properties: dict[str, str],
    destination: Destination,
    queue_id: int,
    reconsume_times: int,
    effect: Returned | PopMoved,
    delivery: Delivery,
) -> Message:
    message = Message(
        destination.topic,
        record.body,
        queue_id,
        RawProperties(encode_properties(properties)),
        record.flag,
        record.sys_flag & ~TRANSACTION_MASK | CARRIES_EFFECT,
        record.born_timestamp,
        record.born_host,
        reconsume_times,
    )
    if delivery:
        (message,) = diverted([message], [delivery])
    raw = properties_with_effect(encode_properties(message.properties), encode_effect(effect))
    if len(raw.raw) > PROPERTIES_SIZE_MAX:
        expected = f"at most {PROPERTIES_SIZE_MAX} bytes, with the origin, of a returned message"
        raise IllegalMessage("properties size", expected, str(len(raw.raw)))
    return message._replace(properties=raw)
