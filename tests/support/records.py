"""Records of single messages, as the log stores them, and messages in columns, as a broker gets them."""

from __future__ import annotations

from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import RawProperties, encode_properties
from commitlog.record.unique_keys import find_keys
from store.model.message_columns import MessageColumns


def encode_record(message, *, physical_offset, queue_offset, store_timestamp, store_host):
    """Return the record of one message."""
    return bytes(RecordEncoder(store_host).prepare([message]).encode(physical_offset, [queue_offset], store_timestamp))


def columns_of(messages):
    """Return messages of one topic and one client as columns; `prepared_transaction_offset` must be 0."""
    topic, born_host = messages[0].topic, messages[0].born_host
    assert {(each.topic, each.born_host, each.prepared_transaction_offset) for each in messages} == {
        (topic, born_host, 0)
    }
    properties = [encode_properties(each.properties) for each in messages]
    unique_keys, key_hashes = find_keys(topic, properties)

    def numbers(name):
        values = [getattr(each, name) for each in messages]
        return values[0] if len(set(values)) == 1 else values

    return MessageColumns(
        topic,
        [each.body for each in messages],
        properties,
        RawProperties,
        queue_ids=numbers("queue_id"),
        flags=numbers("flag"),
        sys_flags=numbers("sys_flag"),
        born_timestamps=numbers("born_timestamp"),
        reconsume_times=numbers("reconsume_times"),
        born_host=born_host,
        unique_keys=unique_keys,
        key_hashes=key_hashes,
    )
