"""Records of single messages, as the log stores them."""

from __future__ import annotations

from commitlog.record.encoder import RecordEncoder


def encode_record(message, *, physical_offset, queue_offset, store_timestamp, store_host):
    """Return the record of one message."""
    return bytes(RecordEncoder(store_host).prepare([message]).encode(physical_offset, [queue_offset], store_timestamp))
