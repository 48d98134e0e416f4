"""Builds the consume queues of a store from slices of its log, with any number of tasks in any order.

Every message contains its queue offset, so each task writes its units at their final positions, and a retry changes
nothing. The start and the end of each queue are written after all tasks have finished.

This requires that the offsets of each queue increase by one, as in nearly all stores. If offsets were assigned twice or
skipped, the result depends on the order of the log (`store.queues.out_of_order_units`): the build raises
`IrregularQueues`, and the store is rebuilt with `dledger rebuild`, which reads the log once in order.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from commitlog.offline.directory import QUEUES_NAME
from pipeline.common.errors import NotWritable, PipelineError
from store.errors import StorageFailed
from store.fs.linux.files import OsFiles
from store.fs.linux.modes import file_mode_in
from store.model.topics import is_storable_topic
from store.queues.rows import Rows, rows_by_queue
from store.queues.unit import BLANK, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipeline.log.slice import Slice
    from store.model.dispatch_batch import DispatchBatch
    from store.model.message import QueueKey

_FILES_OPEN_MAX: Final = 512
_NAME_DIGITS: Final = 20


class IrregularQueues(PipelineError):
    """The offsets of a queue do not increase by one, so the queue depends on the order of the log."""

    def __init__(self, root: str, key: QueueKey, expected: int, found: int) -> None:
        what = f"{root}, topic {key.topic}, queue {key.queue_id}"
        remedy = "Rebuild this store with `dledger rebuild`, which goes through the log in order"
        super().__init__(what, f"a message of queue offset {expected}", f"{found}", remedy)


class QueueRun(NamedTuple):
    """The range of queue offsets `[begin, end)` that one slice wrote to a queue."""

    begin: int
    end: int


class BuiltQueues(NamedTuple):
    """The result of a task.

    Attributes:
        offset: begin of its slice in the log.
        messages: number of messages, including those in no queue.
        runs: by queue.
    """

    offset: int
    messages: int
    runs: dict[QueueKey, QueueRun]


class QueueBuilder:
    """Writes the units of one slice's messages below `target`/consumequeue, batch by batch; `with` closes its files.

    Args:
        part: of a plan of the whole log.
        target: the folder to build in; empty before the first task.
        file_size: bytes of a queue file, a multiple of 20.
    """

    def __init__(self, part: Slice, target: str, file_size: int) -> None:
        assert not file_size % UNIT_SIZE, file_size
        self._part = part
        self._files = _QueueFiles(f"{target}/{QUEUES_NAME}", file_size)
        self._runs: dict[QueueKey, QueueRun] = {}
        self._messages = 0

    def __enter__(self) -> Self:
        """Return the builder."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the files."""
        self._files.close()

    def add(self, batch: DispatchBatch) -> None:
        """Write the units of the slice's next messages.

        Raises:
            IrregularQueues: queues must be built in the order of the log.
        """
        self._messages += len(batch)
        for key, rows, is_regular in rows_by_queue(batch):
            before = self._runs.get(key)
            _check(self._part.root, key, rows, before, is_regular=is_regular)
            begin, end = int(rows.queue_offsets[0]), int(rows.queue_offsets[-1]) + 1
            self._files.write(key, begin, rows.units)
            self._runs[key] = QueueRun(begin if before is None else before.begin, end)

    @property
    def built(self) -> BuiltQueues:
        """The result of this task."""
        return BuiltQueues(self._part.begin, self._messages, self._runs)


def finish_queues(root: str, target: str, built: Iterable[BuiltQueues], file_size: int) -> dict[QueueKey, QueueRun]:
    """Write the start of each queue after all tasks have finished; return the range of each queue.

    Args:
        root: of the store, for errors.
        target: as in `QueueBuilder`.
        built: of all slices, in any order.
        file_size: as in `QueueBuilder`.

    Raises:
        IrregularQueues: queues must be built in the order of the log.
    """
    found: dict[QueueKey, QueueRun] = {}
    for one in sorted(built, key=lambda one: one.offset):
        for key, run in one.runs.items():
            before = found.get(key)
            if before is not None and run.begin != before.end:
                raise IrregularQueues(root, key, before.end, run.begin)
            found[key] = QueueRun(run.begin if before is None else before.begin, run.end)
    files = _QueueFiles(f"{target}/{QUEUES_NAME}", file_size)
    try:
        for key, run in found.items():
            blanks = run.begin % (file_size // UNIT_SIZE)
            files.write(key, run.begin - blanks, memoryview(BLANK * blanks))
    finally:
        files.close()
    return found


def _check(root: str, key: QueueKey, rows: Rows, before: QueueRun | None, *, is_regular: bool) -> None:
    first = int(rows.queue_offsets[0])
    expected = first if before is None else before.end
    if not is_regular:
        expected, first = next(
            (int(one) + 1, int(other))
            for one, other in zip(rows.queue_offsets[:-1], rows.queue_offsets[1:], strict=True)
            if other != one + 1
        )
    if first != expected or first < 0 or not is_storable_topic(key.topic) or key.queue_id < 0:
        raise IrregularQueues(root, key, expected, first)


class _QueueFiles:
    """Queue files, opened when they are first written. Several tasks may write to one file at the same time."""

    def __init__(self, directory: str, file_size: int) -> None:
        self._directory = directory
        self._file_size = file_size
        self._open: dict[tuple[QueueKey, int], int] = {}

    def write(self, key: QueueKey, queue_offset: int, units: memoryview) -> None:
        """Write consecutive units at their positions."""
        position = queue_offset * UNIT_SIZE
        while len(units):
            number, at = divmod(position, self._file_size)
            size = min(len(units), self._file_size - at)
            try:
                written = os.pwrite(self._file(key, number), units[:size], at)
            except (OSError, StorageFailed) as error:
                raise NotWritable(f"{self._directory}/{key.topic}/{key.queue_id}", str(error)) from error
            position += written
            units = units[written:]

    def _file(self, key: QueueKey, number: int) -> int:
        descriptor = self._open.get((key, number))
        if descriptor is not None:
            return descriptor
        if len(self._open) >= _FILES_OPEN_MAX:
            self.close()
        directory = Path(self._directory, key.topic, str(key.queue_id))
        OsFiles().make_directory(str(directory), is_durable=False)
        path = directory / f"{number * self._file_size:0{_NAME_DIGITS}d}"
        descriptor = self._open[key, number] = os.open(path, os.O_RDWR | os.O_CREAT, file_mode_in(str(directory)))
        os.ftruncate(descriptor, self._file_size)
        return descriptor

    def close(self) -> None:
        """Close all open files."""
        while self._open:
            os.close(self._open.popitem()[1])
