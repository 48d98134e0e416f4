"""Messages as official clients send them, and as our service puts them.

| field | property |
| --- | --- |
| tag, keys, message_id | TAGS, KEYS (separated by blanks), UNIQ_KEY |
| message_group | `__SHARDINGKEY`: all messages of a group go to one queue |
| delivery_timestamp | TIMER_DELIVER_MS |
| type TRANSACTION | TRAN_MSG; PGROUP is the topic, because these clients have no producer groups |
| orphaned_transaction_recovery_duration | CHECK_IMMUNITY_TIME_IN_SECONDS |
| trace_context | TRACE_CONTEXT |

A compressed body is stored uncompressed: GZIP is none of the formats of RocketMQ's own stores. A body that does not fit
into a record with its properties is stored compressed with zlib, as 4.x clients would send it: clients are permitted
bodies of 4 MiB, and that is also the limit of a whole record.

Source: RocketMQ `SendMessageActivity`, `GrpcValidator`; limits and codes as RocketMQ 5.3.3 was seen to have them.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.grpc_v2.reserved import RESERVED
from cluster.grpc_v2.status_codes import CodedRefusal
from cluster.rocketmq_v2 import messaging_pb2 as mq
from commitlog.record.properties import encode_properties
from commitlog.record.timer_properties import DELIVER_MS
from store.errors import IllegalMessage
from store.model.message import IMMUNITY, KEYS, PRODUCER_GROUP, SHARDING_KEY, TAGS, TRANSACTION, UNIQUE_KEY
from store.model.sys_flag import COMPRESSED

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

BODY_SIZE_MAX: Final = 4 << 20
# It fits into a record of at most 4 MiB, beside the other fields and the largest properties.
STORED_SIZE_MAX: Final = BODY_SIZE_MAX - (24 << 10)
# It is rare, and the content seldom worth more time.
_COMPRESSION_LEVEL: Final = 1
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
_MESSAGE_GROUP_BYTES_MAX: Final = 63
_USER_PROPERTIES_MAX: Final = 128
_PROPERTIES_BYTES_MAX: Final = 16 << 10
_RECOVERY_S_MAX: Final = 3_600
# A receiver of zlib that accepts the header of gzip, too.
_GZIP_WINDOW: Final = zlib.MAX_WBITS | 32
_MS_PER_S: Final = 1_000
# The end of the year 9999: the last time of protobuf's timestamps.
_TIME_MS_MAX: Final = 253_402_300_799_999
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_KINDS: Final = frozenset({mq.NORMAL, mq.FIFO, mq.DELAY, mq.TRANSACTION})


class CheckedMessage(NamedTuple):
    """One message, checked and encoded.

    Attributes:
        message_id: the client's id of it.
        body: as it is stored.
        properties: encoded.
        born_ms: when the client made it; milliseconds since 1970, 0: not known.
        message_group: empty: none.
        is_half: it begins a transaction.
        sys_flag: says whether the body is compressed.
        size_bytes: of the uncompressed body.
    """

    message_id: str
    body: bytes
    properties: bytes
    born_ms: int
    message_group: str
    is_half: bool
    sys_flag: int
    size_bytes: int


def outgoing(message: mq.Message, topic: str, latest_delivery_ms: int) -> CheckedMessage:
    """Return a message as it is put.

    Args:
        message: of the request.
        topic: its stored name.
        latest_delivery_ms: the latest time for which a message may wait; milliseconds since 1970.

    Raises:
        CodedRefusal: a field is not permitted.
    """
    system = message.system_properties
    if not _is_word(system.message_id):
        raise CodedRefusal(mq.ILLEGAL_MESSAGE_ID, "message_id: expected one, without control characters")
    if _has_control(system.trace_context):
        raise CodedRefusal(mq.BAD_REQUEST, "trace_context: expected text without control characters")
    _check_names(message)
    is_half = system.message_type == mq.TRANSACTION
    _check_type(system)
    found = {UNIQUE_KEY: system.message_id}
    if system.HasField("tag"):
        found[TAGS] = system.tag
    if system.keys:
        found[KEYS] = " ".join(system.keys)
    if system.HasField("message_group"):
        found[SHARDING_KEY] = system.message_group
    if system.HasField("delivery_timestamp"):
        deliver_ms = milliseconds(system.delivery_timestamp)
        if deliver_ms > latest_delivery_ms:
            raise CodedRefusal(mq.ILLEGAL_DELIVERY_TIME, "delivery_timestamp: it is too far away (timer_max_delay_sec)")
        found[DELIVER_MS] = str(max(deliver_ms, 0))
    if is_half:
        found |= {TRANSACTION: "true", PRODUCER_GROUP: topic}
        if system.HasField("orphaned_transaction_recovery_duration"):
            found[IMMUNITY] = str(_recovery_s(system))
    if system.HasField("trace_context"):
        found[TRACE_CONTEXT] = system.trace_context
    try:
        properties = encode_properties({**message.user_properties, **found})
    except IllegalMessage as error:
        raise CodedRefusal(mq.MESSAGE_PROPERTIES_TOO_LARGE, str(error)) from error
    group = system.message_group if system.HasField("message_group") else ""
    born_ms = milliseconds(system.born_timestamp)
    if not 0 <= born_ms <= _TIME_MS_MAX:
        raise CodedRefusal(mq.BAD_REQUEST, "born_timestamp: expected a time from 1970 to 9999")
    given = _body(message)
    body, sys_flag = _stored(given)
    return CheckedMessage(system.message_id, body, properties, born_ms, group, is_half, sys_flag, len(given))


def milliseconds(time: Timestamp) -> int:
    """Return a time in milliseconds since 1970; any number, because clients send any seconds."""
    return time.seconds * _MS_PER_S + time.nanos // 1_000_000


def _check_type(system: mq.SystemProperties) -> None:
    """Raise unless the stated type of a message is that of its fields; a client may state none."""
    stated = system.message_type
    if stated in (mq.LITE, mq.PRIORITY) or system.HasField("lite_topic"):
        raise CodedRefusal(mq.UNSUPPORTED, "messages of the types LITE and PRIORITY are not supported")
    is_fifo, is_delayed = system.HasField("message_group"), system.HasField("delivery_timestamp")
    if is_fifo + is_delayed + (stated == mq.TRANSACTION) > 1:
        text = "expected one of message_group, delivery_timestamp and the type TRANSACTION, found several"
        raise CodedRefusal(mq.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
    kind = mq.FIFO if is_fifo else mq.DELAY if is_delayed else mq.NORMAL
    if stated in _KINDS - {mq.TRANSACTION} and stated != kind:
        text = f"message_type: expected {mq.MessageType.Name(kind)}, by the fields, found {mq.MessageType.Name(stated)}"
        raise CodedRefusal(mq.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)


def _check_names(message: mq.Message) -> None:
    system = message.system_properties
    if system.HasField("tag") and (not _is_word(system.tag) or "|" in system.tag):
        raise CodedRefusal(mq.ILLEGAL_MESSAGE_TAG, "tag: expected text without | and control characters")
    if not all(map(_is_word, system.keys)):
        raise CodedRefusal(mq.ILLEGAL_MESSAGE_KEY, "keys: expected text without control characters")
    if system.HasField("message_group") and (
        not _is_word(system.message_group) or len(system.message_group.encode()) > _MESSAGE_GROUP_BYTES_MAX
    ):
        expected = f"1 to {_MESSAGE_GROUP_BYTES_MAX} bytes without control characters"
        raise CodedRefusal(mq.ILLEGAL_MESSAGE_GROUP, f"message_group: expected {expected}")
    given = message.user_properties
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    size += sum(len(name.encode()) + len(value.encode()) for name, value in given.items())
    if len(given) > _USER_PROPERTIES_MAX or size > _PROPERTIES_BYTES_MAX:
        expected = f"at most {_USER_PROPERTIES_MAX}, and {_PROPERTIES_BYTES_MAX} bytes with tag and keys"
        raise CodedRefusal(mq.MESSAGE_PROPERTIES_TOO_LARGE, f"user properties: expected {expected}")
    for name, value in given.items():
        if name in RESERVED or not _is_word(name) or _has_control(value):
            expected = "a name that RocketMQ does not use itself, and no control characters"
            raise CodedRefusal(mq.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name[:80]!r}: expected {expected}")


def _is_word(text: str) -> bool:
    return bool(text.strip()) and not _has_control(text)


def _has_control(text: str) -> bool:
    return _CONTROL.search(text) is not None


def _recovery_s(system: mq.SystemProperties) -> int:
    seconds = system.orphaned_transaction_recovery_duration.seconds
    if not 0 <= seconds <= _RECOVERY_S_MAX:
        text = f"orphaned_transaction_recovery_duration: expected 0 to {_RECOVERY_S_MAX} s, found {seconds}"
        raise CodedRefusal(mq.BAD_REQUEST, text)
    return seconds


def _stored(body: bytes) -> tuple[bytes, int]:
    """Return a body as it is stored, and its flag.

    Raises:
        CodedRefusal: MESSAGE_BODY_TOO_LARGE: it fits into no record.
    """
    if len(body) <= STORED_SIZE_MAX:
        return body, 0
    small = zlib.compress(body, _COMPRESSION_LEVEL)
    if len(small) > STORED_SIZE_MAX:
        expected = f"at most {STORED_SIZE_MAX} bytes if it cannot be compressed"
        raise CodedRefusal(mq.MESSAGE_BODY_TOO_LARGE, f"body: expected {expected}, found {len(body)}")
    return small, COMPRESSED


def _body(message: mq.Message) -> bytes:
    body = message.body
    if not body:
        raise CodedRefusal(mq.MESSAGE_BODY_EMPTY, "body: expected at least one byte, found none")
    if message.system_properties.body_encoding == mq.GZIP:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        try:
            body = stream.decompress(body, BODY_SIZE_MAX + 1)
        except zlib.error as error:
            raise CodedRefusal(mq.MESSAGE_CORRUPTED, f"body: expected the encoding GZIP: {error}") from error
        if len(body) <= BODY_SIZE_MAX and not stream.eof:
            raise CodedRefusal(mq.MESSAGE_CORRUPTED, "body: expected a whole stream of GZIP, found a part")
    if len(body) > BODY_SIZE_MAX:
        raise CodedRefusal(mq.MESSAGE_BODY_TOO_LARGE, f"body: expected at most {BODY_SIZE_MAX} bytes")
    return body
