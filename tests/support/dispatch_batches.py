"""Creates dispatch batches from values or from the manifests of the fixtures, without a log."""

import numpy as np

from store.model.dispatch_batch import DispatchBatch
from store.model.message import QueueKey


def java_hash(text):
    """Java's `String.hashCode`."""
    data = text.encode("utf-16-be")
    value = 0
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def key_hash(topic, key):
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value >> 31 else value


def batch_of(messages, next_offset=None):
    """Return a batch of messages: (topic, queue id, queue offset, physical offset, size[, tags code, time, hashes]).

    A queue offset of None: the message is in no queue.
    """
    rows = [(*message, *(0, 1000 + number, ())[len(message) - 5 :]) for number, message in enumerate(messages)]
    queues = list(dict.fromkeys(QueueKey(row[0], row[1]) for row in rows))
    ends = [row[3] + row[4] for row in rows]
    return DispatchBatch(
        begin_offset=rows[0][3] if rows else 0,
        next_offset=max(ends, default=0) if next_offset is None else next_offset,
        physical_offsets=np.array([row[3] for row in rows], np.int64),
        sizes=np.array([row[4] for row in rows], np.int32),
        queue_offsets=np.array([row[2] or 0 for row in rows], np.int64),
        tags_codes=np.array([row[5] for row in rows], np.int64),
        store_timestamps=np.array([row[6] for row in rows], np.int64),
        queues=queues,
        queue_numbers=np.array([queues.index(QueueKey(row[0], row[1])) for row in rows], np.int32),
        is_queued=np.array([row[2] is not None for row in rows], np.bool_),
        key_hashes=np.array([value for row in rows for value in row[7]], np.int32),
        key_rows=np.array([number for number, row in enumerate(rows) for _ in row[7]], np.int64),
    )


def batch_of_manifest(lines):
    """Return a batch of the messages in a fixture's manifest."""
    messages = []
    for line in lines:
        keys = [line["uniqKey"]] if line["uniqKey"] else []
        keys += [key for key in (line["keys"] or "").split(" ") if key]
        hashes = [key_hash(line["topic"], key) for key in keys] if line["indexed"] else []
        queue_offset = line["queueOffset"] if line["inConsumeQueue"] else None
        place = line["topic"], line["queueId"], queue_offset, line["physicalOffset"], line["size"]
        messages.append((*place, line["tagsCode"] or 0, line["storeTimestamp"], hashes))
    return batch_of(messages)
