"""Conversion of messages between the columns of `cluster.v1` and the types of the store.

A list in a request may be empty, which means zeros or empty bytes; some lists may have one value for all messages.
Answers omit lists of only zeros or empty bytes. Work per message is avoided where one call can do it for all.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from commitlog.record.properties import RawProperties
from commitlog.record.record import Record
from commitlog.record.unique_keys import find_keys
from store.access.message_store import PUT_MESSAGES_MAX
from store.errors import IllegalMessage, IllegalRequest
from store.model.message_columns import MessageColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.v1 import broker_pb2 as pb
    from store.model.message import Host, StoredMessage
    from store.model.message_columns import Numbers

PUT_SIZE_BYTES_MAX: Final = 8 << 20
_PORT: Final = struct.Struct(">i")


def messages_of(
    request: pb.PutRequest, properties: Sequence[bytes], born_host: Host, now_ms: int
) -> tuple[MessageColumns, int]:
    """Return the messages of a request, and the size of their bodies.

    Args:
        request: request of a client.
        properties: its properties, as a list: protobuf makes a new object at each access to an element.
        born_host: address of the client.
        now_ms: born timestamp of messages that have none; milliseconds since 1970.

    Raises:
        IllegalMessage: there are no messages, too many, or the lists differ in length.
    """
    bodies = list(request.bodies)
    count = len(bodies)
    if not 0 < count <= PUT_MESSAGES_MAX:
        raise IllegalMessage("bodies", f"1 to {PUT_MESSAGES_MAX}", str(count))
    body_size_bytes = sum(map(len, bodies))
    size_bytes = body_size_bytes + sum(map(len, properties))
    if size_bytes > PUT_SIZE_BYTES_MAX:
        raise IllegalMessage("bodies and properties", f"at most {PUT_SIZE_BYTES_MAX} bytes", str(size_bytes))
    queue_ids = _one_or_each("queue_ids", request.queue_ids, count, 0)
    _check_length("properties", properties, count)
    flags = _each("flags", request.flags, count, 0)
    sys_flags = _one_or_each("sys_flags", request.sys_flags, count, 0)
    born_timestamps = _one_or_each("born_timestamps", request.born_timestamps, count, now_ms)
    reconsume_times = _each("reconsume_times", request.reconsume_times, count, 0)
    topic, properties = request.topic, properties or [b""] * count
    unique_keys, key_hashes = find_keys(topic, properties)
    messages = MessageColumns(
        topic,
        bodies,
        properties,
        RawProperties,
        queue_ids=queue_ids,
        flags=flags,
        sys_flags=sys_flags,
        born_timestamps=born_timestamps,
        reconsume_times=reconsume_times,
        born_host=born_host,
        unique_keys=unique_keys,
        key_hashes=key_hashes,
    )
    return messages, body_size_bytes


def _check_length(name: str, values: Sequence[object], count: int) -> None:
    if values and len(values) != count:
        raise IllegalMessage(name, f"{count} values, one for each body, or none", str(len(values)))


def _each(name: str, values: Sequence[int], count: int, default: int) -> Numbers:
    _check_length(name, values, count)
    return list(values) if values else default


def _one_or_each(name: str, values: Sequence[int], count: int, default: int) -> Numbers:
    return values[0] if len(values) == 1 else _each(name, values, count, default)


def check_lengths(what: str, *lists: Sequence[object]) -> None:
    """Raise unless corresponding lists have the same length, which must not be 0.

    Raises:
        IllegalRequest: the lengths differ, or are 0.
    """
    lengths = {len(each) for each in lists}
    if len(lengths) != 1 or 0 in lengths:
        raise IllegalRequest(
            what, "one value for each, and at least one", " and ".join(str(len(each)) for each in lists)
        )


# ----------------------------------------------------------------------------------------------------------- answers


def records_of(messages: Sequence[StoredMessage]) -> bytes:
    """Return whole records, back to back, as stored in the log."""
    records = cast("Sequence[Record]", messages)
    return b"".join([each.raw for each in records])


def fill_columns(columns: pb.MessageColumns, messages: Sequence[StoredMessage]) -> None:
    """Add messages to the empty columns of a response; to copy them from other columns would cost as much again."""
    columns.SetInParent()
    if not messages:
        return
    records = cast("Sequence[Record]", messages)
    fields = Record.field_columns(records)
    columns.queue_offsets.extend(fields.queue_offset)
    columns.physical_offsets.extend(fields.physical_offset)
    columns.bodies.extend([each.body for each in records])
    columns.store_timestamps.extend(fields.store_timestamp)
    columns.born_timestamps.extend(fields.born_timestamp)
    columns.born_hosts.extend(fields.born_host)
    columns.store_hosts.extend(fields.store_host)
    properties = [each.properties_raw for each in records]
    if any(properties):
        columns.properties.extend(properties)
    for target, values in (
        (columns.queue_ids, fields.queue_id),
        (columns.flags, fields.flag),
        (columns.sys_flags, fields.sys_flag),
        (columns.reconsume_times, fields.reconsume_times),
        (columns.prepared_transaction_offsets, fields.prepared_transaction_offset),
    ):
        if any(values):
            target.extend(values)


@lru_cache(maxsize=4096)
def encode_host(host: Host) -> bytes:
    """Encode a host as 4 or 16 bytes of address and 4 of port."""
    return host.address + _PORT.pack(host.port)
