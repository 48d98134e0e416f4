"""Detects repeated puts by their UNIQ_KEY: a retry is answered with the first result.

The *dedupe window* has the last messages of the log, bounded by count and by age, both counted from the log's end; it
is derived from the log, like queues and index: dispatch extends it, and opening fills it from the log. It stores no
keys, only the index's hash of each key and the record's offset; records with the same hash are read and compared,
up to a number and a size for each put.

Puts that are not dispatched yet are found by their key. While the outcome of such a put is open, a retry waits for it.
A put with an unknown outcome stays open until it is dispatched, or until a later put is dispatched, after which it
never will be.

Only ordinary messages are deduplicated: a message that a group returns has the key of the original, and so do both
messages of a transaction.

RocketMQ has no such window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store.access.put_sources import MessageSource, StoredPlace, UndispatchedPut, WaitingRow, joined_put
from store.errors import Certainty, CorruptData
from store.model.commit_log import CommitLog, PendingPut, Place, PutOutcome
from store.model.java_hashes import each_key_hash
from store.model.message import UNIQUE_KEY, Message
from store.model.message_columns import MessageColumns, each_queue_id
from store.model.sys_flag import transaction_type
from store.model.unique_keys import unique_key

if TYPE_CHECKING:
    from store.model.dispatch_batch import DispatchBatch, Int32s, Int64s

# Records compared for one key: more records than this almost never share a hash, and a key that clients also use in
# KEYS must not make a put slow.
_CANDIDATES_MAX = 64
# Records of one put that are read in vain. Keys of clients share a hash by chance once in thousands of puts; texts that
# share one are easily found on purpose.
_MISMATCHES_MAX = 64
# Bytes of records that are read for one put; the records of a repeated put are not larger than it.
_READ_BYTES_MAX = 16 << 20
_SCAN_SIZE_BYTES = 4 << 20
_FIRST_SPAN_MS = 1000

Append = Callable[[Sequence[Message]], PendingPut]


class _Keys(NamedTuple):
    """The keys of the messages of one put.

    Attributes:
        keys: of each message: `store.model.unique_keys.unique_key`; empty without one.
        hashes: of each message: the index's hash of its key.
    """

    keys: Sequence[bytes]
    hashes: Sequence[int]


class _Rows(NamedTuple):
    """Messages with a key in one range of the log, in the order of the log."""

    hashes: Int32s
    physical_offsets: Int64s
    store_timestamps: Int64s

    def part(self, begin: int, end: int | None = None) -> _Rows:
        return _Rows(self.hashes[begin:end], self.physical_offsets[begin:end], self.store_timestamps[begin:end])


@dataclass(slots=True)
class _Budget:
    """The reads that one put may still cause; without any left, its keys count as new.

    So a put takes a few milliseconds, whatever its keys and the log. A message that is stored twice because of this has
    the keys of an attack, or is one of thousands that share a hash.
    """

    mismatches: int = _MISMATCHES_MAX
    size_bytes: int = _READ_BYTES_MAX

    @property
    def is_used_up(self) -> bool:
        return self.mismatches <= 0 or self.size_bytes <= 0


class DedupeWindow:
    """The window of one store.

    Args:
        log: the log of the store.
        count_max: messages with a key in the window.
        age_ms_max: messages older than the newest by more than this are removed.
    """

    def __init__(self, log: CommitLog, count_max: int, age_ms_max: int) -> None:
        assert count_max > 0, count_max
        self._log = log
        self._count_max = count_max
        self._age_ms_max = age_ms_max
        self._next_offset = 0
        self._ranges: deque[_Rows] = deque()
        self._count = 0
        self._newest_timestamp = 0
        self._places: dict[int, int | deque[int]] = {}
        self._puts: deque[UndispatchedPut] = deque()
        self._undispatched: dict[bytes, UndispatchedPut] = {}

    def __len__(self) -> int:
        """Return the number of messages in the window."""
        return self._count

    # ---------------------------------------------------------------------------------------------- from the log

    def load(self, end_offset: int) -> None:
        """Fill the empty window with the messages before `end_offset`; `dispatched` receives the later ones."""
        log, span_ms = self._log, _FIRST_SPAN_MS
        found: list[_Rows] = []
        begin = end_offset
        newest = log.last_store_timestamp
        while begin > log.begin_offset and sum(len(rows.hashes) for rows in found) < self._count_max:
            earlier = max(log.offset_at_timestamp(newest - min(span_ms, self._age_ms_max)), log.begin_offset)
            if earlier < begin:
                found = self._scan(earlier, begin) + found
                begin = earlier
            if span_ms >= self._age_ms_max:
                break
            span_ms *= 2
        self._next_offset = end_offset
        for rows in found:
            self._add(rows)

    def _scan(self, begin: int, end: int) -> list[_Rows]:
        found: list[_Rows] = []
        while begin < end and (batch := self._log.scan(begin, _SCAN_SIZE_BYTES)) is not None:
            rows = _rows_of(batch)
            count = int(np.searchsorted(rows.physical_offsets, end))
            found.append(rows.part(0, count))
            begin = batch.next_offset
        return found

    def dispatched(self, batch: DispatchBatch) -> None:
        """Add the dispatched messages."""
        if batch.next_offset <= self._next_offset:
            return
        rows = _rows_of(batch)
        first = int(np.searchsorted(rows.physical_offsets, self._next_offset))
        self._next_offset = batch.next_offset
        self._add(rows.part(first))
        self._resolve()

    def _add(self, rows: _Rows) -> None:
        if not len(rows.hashes):
            return
        places = self._places
        hashes, offsets = rows.hashes.tolist(), rows.physical_offsets.tolist()
        if len(set(hashes)) == len(hashes) and places.keys().isdisjoint(hashes):
            places.update(zip(hashes, offsets, strict=True))
        else:
            for key, offset in zip(hashes, offsets, strict=True):
                self._add_place(key, offset)
        self._ranges.append(rows)
        self._count += len(rows.hashes)
        self._newest_timestamp = max(self._newest_timestamp, int(rows.store_timestamps[-1]))
        self._expire()

    def _add_place(self, key: int, offset: int) -> None:
        known = self._places.get(key)
        if known is None:
            self._places[key] = offset
        elif isinstance(known, deque):
            known.append(offset)
        else:
            self._places[key] = deque((known, offset))

    def _expire(self) -> None:
        """Remove messages that exceed the age or the count."""
        oldest = self._newest_timestamp - self._age_ms_max
        while self._ranges:
            rows = self._ranges[0]
            count = max(int(np.searchsorted(rows.store_timestamps, oldest)), self._count - self._count_max)
            count = min(count, len(rows.hashes))
            if count <= 0:
                return
            self._forget(rows, count)
            self._ranges.popleft()
            if count < len(rows.hashes):
                self._ranges.appendleft(rows.part(count))

    def _forget(self, rows: _Rows, count: int) -> None:
        self._count -= count
        places = self._places
        for key in rows.hashes[:count].tolist():
            known = places[key]
            # The oldest message of a hash is removed first.
            if isinstance(known, deque) and len(known) > 1:
                known.popleft()
            else:
                del places[key]

    def _resolve(self) -> None:
        """Drop puts that are now in the window, or that will never be dispatched."""
        done = 0
        for number, put in enumerate(self._puts, start=1):
            outcome = put.pending.outcome
            if outcome is None:
                break
            if outcome.places:
                if outcome.places[-1].physical_offset >= self._next_offset:
                    break
                done = number
        for _ in range(done):
            self._drop(self._puts.popleft())

    def _drop(self, put: UndispatchedPut) -> None:
        undispatched = self._undispatched
        for key in put.keys:
            # A later put may have the same key: it was sent again after an unknown outcome.
            if undispatched.get(key) is put:
                del undispatched[key]

    def forget_pending(self) -> None:
        """Drop puts that were not dispatched, when the whole log is dispatched. See `MessageStore`."""
        self._puts.clear()
        self._undispatched.clear()

    # ---------------------------------------------------------------------------------------------------- putting

    def put(self, messages: Sequence[Message], append: Append) -> PendingPut:
        """Append the new messages; return the outcome of all, with the places of those already stored.

        Raises:
            the errors of `append`; nothing was put.
        """
        found = _keys_of(messages)
        earlier = self._find_earlier(found)
        keys = found.keys
        if not earlier:
            pending = append(messages)
            self._remember(pending, messages, keys)
            return pending
        new = [row for row in range(len(messages)) if row not in earlier]
        sources: dict[int, MessageSource] = {}
        if new:
            new_messages = [messages[row] for row in new]
            put = self._remember(append(new_messages), new_messages, [keys[row] for row in new])
            sources.update((row, WaitingRow(put, place)) for place, row in enumerate(new))
        for row, source in earlier.items():
            sources[row] = sources[source] if isinstance(source, int) else source
        return joined_put([sources[row] for row in range(len(messages))], len(earlier))

    def _find_earlier(self, found: _Keys) -> dict[int, MessageSource | int]:
        """Return repeated messages by row: the first one's place, the put with it, or an earlier row."""
        keys, hashes = found
        if not all(keys):
            given = [row for row, key in enumerate(keys) if key]
            keys, hashes = [keys[row] for row in given], [hashes[row] for row in given]
        if (
            len(set(keys)) == len(keys)
            and self._undispatched.keys().isdisjoint(keys)
            and self._places.keys().isdisjoint(hashes)
        ):
            return {}  # Fast path: all are new.
        earlier: dict[int, MessageSource | int] = {}
        rows: dict[bytes, int] = {}
        budget = _Budget()
        for row, (key, hashed) in enumerate(zip(*found, strict=True)):
            if not key:
                continue
            first = rows.setdefault(key, row)
            source = earlier.get(first, first) if first != row else self._known(key, hashed, budget)
            if source is not None:
                earlier[row] = source
        return earlier

    def _known(self, key: bytes, hashed: int, budget: _Budget) -> MessageSource | None:
        """Return the put in progress with this key, or the place of its message."""
        put = self._undispatched.get(key)
        if put is None:
            return self._stored(key, hashed, budget)
        found = WaitingRow(put, put.row_of(key))
        # A put that timed out may have been dispatched since.
        is_unknown = put.pending.outcome is not None and put.pending.outcome.certainty is Certainty.UNKNOWN
        return (self._stored(key, hashed, budget) or found) if is_unknown else found

    def _stored(self, key: bytes, hashed: int, budget: _Budget) -> StoredPlace | None:
        """Return the message with this key, if it is in the window and the budget allows to find it."""
        known = self._places.get(hashed)
        if known is None or budget.is_used_up:
            return None
        for offset in (known,) if isinstance(known, int) else _newest(known):
            if budget.is_used_up:
                return None
            try:
                message = self._log.find(offset)
            except CorruptData:
                message = None
            budget.size_bytes -= 0 if message is None else message.size
            if message is None or unique_key(message.topic, message.properties.get(UNIQUE_KEY, "")) != key:
                budget.mismatches -= 1
            else:
                place = Place(offset, message.size, message.queue_offset, message.store_timestamp)
                return StoredPlace(place, message.queue_id, message.store_host)
        return None

    def _remember(self, pending: PendingPut, messages: Sequence[Message], keys: Sequence[bytes]) -> UndispatchedPut:
        put = UndispatchedPut(pending, keys, each_queue_id(messages))
        if any(keys) and (pending.outcome is None or pending.outcome.certainty is not Certainty.NOT_APPENDED):
            self._puts.append(put)
            self._undispatched.update(dict.fromkeys(keys if all(keys) else filter(None, keys), put))
            pending.when_done(lambda outcome: self._ended(put, outcome))
        return put

    def _ended(self, put: UndispatchedPut, outcome: PutOutcome) -> None:
        if outcome.certainty is Certainty.NOT_APPENDED:
            self._drop(put)


