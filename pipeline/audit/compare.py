"""Compares replicas of one log, and finds where and how they differ; without Spark.

Two steps. `compare` reads a range of all replicas and yields the windows whose digests differ, and in equal windows the
records with wrong checksums. `pipeline.audit.examine` examines such a window, entry by entry. The kinds of differences:

| kind | meaning | an error |
| --- | --- | --- |
| bad_checksum | an entry or a record does not match its checksums or lengths | yes |
| divergence | from an entry on two replicas have different valid entries | if it is, or may be, committed |
| different | two valid entries of one index and term differ | yes |
| missing_range | no file contains a part of the log that other replicas have | yes |
| missing_tail | a replica ends before others | if it is, or may be, committed |
| uncommitted_tail | a divergence or a missing tail of uncommitted entries | no |
| begins_later | old files are deleted that others still have | no |
"""

from __future__ import annotations

import itertools
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline.audit.digests import DigestWindow, digest, windows
from pipeline.audit.replica import NO_OFFSET, AuditedReplica
from pipeline.log.slice import Slice
from pipeline.reading.corrupt_policy import CorruptPolicy, PolicyKind
from pipeline.reading.read_slice import read_slice
from store.fs.read_only_files import OpenFiles, ReadOnlyFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from commitlog.offline.directory import LogFileInfo
    from store.model.dispatch_batch import Skipped

LOG_RANGE_SIZE: Final = 64 << 20
NO_NUMBER: Final = -1


class AuditKind(StrEnum):
    """The kinds of differences between replicas; the table in the module's docstring defines each."""

    BAD_CHECKSUM = "bad_checksum"
    DIVERGENCE = "divergence"
    DIFFERENT = "different"
    MISSING_RANGE = "missing_range"
    MISSING_TAIL = "missing_tail"
    UNCOMMITTED_TAIL = "uncommitted_tail"
    BEGINS_LATER = "begins_later"


NO_ERRORS: Final = frozenset({AuditKind.UNCOMMITTED_TAIL, AuditKind.BEGINS_LATER})


class AuditFinding(NamedTuple):
    """One difference.

    Attributes:
        kind: of the difference.
        replica: its directory.
        begin, end: offsets in the log.
        entry_index, term: of the first entry concerned; -1: there is none.
        path, position: the file and the byte in it.
        expected: the expected content, or that of other replicas.
        found: the actual content.
    """

    kind: AuditKind
    replica: str
    begin: int
    end: int
    entry_index: int = NO_NUMBER
    term: int = NO_NUMBER
    path: str = ""
    position: int = NO_NUMBER
    expected: str = ""
    found: str = ""

    @property
    def is_error(self) -> bool:
        """Whether it is an error."""
        return self.kind not in NO_ERRORS


class Suspect(NamedTuple):
    """A window whose digests differ, with the digest of each replica that has it, by the replica's number."""

    window: DigestWindow
    digests: tuple[tuple[int, int], ...]

    def without(self, left_out: frozenset[int] | set[int]) -> Suspect | None:
        """Return it without some replicas; None if the others do not differ."""
        kept = tuple(pair for pair in self.digests if pair[0] not in left_out)
        return Suspect(self.window, kept) if len({value for _, value in kept}) > 1 else None


# ------------------------------------------------------------------------------------------------ bounds


def compare_bounds(replicas: Sequence[AuditedReplica]) -> Iterator[AuditFinding]:
    """Yield the replicas that begin later, end earlier, or lack a file; no content is read."""
    begin, end = min(replica.begin for replica in replicas), max(replica.end for replica in replicas)
    committed = max(replica.committed for replica in replicas)
    for replica in replicas:
        if replica.begin > begin:
            expected = f"a log that begins at offset {begin}"
            found = f"one that begins at {replica.begin}"
            yield AuditFinding(
                AuditKind.BEGINS_LATER, replica.name, begin, replica.begin, expected=expected, found=found
            )
        for gap_begin, gap_end in replica.missing_files():
            expected, found = f"files of the log up to offset {gap_end}", "none"
            yield AuditFinding(
                AuditKind.MISSING_RANGE, replica.name, gap_begin, gap_end, expected=expected, found=found
            )
        if replica.end < end:
            yield from _missing_tail(replica, end, committed)


