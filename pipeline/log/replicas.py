"""Chooses one of several replicas of a log to read, and the offset up to which it is read.

An entry is committed when a majority of the replicas has it and all earlier ones. Two replicas with the same term at
one index are identical up to there (log matching). Entries of a minority are not read, because they may be truncated.
The checkpoint of a replica may show that more entries are committed.

For a plain log, which has no majorities, the longest replica is read.

A directory that cannot be opened counts as an empty replica.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from commitlog.offline.directory import StoreMode
from pipeline.common.errors import BadOption, PipelineError
from pipeline.log.places import NO_INDEX
from pipeline.log.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.log.store_view import StoreView

_log = logging.getLogger(__name__)


def choose_replicas(paths: Sequence[str]) -> StoreView:
    """Open the replica with the most committed entries, bounded by the committed end; with one path it is `open_store`.

    Raises:
        pipeline.common.errors.BadOption: they belong to different logs, or there is no path.
        pipeline.common.errors.NoStore, pipeline.common.errors.StoreUnreadable: none of them can be opened.
    """
    if len(paths) == 1:
        return open_store(paths[0])
    stores = _open_all(paths)
    try:
        chosen = _choose(stores, len(paths))
    except BaseException:
        _close(stores, None)
        raise
    _close(stores, chosen)
    return chosen


def _open_all(paths: Sequence[str]) -> list[StoreView]:
    stores: list[StoreView] = []
    failure: PipelineError = BadOption("path", "at least one directory", "none")
    for path in paths:
        try:
            stores.append(open_store(path))
        except PipelineError as error:
            failure = error
            _log.warning("%s: this replica is not read: %s", path, error)
    if not stores:
        raise failure
    return stores


def _close(stores: Sequence[StoreView], chosen: StoreView | None) -> None:
    for store in stores:
        if store is not chosen:
            store.close()


def _choose(stores: Sequence[StoreView], count: int) -> StoreView:
    kinds = {store.kind for store in stores}
    if StoreMode.PLAIN in kinds:
        if len(kinds) > 1:
            raise BadOption("path", "replicas of one log", ", ".join(f"{each.path} ({each.kind})" for each in stores))
        _check_plain(stores)
        return max(stores, key=lambda store: (store.end_offset, -store.begin_offset))
    common = {
        (number, other): _common_end(one, stores[other])
        for number, one in enumerate(stores)
        for other in range(len(stores))
    }
    needed = count // 2 + 1
    ends: list[int] = []
    for number, store in enumerate(stores):
        alike = sorted((common[number, other] for other in range(len(stores))), reverse=True)
        agreed = alike[needed - 1] if needed <= len(alike) else NO_INDEX
        # A store in use is visible only up to its known commit.
        known = store.end_index if store.is_live else min(store.committed_index + 1, store.end_index)
        ends.append(max(agreed, known))
    best = max(range(len(stores)), key=lambda number: (ends[number], -stores[number].begin_offset))
    chosen = stores[best]
    for number, store in enumerate(stores):
        if common[best, number] <= max(store.begin_index, chosen.begin_index) < min(ends[best], store.end_index):
            raise BadOption("path", f"replicas of one log, as {chosen.path}", f"{store.path} with other entries")
    if ends[best] < chosen.end_index:
        chosen.end_at(ends[best])
    return chosen


def _common_end(one: StoreView, other: StoreView) -> int:
    """Return the exclusive end of the common entries of two replicas; without overlap, the lower end."""
    begin, end = max(one.begin_index, other.begin_index), min(one.end_index, other.end_index)
    if begin >= end:
        return end
    low, high = begin, end
    # Equal terms at an index imply equal entries up to it.
    while low < high:
        middle = (low + high) // 2
        term = one.term_at(middle)
        low, high = (middle + 1, high) if term is not None and term == other.term_at(middle) else (low, middle)
    return low


def _check_plain(stores: Sequence[StoreView]) -> None:
    """Refuse logs that differ at their first common record."""
    begin = max(store.begin_offset for store in stores)
    end = min(store.end_offset for store in stores)
    heads = {store.path: store.log.head_at(begin) for store in stores} if begin < end else {}
    if len(set(heads.values())) > 1:
        raise BadOption("path", "replicas of one log", f"other records at {begin} in {', '.join(heads)}")
