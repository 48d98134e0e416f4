"""Opens the directory of a store for reading (`pipeline.log.store_view`): RocketMQ's or ours, also while in use."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final, TypeVar

from commitlog.offline.directory import NotAStore, StoreDirectory, StoreMode, find_store
from commitlog.offline.lock_probe import find_holder
from dledger.entries.format.entry import HEADER_SIZE
from dledger.entries.log_head import LogHeadFile
from dledger.storage.checkpoint import Checkpoint, CheckpointFile
from pipeline.common.errors import NoStore, StoreUnreadable
from pipeline.log.entry_places import INDEX_NAME, EntryPlaces
from pipeline.log.evidence import (
    ProvenRange,
    claim_of,
    durable_part,
    last_queued,
    lost_of_node,
    lost_of_plain,
    lost_of_queues,
    newest_queued,
    take_indexed,
)
from pipeline.log.places import NO_INDEX, EntryHead, LogPlaces
from pipeline.log.store_view import StoreView, Tail
from store.check.queue_view import load_queues
from store.dispatch.checkpoint import read_checkpoint
from store.dispatch.recovery import CLOCK_MARGIN_MS
from store.errors import StorageFailed, StoreError, WrongFileSize
from store.fs.read_only_files import OpenFiles, ReadOnlyFiles

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["StoreView", "Tail", "open_store"]

_T = TypeVar("_T")
# A store in use may have begun a file after they were listed.
_LISTINGS_MAX: Final = 3


def open_store(path: str, *, tail: Tail = Tail.AUTO) -> StoreView:
    """Open a store: its root, or its folder `commitlog` or `dledger-<id>`.

    Raises: pipeline.common.errors.NoStore: there is no store, or only a raw log without messages.
        pipeline.common.errors.StoreUnreadable: a file cannot be read.
    """
    files = ReadOnlyFiles()
    # Tasks may run in another working directory.
    path = posixpath.abspath(path)
    try:
        for _ in range(_LISTINGS_MAX - 1):
            view = _open(files, path, find_store(files, path), tail)
            if view.lost is None or not view.is_live:
                return view
            view.close()
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
        raise NoStore(path, "a raw log of DLedger, whose entries contain no message records")
    open_files = OpenFiles(files)
    # A crash during the creation of a file leaves an empty file.
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
        # Not known without permission to read the lock.
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
    """Set the end of the readable range, and the offset up to which consume queues are complete."""
    is_unclean = view.is_live or files.exists(view.directory.abort_path)
    queued = last_queued(view)
    # A unit proves that its message is durable if the store was closed cleanly, or if its queues hold only committed
    # messages. After a crash of a plain store, units may be durable while their messages are not.
    is_trusted = not is_unclean or view.kind is not StoreMode.PLAIN
    newest = newest_queued(view, queued, is_trusted=is_trusted)
    checkpoint, durable = _load_checkpoint(files, view), durable_part(files, view, is_clean=not is_unclean)
    view.committed_index = checkpoint.committed_index
    committed, synced = (claim_of(view, index) for index in (checkpoint.committed_index, checkpoint.end_index))
    last = None if view.places is None else view.places.last()
    last_place = None if view.places is None or last is None else view.places.place(last)
    entries = [*(claim.begin for claim in _given([committed, synced])), *_given([last_place and last_place.position])]
    known = [*(claim.begin for claim in _given([newest])), *(begin + HEADER_SIZE for begin in entries)]
    sealed_end = durable.end_offset if view.log.file_at(durable.end_offset - 1) is not None else 0
    claimed_end = max([sealed_end, *(claim.end for claim in _given([newest, committed, synced]))])
    end = view.log.end(known, view.begin_offset, is_checked=is_unclean, claimed_end=claimed_end)
    view.end_offset = end.offset
    guaranteed_index = checkpoint.end_index
    if view.kind is not StoreMode.PLAIN and (tail is Tail.COMMITTED or (tail is Tail.AUTO and view.is_live)):
        divide = view.begin_offset if view.divide is None else view.divide
        committed = committed or _find_entry(view, checkpoint.committed_index, divide)
        view.end_offset = min(view.end_offset, max([divide, *(claim.end for claim in _given([newest, committed]))]))
        guaranteed_index = checkpoint.committed_index
        _set_indexes(view)
    else:
        _set_indexes(view)
        view.lost = None if is_unclean else take_indexed(view)
    view.lost = (
        lost_of_node(files, view, guaranteed_index)
        or view.lost
        or lost_of_plain(view, durable, end)
        or (lost_of_queues(view, queued) if is_trusted else None)
    )
    view.certain_offset = _certain_offset(files, view, newest, is_unclean=is_unclean)


def _given(values: Iterable[_T | None]) -> list[_T]:
    return [value for value in values if value is not None]


def _load_checkpoint(files: ReadOnlyFiles, view: StoreView) -> Checkpoint:
    node = view.directory.node_directory
    return Checkpoint() if node is None or view.places is None else CheckpointFile(files, node).load()


def _find_entry(view: StoreView, index: int, begin: int) -> ProvenRange | None:
    """Return the range of the last entry up to `index`, from entry headers: for a node without index files."""
    last = None if index == NO_INDEX else view.log.entry_before(view.end_offset, begin)
    if last is None or last.index <= index:
        return None if last is None else ProvenRange(last.offset, last.end_offset)
    heads = (view.log.next_entry(max(file.begin_offset, begin)) for file in reversed(view.files))
    found = next((head for head in heads if head is not None and head.index <= index), None)
    following = found
    while following is not None and following.index <= index:
        found, following = following, view.log.next_entry(following.end_offset)
    return None if found is None else ProvenRange(found.offset, found.end_offset)


def _set_indexes(view: StoreView) -> None:
    """Set the first and the last entry of the readable range."""
    begin = view.begin_offset if view.divide is None else view.divide
    first = view.log.next_entry(begin)
    if first is None or first.offset >= view.end_offset:
        return
    view.begin_index = first.index
    last = _last_entry(view, begin)
    view.end_index = first.index if last is None else last.index + 1
    offset = first.offset if last is None else last.end_offset
    while offset < view.end_offset:
        # The following bytes are damaged; their header or the index gives the entry's index.
        end = _end_of_entry(view, view.end_index, offset)
        if end is None or end > view.end_offset:
            break
        view.end_index, offset = view.end_index + 1, end


def _last_entry(view: StoreView, begin: int) -> EntryHead | None:
    """Return the last entry whose index follows that of the previous entry; a damaged header may have any index."""
    last = view.log.entry_before(view.end_offset, begin)
    while last is not None and last.offset > begin:
        before = view.log.entry_before(last.offset, begin)
        if before is None or before.index + 1 == last.index:
            break
        last = before
    return last


def _end_of_entry(view: StoreView, index: int, offset: int) -> int | None:
    """Return the end of the entry that begins at `offset` or in the next file; None if not known."""
    head = view.log.next_entry(offset)
    if head is not None and head.index == index:
        return head.end_offset
    claim = claim_of(view, index)
    return None if claim is None or claim.begin < offset else claim.end


def _certain_offset(files: ReadOnlyFiles, view: StoreView, newest: ProvenRange | None, *, is_unclean: bool) -> int:
    if newest is None:
        return view.begin_offset
    certain = newest.end
    if is_unclean:
        try:
            timestamp = read_checkpoint(files, view.root).logics_msg_timestamp
        except WrongFileSize:
            timestamp = 0
        if not timestamp:
            return view.begin_offset
        certain = min(certain, view.offset_at_time(timestamp - CLOCK_MARGIN_MS))
    return max(view.begin_offset, min(certain, view.end_offset))
