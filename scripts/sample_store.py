"""Creates a store of a replicated log with synthetic traffic, for `make bench-spark` and to try out reports.

It simulates three hours of a shop: topics of very different size, bodies with a median of 300 bytes and a long tail, a
peak of a quarter of an hour, one hot key, some redelivered messages, and a few sent twice. Equal seeds produce equal
bytes. It uses the project's own entry store and encoder.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from commitlog.offline.directory import find_store
from commitlog.offline.rebuild import Layout, Rebuild
from commitlog.offline.verify import StoreParts
from commitlog.record.encoder import RecordEncoder
from commitlog.record.record import PHYSICAL_OFFSET_POSITION
from dledger.entries.format.entry import INDEX_UNIT_SIZE
from dledger.entries.store import EntryStore, EntryStoreConfig
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles
from store.model.message import Host, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE_SIZE: Final = 64 << 20
INDEX_FILE_SIZE: Final = (1 << 20) * INDEX_UNIT_SIZE
_BATCH: Final = 250
_QUEUES: Final = 4
# Their shares are proportional to 1, 1/2, 1/3 and so on.
_TOPICS: Final = (
    *("orders", "payments", "clicks", "stock", "shipments", "mails", "prices", "audit", "logins", "carts"),
    *("refunds", "reviews", "searches", "coupons", "invoices", "returns", "profiles", "alerts", "sessions"),
    "%RETRY%billing",
)
_TAGS: Final = ("created", "paid", "cancelled", "changed", "seen")
_STORE_HOST: Final = Host(b"\x0a\x00\x00\x01", 10911)
_CLIENTS: Final = tuple(Host(bytes((10, 0, 1, number)), 40_000 + number) for number in range(8))
_BEGIN_MS: Final = 1_760_000_000_000
_SPAN_MS: Final = 3 * 3_600_000
_TEXT_SIZE: Final = 1 << 20
_BODY_MAX: Final = 16_384
_KEYS: Final = 200_000
# Share of the orders of one customer.
_BUSY_KEY, _BUSY_SHARE = 7, 0.15
# Number of messages between a message and its duplicate.
_REPEATED_BEHIND: Final = 64
# Ratio of mean and median of a lognormal distribution with sigma 0.5.
_MEAN_OF_MEDIAN: Final = 1.133
_BESIDES_BODY: Final = 221


@dataclass(frozen=True, slots=True)
class SampleConfig:
    """The parameters of a sample store.

    Attributes:
        size: approximate size of the log in bytes.
        seed: of all random values.
        file_size: bytes of a data file.
        median_body: median size of bodies.
        has_queues: also create consume queues and index.
        layout: of their files.
    """

    size: int = 1 << 30
    seed: int = 1
    file_size: int = FILE_SIZE
    median_body: int = 316
    has_queues: bool = True
    layout: Layout = field(default_factory=Layout)


def make_sample_store(folder: str, config: SampleConfig, on_progress: Callable[[int], None] | None = None) -> int:
    """Create the store in `folder`, which must not contain one; return the number of messages.

    Args:
        folder: created if missing.
        config: the parameters.
        on_progress: called with the number of bytes of log written since the last call.
    """
    files = OsFiles()
    files.make_directory(folder)
    entries = EntryStore.open(files, f"{folder}/dledger-n0", EntryStoreConfig(config.file_size, INDEX_FILE_SIZE))
    encoder = RecordEncoder(_STORE_HOST)
    next_offsets: dict[tuple[str, int], int] = {}
    count = 0
    try:
        for store_timestamp, messages in _batches(config):
            offsets = list[int]()
            for message in messages:
                offset = next_offsets.get((message.topic, message.queue_id), 0)
                next_offsets[message.topic, message.queue_id] = offset + 1
                offsets.append(offset)
            records = encoder.prepare(messages).encode_each(offsets, store_timestamp)
            before = entries.end_position
            entries.append(records, entries.last_index + 1, 1, stamp_at=PHYSICAL_OFFSET_POSITION)
            count += len(messages)
            if on_progress is not None:
                on_progress(entries.end_position - before)
            if entries.end_position >= config.size:
                break
    finally:
        entries.close(entries.last_index)
    if config.has_queues:
        Rebuild(files, StoreParts(ReadOnlyFiles(), find_store(ReadOnlyFiles(), folder)), config.layout).run()
    return count


def _batches(config: SampleConfig) -> Iterator[tuple[int, list[Message]]]:
    """Yield batches with their store times, endlessly."""
    rng = np.random.default_rng(config.seed)
    text = _text(rng)
    shares = 1.0 / np.arange(1, len(_TOPICS) + 1)
    shares /= shares.sum()
    # Approximate mean size of a message: body, headers, topic and properties.
    batches = max(config.size // int(config.median_body * _MEAN_OF_MEDIAN + _BESIDES_BODY) // _BATCH, 1)
    times = np.sort(_times(rng, batches))
    number = 0
    for place in itertools.count():
        time = _BEGIN_MS + int(times[min(place, batches - 1)] * _SPAN_MS)
        topics = rng.choice(len(_TOPICS), _BATCH, p=shares).tolist()
        sizes = np.minimum(rng.lognormal(np.log(config.median_body), 0.5, _BATCH), _BODY_MAX).astype(int).tolist()
        begins = rng.integers(0, _TEXT_SIZE - _BODY_MAX, _BATCH).tolist()
        queues = rng.integers(0, _QUEUES, _BATCH).tolist()
        keys = rng.integers(0, _KEYS, _BATCH).tolist()
        is_busy = (rng.random(_BATCH) < _BUSY_SHARE).tolist()
        delays = np.minimum(rng.lognormal(1.5, 1.2, _BATCH), 60_000).astype(int).tolist()
        repeated = (rng.random(_BATCH) < 0.0002).tolist()
        messages = list[Message]()
        for topic, size, begin, queue, any_key, is_of_busy, delay, is_repeated in zip(
            topics, sizes, begins, queues, keys, is_busy, delays, repeated, strict=True
        ):
            number += 1
            name = _TOPICS[topic]
            key = _BUSY_KEY if is_of_busy and not topic else any_key
            unique = f"0A000101{max(number - is_repeated * _REPEATED_BEHIND, 1):024X}"
            tags = _TAGS[(key + number) % len(_TAGS)]
            properties = {"KEYS": f"{name[:3]}-{key}", "UNIQ_KEY": unique, "TAGS": tags, "WAIT": "true"}
            retries = 1 + number % 5 if name.startswith("%") else 0
            body = text[begin : begin + size]
            client = _CLIENTS[key % len(_CLIENTS)]
            messages.append(Message(name, body, queue, properties, 0, 0, time - delay, client, retries))
        yield time, messages


def _times(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return random fractions of the time span, a tenth of them in the peak."""
    usual, rush = rng.random(count - count // 10), rng.normal(0.55, 0.012, count // 10)
    return np.clip(np.concatenate((usual, rush)), 0.0, 1.0)


def _text(rng: np.random.Generator) -> bytes:
    """Return text that compresses like logs: words of a small vocabulary, and numbers."""
    words = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), size)) for size in rng.integers(3, 11, 2000)]
    parts = rng.choice(words, _TEXT_SIZE // 6).tolist()
    for place in range(0, len(parts), 5):
        parts[place] = f'"{parts[place]}":{int(rng.integers(0, 100_000))},'
    return " ".join(parts).encode()[:_TEXT_SIZE].ljust(_TEXT_SIZE)