def _missing_tail(replica: AuditedReplica, end: int, committed: int) -> Iterator[AuditFinding]:
    found = f"a log that ends at offset {replica.end}"
    lacking = end if committed == NO_OFFSET else min(end, committed)
    if replica.end < lacking:
        known = "as in other replicas" if committed == NO_OFFSET else "which is committed"
        expected = f"the log up to offset {lacking}, {known}"
        yield AuditFinding(AuditKind.MISSING_TAIL, replica.name, replica.end, lacking, expected=expected, found=found)
    begin = max(replica.end, lacking)
    if begin < end:
        expected = f"perhaps the log up to offset {end}, which is not committed"
        yield AuditFinding(AuditKind.UNCOMMITTED_TAIL, replica.name, begin, end, expected=expected, found=found)


def log_ranges(replicas: Sequence[AuditedReplica], size: int = LOG_RANGE_SIZE) -> list[DigestWindow]:
    """Return the ranges to compare, each within one file and in the same replicas."""
    borders = {replica.begin for replica in replicas} | {replica.end for replica in replicas}
    borders |= {
        border for replica in replicas for file in replica.files for border in (file.begin_offset, file.end_offset)
    }
    begin, end = min(replica.begin for replica in replicas), max(replica.end for replica in replicas)
    inner = sorted(border for border in borders if begin <= border <= end)
    return [window for first, last in itertools.pairwise(inner) for window in windows(first, last, size)]


# ------------------------------------------------------------------------------------------------------- comparing


def compare(
    replicas: Sequence[AuditedReplica], log_range: DigestWindow, *, is_checked: bool = True
) -> Iterator[Suspect | AuditFinding]:
    """Yield the windows of a range that differ, and the invalid records in equal windows.

    Args:
        replicas: all replicas; those without the range are skipped.
        log_range: of `log_ranges`.
        is_checked: also check the checksums of records, which finds a change that all replicas share.
    """
    holders = [(number, file) for number, replica in enumerate(replicas) if (file := _holder(replica, log_range))]
    if not holders:
        return
    open_files = OpenFiles(ReadOnlyFiles())
    suspects = set[DigestWindow]()
    try:
        for window in windows(*log_range) if len(holders) > 1 else ():
            digests = tuple((number, digest(open_files, file, window)) for number, file in holders)
            if len({value for _, value in digests}) > 1:
                suspects.add(window)
                yield Suspect(window, digests)
    finally:
        open_files.close_all()
    if is_checked:
        number, file = holders[0]
        for finding in _bad_records(replicas[number], file, log_range):
            # Invalid records in windows that differ are found by `examine`, with the faulty replica.
            if not any(window.begin <= finding.begin < window.end for window in suspects):
                yield finding


def _holder(replica: AuditedReplica, log_range: DigestWindow) -> LogFileInfo | None:
    is_held = replica.begin <= log_range.begin and log_range.end <= replica.end
    return replica.file_at(log_range.begin) if is_held else None


def _bad_records(replica: AuditedReplica, file: LogFileInfo, log_range: DigestWindow) -> Iterator[AuditFinding]:
    skipped: list[Skipped] = []
    policy = CorruptPolicy(PolicyKind.SKIP, on_skipped=skipped.append)
    is_begin, is_end = log_range.begin == max(file.begin_offset, replica.begin), log_range.end == file.end_offset
    part = Slice(
        replica.name,
        file.path,
        log_range.begin,
        log_range.end,
        file.header_size,
        is_begin_known=is_begin,
        is_end_known=is_end,
        limit=min(file.end_offset, replica.end),
    )
    for _ in read_slice(part, ("physicalOffset",), verify_crc=True, on_corrupt=policy):
        pass
    for bad in skipped:
        yield AuditFinding(
            AuditKind.BAD_CHECKSUM,
            replica.name,
            bad.offset,
            bad.offset + bad.size,
            path=bad.path,
            position=bad.position,
            expected=bad.expected,
            found=bad.found,
        )
