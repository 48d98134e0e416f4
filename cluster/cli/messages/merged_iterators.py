"""Merges several blocking iterators into one, in order of arrival."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Item = TypeVar("Item")

# Prefetched items of all sources together; each source may have one more.
_AHEAD_MAX: Final = 256
_LOOK_S: Final = 0.5


class _End:
    def __init__(self, error: Exception | None) -> None:
        self.error = error


def merged(sources: Sequence[Iterator[Item]]) -> Iterator[Item]:
    """Yield the items of all sources; each is read in its own thread, a single one in the caller's.

    A thread ends with its source, or after this iterator was closed, within half a second of its next item.

    Raises:
        Exception: the exception of a source; the others are not read further.
    """
    if len(sources) == 1:
        yield from sources[0]
        return
    items: queue.Queue[Item | _End] = queue.Queue(_AHEAD_MAX)
    is_over = threading.Event()
    for source in sources:
        threading.Thread(target=_read, args=(source, items, is_over), daemon=True).start()
    left = len(sources)
    try:
        while left:
            item = items.get()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                left -= 1
    finally:
        is_over.set()


def _read(source: Iterator[Item], items: queue.Queue[Item | _End], is_over: threading.Event) -> None:
    error: Exception | None = None
    try:
        for item in source:
            if not _put(items, item, is_over):
                return
    except Exception as caught:  # noqa: BLE001  (raised again in the consumer's thread)
        error = caught
    _put(items, _End(error), is_over)


def _put(items: queue.Queue[Item | _End], item: Item | _End, is_over: threading.Event) -> bool:
    """Put an item, waiting for space; return False if the iterator was closed."""
    while not is_over.is_set():
        try:
            items.put(item, timeout=_LOOK_S)
        except queue.Full:
            continue
        return True
    return False
