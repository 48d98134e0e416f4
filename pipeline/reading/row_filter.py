"""Selects the rows of a batch of records for a selection, without a loop over messages except for SQL92."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.decoder import raw_properties, raw_topics
from pipeline.columns.property_columns import PropertyColumns
from store.model.message import TAGS
from store.model.sys_flag import TRANSACTION_PREPARED_TYPE
from store.model.topics import DLEDGER_TOPIC

if TYPE_CHECKING:
    from commitlog.record.rows import Bytes, RecordRows
    from pipeline.log.selection import Selection
    from store.model.dispatch_batch import Bools, Int64s

_NO_END: Final = np.iinfo(np.int64).max


def choose(view: memoryview, rows: RecordRows, selection: Selection, *, is_topic_known: bool = False) -> RecordRows:
    """Return the selected rows.

    Args:
        view: holds the records.
        rows: good records.
        selection: the query's selection.
        is_topic_known: the records were found through a consume queue, so that topics and offsets already match.
    """
    data: Bytes = np.frombuffer(view, np.uint8)
    if selection.is_by_topic and not is_topic_known and len(rows):
        rows = _of_topics(view, rows, selection)
    if selection.has_time and len(rows):
        times = rows.column(data, "store_timestamp")
        is_wanted: Bools = np.ones(len(rows), np.bool_)
        is_wanted &= times >= selection.begin_ms if selection.begin_ms is not None else True
        is_wanted &= times < selection.end_ms if selection.end_ms is not None else True
        rows = rows.select(is_wanted)
    if not selection.tag_filter.is_everything and len(rows):
        tags = PropertyColumns(raw_properties(view, rows)).values(TAGS)
        is_tagged = pc.is_in(tags, pa.array(sorted(selection.tag_filter.tags), pa.string()))
        rows = rows.select(np.asarray(is_tagged.to_numpy(zero_copy_only=False), np.bool_))
    if selection.predicate is not None and len(rows):
        # Message by message; its memo makes that a microsecond each.
        matches, properties = selection.predicate.matches, raw_properties(view, rows).to_pylist()
        rows = rows.select(np.fromiter(map(matches, properties), np.bool_, len(rows)))
    return rows


def without_system(view: memoryview, rows: RecordRows) -> RecordRows:
    """Return the rows without the no-op records of leaders."""
    if not len(rows):
        return rows
    is_long = rows.topic_ends - rows.topic_begins == len(DLEDGER_TOPIC)
    if not is_long.any():
        return rows
    is_system = pc.equal(raw_topics(view, rows), DLEDGER_TOPIC.encode())
    return rows.select(~np.asarray(is_system.to_numpy(zero_copy_only=False), np.bool_))


def _of_topics(view: memoryview, rows: RecordRows, selection: Selection) -> RecordRows:
    """Return the rows of the selected topics and queues that a consumer would receive."""
    rows = rows.select(rows.fields["sys_flag"] & TRANSACTION_PREPARED_TYPE == 0)
    if not len(rows):
        return rows
    known = pc.dictionary_encode(raw_topics(view, rows))
    topics = [topic.decode("utf-8", "replace") for topic in known.dictionary.to_pylist()]
    numbers = known.indices.to_numpy().astype(np.int64)
    queue_ids = rows.fields["queue_id"].astype(np.int64)
    queues, places = np.unique(numbers << 32 | queue_ids & 0xFFFFFFFF, return_inverse=True)
    begins: Int64s = np.zeros(len(queues), np.int64)
    ends: Int64s = np.zeros(len(queues), np.int64)
    for place, packed in enumerate(queues.tolist()):
        topic, queue_id = topics[packed >> 32], packed & 0xFFFFFFFF
        if selection.wants_queue(topic, queue_id):
            begins[place], ends[place] = selection.range_of(topic, queue_id) or (0, _NO_END)
    offsets = rows.fields["queue_offset"].astype(np.int64)
    return rows.select((offsets >= begins[places]) & (offsets < ends[places]))
