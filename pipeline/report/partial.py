"""The partial result of a report for a range of a log: computed from columns, and merged with others.

A partial result takes a few hundred kilobytes for a range of any length. Each task computes one for its slice, and the
driver merges them. The result does not depend on the slices, except for the errors in `pipeline.report.sketches`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.times import US_A_MS
from pipeline.report.sketches import (
    BUCKETS,
    HeavyHitters,
    KeySample,
    OffsetRuns,
    UInt64s,
    buckets_of,
    dense,
    hash_texts,
    mix,
)
from pipeline.report.sketches import sparse as sparse_counts
from pipeline.report.timeline import Timeline
from store.model.sys_flag import INNER_BATCH, TRANSACTION_PREPARED_TYPE
from store.model.topics import is_retry_topic, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.model.dispatch_batch import Bools, Int64s

# The columns that a report needs; without bodies.
REPORT_COLUMNS: Final = (
    "topic",
    "queueId",
    "queueOffset",
    "tags",
    "keys",
    "uniqKey",
    "bornTimestamp",
    "storeTimestamp",
    "sysFlag",
    "reconsumeTimes",
    "bodySize",
    "storeSize",
)
TOPICS_MAX: Final = 1000
OTHER_TOPICS: Final = "(other topics)"
_NAMES_KEPT: Final = 1000
_KEYS_KEPT: Final = 1 << 22
_EXAMPLES_MAX: Final = 5
# Separates topic and name in the counts of names; no topic contains it.
SEPARATOR: Final = "\t"


@dataclass(slots=True)
class QueueCounts:
    """One queue: number of messages, their bytes in the log, and their offsets."""

    messages: int = 0
    size: int = 0
    offsets: OffsetRuns = field(default_factory=OffsetRuns)


@dataclass(slots=True)
class TopicCounts:
    """One topic; `ReportPartial` has further values in arrays over all topics."""

    messages: int = 0
    size: int = 0
    body_size: int = 0
    retried: int = 0
    born_later: int = 0
    keyed: int = 0
    tagged: int = 0


class ReportPartial:
    """The figures of one range of a log, which can be merged with those of another range.

    Args:
        keys_kept: most hashes of unique keys to keep; with more keys, a sample is kept.
        level: initial level of that sample, to limit the total size over many slices.
    """

    def __init__(self, *, keys_kept: int = _KEYS_KEPT, level: int = 0) -> None:
        self.topics: dict[str, int] = {}
        self.counts: list[TopicCounts] = []
        self.queues: dict[tuple[str, int], QueueCounts] = {}
        self.sizes: Int64s = np.zeros((0, BUCKETS), np.int64)
        self.delays: Int64s = np.zeros((0, BUCKETS), np.int64)
        self.timeline = Timeline()
        self.keys = HeavyHitters(_NAMES_KEPT)
        self.tags = HeavyHitters(_NAMES_KEPT)
        self.unique_keys = KeySample(keys_kept, level)
        self.repeated_examples: list[str] = []
        self.skipped = 0
        self.begin_ms: int | None = None
        self.end_ms: int | None = None

    # ------------------------------------------------------------------------------------------------ gathering

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the messages of a batch, which has at least the columns `REPORT_COLUMNS`."""
        if not batch.num_rows:
            return
        columns = _Columns(batch)
        topics = self._numbers(columns.topic_names)[columns.topic_codes]
        count = len(self.counts)
        self._add_counts(columns, topics, count)
        self._add_histograms(columns, topics, count)
        is_timed = columns.is_stored_timed
        self.timeline.add(topics[is_timed], count, columns.stored_ms[is_timed], columns.sizes[is_timed])
        if is_timed.any():
            self._extend_times(int(columns.stored_ms[is_timed].min()), int(columns.stored_ms[is_timed].max()))
        self._add_queues(columns)
        self._add_names(batch, columns)

    def _add_counts(self, columns: _Columns, topics: Int64s, count: int) -> None:
        sums = {
            "messages": None,
            "size": columns.sizes,
            "body_size": columns.body_sizes,
            "retried": columns.reconsume_times > 0,
            "born_later": columns.is_timed & (columns.delays_ms < 0),
            "keyed": columns.has_keys,
            "tagged": columns.has_tags,
        }
        for name, weights in sums.items():
            found = np.bincount(topics, None if weights is None else weights.astype(np.float64), count)
            for number in np.flatnonzero(found).tolist():
                counts = self.counts[number]
                setattr(counts, name, getattr(counts, name) + int(found[number]))

    def _add_histograms(self, columns: _Columns, topics: Int64s, count: int) -> None:
        is_timed = columns.is_timed
        places = topics * BUCKETS + buckets_of(columns.body_sizes)
        self.sizes += np.bincount(places, minlength=count * BUCKETS).reshape(count, BUCKETS)
        places = topics[is_timed] * BUCKETS + buckets_of(columns.delays_ms[is_timed])
        self.delays += np.bincount(places, minlength=count * BUCKETS).reshape(count, BUCKETS)

    def _add_queues(self, columns: _Columns) -> None:
        rows = np.lexsort((np.arange(len(columns.queue_ids)), columns.queue_ids, columns.topic_codes))
        topics, queue_ids = columns.topic_codes[rows], columns.queue_ids[rows]
        offsets, sizes, is_placed = columns.queue_offsets[rows], columns.sizes[rows], columns.is_placed[rows]
        is_new = np.ones(len(rows), np.bool_)
        is_new[1:] = (topics[1:] != topics[:-1]) | (queue_ids[1:] != queue_ids[:-1])
        firsts = np.flatnonzero(is_new)
        total_sizes = np.add.reduceat(sizes, firsts)
        for begin, end, size in zip(
            firsts.tolist(), [*firsts[1:].tolist(), len(rows)], total_sizes.tolist(), strict=True
        ):
            queue = self._queue(columns.topic_names[topics[begin]], int(queue_ids[begin]))
            queue.messages += end - begin
            queue.size += size
            placed = offsets[begin:end][is_placed[begin:end]]
            breaks = np.flatnonzero(np.diff(placed) != 1)
            if not len(placed):
                continue
            run_begins = placed[np.concatenate(([0], breaks + 1))].tolist()
            run_ends = (placed[np.concatenate((breaks, [len(placed) - 1]))] + 1).tolist()
            for run_begin, run_end in zip(run_begins, run_ends, strict=True):
                queue.offsets.add(run_begin, run_end)

    def _add_names(self, batch: pa.RecordBatch, columns: _Columns) -> None:
        topics = batch.column("topic")
        self.tags.add(pc.binary_join_element_wise(topics, batch.column("tags"), SEPARATOR))
        keys, key_topics = batch.column("keys"), topics
        if pc.any(pc.match_substring(keys, " ")).as_py():
            parts = pc.split_pattern(keys, " ")
            key_topics, keys = topics.take(pc.list_parent_indices(parts)), pc.list_flatten(parts)
            keys = pc.if_else(pc.equal(keys, ""), None, keys)
        self.keys.add(pc.binary_join_element_wise(key_topics, keys, SEPARATOR))
        self._add_unique_keys(batch.column("uniqKey"), columns)

    def _add_unique_keys(self, texts: pa.Array, columns: _Columns) -> None:
        is_own = np.array([not is_retry_topic(name) and not is_system_topic(name) for name in columns.topic_names])
        rows = np.flatnonzero(np.asarray(texts.is_valid()) & is_own[columns.topic_codes])
        texts = texts.take(pa.array(rows))
        topic_hashes = hash_texts(pa.array(columns.topic_names, pa.string()))
        hashes: UInt64s = mix(hash_texts(texts) ^ topic_hashes[columns.topic_codes[rows]])
        self.unique_keys.add(hashes)
        if len(self.repeated_examples) < _EXAMPLES_MAX:
            order = np.argsort(hashes, kind="stable")
            again = order[1:][hashes[order[1:]] == hashes[order[:-1]]][:_EXAMPLES_MAX]
            self._add_examples(
                f"{columns.topic_names[columns.topic_codes[rows[row]]]}{SEPARATOR}{texts[row].as_py()}"
                for row in again.tolist()
            )

    def _add_examples(self, examples: Iterable[str]) -> None:
        self.repeated_examples = list(dict.fromkeys([*self.repeated_examples, *examples]))[:_EXAMPLES_MAX]

    # -------------------------------------------------------------------------------------------------- merging

    def merge(self, other: ReportPartial) -> None:
        """Add the figures of another range; merging in log order is fastest."""
        numbers = self._numbers(list(other.topics))
        for number, counts in zip(numbers.tolist(), other.counts, strict=True):
            mine = self.counts[number]
            for name in TopicCounts.__slots__:
                setattr(mine, name, getattr(mine, name) + getattr(counts, name))
        np.add.at(self.sizes, numbers, other.sizes)
        np.add.at(self.delays, numbers, other.delays)
        self.timeline.merge(other.timeline, numbers, len(self.counts))
        for (topic, queue_id), queue in other.queues.items():
            mine_queue = self._queue(topic, queue_id)
            mine_queue.messages += queue.messages
            mine_queue.size += queue.size
            mine_queue.offsets.merge(queue.offsets)
        self.tags.merge(other.tags)
        self.keys.merge(other.keys)
        self.unique_keys.merge(other.unique_keys)
        self._add_examples(other.repeated_examples)
        self.skipped += other.skipped
        if other.begin_ms is not None and other.end_ms is not None:
            self._extend_times(other.begin_ms, other.end_ms)

    def to_row(self) -> tuple[str, bytes]:
        """Return the figures as a text and the hashes of keys, to be sent to the driver."""
        content = {
            "topics": list(self.topics),
            "counts": [[getattr(counts, name) for name in TopicCounts.__slots__] for counts in self.counts],
            "queues": [
                [topic, queue_id, queue.messages, queue.size, *queue.offsets.to_list()]
                for (topic, queue_id), queue in self.queues.items()
            ],
            "sizes": [sparse_counts(row) for row in self.sizes],
            "delays": [sparse_counts(row) for row in self.delays],
            "timeline": self.timeline.to_dict(),
            "keys": [self.keys.error, self.keys.counts],
            "tags": [self.tags.error, self.tags.counts],
            "level": self.unique_keys.level,
            "repeatedExamples": self.repeated_examples,
            "skipped": self.skipped,
            "times": [self.begin_ms, self.end_ms],
        }
        return json.dumps(content), self.unique_keys.hashes.tobytes()

    @classmethod
    def from_row(cls, text: str, hashes: bytes, *, keys_kept: int = _KEYS_KEPT) -> Self:
        """Return the partial result that `to_row` converted."""
        content: dict[str, Any] = json.loads(text)
        partial = cls(keys_kept=keys_kept, level=content["level"])
        partial.topics = {name: number for number, name in enumerate(content["topics"])}
        partial.counts = [TopicCounts(*values) for values in content["counts"]]
        for topic, queue_id, messages, size, runs, repeated, is_cut in content["queues"]:
            offsets = OffsetRuns([(begin, end) for begin, end in runs], repeated, is_cut)
            partial.queues[topic, queue_id] = QueueCounts(messages, size, offsets)
        for name in ("sizes", "delays"):
            rows = [dense(pairs, BUCKETS) for pairs in content[name]]
            setattr(partial, name, np.array(rows, np.int64).reshape(-1, BUCKETS))
        partial.timeline = Timeline.from_dict(content["timeline"], len(partial.topics))
        for name in ("keys", "tags"):
            error, counts = content[name]
            setattr(partial, name, HeavyHitters(_NAMES_KEPT, counts, error))
        partial.unique_keys.hashes = np.frombuffer(hashes, np.uint64)
        partial.repeated_examples = content["repeatedExamples"]
        partial.skipped = content["skipped"]
        partial.begin_ms, partial.end_ms = content["times"]
        return partial

    def _numbers(self, names: list[str]) -> Int64s:
        """Return the numbers of these topics; topics beyond the limit share one number."""
        for name in names:
            if name not in self.topics:
                name = name if len(self.topics) < TOPICS_MAX else OTHER_TOPICS  # noqa: PLW2901
                self.topics.setdefault(name, len(self.topics))
        more = len(self.topics) - len(self.counts)
        if more:
            self.counts += [TopicCounts() for _ in range(more)]
            self.sizes = np.pad(self.sizes, ((0, more), (0, 0)))
            self.delays = np.pad(self.delays, ((0, more), (0, 0)))
        other = self.topics.get(OTHER_TOPICS, 0)
        return np.array([self.topics.get(name, other) for name in names], np.int64)

    def _queue(self, topic: str, queue_id: int) -> QueueCounts:
        key = (topic if topic in self.topics else OTHER_TOPICS, queue_id)
        return self.queues.setdefault(key, QueueCounts())

    def _extend_times(self, begin_ms: int, end_ms: int) -> None:
        self.begin_ms = begin_ms if self.begin_ms is None else min(self.begin_ms, begin_ms)
        self.end_ms = end_ms if self.end_ms is None else max(self.end_ms, end_ms)


