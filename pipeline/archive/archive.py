"""Archives a log: writes all messages of a range to a lake, and records the archived range in a mark.

The log is archived in pieces of some gigabytes. Each piece is one commit of the lake, which extends the archived range
of the log, so a restarted archive continues, and a killed one leaves no duplicates. Tasks read slices of the files and
write Parquet; Spark only schedules them, and the data does not pass through the JVM.

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
from pipeline.lake.lake import Lake, LogRange
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
    log: str
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
        pieces: number of commits.
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
        target: the lake.
        log: name of the log in the lake; the same for all replicas; constant.
        columns: of the lake; `ARCHIVE_COLUMNS` are sufficient for a restore.
        verify_crc: check the checksums of each message before it is archived.

    Raises:
        pipeline.common.errors.PipelineError: see `Lake.create`; also BadOption if the lake was not made by an archive.
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
        schema = arrow_schema(self._columns)
        self._lake = Lake.create(target.root, schema, has_logs=True, files=self._files)
        if not self._lake.has_logs:
            remedy = "Archive into another directory: its files do not say of which log they are"
            raise BadOption("path", "a lake of an archive", f"a lake of a query, {target.root}", remedy)

    def begin(self, store: StoreView, *, fail_on_data_loss: bool = True) -> int:
        """Return the start of the next piece: the end of the archived range, or the start of the log.

        Raises:
            DataLost: messages after the archived range are already deleted.
        """
        covered = self._lake.covered(self._log)
        if covered is None:
            return store.begin_offset
        end = covered.end
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
    ) -> Archived:
        """Archive the messages of the store that are not in the lake.

        Args:
            store: the open store; messages up to its end are archived. Open a replicated log with `Tail.COMMITTED`,
                because uncommitted entries may be truncated, and the next piece may come from another replica.
            runner: runs the tasks.
            piece_size_bytes: bytes of the log per commit.
            fail_on_data_loss: False: continue after messages that are already deleted.

        Raises:
            pipeline.common.errors.PipelineError: the run failed; committed pieces stay, and the next run continues.
        """
        position = first = self.begin(store, fail_on_data_loss=fail_on_data_loss)
        done = Archived(self._log, first, first)
        while position < store.end_offset:
            files = self._archive_piece(store, runner, position, min(position + piece_size_bytes, store.end_offset))
            covered = self._lake.covered(self._log)
            # Another driver may have committed this piece with another end.
            assert covered is not None
            assert covered.end > position
            position = covered.end
            rows, size_bytes = sum(file.rows for file in files), sum(file.size_bytes for file in files)
            done = Archived(self._log, first, position, done.rows + rows, done.size_bytes + size_bytes, done.pieces + 1)
            self.write_mark()
        self.write_mark()
        return done

    def _archive_piece(self, store: StoreView, runner: Runner, begin: int, end: int) -> Sequence[DataFile]:
        """Return the files that this run has added to the lake; none if another one was faster."""
        slices = plan(store, Selection(offset_range=(begin, end)))
        check_entries(store, slices, begin, end)
        task = ArchiveTask(self._target, self._log, self._columns, self._verify_crc)
        files = runner(grouped(slices, _GROUP_SIZE_BYTES), task)
        return files if self._lake.extend(LogRange(self._log, begin, end), files) else ()

    def write_mark(self) -> ArchiveMark | None:
        """Write the mark; return it, or None if no range is archived.

        The mark covers the last range without a gap. A log that begins after the gap may be deleted up to its end; a
        replica that still has a part of the gap deletes no files, because that part is not archived.
        """
        covered = self._lake.covered(self._log)
        if covered is None:
            return None
        # A broker deletes what the mark says, so the log must not lose the commit.
        self._lake.sync()
        mark = ArchiveMark(*covered)
        path = mark_path(self._lake.root, self._log)
        self._files.make_directory(path.rpartition("/")[0])
        self._files.prepare_replace(path)
        self._files.replace(path, encode_mark(mark))
        return mark


def stage(group: Sequence[Slice], task: ArchiveTask) -> Iterator[DataFile]:
    """Write the messages of some slices to files of the lake, in a task; yield their descriptions.

    Raises:
        pipeline.common.errors.CorruptRecord, pipeline.common.errors.DataLost: a byte of a slice is not accounted for;
            the piece must not be committed.
    """
    writer = task.target.writer(f"archive-{group[0].begin}", task.log)
    columns = (*task.columns, *(name for name in COVERAGE_COLUMNS if name not in task.columns))
    for part in group:
        coverage = Coverage(part)
        for batch in read_slice(part, columns, verify_crc=task.verify_crc):
            coverage.take(batch)
            writer.write(batch if columns == task.columns else batch.select(list(task.columns)))
        coverage.finish()
    yield from writer.finish()
