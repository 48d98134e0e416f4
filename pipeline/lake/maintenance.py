"""Maintenance of a lake: compaction of small files, vacuum of unreferenced ones, and a check of every byte.

*Compaction* takes small files of one topic and day of one log, and writes their rows into larger ones, by queue and
offset as before. It is a batch like others: the new files take the place of the old ones at once, in tables too.

*Vacuum* deletes files that no manifest refers to: what tasks wrote for a batch that was never committed or was written
twice, and what compaction has replaced. It spares what is younger than an age, for a query may be about to commit it,
and readers of tables may look at an earlier version.

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
    """What is wrong with a file of a lake."""

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Return it as a person reads it."""
        return f"{self.path}: expected {self.expected}, found {self.found}"


def verify(lake: Lake, *, is_deep: bool = True) -> Iterator[LakeFinding]:
    """Yield the faults of the lake's files.

    Args:
        lake: to be checked.
        is_deep: also make all records again, and compare their checksum with that of the records that were archived.
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
    """Write small files into larger ones; return the batches that did it.

    Files that another compaction has replaced meanwhile are left to that one.

    Args:
        lake: to be compacted.
        target_size_bytes: files are joined up to about this many bytes; those of half of it or more are left alone.
        compression: of the new files.

    Raises:
        pipeline.lake.lake.TableChanged: another program changed the table, and compaction would undo that.
        pipeline.common.errors.PipelineError: a file cannot be read. What is done stays.
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
    """Commit one file in the place of several; None: another compaction has committed under this number."""
    batch = BatchId(COMPACT, lake.last_number(COMPACT) + 1)
    rows = pa.concat_tables([lake.read(file) for file in files]).combine_chunks()
    writer = lake.writer(batch.name, compression)
    for part in rows.to_batches():
        writer.write(part)
    written = tuple(writer.finish())
    manifest = lake.commit(batch, written, removed=[file.path for file in files], note={"log": log})
    return manifest if manifest.files == written else None


def _groups(lake: Lake, target_size_bytes: int) -> Iterator[tuple[str, list[DataFile]]]:
    """Yield (log, files) that are to become one file; of one topic and day, neighbours in the log."""
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
    """Delete files that no manifest refers to; return the paths, below the root.

    Args:
        lake: published to the last batch, which this does first.
        age_s: what was changed within this many seconds stays.
        is_dry: delete nothing.

    Raises:
        pipeline.lake.lake.TableChanged: another program changed the table, which may hold files that no manifest names;
            nothing was deleted.
    """
    lake.check_tables()
    held = {file.path for file in lake.files()}
    before_s = time.time_ns() / 1e9 - age_s
    root = Path(lake.root)
    # Unlike that of a `Path`, this passes over folders that go meanwhile.
    files = [path for pattern in _FILES for path in glob(pattern, root_dir=root)]  # noqa: PTH207
    candidates = [path for path in [*files, *_drafts(root)] if path not in held]
    found = sorted(path for path in candidates if _changed_s(root / path) < before_s)
    return found if is_dry else lake.sweep(found)


def _changed_s(path: Path) -> float:
    """Return when a file was changed; never, if it is gone: a batch that is committed now has taken it along."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _drafts(root: Path) -> Sequence[str]:
    """Return manifests that were begun when their process died."""
    found = [*(root / MANIFESTS).glob(f"{_DRAFT}*"), *root.glob(f"{_DRAFT}*")]
    return [str(path.relative_to(root)) for path in found]
