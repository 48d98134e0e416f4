"""Rebuilds consume queues and index of a store from its log in many tasks, or compares them with the existing ones.

The files are identical to those that `dledger rebuild` writes in one pass, and are replaced by its code: the old files
are kept until the new ones are complete and durable. Tasks can be retried: each writes the same bytes at the same
positions.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from commitlog.offline.directory import INDEX_NAME, QUEUES_NAME, find_store
from commitlog.offline.rebuild import BuiltParts, Layout, Rebuild, Rebuilt
from commitlog.offline.swap import finish_begun
from commitlog.offline.verify import StoreParts
from pipeline.common.errors import PipelineError
from pipeline.log.slice import Slice
from pipeline.log.slices import plan
from pipeline.log.stores import Tail, open_store
from pipeline.rebuild.dispatch_slices import dispatch_batches
from pipeline.rebuild.index_builder import KeyExtractor, KeyFile, build_index
from pipeline.rebuild.queue_builder import BuiltQueues, IrregularQueues, QueueBuilder, finish_queues
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles
from store.index.layout import IndexLayout
from store.maintenance.lock import lock_store
from store.queues.consume_queues import FILE_SIZE_BYTES
from store.queues.unit import UNIT_SIZE

_DEFAULT_LAYOUT: Final = Layout()
_KEYS_NAME: Final = "keys"
_COMPARED_SIZE: Final = 1 << 20


class SliceOutcome(NamedTuple):
    """The result of one slice."""

    queues: BuiltQueues
    keys: KeyFile
    last_timestamp: int


# Runs a function on all slices, in any processes, and returns the results in any order.
SliceRunner = Callable[[Sequence[Slice], Callable[[Slice], Iterable[SliceOutcome]]], list[SliceOutcome]]


class StoreInUse(PipelineError):
    """The store to rebuild is open in another process."""

    def __init__(self, root: str) -> None:
        super().__init__(root, "a store that no process has open", "one in use", "Stop its broker or node first")


def here(slices: Sequence[Slice], work: Callable[[Slice], Iterable[SliceOutcome]]) -> list[SliceOutcome]:
    """Run a function on all slices in this process."""
    return [outcome for part in slices for outcome in work(part)]


def rebuild_store(
    path: str, runner: SliceRunner = here, *, layout: Layout = _DEFAULT_LAYOUT, is_old_kept: bool = False
) -> Rebuilt:
    """Rebuild queues and index of a store and replace the old ones.

    A store with irregular queue offsets is rebuilt in one pass, with a note in the result.

    Args:
        path: of the store, which no process has open.
        runner: runs a function on slices.
        layout: of the files.
        is_old_kept: keep the old files in `rebuild.old`.

    Raises: StoreInUse: a process has the store open. pipeline.common.errors.PipelineError: the log cannot be read
    completely; nothing was changed.
    """
    files = OsFiles()
    with _locked(path) as root:
        finish_begun(files, root, is_old_kept=is_old_kept)
        parts = StoreParts(ReadOnlyFiles(), find_store(ReadOnlyFiles(), path))

        def build(target: str, queue_file_size: int, index: IndexLayout) -> BuiltParts:
            return build_parts(path, target, queue_file_size, index, runner)

        try:
            return Rebuild(files, parts, layout, is_old_kept=is_old_kept, builder=build).run()
        except IrregularQueues as error:
            rebuilt = Rebuild(files, parts, layout, is_old_kept=is_old_kept).run()
            rebuilt.notes.append(f"built in one pass: {error.what}: expected {error.expected}, found {error.found}")
            return rebuilt


def build_parts(
    path: str, target: str, queue_file_size: int, layout: IndexLayout, runner: SliceRunner = here
) -> BuiltParts:
    """Build queues and index of a store in another folder; the store is not changed.

    Raises: pipeline.rebuild.queue_builder.IrregularQueues: queues must be built in log order.
    """
    with open_store(path, tail=Tail.ALL) as view:
        slices, root, log_end = plan(view), view.root, view.end_offset
    keys_folder = Path(target, _KEYS_NAME)
    OsFiles().make_directory(target, is_durable=False)
    keys_folder.mkdir(0o700)

    def work(part: Slice) -> Iterator[SliceOutcome]:
        last_timestamp = 0
        keys = KeyExtractor(part, str(keys_folder))
        with QueueBuilder(part, target, queue_file_size) as queues:
            for batch in dispatch_batches(part, has_keys=True):
                last_timestamp = max(last_timestamp, int(batch.store_timestamps.max()))
                queues.add(batch)
                keys.add(batch)
        yield SliceOutcome(queues.built, keys.finish(), last_timestamp)

    outcomes = runner(slices, work)
    queues = finish_queues(root, target, [outcome.queues for outcome in outcomes], queue_file_size)
    build_index(target, [outcome.keys for outcome in outcomes], layout)
    shutil.rmtree(keys_folder)
    messages = sum(outcome.queues.messages for outcome in outcomes)
    last = max((outcome.last_timestamp for outcome in outcomes), default=0)
    return BuiltParts(messages, frozenset(queues), last, log_end)


class Difference(NamedTuple):
    """A queue or index file that does not match the log.

    Attributes:
        path: below the store.
        position: of the first byte that differs; -1: the file is missing, or should not exist.
        found: the actual content.
    """

    path: str
    position: int
    found: str


def verify_store(path: str, runner: SliceRunner = here, *, scratch: str | None = None) -> list[Difference]:
    """Build queues and index in another folder and compare them with those of the store; the store is not changed.

    Queue files whose messages have all expired are not compared, because the log no longer holds those messages.

    Args:
        path: of the store.
        runner: runs a function on slices.
        scratch: a folder that all tasks can access, with enough space for queues and index; None: next to the store.
    """
    store = find_store(ReadOnlyFiles(), path)
    parts = StoreParts(ReadOnlyFiles(), store)
    queue_sizes = [file.count * UNIT_SIZE for queue in parts.queues.values() for file in queue.queue_files]
    layouts = [IndexLayout(view.slot_count, view.item_count_max + 1) for view in parts.index_views]
    size = max(sorted(set(queue_sizes)), key=queue_sizes.count, default=FILE_SIZE_BYTES)
    layout = max(sorted(set(layouts)), key=layouts.count, default=IndexLayout())
    with TemporaryDirectory(prefix="rebuild-check-", dir=scratch or str(Path(store.root).parent)) as target:
        build_parts(path, target, size, layout, runner)
        return list(_differences(Path(store.root), Path(target)))


def _differences(root: Path, target: Path) -> Iterator[Difference]:
    for name in (QUEUES_NAME, INDEX_NAME):
        made = {path.relative_to(target) for path in (target / name).rglob("*") if path.is_file()}
        there = {path.relative_to(root) for path in (root / name).rglob("*") if path.is_file()}
        for path in sorted(made | there):
            if path not in there:
                yield Difference(str(path), -1, "no such file, though the log has messages for it")
            elif path not in made:
                if name == INDEX_NAME:
                    yield Difference(str(path), -1, "a file for which the log has no messages")
            else:
                yield from _compared(path, root / path, target / path)


def _compared(path: Path, found: Path, expected: Path) -> Iterator[Difference]:
    with found.open("rb") as there, expected.open("rb") as made:
        position = 0
        while True:
            one, other = there.read(_COMPARED_SIZE), made.read(_COMPARED_SIZE)
            # The last file of a queue may be longer on disk: trailing zeros are unused space.
            one, other = one.ljust(len(other), b"\0"), other.ljust(len(one), b"\0")
            if one != other:
                at = next(place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
                yield Difference(str(path), position + at, f"byte {one[at]:#04x}, where the log gives {other[at]:#04x}")
                return
            if not one:
                return
            position += len(one)


@contextmanager
def _locked(path: str) -> Iterator[str]:
    files = OsFiles()
    store = find_store(ReadOnlyFiles(), path)
    with open_store(path, tail=Tail.ALL) as view:
        if view.is_live:
            raise StoreInUse(store.root)
    with ExitStack() as stack:
        stack.callback(lock_store(files, store.root).release)
        for lock in store.lock_paths[1:]:
            if files.exists(lock):
                stack.callback(files.lock(lock).release)
        yield store.root
