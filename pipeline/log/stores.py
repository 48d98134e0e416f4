"""Opens the directory of a store for reading (`pipeline.log.store_view`): RocketMQ's or ours, closed or in use."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from commitlog.lock_probe import find_holder
from commitlog.store_directory import NotAStore, StoreDirectory, StoreMode, find_store
from dledger.checkpoint import CheckpointFile
from dledger.entry import HEADER_SIZE
from dledger.log_head import LogHeadFile
from pipeline.common.errors import NoStore, StoreUnreadable
from pipeline.log.entry_places import INDEX_NAME, EntryPlaces
from pipeline.log.places import NO_INDEX, LogPlaces
from pipeline.log.store_view import StoreView, Tail
from store.checkpoint import read_checkpoint
from store.derived_recovery import CLOCK_MARGIN_MS
from store.errors import StorageFailed, StoreError, WrongFileSize
from store.queue_view import load_queues
from store.read_only_files import OpenFiles, ReadOnlyFiles

__all__ = ["StoreView", "Tail", "open_store"]


def open_store(path: str, *, tail: Tail = Tail.AUTO) -> StoreView:
    """Open a store: its root, or its folder `commitlog` or `dledger-<id>`.

    Raises:
        pipeline.common.errors.NoStore: nothing of the kind is there, or a raw log without messages.
        pipeline.common.errors.StoreUnreadable: a file cannot be read.
    """
    files = ReadOnlyFiles()
    # Tasks may run in another folder.
    path = posixpath.abspath(path)
    try:
        return _open(files, path, find_store(files, path), tail)
    except NotAStore as error:
        raise NoStore(path, str(error)) from error
    except StorageFailed as error:
        raise StoreUnreadable(error.path, f"{error.operation}: {error.reason.strerror}") from error
    except (NoStore, StoreUnreadable):
        raise
    except StoreError as error:
        raise StoreUnreadable(path, str(error)) from error


def _open(files: ReadOnlyFiles, path: str, directory: StoreDirectory, tail: Tail) -> StoreView:
    if directory.mode is StoreMode.RAW:
        raise NoStore(path, "a raw log of DLedger, whose entries hold no message records")
    open_files = OpenFiles(files)
    # A crash while a file was made leaves an empty one.
    log_files = tuple(file for file in directory.log_files if file.size)
    log = LogPlaces(open_files, log_files)
    queues, _ = load_queues(files, open_files, directory.queues_path)
    node = directory.node_directory
    view = StoreView(
        path=path,
        directory=directory,
        open_files=open_files,
        is_live=_is_live(directory),
        files=log_files,
        log=log,
        queue_views=queues,
        places=None if node is None else EntryPlaces(files, open_files, f"{node}/{INDEX_NAME}"),
    )
    view.begin_offset = view.end_offset = _begin_offset(files, view)
    _bound(files, view, tail)
    return view


def _is_live(directory: StoreDirectory) -> bool:
    try:
        return find_holder(directory.lock_paths) is not None
    except StorageFailed:
        # Who may not look at the lock cannot know.
        return True


def _begin_offset(files: ReadOnlyFiles, view: StoreView) -> int:
    begin = view.files[0].begin_offset if view.files else 0
    node = view.directory.node_directory
    if view.kind is not StoreMode.DLEDGER or node is None or not view.files:
        return begin
    head = LogHeadFile(files, node).load()
    begin = begin if head is None else max(begin, head.begin_position)
    first = view.log.next_entry(begin)
    return begin if first is None else first.offset


def _bound(files: ReadOnlyFiles, view: StoreView, tail: Tail) -> None:
    """Find out how far the log may be read, and how far its queues are certain."""
    is_unclean = view.is_live or files.exists(view.directory.abort_path)
    newest = _newest_queued(view)
    committed = _committed_place(files, view)
    last = None if view.places is None else view.places.last()
    last_place = None if view.places is None or last is None else view.places.place(last)
    entries = [committed, None if last_place is None else last_place.position]
    known = [newest, *(None if place is None else place + HEADER_SIZE for place in entries)]
    view.end_offset = view.log.end(_given(known), view.begin_offset, is_checked=is_unclean)
    if view.kind is not StoreMode.PLAIN and (tail is Tail.COMMITTED or (tail is Tail.AUTO and view.is_live)):
        queued_end = None if newest is None else view.log.record_end(newest)
        entry = None if committed is None else view.log.entry_at(committed)
        ends = [queued_end, None if entry is None else entry.end_offset]
        divide = view.begin_offset if view.divide is None else view.divide
        view.end_offset = min(view.end_offset, max([divide, *_given(ends)]))
    _set_indexes(view)
    view.certain_offset = _certain_offset(files, view, newest, is_unclean=is_unclean)


def _given(offsets: Iterable[int | None]) -> list[int]:
    return [offset for offset in offsets if offset is not None]


def _newest_queued(view: StoreView) -> int | None:
    """Return where the newest message begins that is in a consume queue and in the log."""
    ends = [queue.unit(queue.end - 1).offset for queue in view.queue_views.values() if queue.end > queue.begin]
    return next((offset for offset in sorted(ends, reverse=True) if view.log.record_end(offset) is not None), None)


def _committed_place(files: ReadOnlyFiles, view: StoreView) -> int | None:
    """Return where the last entry begins that the node's checkpoint calls committed."""
    node = view.directory.node_directory
    if node is None or view.places is None:
        return None
    view.committed_index = CheckpointFile(files, node).load().committed_index
    place = None if view.committed_index == NO_INDEX else view.places.place(view.committed_index)
    entry = None if place is None else view.log.entry_at(place.position)
    return entry.offset if entry is not None and entry.index == view.committed_index else None


def _set_indexes(view: StoreView) -> None:
    """Find the first and the last entry of what may be read."""
    begin = view.begin_offset if view.divide is None else view.divide
    first = view.log.next_entry(begin)
    if first is None or first.offset >= view.end_offset:
        return
    view.begin_index = first.index
    last = view.log.entry_before(view.end_offset, begin)
    view.end_index = NO_INDEX if last is None else last.index + 1


def _certain_offset(files: ReadOnlyFiles, view: StoreView, newest: int | None, *, is_unclean: bool) -> int:
    if newest is None:
        return view.begin_offset
    newest_end = view.log.record_end(newest)
    certain = view.begin_offset if newest_end is None else newest_end
    if is_unclean:
        try:
            timestamp = read_checkpoint(files, view.root).logics_msg_timestamp
        except WrongFileSize:
            timestamp = 0
        if not timestamp:
            return view.begin_offset
        certain = min(certain, view.offset_at_time(timestamp - CLOCK_MARGIN_MS))
    return max(view.begin_offset, min(certain, view.end_offset))
