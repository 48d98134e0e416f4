"""One replica in an audit: the range and the files of its log. Small, because it is sent to every task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.entries.format.entry import BLANK_SIZE_MIN
from pipeline.common.errors import BadOption
from pipeline.log.stores import StoreView, Tail, open_store
from store.fs.read_only_files import OpenFiles, ReadOnlyFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from commitlog.offline.directory import LogFileInfo

NO_OFFSET: Final = -1


class AuditedReplica(NamedTuple):
    """The range and the files of the log of one replica.

    Attributes:
        name: its directory, as the user wrote it.
        begin, end: offsets of its log.
        committed: the committed end of the log, as known to this replica; -1: unknown.
        files: of its log, ascending.
    """

    name: str
    begin: int
    end: int
    committed: int
    files: tuple[LogFileInfo, ...]

    def missing_files(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges between its start and its end without a file."""
        position = self.begin
        for file in self.files:
            if position < file.begin_offset < self.end:
                yield position, file.begin_offset
            position = max(position, file.end_offset)

    def file_at(self, offset: int) -> LogFileInfo | None:
        """Return the file with the byte at `offset`."""
        return next((file for file in self.files if file.begin_offset <= offset < file.end_offset), None)


def open_replicas(paths: Sequence[str]) -> list[AuditedReplica]:
    """Open the replicas in these directories.

    Raises:
        pipeline.common.errors.BadOption: a directory is named twice, or the stores are of different kinds.
        pipeline.common.errors.NoStore: a directory has no store.
        pipeline.common.errors.StoreUnreadable: a store cannot be read; the message has the reason.
    """
    if len(set(paths)) < len(paths):
        raise BadOption("replicas", "different directories", f"one twice in {', '.join(paths)}")
    found = []
    kinds = {}
    for path in paths:
        with open_store(path, tail=Tail.ALL) as view:
            kinds[path] = view.kind
            found.append(AuditedReplica(path, view.begin_offset, view.end_offset, _committed(view), view.files))
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{path} ({kind})" for path, kind in kinds.items())
        raise BadOption("replicas", "stores of one kind", listed)
    end = max(replica.end for replica in found)
    return [replica._replace(end=_written_end(replica, end)) for replica in found]


def _committed(view: StoreView) -> int:
    """Return the offset after the last entry that is known to be committed."""
    if view.places is None:
        return NO_OFFSET
    place = view.places.place(view.committed_index) if view.committed_index >= 0 else None
    return NO_OFFSET if place is None else place.position + place.size


def _written_end(replica: AuditedReplica, end: int) -> int:
    """Return the end of a replica's data, which is after its last valid entry if other bytes follow."""
    file = replica.file_at(replica.end)
    if replica.end >= end or file is None:
        return replica.end
    files = OpenFiles(ReadOnlyFiles())
    try:
        view, position = files.get(file.path).view(), replica.end - file.begin_offset
        return min(end, file.end_offset) if any(view[position : position + BLANK_SIZE_MIN]) else replica.end
    finally:
        files.close_all()
