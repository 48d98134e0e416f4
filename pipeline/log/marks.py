"""Marks of a log: a few bytes at known offsets, which identify the same log in another directory.

All replicas of a log have the same bytes at the same offsets, and different logs differ: the header of an entry
contains index, term, position and body checksum, that of a plain record contains offset, times and checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from commitlog.record.record import FIELDS_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pipeline.log.store_view import StoreView

T = TypeVar("T")

MARK_SIZE: Final = FIELDS_SIZE
_COUNT: Final = 4


class Mark(NamedTuple):
    """The first bytes of a record, or of its entry.

    Attributes:
        offset: of the bytes in the log.
        head: the bytes.
    """

    offset: int
    head: bytes


def some_of(all_: Sequence[T]) -> list[T]:
    """Return a sample, including the first and the last."""
    places = {(len(all_) - 1) * number // (_COUNT - 1) for number in range(_COUNT)}
    return [all_[place] for place in sorted(places)] if all_ else []


def marks_of(store: StoreView, offsets: Iterable[int]) -> tuple[Mark, ...]:
    """Return the marks at these offsets, as far as they are in the store's log."""
    heads = ((offset, store.log.head_at(offset)) for offset in offsets)
    return tuple(Mark(offset, head) for offset, head in heads if len(head) == MARK_SIZE)


def is_same_log(store: StoreView, marks: Iterable[Mark]) -> bool:
    """Return whether a store has the log of these marks: it has at least one of them, and none differs."""
    is_known = False
    for offset, head in marks:
        if store.begin_offset <= offset and offset + len(head) <= store.end_offset:
            if store.log.head_at(offset) != head:
                return False
            is_known = True
    return is_known
