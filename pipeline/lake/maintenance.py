"""Maintenance of a lake: joins small files, deletes unreferenced ones, shortens the log, checks all bytes.

The library does the work, as other Delta programs do, and theirs is as good: the log says what belongs to the table.

*Optimize* joins small files of one topic, day and log to larger ones, in one commit.

*Vacuum* deletes files that are in no version of the table that readers may still use: those of attempts that were never
committed, and those that were replaced. It keeps young files, because a query may be about to commit them.

*Clean the log* writes a checkpoint and deletes the entries before it that are older than `delta.logRetentionDuration`,
because a commit reads the names of all entries.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipeline.columns.record_builder import build_records, missing_columns
from pipeline.common.errors import BadOption
from pipeline.lake.delta_table import LOG_FOLDER, errors
from pipeline.lake.files import DataFile, UnfitRows, checksum_of, records_crc_of
from pipeline.lake.lake import DamagedLake

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pipeline.lake.lake import Lake

logger = logging.getLogger(__name__)

TARGET_SIZE_BYTES: Final = 256 << 20
VACUUM_AGE_H: Final = 168
# A file is committed within this time after it was written.
VACUUM_AGE_MIN_H: Final = 24
_CRC_MASK: Final = 0x7FFFFFFF


class LakeFinding(NamedTuple):
    """A fault of a file of a lake."""

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Return the text for messages."""
        return f"{self.path}: expected {self.expected}, found {self.found}"


class Joined(NamedTuple):
    """The result of `optimize`: the number of files that were replaced, and of those in their place."""

    removed: int
    added: int


def optimize(lake: Lake, *, target_size_bytes: int = TARGET_SIZE_BYTES) -> Joined:
    """Join small files of one topic, day and log, in one commit; the rows of a joined file are in no certain order.

    Args:
        lake: the lake.
        target_size_bytes: files are joined up to about this size.

    Raises:
        pipeline.lake.lake.DamagedLake: a file or the log cannot be read or written, or another program replaced the
            same files meanwhile; nothing was changed.
    """
    lake.refresh()
    found = _maintained(lake, lambda: lake.table.optimize.compact(target_size=target_size_bytes))
    lake.refresh()
    return Joined(found["numFilesRemoved"], found["numFilesAdded"])


def vacuum(lake: Lake, *, age_h: int = VACUUM_AGE_H, is_dry: bool = False) -> list[str]:
    """Delete files that no version of the table within `age_h` has; return their paths, relative to the root.

    Args:
        lake: the lake.
        age_h: hours, at least 24; files that were changed or replaced within this time are kept.
        is_dry: only return the paths.

    Raises:
        BadOption: the age is less.
        pipeline.lake.lake.DamagedLake: the log or a folder cannot be read or written; some files may be deleted.
    """
    if age_h < VACUUM_AGE_MIN_H:
        remedy = "A query may be about to commit a younger file"
        raise BadOption("age", f"at least {VACUUM_AGE_MIN_H} hours", age_h, remedy)
    return delete_unreferenced(lake, age_h, is_dry=is_dry)


def delete_unreferenced(lake: Lake, age_h: int, *, is_dry: bool = False) -> list[str]:
    """As `vacuum`, for any age: with 0 nothing may be writing to the lake or reading it."""
    lake.refresh()
    found = _maintained(
        lake, lambda: lake.table.vacuum(age_h, dry_run=is_dry, enforce_retention_duration=False, full=True)
    )
    lake.refresh()
    return sorted(found)


def clean_log(lake: Lake) -> int:
    """Write a checkpoint and delete old entries of the log before it; return the number of files that the log has now.

    Raises:
        pipeline.lake.lake.DamagedLake: the log cannot be read or written.
    """
    lake.refresh()
    _maintained(lake, lake.table.create_checkpoint)
    _maintained(lake, lake.table.cleanup_metadata)
    lake.refresh()
    return sum(1 for _ in Path(lake.root, LOG_FOLDER).glob("*"))


def _maintained(lake: Lake, work: Any) -> Any:
    try:
        return work()
    except (errors().DeltaError, OSError) as error:
        remedy = "Repeat it; `dledger spark lake verify` names damaged files"
        raise DamagedLake(f"lake {lake.root}", "files and a log to maintain", str(error), remedy) from error


# -------------------------------------------------------------------------------------------------------------- checks


def verify(lake: Lake, *, is_deep: bool = True) -> Iterator[LakeFinding]:
    """Yield the faults of the lake's files: each page's checksum is compared where it has one.

    Args:
        lake: the lake to check.
        is_deep: also rebuild the records of lossless files, and compare them with the checksum in the file; for files
            that another program wrote (which do not have it), compare bodies with the checksums of their records.
    """
    for file in lake.files():
        path = Path(lake.root) / file.path
        if not path.is_file():
            yield LakeFinding(file.path, f"a file of {file.size_bytes} bytes", "none")
            continue
        if (size := path.stat().st_size) != file.size_bytes:
            yield LakeFinding(file.path, f"{file.size_bytes} bytes", f"{size}")
            continue
        try:
            yield from _verify_rows(lake, file, is_deep=is_deep)
        except UnfitRows as error:
            yield LakeFinding(file.path, error.expected, error.found)


def _verify_rows(lake: Lake, file: DataFile, *, is_deep: bool) -> Iterator[LakeFinding]:
    rows = lake.read(file)
    if not is_deep or missing_columns(lake.schema):
        return
    expected = records_crc_of(lake.root, file)
    batches = rows.combine_chunks().to_batches()
    if expected is None:
        for batch in batches:
            yield from _bad_bodies(file, batch)
        return
    checksum = 0
    for batch in batches:
        checksum = checksum_of(build_records(batch), checksum)
    if checksum != expected:
        yield LakeFinding(file.path, f"records with the checksum {expected:#010x}", f"{checksum:#010x}")


def _bad_bodies(file: DataFile, batch: pa.RecordBatch) -> Iterator[LakeFinding]:
    for body, crc, offset in zip(
        batch.column("body"), batch.column("bodyCrc").to_pylist(), batch.column("queueOffset").to_pylist(), strict=True
    ):
        content = body.as_buffer()
        if content.size and zlib.crc32(content) & _CRC_MASK != crc:
            expected = f"a body with the checksum {crc:#010x} at queue offset {offset}"
            yield LakeFinding(file.path, expected, f"{zlib.crc32(content) & _CRC_MASK:#010x}")
