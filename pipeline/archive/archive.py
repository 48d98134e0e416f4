"""Archives a log: writes all messages of a range to a lake, and records the archived range in a mark.

The log is archived in pieces of some gigabytes. Each piece is one batch of the lake and begins where the archived range
ends, so a restarted archive continues, and a killed one leaves no duplicates. Tasks read slices of the files and write
Parquet; Spark only schedules them, and the data does not pass through the JVM.

The *archive mark* `_archived/<log>.json` contains the physical offset up to which all messages are in the lake. It is
written after the commit, and a broker with the option `archive_mark` deletes no message at or after that offset.
Physical offsets are equal on all nodes of a group, so one mark serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline.archive.coverage import COVERAGE_COLUMNS, Coverage
from pipeline.columns.schema import ALL_NAMES, arrow_schema
from pipeline.common.errors import BadOption, DataLost, LostRange
from pipeline.common.grouping import grouped
from pipeline.lake.files import DataFile
from pipeline.lake.lake import Lake
from pipeline.lake.manifest import BatchId, LogRange, Manifest
from pipeline.log.entry_count import check_entries
from pipeline.log.selection import Selection
from pipeline.log.slice import Slice
from pipeline.log.slices import plan
from pipeline.reading.read_slice import read_slice
from store.fs.linux.files import OsFiles
from store.maintenance.archive_mark import ArchiveMark, encode_mark, mark_path

if TYPE_CHECKING:
    from pipeline.log.store_view import StoreView
    from pipeline.sink.options import LakeTarget
    from store.fs.ports import Files

# `properties` can be derived from `propertiesRaw`.
ARCHIVE_COLUMNS: Final = tuple(name for name in ALL_NAMES if name != "properties")
PIECE_SIZE_BYTES: Final = 16 << 30
# Bytes of the slices that one task writes to files together.
_GROUP_SIZE_BYTES: Final = 128 << 20

# Runs `stage` over groups of slices, in any processes, and returns all staged files.
Runner = Callable[[Sequence[Sequence[Slice]], "ArchiveTask"], list[DataFile]]


class ArchiveTask(NamedTuple):
    """The parameters of all tasks of a piece; sent to the tasks."""

    target: LakeTarget
    batch: BatchId
    columns: tuple[str, ...] = ARCHIVE_COLUMNS
    verify_crc: bool = True


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of an archive run.

    Attributes:
        log: name of the log.
        begin, end: range of physical offsets archived by this run.
        rows: number of messages written.
        size_bytes: of the files written.
        pieces: number of batches committed.
    """

    log: str
    begin: int
    end: int
    rows: int = 0
    size_bytes: int = 0
    pieces: int = 0


