"""Helpers for tests of compacted topics: compact a store, read all of a queue, copy what the log is to delete."""

from cluster.delivery.compacted_messages import compaction_copy
from store.model.message import Message

DAY_MS = 86_400_000


def keyed(key, body, topic="C", queue_id=0):
    """Return a message with a key; no key: none."""
    return Message(topic, body, queue_id, {"KEYS": key} if key else {}, born_timestamp=1)


def put(store, *messages):
    """Put messages, and make them durable in the log, queues and index."""
    for message in messages:
        store.messages.put(message)
    store.lifecycle.flush_log()
    store.flush()


def first_place_of(messages):
    """Return the function that `Compaction.follow` needs."""

    def first_place(topic):
        queues = messages.derived.queues
        keys = [key for key in queues if key.topic == topic]
        units = [unit for key in keys for unit in queues.get(key).unit_tuples(queues.get(key).min_offset, 1)]
        return min((place for place, _, _ in units), default=None)

    return first_place


def compact(store, *topics, keep_tombstones_ms=DAY_MS):
    """Read the log and merge once."""
    messages = store.messages
    compaction = messages.compaction
    compaction.follow(frozenset(topics or ("C",)), first_place_of(messages))
    while compaction.scan_step(messages.log, messages.derived.dispatcher.offset):
        continue
    job = compaction.begin_merge(messages.log.begin_offset, keep_tombstones_ms, messages.log.end_offset)
    try:
        job.run()
    finally:
        compaction.end_merge(job)
    return job


def copy_all(store, before):
    """Append copies of all records of compacted topics before an offset of the log, as a leader does."""
    messages = store.messages
    copies = [
        compaction_copy(messages.log.read(int(row["place"]), int(row["size"])))
        for _, index in messages.compaction.queues()
        for row in index.rows
        if row["place"] < before
    ]
    for copy in copies:
        messages.put_own([copy])
    store.lifecycle.flush_log()
    store.flush()
    return len(copies)


def read_all(messages, topic="C", queue_id=0, count_max=32):
    """Return {offset: body} of a whole queue, as a reader from the first offset sees it."""
    found, offset = {}, messages.min_offset(topic, queue_id)
    while offset < messages.max_offset(topic, queue_id):
        result = messages.get(topic, queue_id, offset, count_max)
        assert result.status in ("FOUND", "NO_MATCHED_MESSAGE"), result
        assert not result.skipped, result
        assert result.next_begin_offset > offset, result
        for message in result.messages:
            assert offset <= message.queue_offset < result.next_begin_offset
            found[message.queue_offset] = message.body
        offset = result.next_begin_offset
    return found
