"""Maintenance of a lake: compaction of small files, vacuum of unreferenced ones, and a check of every byte.

*Compaction* rewrites small files of one topic, day and log to larger ones, sorted by queue and offset as before. It is
an ordinary batch: the new files replace the old ones atomically, also in tables.

*Vacuum* deletes files that are in no manifest: files of batches that were never committed or were written twice, and
files that compaction has replaced. It keeps files below a minimum age, because a query may be about to commit them, and
readers of tables may use an earlier version.

Both refuse a lake whose table another program changed (`pipeline.lake.lake.TableChanged`).
"""

from __future__ import annotations

import math
import time
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from crc32c import crc32c

from pipeline.columns.record_builder import build_records
from pipeline.lake.files import STAGING, DataFile, UnfitRows, checksum_of
from pipeline.lake.lake import FilesReplaced, Lake
from pipeline.lake.manifest import MANIFESTS, BatchId, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMPACT: Final = "compact"
TARGET_SIZE_BYTES: Final = 256 << 20
VACUUM_AGE_S: Final = 7 * 86_400.0
_DRAFT: Final = ".draft-"
_FILES: Final = ("topic=*/date=*/*.parquet", f"{STAGING}/*/*")


class LakeFinding(NamedTuple):
    """A fault of a file of a lake."""

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Return the text for messages."""
        return f"{self.path}: expected {self.expected}, found {self.found}"


def verify(lake: Lake, *, is_deep: bool = True) -> Iterator[LakeFinding]:
    """Yield the faults of the lake's files.

    Args:
        lake: the lake to check.
        is_deep: also rebuild all records, and compare their checksum with that of the archived records.
    """
    for file in lake.files():
        path = Path(lake.root) / file.path
        if not path.is_file():
            yield LakeFinding(file.path, f"a file of {file.size_bytes} bytes", "none")
            continue
        content = path.read_bytes()
        if len(content) != file.size_bytes or crc32c(content) != file.crc32c:
            found = f"{len(content)} bytes with {crc32c(content):#010x}"
            yield LakeFinding(file.path, f"{file.size_bytes} bytes with the checksum {file.crc32c:#010x}", found)
        elif is_deep and file.records_crc32c is not None:
            yield from _verify_records(lake, file)


def _verify_records(lake: Lake, file: DataFile) -> Iterator[LakeFinding]:
    try:
        checksum = 0
        for batch in lake.read(file).combine_chunks().to_batches():
            checksum = checksum_of(build_records(batch), checksum)
    except UnfitRows as error:
        yield LakeFinding(file.path, error.expected, error.found)
        return
    if checksum != file.records_crc32c:
        expected = f"records with the checksum {file.records_crc32c:#010x}"
        yield LakeFinding(file.path, expected, f"{checksum:#010x}")


def compact(lake: Lake, *, target_size_bytes: int = TARGET_SIZE_BYTES, compression: str = "zstd") -> list[Manifest]:
    """Compact small files; return the committed batches.

    Files that a concurrent compaction has replaced are skipped.

    Args:
        lake: the lake to compact.
        target_size_bytes: files are joined up to about this size; files of at least half of it are kept.
        compression: of the new files.

    Raises:
        pipeline.lake.lake.TableChanged: another program changed the table, and compaction would undo that.
        pipeline.common.errors.PipelineError: a file cannot be read. Committed batches stay.
    """
    lake.check_tables()
    done: list[Manifest] = []
    for log, files in _groups(lake, target_size_bytes):
        try:
            manifest = _join(lake, log, files, compression)
        except (FilesReplaced, UnfitRows):
            if {file.path for file in files} <= {file.path for file in lake.files()}:
                raise
            continue
        if manifest is not None:
            done.append(manifest)
    return done


def _join(lake: Lake, log: str, files: Sequence[DataFile], compression: str) -> Manifest | None:
    """Replace several files by one; None: another compaction has committed under this number."""
    batch = BatchId(COMPACT, lake.last_number(COMPACT) + 1)
    rows = pa.concat_tables([lake.read(file) for file in files]).combine_chunks()
    writer = lake.writer(batch.name, compression)
    for part in rows.to_batches():
        writer.write(part)
    written = tuple(writer.finish())
    manifest = lake.commit(batch, written, removed=[file.path for file in files], note={"log": log})
    return manifest if manifest.files == written else None


def _groups(lake: Lake, target_size_bytes: int) -> Iterator[tuple[str, list[DataFile]]]:
    """Yield (log, files) to join to one file: of one topic and day, adjacent in the log."""
    small: dict[tuple[str, str, str], list[DataFile]] = {}
    for log, file in lake.files_by_log():
        if file.size_bytes < target_size_bytes // 2:
            small.setdefault((log, file.topic, file.date), []).append(file)
    for (log, _, _), files in sorted(small.items()):
        group: list[DataFile] = []
        size_bytes = 0
        for file in sorted(files, key=lambda each: (each.physical or (0, 0), each.path)):
            if group and size_bytes + file.size_bytes > target_size_bytes:
                if len(group) > 1:
                    yield log, group
                group, size_bytes = [], 0
            group.append(file)
            size_bytes += file.size_bytes
        if len(group) > 1:
            yield log, group


def vacuum(lake: Lake, *, age_s: float = VACUUM_AGE_S, is_dry: bool = False) -> list[str]:
    """Delete files that are in no manifest; return their paths, relative to the root.

    Args:
        lake: all decided batches are published first.
        age_s: files changed within this time, in seconds, are kept.
        is_dry: only return the paths.

    Raises:
        pipeline.lake.lake.TableChanged: another program changed the table, which may have files in no manifest; no file
            was deleted.
    """
    lake.check_tables()
    held = {file.path for file in lake.files()}
    before_s = time.time_ns() / 1e9 - age_s
    root = Path(lake.root)
    # Unlike `Path.walk`, this ignores folders that are deleted concurrently.
    files = [path for pattern in _FILES for path in glob(pattern, root_dir=root)]  # noqa: PTH207
    candidates = [path for path in [*files, *_drafts(root)] if path not in held]
    found = sorted(path for path in candidates if _changed_s(root / path) < before_s)
    return found if is_dry else lake.sweep(found)


def _changed_s(path: Path) -> float:
    """Return the time of a file's last change; infinity if it is missing, because a concurrent commit has moved it."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _drafts(root: Path) -> Sequence[str]:
    """Return the unfinished manifests of killed processes."""
    found = [*(root / MANIFESTS).glob(f"{_DRAFT}*"), *root.glob(f"{_DRAFT}*")]
    return [str(path.relative_to(root)) for path in found]
