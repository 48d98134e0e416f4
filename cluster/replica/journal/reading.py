"""Reads the segments of a journal, without changing any file.

Segments are numbered consecutively, and so are the commands in them, across segments. Older segments are deleted, the
oldest first, but never the last one with commands. So the commands reach at least up to the newest snapshot, and a
missing file is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cluster.replica.journal.format import SEGMENT_HEADER_SIZE, JournalDamaged, SegmentContent, read_segment
from store.errors import MissingFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.replica.journal.format import JournalCommand
    from store.fs.ports import Files

# Under the directory of the state.
FOLDER: Final = "journal"
# An operator creates this empty file instead of the segments: the broker starts with the newest snapshot alone.
LOSS_ACCEPTED_NAME: Final = "loss-accepted"
_NAME_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class JournalContent:
    """What a journal contains.

    Attributes:
        segments: contents by number, ascending; none if an operator has accepted their loss.
        last_index: index of the last command, at least that of the snapshot.
        snapshot_index: index of the last command in the snapshot.
    """

    segments: dict[int, SegmentContent]
    last_index: int
    snapshot_index: int

    def changes(self) -> list[JournalCommand]:
        """Return the commands after the snapshot."""
        return [
            change
            for content in self.segments.values()
            for change in content.changes
            if change.number > self.snapshot_index
        ]


def path_of(directory: str, number: int) -> str:
    """Return the path of a segment in the directory of a journal."""
    return f"{directory}/{number:0{_NAME_DIGITS}d}"


def numbers_in(files: Files, directory: str) -> list[int]:
    """Return the numbers of the segments in the directory of a journal, ascending."""
    names = files.list_directory(directory) if files.is_directory(directory) else []
    return [int(name) for name in names if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()]


def read_journal(files: Files, directory: str, snapshot_index: int) -> JournalContent:
    """Read the journal in `directory`.

    Args:
        files: the file system.
        directory: of the journal.
        snapshot_index: index of the last command in the snapshot.

    Raises:
        JournalDamaged: a segment is damaged, or they do not belong to the snapshot.
        store.errors.MissingFile: a segment is missing.
        store.errors.StorageFailed: one cannot be read.
    """
    numbers = numbers_in(files, directory)
    if not numbers and files.exists(f"{directory}/{LOSS_ACCEPTED_NAME}"):
        return JournalContent({}, snapshot_index, snapshot_index)
    if not numbers:
        raise MissingFile(path_of(directory, 1), f"the snapshot of index {snapshot_index}")
    segments = _read_all(files, directory, numbers)
    last_index = _check_order(directory, segments)
    first_path, last_path = path_of(directory, numbers[0]), path_of(directory, numbers[-1])
    first_index = last_index + 1 - sum(len(each.changes) for each in segments.values())
    if first_index > snapshot_index + 1:
        expected_index = f"command {snapshot_index + 1}, after the newest snapshot,"
        raise JournalDamaged(first_path, 0, f"{expected_index} here or in an older segment", f"command {first_index}")
    if last_index < snapshot_index:
        expected_index = f"commands up to {snapshot_index}, which the newest snapshot contains"
        raise JournalDamaged(last_path, segments[numbers[-1]].end, expected_index, f"commands up to {last_index}")
    return JournalContent(segments, last_index, snapshot_index)


def check_unused(files: Files, directory: str) -> None:
    """Check that no command is in a journal without a snapshot that needs it.

    Raises:
        JournalDamaged: there are some: the snapshots are missing.
    """
    for number, content in _read_all(files, directory, numbers_in(files, directory)).items():
        if content.changes:
            expected = f"a snapshot before command {content.changes[0].number}"
            raise JournalDamaged(path_of(directory, number), SEGMENT_HEADER_SIZE, expected, "none with a journal")


def _read_all(files: Files, directory: str, numbers: Sequence[int]) -> dict[int, SegmentContent]:
    segments: dict[int, SegmentContent] = {}
    for expected, number in enumerate(numbers, numbers[0] if numbers else 0):
        if number != expected:
            raise MissingFile(path_of(directory, expected), path_of(directory, number))
        path = path_of(directory, number)
        file = files.open(path)
        try:
            segments[number] = read_segment(file.view(), path, number)
        finally:
            file.close()
    return segments


def _check_order(directory: str, segments: dict[int, SegmentContent]) -> int:
    """Check that the commands are consecutive; return the index of the last one."""
    last_index: int | None = None
    torn: tuple[str, int] | None = None
    for number, content in segments.items():
        path = path_of(directory, number)
        if content.changes and torn is not None:
            raise JournalDamaged(*torn, "a batch of commands, because a later segment has some", "a part of one")
        for change in content.changes:
            if last_index is not None and change.number != last_index + 1:
                raise JournalDamaged(path, 0, f"command {last_index + 1}", f"command {change.number}")
            last_index = change.number
        if content.is_torn:
            torn = path, content.end
    return next(iter(segments.values())).begin_index - 1 if last_index is None else last_index
