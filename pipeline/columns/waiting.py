"""What waits in the broker's own topics: columns that name the real topic of a message, and when it is delivered.

| topic | `waitKind` | `realTopic`, `realQueueId` | `deliverAt` |
| --- | --- | --- | --- |
| of a client | null | its own | null |
| `SCHEDULE_TOPIC_XXXX` | `delayed` | where it will be delivered | when it was stored, and the delay of its level |
| `rmq_sys_wheel_timer` | `timed` | the same | the time that its producer asked for |
| the same, a recall | `recall` | of the recalled message; null | null |
| `RMQ_SYS_TRANS_HALF_TOPIC` | `half` | where it will be, if it is committed | null |
| `RMQ_SYS_TRANS_OP_HALF_TOPIC` | `half end` | its own | null |
| `TRANS_CHECK_MAX_TIME_TOPIC` | `given up` | of the half message | null |
| `%RETRY%` and a group | `retry` | to which its producer sent it; null | null |
| `%DLQ%` and a group | `dead letter` | the same | null |
| `RMQ_SYS_TRACE_TOPIC` | `trace` | its own | null |
| others of the broker | `system` | its own | null |

A delayed message that a consumer returned has the topic to which its producer sent it. The delays of levels are
RocketMQ's defaults. A record stays in these topics after its message was delivered, until retention deletes it.

Source: RocketMQ `TopicValidator`, `ScheduleMessageService`, `TimerMessageStore`, `MessageConst`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.record.properties import RawProperties
from commitlog.record.timer_properties import AT_ONCE_MS, DELETE_KEY, timer_time_ms
from pipeline.columns.schema import DERIVED, DERIVED_NAMES
from pipeline.columns.times import US_A_MS
from store.model.message import DLQ_ORIGIN_TOPIC, RETRY_TOPIC
from store.model.topics import (
    CHECK_MAX_TIME_TOPIC,
    DELAY_LEVELS_MS,
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    is_retry_topic,
    is_system_topic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# From which the others are computed.
_SOURCES: Final = ("topic", "queueId", "storeTimestamp", "propertiesRaw")
_KINDS: Final = {
    SCHEDULE_TOPIC: "delayed",
    TIMER_TOPIC: "timed",
    HALF_TOPIC: "half",
    OP_HALF_TOPIC: "half end",
    CHECK_MAX_TIME_TOPIC: "given up",
    TRACE_TOPIC: "trace",
}
_TIME_MS_MAX: Final = np.iinfo(np.int64).max // US_A_MS


class WaitColumns(NamedTuple):
    """The derived columns of one message; None: null."""

    kind: str | None
    topic: str | None
    queue_id: int | None
    deliver_ms: int | None


def is_broker_topic(topic: str) -> bool:
    """Return whether a topic is the broker's own: of the system, or with what consumers returned."""
    return is_system_topic(topic) or is_retry_topic(topic)


def waiting_of(topic: str, queue_id: int, store_ms: int, properties: RawProperties) -> WaitColumns:
    """Return the derived columns of a message in a topic of the broker; see the module's table."""
    if is_retry_topic(topic):
        origin = properties.find(RETRY_TOPIC)
        if topic.startswith(RETRY_PREFIX):
            return WaitColumns("retry", origin, None, None)
        assert topic.startswith(DLQ_PREFIX), topic
        return WaitColumns("dead letter", properties.find(DLQ_ORIGIN_TOPIC) or origin, None, None)
    kind = _KINDS.get(topic, "system")
    if kind in ("half end", "trace", "system"):
        return WaitColumns(kind, topic, queue_id, None)
    if kind == "timed" and DELETE_KEY in properties:
        return WaitColumns("recall", None, None, None)
    real, real_queue = properties.find(REAL_TOPIC), properties.find(REAL_QUEUE_ID) or ""
    deliver_ms = None
    if kind == "delayed" and 0 <= queue_id < len(DELAY_LEVELS_MS):
        deliver_ms = store_ms + DELAY_LEVELS_MS[queue_id]
    elif kind == "timed":
        found = timer_time_ms(properties)
        deliver_ms = found if AT_ONCE_MS < found <= _TIME_MS_MAX else None
    if real is not None and is_retry_topic(real):
        # Returned by a consumer: it goes to the queue of a group's retry topic, which says nothing to a reader.
        return WaitColumns(kind, properties.find(RETRY_TOPIC) or real, None, deliver_ms)
    is_number = real_queue.isascii() and real_queue.isdigit() and len(real_queue) < 10
    return WaitColumns(kind, real, int(real_queue) if is_number else None, deliver_ms)


def sources_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to read for a query with these columns, some of which are derived."""
    return tuple(dict.fromkeys((*(name for name in names if name not in DERIVED_NAMES), *_SOURCES)))


def with_waiting(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the columns of `names`, of a batch with those of `sources_of(names)`."""
    derived = dict(zip(DERIVED_NAMES, _derived(batch), strict=True))
    types = {column.name: column.type for column in DERIVED}
    arrays = [derived[name] if name in derived else batch.column(name) for name in names]
    fields = [
        pa.field(name, types[name]) if name in types else batch.schema.field(batch.schema.get_field_index(name))
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _derived(batch: pa.RecordBatch) -> list[pa.Array]:
    topics = batch.column("topic")
    known = pc.dictionary_encode(topics)
    is_own = pa.array([is_broker_topic(name) for name in known.dictionary.to_pylist()], pa.bool_())
    rows = np.flatnonzero(pc.take(is_own, known.indices).to_numpy(zero_copy_only=False))
    queue_ids = batch.column("queueId")
    if not len(rows):
        nulls = (pa.nulls(len(batch), column.type) for column in DERIVED)
        kind, _, _, deliver_at = nulls
        return [kind, topics, queue_ids, deliver_at]
    found: list[WaitColumns] = [
        WaitColumns(None, topic, queue_id, None)
        for topic, queue_id in zip(topics.to_pylist(), queue_ids.to_pylist(), strict=True)
    ]
    stored_us = batch.column("storeTimestamp").cast(pa.int64())
    raw = batch.column("propertiesRaw")
    for row in rows:
        topic, queue_id = found[row].topic, found[row].queue_id
        assert topic is not None, row
        assert queue_id is not None, row
        stored_ms = (stored_us[row].as_py() or 0) // US_A_MS
        found[row] = waiting_of(topic, queue_id, stored_ms, RawProperties(raw[row].as_py()))
    kinds, real_topics, real_queues, times_ms = zip(*found, strict=True)
    times_us = [None if each is None else each * US_A_MS for each in times_ms]
    columns = (kinds, real_topics, real_queues, times_us)
    return [pa.array(values, column.type) for values, column in zip(columns, DERIVED, strict=True)]
