"""A stored message as one JSON object, with the keys and values of RocketMQ's decoder, in a fixed order."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from store.model.message import KEYS, TAGS, UNIQUE_KEY, Host

if TYPE_CHECKING:
    from commitlog.record.record import Record

_IPV4_SIZE = 4


def row_of(record: Record, *, tags_code: int | None, is_indexed: bool) -> dict[str, Any]:
    """Return all fields of a message.

    Args:
        record: the message.
        tags_code: tags code of its unit; None: it is in no queue.
        is_indexed: whether the index has all of its keys.
    """
    properties = record.properties
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "inConsumeQueue": tags_code is not None,
        "indexed": is_indexed,
        "tag": properties.get(TAGS),
        "tagsCode": tags_code,
        "keys": properties.get(KEYS),
        "uniqKey": properties.get(UNIQUE_KEY),
        "storeTimestamp": record.store_timestamp,
        "bornTimestamp": record.born_timestamp,
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "msgId": record.message_id,
        "magic": record.magic,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCRC": record.body_crc,
        "body": base64.b64encode(record.body_view).decode(),
        "properties": dict(sorted(properties.items())),
    }


def host_text(host: Host) -> str:
    """Return `address|port`, with the address in Java's format: IPv6 in full, without leading zeros."""
    address = host.address
    if len(address) == _IPV4_SIZE:
        text = ".".join(map(str, address))
    else:
        groups = (int.from_bytes(address[at : at + 2], "big") for at in range(0, len(address), 2))
        text = ":".join(f"{group:x}" for group in groups)
    return f"{text}|{host.port}"