def _newest(offsets: deque[int]) -> list[int]:
    """Return the newest offsets in their order, without a look at the others: there may be one for each message."""
    newest = list(islice(reversed(offsets), _CANDIDATES_MAX))
    newest.reverse()
    return newest


def _rows_of(batch: DispatchBatch) -> _Rows:
    """Return the first key of each message that has one, which is its UNIQ_KEY, if present."""
    is_first = np.diff(batch.key_rows, prepend=-1) != 0
    is_first &= batch.is_queued[batch.key_rows]
    rows = batch.key_rows[is_first]
    return _Rows(batch.key_hashes[is_first], batch.physical_offsets[rows], batch.store_timestamps[rows])


def _keys_of(messages: Sequence[Message]) -> _Keys:
    """Return the deduplication keys of messages."""
    if isinstance(messages, MessageColumns) and messages.is_ordinary:
        return _Keys(messages.unique_keys, messages.key_hashes)
    values = [_value_of(message) for message in messages]
    with_key = [(message.topic, value) for message, value in zip(messages, values, strict=True) if value]
    hashes = iter(each_key_hash(with_key))
    keys = [unique_key(message.topic, value) if value else b"" for message, value in zip(messages, values, strict=True)]
    return _Keys(keys, [next(hashes) if key else 0 for key in keys])


def _value_of(message: Message) -> str:
    """Return the UNIQ_KEY by which a message is recognised; empty without one."""
    if message.reconsume_times or transaction_type(message.sys_flag):
        return ""
    properties = message.properties
    find = getattr(properties, "find", properties.get)
    return find(UNIQUE_KEY) or ""
