"""Compares the items of all index files with the log: every key must have an item, and every item a message.

Items are in the order of the log, so usually the next keys of the log equal the next items, and arrays are compared.
Where they differ they are realigned: items belong to a range of the log until a long run of items is after that range.

A repeated item is not a fault: RocketMQ may index a message again after a restart.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from store.check.index_file import NEXT_START as MENDED
from store.check.index_file import REBUILD, count_items
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.check.index_view import IndexView
    from store.model.dispatch_batch import Bools, DispatchBatch, Int32s, Int64s

# If this many consecutive items belong after a range of the log, the following ones do, too.
_RUN_ITEMS = 64
_CHUNK_ITEMS = 64 << 10
_SECONDS_MAX = 2**31 - 1
NEXT_START = "The next start of the store adds them"


@dataclass(frozen=True, slots=True)
class StoredItems:
    """Consecutive items, as columns, with the position of each.

    Attributes:
        key_hashes, offsets, seconds: the stored fields.
        files: number of each item's file.
        numbers: of each item in its file.
    """

    key_hashes: Int32s
    offsets: Int64s
    seconds: Int32s
    files: Int32s
    numbers: Int32s

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.offsets)


class IndexChecker:
    """Compares the items with the log.

    Args:
        files: all index files, oldest first.
        directory: of the index, for reports.
        log_begin: items of messages before it belong to deleted files of the log, and are not checked.
        is_unfinished: the start value of the attribute.
        is_live: a program is adding items; headers and items at the end are not checked.

    Attributes:
        item_count: of all files.
        is_unfinished: the store was not closed cleanly, or the end of its log may not be committed: missing items at
            the end are not damage.
    """

    def __init__(
        self,
        files: Sequence[IndexView],
        directory: str,
        log_begin: int,
        *,
        is_unfinished: bool = False,
        is_live: bool = False,
    ) -> None:
        self._files = files
        self._directory = directory
        self._counts = [count_items(file) for file in files]
        self.is_unfinished = is_unfinished
        self._is_live = is_live
        self._begin_timestamps = {number: file.header.begin_timestamp for number, file in enumerate(files)}
        self._pending: Finding | None = None
        self._place = (0, 1)
        self.item_count = sum(self._counts)
        self.seek(log_begin)

    @property
    def is_at_end(self) -> bool:
        """Whether all items have been compared."""
        return not len(self._peek(1))

    @property
    def is_missing_due(self) -> bool:
        """Whether a start of the store adds the missing items: it was not closed cleanly, and the items end."""
        return self.is_unfinished and self.is_at_end

    def seek(self, offset: int) -> None:
        """Continue with the items of the messages from `offset` on."""
        for number, count in enumerate(self._counts):
            file = self._files[number]
            if not count or file.item(count).offset < offset:
                continue
            low, high = 1, count
            while low < high:
                middle = (low + high) // 2
                if file.item(middle).offset < offset:
                    low = middle + 1
                else:
                    high = middle
            self._place = (number, low)
            return
        self._place = (len(self._files), 1)

    def add(self, batch: DispatchBatch) -> tuple[Bools, list[Finding]]:
        """Compare the next range of the log with the index.

        Returns:
            A mask of the keys of the batch whose items were found, and the faults.
        """
        offsets = batch.physical_offsets[batch.key_rows]
        items = self._peek(len(offsets))
        # Items of unreadable records must be part of this batch; in the next one they would be faults.
        if (
            not batch.skipped
            and len(items) == len(offsets)
            and np.array_equal(items.offsets, offsets)
            and np.array_equal(items.key_hashes, batch.key_hashes)
        ):
            self._advance(len(items))
            timestamps = batch.store_timestamps[batch.key_rows]
            return np.ones(len(offsets), np.bool_), list(self._check_times(items, timestamps))
        return self._align(batch, offsets)

    def finish(self, log_end: int) -> Iterator[Finding]:
        """Yield the remaining faults: missing keys at the end of the index, and items without a message.

        Args:
            log_end: the end of the log.
        """
        if self._pending is not None:
            yield self._pending
            self._pending = None
        while len(items := self._peek(_CHUNK_ITEMS)):
            for number in _ascending(items.files):
                places = np.flatnonzero(items.files == number)
                first = int(places[0])
                file = self._files[number]
                yield Finding(
                    Area.INDEX,
                    file.path,
                    file.item_position(int(items.numbers[first])),
                    f"the end of the items, for the log ends at {log_end}",
                    f"{len(places)} items, the first one of a message at {items.offsets[first]}",
                    "they refer to messages that do not exist",
                    "The next start of the store removes them" if self.is_unfinished else REBUILD,
                    self.is_unfinished,
                    len(places),
                )
            self._advance(len(items))

    # ------------------------------------------------------------------------------------------------ the stream

    def _peek(self, count: int) -> StoredItems:
        """Return the next `count` items; fewer at the end."""
        columns: list[tuple[Int32s, Int64s, Int32s, Int32s, Int32s]] = []
        number, item = self._place
        while count > 0 and number < len(self._files):
            end = min(item + count, self._counts[number] + 1)
            if end > item:
                found = self._files[number].items(item, end)
                columns.append(
                    (
                        found["key_hash"].astype(np.int32),
                        found["physical_offset"].astype(np.int64),
                        found["time_difference"].astype(np.int32),
                        np.full(end - item, number, np.int32),
                        np.arange(item, end, dtype=np.int32),
                    )
                )
                count -= end - item
            number, item = number + 1, 1
        if not columns:
            nothing = np.empty(0, np.int32)
            return StoredItems(nothing, np.empty(0, np.int64), nothing, nothing, nothing)
        if len(columns) == 1:
            return StoredItems(*columns[0])
        hashes, offsets, seconds, files, numbers = zip(*columns, strict=True)
        return StoredItems(
            np.concatenate(hashes),
            np.concatenate(offsets),
            np.concatenate(seconds),
            np.concatenate(files),
            np.concatenate(numbers),
        )

    def _advance(self, count: int) -> None:
        number, item = self._place
        while number < len(self._files) and item + count > self._counts[number]:
            count -= self._counts[number] + 1 - item
            number, item = number + 1, 1
        self._place = (number, item + count)

    def _window(self, size: int, next_offset: int) -> StoredItems:
        """Return the items before `next_offset` of the log, and out-of-order ones."""
        size += _RUN_ITEMS
        while True:
            items = self._peek(size)
            before = np.flatnonzero(items.offsets < next_offset)
            gaps = np.flatnonzero(np.diff(before, prepend=-1) > _RUN_ITEMS)
            if len(gaps):
                before = before[: gaps[0]]
            count = int(before[-1]) + 1 if len(before) else 0
            if len(items) < size or count + _RUN_ITEMS <= size:
                return _first(items, count)
            size *= 2

    # ------------------------------------------------------------------------------------------------- alignment

    def _align(self, batch: DispatchBatch, offsets: Int64s) -> tuple[Bools, list[Finding]]:
        items = self._window(len(offsets), batch.next_offset)
        is_found = np.zeros(len(offsets), np.bool_)
        keys_of_items = np.full(len(items), -1, np.int64)
        repeated = _assign(batch, offsets, items, is_found, keys_of_items)
        self._advance(len(items))
        findings: list[Finding] = []
        previous = -1
        for place, key in enumerate(keys_of_items.tolist()):
            if key >= 0:
                previous = key
            elif place not in repeated and not _is_skipped(batch, int(items.offsets[place])):
                wanted = previous + 1
                is_replaced = wanted < len(is_found) and not is_found[wanted] and keys_of_items[place] < 0
                findings.append(self._wrong_item(items, place, batch, offsets, wanted if is_replaced else None))
                if is_replaced:
                    previous = wanted
                    keys_of_items[place] = wanted
        is_reported = is_found.copy()
        is_reported[keys_of_items[keys_of_items >= 0]] = True
        self._note_missing(batch, offsets, np.flatnonzero(~is_reported), findings)
        matched = np.flatnonzero(keys_of_items >= 0)
        matched = matched[is_found[keys_of_items[matched]]]
        timestamps = batch.store_timestamps[batch.key_rows][keys_of_items[matched]]
        findings += self._check_times(_selected(items, matched), timestamps)
        return is_found, findings

    def _wrong_item(
        self, items: StoredItems, place: int, batch: DispatchBatch, offsets: Int64s, wanted: int | None
    ) -> Finding:
        file = self._files[int(items.files[place])]
        number = int(items.numbers[place])
        found = f"key hash {items.key_hashes[place]} of a message at {items.offsets[place]}"
        if wanted is None:
            expected, meaning = "an item of a message of the log", "it refers to a message without this key"
        else:
            expected = f"key hash {batch.key_hashes[wanted]} of the message at {offsets[wanted]}"
            meaning = "a query by this key misses the message"
        return Finding(
            Area.INDEX, file.path, file.item_position(number), f"item {number}: {expected}", found, meaning, REBUILD
        )

    def _note_missing(self, batch: DispatchBatch, offsets: Int64s, missing: Int64s, findings: list[Finding]) -> None:
        """Report keys without an item; at the end of the index all of them as one finding."""
        if not len(missing):
            return
        messages = len(np.unique(batch.key_rows[missing]))
        if self.is_at_end and self._pending is not None:
            self._pending = replace(self._pending, count=self._pending.count + messages)
            return
        number = min(self._place[0], len(self._files) - 1)
        is_tail = self.is_at_end
        path = self._files[number].path if self._files else self._directory
        position = 0
        if self._files:
            position = self._files[number].item_position(self._counts[number] + 1 if is_tail else self._place[1])
        finding = Finding(
            Area.INDEX,
            path,
            position,
            f"items of the message at {offsets[missing[0]]}" + (" and of those after it" if is_tail else ""),
            "the end of the items" if is_tail else "none",
            "queries by key do not find " + ("these messages" if is_tail else f"{messages} messages from there on"),
            NEXT_START if is_tail and self.is_unfinished else REBUILD,
            is_tail and self.is_unfinished,
            messages,
        )
        if is_tail:
            self._pending = finding
        else:
            findings.append(finding)

    # ------------------------------------------------------------------------------------------------------ times

    def _check_times(self, items: StoredItems, timestamps: Int64s) -> Iterator[Finding]:
        """Compare the seconds of the items, and the headers' timestamps, with the messages' store timestamps."""
        for number in _ascending(items.files):
            places = np.flatnonzero(items.files == number)
            file, of_file = self._files[number], timestamps[places]
            is_first, is_last = (
                int(items.numbers[places[0]]) == 1,
                int(items.numbers[places[-1]]) == self._counts[number],
            )
            if is_first:
                self._begin_timestamps[number] = int(of_file[0])
                yield from self._check_stated(file, 0, "begin timestamp", int(of_file[0]), file.header.begin_timestamp)
            if is_last:
                yield from self._check_stated(file, 8, "end timestamp", int(of_file[-1]), file.header.end_timestamp)
            expected = np.clip((of_file - self._begin_timestamps[number]) // 1000, 0, _SECONDS_MAX)
            wrong = np.flatnonzero(items.seconds[places] != expected)
            for at in wrong.tolist():
                item = int(items.numbers[places[at]])
                # RocketMQ writes the first item of a further file before it sets that file's begin timestamp.
                if item == 1 and number:
                    continue
                yield Finding(
                    Area.INDEX,
                    file.path,
                    file.item_position(item) + 12,
                    f"{expected[at]} seconds in item {item}",
                    f"{items.seconds[places[at]]}",
                    "a query by time could miss its message",
                    REBUILD,
                )

    def _check_stated(self, file: IndexView, position: int, name: str, expected: int, found: int) -> Iterator[Finding]:
        if expected != found and not self._is_live:
            meaning = "a query by time could skip the file"
            remedy = MENDED if self.is_unfinished else REBUILD
            yield Finding(
                Area.INDEX,
                file.path,
                position,
                f"{name} {expected}",
                f"{found}",
                meaning,
                remedy,
                self.is_unfinished,
            )


def _assign(
    batch: DispatchBatch, offsets: Int64s, items: StoredItems, is_found: Bools, keys_of_items: Int64s
) -> frozenset[int]:
    """Assign a matching key to each item; return the places of items that repeat others."""
    wanted: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    pairs = list(zip(offsets.tolist(), batch.key_hashes.tolist(), strict=True))
    for key in range(len(pairs) - 1, -1, -1):
        wanted[pairs[key]].append(key)
    repeated: set[int] = set()
    for place, pair in enumerate(zip(items.offsets.tolist(), items.key_hashes.tolist(), strict=True)):
        keys = wanted.get(pair)
        if keys is None:
            continue
        if keys:
            keys_of_items[place] = keys.pop()
            is_found[keys_of_items[place]] = True
        else:
            repeated.add(place)
    return frozenset(repeated)


def _is_skipped(batch: DispatchBatch, offset: int) -> bool:
    """Return whether the log is unreadable at an offset, so that the expected content is unknown."""
    return any(skipped.offset <= offset < skipped.offset + skipped.size for skipped in batch.skipped)


def _ascending(files: Int32s) -> list[int]:
    """Return the distinct file numbers, which ascend with the items."""
    if len(files) and files[0] == files[-1]:
        return [int(files[0])]
    found: list[int] = np.unique(files).tolist()
    return found


def _first(items: StoredItems, count: int) -> StoredItems:
    return StoredItems(
        items.key_hashes[:count],
        items.offsets[:count],
        items.seconds[:count],
        items.files[:count],
        items.numbers[:count],
    )


def _selected(items: StoredItems, places: Int64s) -> StoredItems:
    return StoredItems(
        items.key_hashes[places],
        items.offsets[places],
        items.seconds[places],
        items.files[places],
        items.numbers[places],
    )
