"""The evidence of the end of a log that other files give: checkpoints, index files and consume queues.

A log ends at its last valid record, but that record may be followed by a damaged one, or files may be missing. These
files are written after the log is, so what they name was durable. What they name in a file of the log is read, so that
damage is reported with its position; what is in no file is a lost range.

| evidence | of a replicated log | of a plain log |
| --- | --- | --- |
| the node's checkpoint | always | none |
| the store's checkpoint | none | its seal: always; its times: after a clean exit |
| consume queues | always: they hold only committed messages | after a clean exit |
| index files | after a clean exit | none |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from commitlog.offline.directory import StoreMode
from commitlog.offline.durable_part import DurablePart
from commitlog.record.record import RECORD_SIZE_MIN
from dledger.entries.format.entry import HEADER_SIZE
from dledger.entries.log_head import LogHeadFile
from dledger.storage.checkpoint import CheckpointFile
from pipeline.common.errors import LostRange
from pipeline.log.places import NO_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipeline.log.places import LogEnd
    from pipeline.log.store_view import StoreView
    from store.fs.read_only_files import ReadOnlyFiles


class ProvenRange(NamedTuple):
    """The range of a record or an entry, according to a file that is written only after the record is durable.

    Attributes:
        begin, end: the range.
        source: the file or directory.
    """

    begin: int
    end: int
    source: str = ""


def last_queued(view: StoreView) -> list[ProvenRange]:
    """Return the last message of each consume queue, the newest first, whether it is in the log or not."""
    queues = (queue for queue in view.queue_views.values() if queue.end > queue.begin)
    last = ((queue.unit(queue.end - 1), queue.directory) for queue in queues)
    claims = (ProvenRange(unit.offset, unit.offset + unit.size, source) for unit, source in last)
    return sorted(claims, key=lambda claim: claim.begin, reverse=True)


def newest_queued(view: StoreView, queued: Iterable[ProvenRange], *, is_trusted: bool) -> ProvenRange | None:
    """Return the newest message that is in a consume queue and in the log.

    Args:
        view: the store.
        queued: the last message of each queue, the newest first.
        is_trusted: whether a unit proves that its message is durable.
    """
    for claim in queued:
        end = view.log.record_end(claim.begin)
        if end is not None:
            return claim._replace(end=end)
        if is_trusted and _is_record(claim) and view.log.is_in_one_file(claim.begin, claim.end):
            return claim
    return None


def _is_record(claim: ProvenRange) -> bool:
    return claim.end - claim.begin >= RECORD_SIZE_MIN


def claim_of(view: StoreView, index: int) -> ProvenRange | None:
    """Return the range of the entry in the node's checkpoint; None if the checkpoint names none or it is unreadable."""
    place = None if index == NO_INDEX or view.places is None else view.places.place(index)
    if place is None:
        return None
    entry = view.log.entry_at(place.position)
    if entry is not None and entry.index == index:
        return ProvenRange(entry.offset, entry.end_offset)
    # The header or the index unit is damaged. A unit that follows its predecessor exactly is taken as correct.
    before = None if view.places is None else view.places.place(index - 1)
    number = view.log.file_at(place.position)
    is_first = number is not None and view.files[number].begin_offset == place.position
    is_next = before is not None and before.position + before.size == place.position
    end = place.position + place.size
    is_plausible = place.size >= HEADER_SIZE and view.log.is_in_one_file(place.position, end)
    return ProvenRange(place.position, end) if is_plausible and (is_first or is_next) else None


def durable_part(files: ReadOnlyFiles, view: StoreView, *, is_clean: bool) -> DurablePart:
    """Return the durable part of a plain log according to the store's checkpoint; must be read before the log is."""
    path = view.directory.checkpoint_path
    content = files.read_bytes(path) if view.kind is StoreMode.PLAIN else None
    return DurablePart.of(path, content, is_plain=True, is_clean=is_clean)


def lost_of_plain(view: StoreView, durable: DurablePart, end: LogEnd) -> LostRange | None:
    """Return the end of a plain log that was durable according to its checkpoint and is missing, or None."""
    if durable.end_offset:
        reason = f"{durable.path} calls it durable, and the files of the log end before it"
        is_lost = durable.end_offset > view.end_offset
        return LostRange("log", view.end_offset, durable.end_offset, reason) if is_lost else None
    # A damaged last record is in the range, so its timestamp is missing; it is reported when it is read.
    if end.offset > end.scanned_offset:
        return None
    for finding in durable.lost_end(end.offset, end.last_timestamp, view.queue_views.values()):
        reason = f"at least one record; {finding.path} at byte {finding.position}: expected {finding.expected}, "
        return LostRange("log", end.offset, end.offset + RECORD_SIZE_MIN, f"{reason}found {finding.found}")
    return None


def lost_of_node(files: ReadOnlyFiles, view: StoreView, guaranteed_index: int) -> LostRange | None:
    """Return the entries that are durable according to the checkpoint but missing in the files, or None."""
    node = view.directory.node_directory
    if node is None or guaranteed_index == NO_INDEX or guaranteed_index < view.end_index:
        return None
    head = LogHeadFile(files, node).load()
    begin = max(view.end_index, 0 if head is None else head.begin_index)
    reason = f"{CheckpointFile(files, node).path} calls entry {guaranteed_index} durable, and the files end before it"
    return LostRange("entries", begin, guaranteed_index + 1, reason) if begin <= guaranteed_index else None


def lost_of_queues(view: StoreView, queued: Iterable[ProvenRange]) -> LostRange | None:
    """Return the range up to the newest message that is in a consume queue and after the end of the log, or None."""
    for claim in queued:
        if _is_record(claim) and claim.end > view.end_offset:
            reason = f"the last unit of {claim.source} is of a message there; the log was cut, or the unit is damaged"
            return LostRange("log", view.end_offset, claim.end, reason)
    return None


def take_indexed(view: StoreView) -> LostRange | None:
    """Extend the readable range by the entries that have index units, because their headers may be damaged.

    Only for a store that was closed cleanly: after a crash, units may be durable while their entries are not. Units of
    truncated entries may follow the end of a log of RocketMQ; their terms are lower, or they are at other positions.

    Returns: the entries that are in no file; None: there are none.
    """
    if view.places is None or not view.files or not view.files[-1].header_size:
        return None
    index = view.places.begin if view.end_index == NO_INDEX else view.end_index
    end, term = view.end_offset, view.term_at(index - 1) or 0
    # A file may have been cut.
    file_size, first_lost = max(file.size for file in view.files if file.header_size), index
    while (place := view.places.place(index)) is not None and place.size >= HEADER_SIZE and place.term >= term:
        if place.position != end and (place.position < end or place.position % file_size):
            break
        index, end, term = index + 1, place.position + place.size, place.term
        if view.log.is_in_one_file(place.position, end):
            view.begin_index = index - 1 if view.begin_index == NO_INDEX else view.begin_index
            view.end_index, view.end_offset, first_lost = index, end, index
    reason = (
        f"the index files of {view.directory.node_directory} have units of them, and the files of the log end before"
    )
    return LostRange("entries", first_lost, index, reason) if first_lost < index else None