class _Columns:
    """The columns of a batch as numpy arrays."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        encoded = batch.column("topic").dictionary_encode()
        self.topic_names: list[str] = encoded.dictionary.to_pylist()
        self.topic_codes: Int64s = encoded.indices.to_numpy().astype(np.int64)
        self.queue_ids, self.queue_offsets = _ints(batch, "queueId"), _ints(batch, "queueOffset")
        self.sizes, self.body_sizes = _ints(batch, "storeSize"), _ints(batch, "bodySize")
        self.reconsume_times = _ints(batch, "reconsumeTimes")
        flags = _ints(batch, "sysFlag")
        # Prepared and rolled-back messages have no queue offset, inner batches have several.
        self.is_placed: Bools = flags & (TRANSACTION_PREPARED_TYPE | INNER_BATCH) == 0
        self.stored_ms, self.is_stored_timed = _times(batch, "storeTimestamp")
        born_ms, is_born_timed = _times(batch, "bornTimestamp")
        self.delays_ms: Int64s = self.stored_ms - born_ms
        self.is_timed: Bools = self.is_stored_timed & is_born_timed
        self.has_keys: Bools = np.asarray(batch.column("keys").is_valid())
        self.has_tags: Bools = np.asarray(batch.column("tags").is_valid())


def _ints(batch: pa.RecordBatch, name: str) -> Int64s:
    found: Int64s = batch.column(name).to_numpy().astype(np.int64)
    return found


def _times(batch: pa.RecordBatch, name: str) -> tuple[Int64s, Bools]:
    """Return milliseconds since 1970, and a mask of the rows that have a value."""
    column = batch.column(name)
    is_given: Bools = np.asarray(column.is_valid())
    times: Int64s = pc.fill_null(column.cast(pa.int64()), 0).to_numpy() // US_A_MS
    return times, is_given
