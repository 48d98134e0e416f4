"""Measurements of `cluster.bench.store`, part by part, on one store."""

from __future__ import annotations

import gc
import os
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cluster.process.procfs import anonymous_memory_bytes_of
from commitlog.offline.directory import find_store
from commitlog.offline.rebuild import Layout, Rebuild
from commitlog.offline.verify import StoreParts, Verification
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStore, PlainStoreConfig, open_plain_store
from commitlog.record.encoder import RecordEncoder
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles
from store.index.key_index import KeyIndex
from store.index.layout import IndexLayout
from store.model.dispatch_batch import DispatchBatch, Int32s
from store.model.message import LOOPBACK, Message, QueueKey, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TOPIC = "bench"
QUEUES = 4
BATCH = 100
GET_COUNT = 32
# The interval of log flushes, which run in a thread (RocketMQ `flushIntervalCommitLog`).
_FLUSH_INTERVAL_S = 0.5
# Number of batches that are created at a time, outside the measured time.
_BATCHES_MADE = 50
_INDEX_CHUNK = 200_000
_KEYS_ASKED = 2_000
_INDEX_SLOTS_PART = 4
_INDEX_TIME_MS = 1_700_000_000_000
_MEMORY_LOOK_CALLS = 500


@dataclass(frozen=True, slots=True)
class BenchWork:
    """The messages to put.

    Attributes:
        messages: number of messages, a multiple of `BATCH`.
        body_size: bytes of each body.
    """

    messages: int
    body_size: int

    @classmethod
    def of_size(cls, log_size: int, body_size: int) -> BenchWork:
        """Return as many whole batches as fit into a log of `log_size` bytes, at least one."""
        return cls(max(log_size // record_size(body_size) // BATCH, 1) * BATCH, body_size)

    @property
    def log_size(self) -> int:
        """The size of all records in bytes."""
        return self.messages * record_size(self.body_size)

    def batches(self) -> Iterator[list[Message]]:
        """Yield batches of messages, for each queue in turn."""
        # The same bytes in every run are sufficient, because they are never compressed.
        body = random.Random(self.body_size).randbytes(self.body_size)
        for first in range(0, self.messages, BATCH):
            yield [_message(first + number, first // BATCH % QUEUES, body) for number in range(BATCH)]


def _message(number: int, queue_id: int, body: bytes) -> Message:
    return Message(TOPIC, body, queue_id, {"TAGS": "tag", "UNIQ_KEY": f"{number:032X}"})


def record_size(body_size: int) -> int:
    """Return the size of one record in bytes."""
    (size,) = RecordEncoder(LOOPBACK).prepare([_message(0, 0, bytes(body_size))]).sizes
    return size


@contextmanager
def open_store(folder: Path) -> Iterator[PlainStore]:
    """Open the store in a folder, with RocketMQ's file sizes and its ASYNC_FLUSH."""
    store = open_plain_store(OsFiles(), str(folder), PlainStoreConfig(log=CommitLogConfig(is_flush_sync=False)))
    try:
        yield store
    finally:
        store.close()


def timed(action: Callable[[], object]) -> float:
    """Return the duration of `action` in seconds; earlier garbage is collected first."""
    gc.collect()
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


class _BackgroundFlush:
    """Flushes the log in a thread while puts continue, as the service of a store does."""

    def __init__(self, store: PlainStore, pool: ThreadPoolExecutor) -> None:
        self._log = store.log
        self._pool = pool
        self._due = time.perf_counter() + _FLUSH_INTERVAL_S
        self._in_flight: tuple[Future[None], Callable[[], None]] | None = None

    def turn(self) -> None:
        """Start a flush if one is due; to be called between puts."""
        if time.perf_counter() < self._due:
            return
        self._due = time.perf_counter() + _FLUSH_INTERVAL_S
        next_file = self._log.prepare_next_file()
        if next_file is not None:
            self._pool.submit(next_file.make)
        if self._in_flight is not None:
            future, end = self._in_flight
            if not future.done():
                return
            future.result()
            end()
            self._in_flight = None
        ticket = self._log.begin_flush()
        if ticket is not None:
            self._in_flight = self._pool.submit(ticket.sync), lambda: self._log.end_flush(ticket)

    def end(self) -> None:
        """Wait for the running flush."""
        if self._in_flight is not None:
            future, end = self._in_flight
            future.result()
            end()


def put_all(store: PlainStore, work: BenchWork) -> float:
    """Put all messages, with flushes in the background; return the seconds."""
    seconds = 0.0
    batches = work.batches()
    with ThreadPoolExecutor(1) as pool:
        flush = _BackgroundFlush(store, pool)
        while made := list(islice(batches, _BATCHES_MADE)):
            began = time.perf_counter()
            for batch in made:
                store.messages.put_many(batch)
                flush.turn()
            seconds += time.perf_counter() - began
        flush.end()
    return seconds


def get_all(store: PlainStore, work: BenchWork) -> float:
    """Read all queues in calls of 32, with topic, body and properties of each message; return the seconds."""
    count = 0
    began = time.perf_counter()
    for found in _calls(store):
        for message in found:
            if message.topic and message.properties["UNIQ_KEY"] and len(message.body) == work.body_size:
                count += 1
    seconds = time.perf_counter() - began
    assert count == work.messages, (count, work)
    return seconds


def _calls(store: PlainStore) -> Iterator[Sequence[StoredMessage]]:
    get = store.messages.get
    for queue_id in range(QUEUES):
        offset = 0
        while found := (answer := get(TOPIC, queue_id, offset, GET_COUNT)).messages:
            yield found
            offset = answer.next_begin_offset


def memory_of_reading_mib(folder: Path) -> float:
    """Read the whole store in `folder`; return the peak anonymous memory of this process meanwhile, in MiB.

    Must run in a new process.
    """
    most = 0
    with open_store(folder) as store:
        for number, found in enumerate(_calls(store)):
            for message in found:
                assert message.properties["UNIQ_KEY"], message
                assert message.body is not None
            if number % _MEMORY_LOOK_CALLS == 0:
                most = max(most, anonymous_memory_bytes_of(os.getpid()))
        most = max(most, anonymous_memory_bytes_of(os.getpid()))
    return most / (1 << 20)


def verify_s(folder: Path, work: BenchWork) -> float:
    """Verify the store in `folder` as `dledger verify` does; return the seconds."""
    files = ReadOnlyFiles()

    def verify() -> None:
        verification = Verification(StoreParts(files, find_store(files, str(folder))))
        findings = list(verification.findings())
        assert findings == [], findings[:3]
        assert verification.counts.messages == work.messages, verification.counts

    return timed(verify)


def rebuild_s(folder: Path, work: BenchWork) -> float:
    """Rebuild queues and index of the store in `folder` as `dledger rebuild` does; return the seconds."""
    files = ReadOnlyFiles()

    def rebuild() -> None:
        rebuilt = Rebuild(OsFiles(), StoreParts(files, find_store(files, str(folder))), Layout()).run()
        assert rebuilt.messages == work.messages, rebuilt

    return timed(rebuild)


def query_p99_ms(folder: Path, items: int) -> float:
    """Fill an index file with `items` items, and query keys; return the 99th percentile latency in ms."""
    # The first item of a file is never used.
    index = KeyIndex(OsFiles(), str(folder), IndexLayout(max(items // _INDEX_SLOTS_PART, 1), items + 1))
    index.load()
    asked: list[Int32s] = []
    try:
        for batch in _index_batches(items):
            index.append(batch)
            asked.append(batch.key_hashes[:: max(items // _KEYS_ASKED, 1)])
        index.flush()
        assert len(index.files) == 1, len(index.files)
        keys = np.concatenate(asked).tolist()
        random.Random(items).shuffle(keys)
        times = []
        for key in keys:
            began = time.perf_counter()
            hits = index.query(key, 0, 1 << 62, GET_COUNT)
            times.append(time.perf_counter() - began)
            assert hits.physical_offsets, key
    finally:
        index.close()
    return sorted(times)[len(times) * 99 // 100] * 1e3


def _index_batches(items: int) -> Iterator[DispatchBatch]:
    random_hashes = np.random.default_rng(items)
    size = 1 << 10
    for begin in range(0, items, _INDEX_CHUNK):
        rows = np.arange(begin, min(begin + _INDEX_CHUNK, items), dtype=np.int64)
        count = len(rows)
        yield DispatchBatch(
            begin_offset=begin * size,
            next_offset=(begin + count) * size,
            physical_offsets=rows * size,
            sizes=np.full(count, size, np.int32),
            queue_offsets=rows,
            tags_codes=np.zeros(count, np.int64),
            store_timestamps=_INDEX_TIME_MS + rows // BATCH,
            queues=[QueueKey(TOPIC, 0)],
            queue_numbers=np.zeros(count, np.int32),
            is_queued=np.ones(count, np.bool_),
            key_hashes=random_hashes.integers(0, 1 << 31, count, np.int32),
            key_rows=rows - begin,
        )
