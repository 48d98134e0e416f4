"""Stored messages, as official clients get them.

Bodies are delivered uncompressed, with their MD5: clients compare the digest with the bytes as they are sent, and some
of them fail without one.

Source: RocketMQ `GrpcConverter.buildMessage`; what clients need of it is in ADR 90.
"""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from google.protobuf.timestamp_pb2 import Timestamp

from cluster.delivery.message_kinds import kind_of
from cluster.grpc_v2.outgoing import TRACE_CONTEXT
from cluster.grpc_v2.reserved import RESERVED
from cluster.protocol.topic_types import TopicType
from cluster.rocketmq_v2 import messaging_pb2 as mq
from commitlog.record.compression import uncompressed_body
from commitlog.record.timer_properties import DEQUEUE_MS
from store.model.message import DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, KEYS, SHARDING_KEY, TAGS, UNIQUE_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from commitlog.record.record import Record
    from store.model.message import Host

# Clients send at most 4 MiB; a hostile one may send a body that expands to a thousand times its size.
BODY_BYTES_MAX: Final = 16 << 20
_MS_PER_S: Final = 1_000
_NS_PER_MS: Final = 1_000_000
_TYPES: Final = {
    TopicType.TRANSACTION: mq.TRANSACTION,
    TopicType.DELAY: mq.DELAY,
    TopicType.FIFO: mq.FIFO,
}


def delivered(record: Record, topic: mq.Resource, *, handle: str = "", attempt: int = 1) -> mq.Message:
    """Return a message for a client.

    Args:
        record: as it is stored.
        topic: in the form of the client.
        handle: by which it is acknowledged; empty: it is not to be.
        attempt: number of times that it was delivered, this one included.

    Raises:
        commitlog.record.compression.UnreadableBody: its body cannot be decompressed, or has more than `BODY_BYTES_MAX`.
    """
    properties = record.properties
    body = uncompressed_body(record.sys_flag, record.body, size_max=BODY_BYTES_MAX)
    # The digest protects against accidents, not against people.
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system = mq.SystemProperties(
        message_id=properties.get(UNIQUE_KEY) or record.message_id,
        body_digest=mq.Digest(type=mq.MD5, checksum=digest),
        body_encoding=mq.IDENTITY,
        message_type=_TYPES.get(kind_of(record.properties_raw, record.sys_flag), mq.NORMAL),
        born_timestamp=timestamp(record.born_timestamp),
        born_host=_text(record.born_host),
        store_timestamp=timestamp(record.store_timestamp),
        store_host=_text(record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=attempt,
        keys=properties.get(KEYS, "").split(),
    )
    if handle:
        system.receipt_handle = handle
    _fill_optional(system, properties)
    user = {name: value for name, value in properties.items() if name not in RESERVED}
    return mq.Message(topic=topic, user_properties=user, system_properties=system, body=body)


def timestamp(time_ms: int) -> Timestamp:
    """Return a time for a client; milliseconds since 1970."""
    return Timestamp(seconds=time_ms // _MS_PER_S, nanos=time_ms % _MS_PER_S * _NS_PER_MS)


def _fill_optional(system: mq.SystemProperties, properties: Mapping[str, str]) -> None:
    if TAGS in properties:
        system.tag = properties[TAGS]
    if SHARDING_KEY in properties:
        system.message_group = properties[SHARDING_KEY]
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    due_ms = properties.get(DEQUEUE_MS, "")
    if due_ms.isascii() and due_ms.isdecimal():
        system.delivery_timestamp.CopyFrom(timestamp(int(due_ms)))
    if DLQ_ORIGIN_TOPIC in properties:
        system.dead_letter_queue.topic = properties[DLQ_ORIGIN_TOPIC]
        system.dead_letter_queue.message_id = properties.get(DLQ_ORIGIN_MESSAGE_ID, "")


def _text(host: Host) -> str:
    address = ip_address(host.address)
    return f"{address}:{host.port}" if address.version == 4 else f"[{address}]:{host.port}"
