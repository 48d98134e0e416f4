"""Messages as columns, for tests of lakes."""

import numpy as np

from commitlog.record.encoder import RecordEncoder
from commitlog.record.rows import good_rows
from pipeline.columns.decoder import decode_rows
from pipeline.columns.schema import ALL_NAMES
from store.model.message import Host, Message

HOST = Host(b"\x7f\0\0\1", 10911)
DAY_MS = 86_400_000
# 2026-11-21, an hour before midnight
EVENING_MS = 1_795_302_000_000
NAMES = tuple(name for name in ALL_NAMES if name != "properties")


def records_of(count, *, first=0, topics=("orders", "%RETRY%g"), queues=2, step_ms=1_000, begin=0):
    """Return the records of messages `[first, first + count)` for a log that begins at `begin`."""
    encoder = RecordEncoder(HOST, check_topic=lambda _: None)
    records, offset, places = [], begin, {}
    for number in range(first + count):
        topic, queue_id = topics[number % len(topics)], number // len(topics) % queues
        place = places[topic, queue_id] = places.get((topic, queue_id), -1) + 1
        if number >= first:
            properties = {"UNIQ_KEY": f"U{number}", "TAGS": f"t{number % 3}"}
            message = Message(topic, b"%d" % number, queue_id, properties, born_timestamp=EVENING_MS + number)
            record = bytes(encoder.prepare([message]).encode(offset, [place], EVENING_MS + number * step_ms))
            records.append(record)
            offset += len(record)
    return records


def rows_of(records, *, begin=0, names=NAMES):
    """Return records as a batch of columns."""
    content = b"".join(records)
    ends = np.cumsum([len(record) for record in records])
    begins = ends - [len(record) for record in records]
    rows = good_rows(np.frombuffer(content, np.uint8), begins, ends, begin)
    return decode_rows(memoryview(content), rows, names)
