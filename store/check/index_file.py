"""Checks one key-index file by itself: header, slots, and the chains through the items.

Slots and chains are determined by the items' hashes, so they are recomputed and compared. Not here: whether the items
are those of the log's messages (`store.check.index_against_log`).

Memory: one number per slot (20 MB by default) and some chunks of items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store.index.layout import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from store.check.index_view import IndexView

_CHUNK_ITEMS = 64 << 10
NEXT_START = "The next start of the store repairs it"
REBUILD = "`dledger rebuild` rebuilds the index from the log"


def check_structure(file: IndexView, *, is_unfinished: bool = False, is_live: bool = False) -> Iterator[Finding]:
    """Yield the faults of one file by itself.

    Args:
        file: the file.
        is_unfinished: the store was not closed cleanly: header and slots that are older than the items are no damage.
        is_live: a program is adding items, and has header and slots in memory: they are not checked.
    """
    stated, count = file.header.index_count, count_items(file)
    if is_live and stated != count + 1:
        yield from _check_all_chains(file, count, np.zeros(file.slot_count, np.int32))
        return
    if stated != count + 1 and (stated, count) != (0, 0):
        yield _finding(
            file, 36, f"index count {count + 1}", f"{stated}", f"{count} items are in the file", is_unfinished
        )
    newest = np.zeros(file.slot_count, np.int32)
    yield from _check_all_chains(file, count, newest)
    slots = file.slots()
    for number in np.flatnonzero(slots != newest).tolist():
        yield _finding(
            file,
            HEADER_SIZE + number * SLOT_SIZE,
            f"item {newest[number]} in slot {number}",
            f"{slots[number]}",
            "queries through this slot miss items, or follow others",
            is_unfinished,
        )
    yield from _check_header(file, count, int(np.count_nonzero(newest)), is_unfinished=is_unfinished)


def _check_all_chains(file: IndexView, count: int, newest: NDArray[np.int32]) -> Iterator[Finding]:
    for begin in range(1, count + 1, _CHUNK_ITEMS):
        yield from _check_chains(file, begin, min(begin + _CHUNK_ITEMS, count + 1), newest)


def count_items(file: IndexView) -> int:
    """Return the number of items in a file up to the last non-zero one, ignoring its header."""
    stated = file.stated_item_count
    for begin in range(_chunk_begin(file.item_count_max), 0, -_CHUNK_ITEMS):
        end = min(begin + _CHUNK_ITEMS, file.item_count_max + 1)
        position = file.item_position(begin)
        # Fast path: usually only zeros follow the items that the header counts, which is checked at memory speed.
        if not any_data(file.view, position, file.item_position(end)):
            continue
        items = np.frombuffer(file.view, np.uint8, (end - begin) * ITEM_SIZE, position).reshape(-1, ITEM_SIZE)
        last = begin + int(np.flatnonzero(items.any(axis=1))[-1])
        # An all-zero item is valid only for a key of hash 0 in the message at offset 0.
        return max(last, 1) if stated else last
    return min(stated, 1)


def _chunk_begin(last: int) -> int:
    return 1 + (last - 1) // _CHUNK_ITEMS * _CHUNK_ITEMS


def any_data(view: memoryview, begin: int, end: int) -> bool:
    """Return whether any byte of `view[begin:end]` is not zero."""
    return bool(np.frombuffer(view, np.uint8, end - begin, begin).any())


def _check_chains(file: IndexView, begin: int, end: int, newest: NDArray[np.int32]) -> Iterator[Finding]:
    """Compare the `previous` of some items with the expected one; update `newest` of every slot."""
    items = file.items(begin, end)
    slots = items["key_hash"].astype(np.int64) % file.slot_count
    numbers = np.arange(begin, end, dtype=np.int32)
    order = np.argsort(slots, kind="stable")
    sorted_slots, sorted_numbers = slots[order], numbers[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = sorted_slots[1:] != sorted_slots[:-1]
    previous = np.empty(len(order), np.int32)
    previous[1:] = sorted_numbers[:-1]
    previous[is_first] = newest[sorted_slots[is_first]]
    newest[sorted_slots] = sorted_numbers  # NumPy assigns in order, so the last item of a slot wins
    wrong = items["previous"][order] != previous
    for place in sorted(np.flatnonzero(wrong).tolist(), key=lambda at: sorted_numbers[at]):
        number, expected = int(sorted_numbers[place]), int(previous[place])
        found = int(items["previous"][number - begin])
        is_loop = found >= number
        yield _finding(
            file,
            file.item_position(number) + 16,
            f"item {expected} before item {number} in its slot",
            f"{found}",
            "a loop: a query would not end" if is_loop else "queries miss the items before it",
        )
    for number in np.flatnonzero(items["key_hash"] < 0).tolist():
        place = begin + number
        found = int(items["key_hash"][number])
        yield _finding(file, file.item_position(place), "a key hash from 0", f"{found}", "no key has it")


def _check_header(file: IndexView, count: int, used_slots: int, *, is_unfinished: bool) -> Iterator[Finding]:
    header = file.header
    # RocketMQ before 4.9 incremented the slot count with each item.
    if not used_slots <= header.slot_count <= max(count, used_slots):
        yield _finding(
            file, 32, f"slot count {used_slots}", f"{header.slot_count}", "it is only informative", is_unfinished
        )
    if count:
        first, last = file.item(1).offset, file.item(count).offset
        if header.begin_offset != first:
            yield _finding(
                file,
                16,
                f"begin offset {first}",
                f"{header.begin_offset}",
                "queries by time and expiry use it",
                is_unfinished,
            )
        if header.end_offset != last:
            yield _finding(
                file, 24, f"end offset {last}", f"{header.end_offset}", "messages could be missed", is_unfinished
            )
    if file.item_position(0) + ITEM_SIZE <= len(file.view) and any_data(
        file.view, file.item_position(0), file.item_position(1)
    ):
        yield _finding(file, file.item_position(0), "zeros: item 0 is never used", "data", "nothing reads it")


def _finding(
    file: IndexView, position: int, expected: str, found: str, meaning: str, is_unfinished: bool = False
) -> Finding:
    remedy = NEXT_START if is_unfinished else REBUILD
    return Finding(Area.INDEX, file.path, position, expected, found, meaning, remedy, is_unfinished)