class Archive:
    """One log and its lake.

    Args:
        target: path and kind of the lake.
        log: name of the log in the lake; the same for all replicas; constant.
        columns: of the lake; `ARCHIVE_COLUMNS` are sufficient for a restore.
        verify_crc: check the checksums of each message before it is archived.

    Raises:
        pipeline.lake.columns.UnfitSchema, pipeline.common.errors.BadOption, pipeline.lake.manifest.DamagedLake:
            see `Lake.create`.
    """

    def __init__(
        self,
        target: LakeTarget,
        log: str,
        columns: Sequence[str] = ARCHIVE_COLUMNS,
        *,
        verify_crc: bool = True,
        files: Files | None = None,
    ) -> None:
        if not log or "/" in log:
            raise BadOption("log", "a name for the log, for example that of the broker", repr(log))
        self._target = target
        self._log = log
        self._columns = tuple(columns)
        self._verify_crc = verify_crc
        self._files: Files = OsFiles() if files is None else files
        self._lake = Lake.create(target.root, target.kind, arrow_schema(self._columns), self._files)

    def begin(self, store: StoreView, *, fail_on_data_loss: bool = True) -> int:
        """Return the start of the next piece: the end of the archived range, or the start of the log.

        Raises:
            DataLost: messages after the archived range are already deleted.
        """
        covered = self._lake.covered(self._log)
        if not covered:
            return store.begin_offset
        end = covered[-1].end
        if end < store.begin_offset and fail_on_data_loss:
            lost = LostRange("log", end, store.begin_offset, "deleted before it was archived")
            remedy = "Archive them from another replica that still has them, or skip them with --allow-data-loss"
            raise DataLost(f"archive of {self._log}", [lost], remedy)
        return max(end, store.begin_offset)

    def run(
        self,
        store: StoreView,
        runner: Runner,
        *,
        piece_size_bytes: int = PIECE_SIZE_BYTES,
        fail_on_data_loss: bool = True,
        on_piece: Callable[[Manifest], None] = lambda _: None,
    ) -> Archived:
        """Archive the messages of the store that are not in the lake.

        Args:
            store: the open store; messages up to its end are archived. Open a replicated log with `Tail.COMMITTED`,
                because uncommitted entries may be truncated, and the next piece may come from another replica.
            runner: runs the tasks.
            piece_size_bytes: bytes of the log per batch.
            fail_on_data_loss: False: continue after messages that are already deleted.
            on_piece: called with each committed batch.

        Raises:
            pipeline.common.errors.PipelineError: the run failed; committed batches stay, and the next run continues.
        """
        position = first = self.begin(store, fail_on_data_loss=fail_on_data_loss)
        done = Archived(self._log, first, first)
        while position < store.end_offset:
            end = min(position + piece_size_bytes, store.end_offset)
            manifest = self._archive_piece(store, runner, position, end)
            # Another driver may have committed this piece with another end.
            assert manifest.covers is not None
            position = manifest.covers.end
            size_bytes = sum(file.size_bytes for file in manifest.files)
            done = Archived(
                self._log, first, position, done.rows + manifest.rows, done.size_bytes + size_bytes, done.pieces + 1
            )
            self.write_mark()
            on_piece(manifest)
        self.write_mark()
        return done

    def _archive_piece(self, store: StoreView, runner: Runner, begin: int, end: int) -> Manifest:
        batch = BatchId(f"archive-{self._log}", begin)
        slices = plan(store, Selection(offset_range=(begin, end)))
        check_entries(store, slices, begin, end)
        files = runner(
            grouped(slices, _GROUP_SIZE_BYTES), ArchiveTask(self._target, batch, self._columns, self._verify_crc)
        )
        last_index = max((file.index[1] for file in files if file.index is not None), default=-1)
        last_term = max((file.term[1] for file in files if file.term is not None), default=-1)
        covers = LogRange(self._log, begin, end, last_index, last_term)
        return self._lake.commit(batch, files, covers=covers, note={"store": store.path})

    def write_mark(self) -> ArchiveMark | None:
        """Write the mark; return it, or None if no range is archived.

        The mark covers the last range without a gap. A log that begins after the gap may be deleted up to its end; a
        replica that still has a part of the gap deletes no files, because that part is not archived.
        """
        covered = self._lake.covered(self._log)
        if not covered:
            return None
        mark = ArchiveMark(self._log, covered[-1].begin, covered[-1].end)
        path = mark_path(self._lake.root, self._log)
        self._files.make_directory(path.rpartition("/")[0])
        self._files.prepare_replace(path)
        self._files.replace(path, encode_mark(mark))
        return mark


def stage(group: Sequence[Slice], task: ArchiveTask) -> Iterator[DataFile]:
    """Write the messages of some slices to files in the lake's staging folder, in a task; yield their descriptions.

    Raises:
        pipeline.common.errors.CorruptRecord, pipeline.common.errors.DataLost: a byte of a slice is not accounted for;
            the piece must not be committed.
    """
    name = f"{task.batch.name}-{group[0].begin}"
    writer = task.target.writer(name)
    columns = (*task.columns, *(name for name in COVERAGE_COLUMNS if name not in task.columns))
    for part in group:
        coverage = Coverage(part)
        for batch in read_slice(part, columns, verify_crc=task.verify_crc):
            coverage.take(batch)
            writer.write(batch if columns == task.columns else batch.select(list(task.columns)))
        coverage.finish()
    yield from writer.finish()
