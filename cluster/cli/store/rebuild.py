"""`dledger rebuild`: rebuild the consume queues and the index of a store from its log."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.common import EXIT_USAGE, fail, notes, output
from cluster.cli.store.common import StoreArgument, find, progress_bar, refuse_raw, reported_store_errors
from commitlog.offline.directory import StoreMode
from commitlog.offline.rebuild import Layout, Rebuild
from commitlog.offline.swap import OLD_NAME, finish_begun
from commitlog.offline.verify import StoreParts
from commitlog.plain.lost_files import replace_lost_files
from store.dispatch.checkpoint import read_checkpoint
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles
from store.index.layout import IndexLayout
from store.maintenance.lock import lock_store
from store.queues.unit import UNIT_SIZE

if TYPE_CHECKING:
    from commitlog.offline.directory import StoreDirectory

_NOTES_SHOWN_MAX = 20


def rebuild(
    directory: StoreArgument,
    *,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Accept unreadable messages, now and at later starts.")
    ] = False,
    keep_old: Annotated[
        bool, typer.Option("--keep-old", help=f"Keep the old queues and index in {OLD_NAME}/.")
    ] = False,
    queue_file_size: Annotated[
        int | None,
        typer.Option(
            "--queue-file-size", min=UNIT_SIZE, metavar="BYTES", help="Size of a queue's file; default: unchanged."
        ),
    ] = None,
    index_slots: Annotated[
        int | None,
        typer.Option("--index-slots", min=1, metavar="COUNT", help="Slots of an index file; default: unchanged."),
    ] = None,
    index_items: Annotated[
        int | None,
        typer.Option("--index-items", min=2, metavar="COUNT", help="Items of an index file; default: unchanged."),
    ] = None,
) -> None:
    """Rebuild the consume queues and the key index from the log.

    The store must not be in use. The new files replace the old ones only when they are complete and durable. If the
    command is interrupted, the store has the old files, the new files, or rebuilds them when it is opened; the command
    can be repeated. The log itself is not changed. If the log is damaged, the command changes nothing.

    Examples:
        dledger rebuild /data/store
        dledger verify /data/store && echo ok
        dledger rebuild /data/store --skip-damaged --keep-old
    """
    if (index_slots is None) != (index_items is None):
        fail("--index-slots and --index-items: expected both or neither", EXIT_USAGE)
    index = None if index_slots is None or index_items is None else IndexLayout(index_slots, index_items)
    layout = Layout(None if queue_file_size is None else -(-queue_file_size // UNIT_SIZE) * UNIT_SIZE, index)
    with reported_store_errors(), ExitStack() as stack:
        found = find(directory)
        _refuse(found, keep_old=keep_old)
        _lock(stack, found)
        _rebuild(directory, found.root, layout, skip_damaged=skip_damaged, keep_old=keep_old)


def _rebuild(directory: Path, root: str, layout: Layout, *, skip_damaged: bool, keep_old: bool) -> None:
    files = OsFiles()
    if finish_begun(files, root, is_old_kept=keep_old):
        notes.print("dledger: completed an interrupted rebuild; rebuilding again", highlight=False)
    if skip_damaged:
        _replace_lost_files(files, root, find(directory))
    # Not `open_parts`, which would find this command's own lock and refuse the store as in use.
    parts = StoreParts(ReadOnlyFiles(), find(directory))
    started = time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task("rebuilding", total=parts.directory.size)
        rebuilt = Rebuild(
            files,
            parts,
            layout,
            is_skipping=skip_damaged,
            is_old_kept=keep_old,
            on_progress=lambda size: bar.advance(task, size),
        ).run()
    for note in rebuilt.notes[:_NOTES_SHOWN_MAX]:
        typer.echo(f"dledger: {note}", err=True)
    if len(rebuilt.notes) > _NOTES_SHOWN_MAX:
        typer.echo(f"dledger: and {len(rebuilt.notes) - _NOTES_SHOWN_MAX} notes more", err=True)
    kept = f" ({rebuilt.kept} of them without messages, kept)" if rebuilt.kept else ""
    output.print(
        f"{rebuilt.messages:,} messages, {rebuilt.queues:,} queues{kept}, {time.monotonic() - started:.1f} s. "
        f"`dledger verify {directory}` checks the result",
        highlight=False,
        soft_wrap=True,
    )


def _replace_lost_files(files: OsFiles, root: str, found: StoreDirectory) -> None:
    """Replace lost files of a plain log by zeros; otherwise no start would open the log."""
    if found.mode is not StoreMode.PLAIN:
        return
    folder = str(Path(found.log_files[0].path).parent)
    size = max(each.size for each in found.log_files)
    for note in replace_lost_files(files, folder, size, read_checkpoint(files, root).log_end):
        typer.echo(f"dledger: {note}", err=True)


def _refuse(found: StoreDirectory, *, keep_old: bool) -> None:
    refuse_raw(found)
    if not found.log_files:
        fail(f"{found.root} has no log files to rebuild from")
    if Path(found.log_files[0].path).parent == Path(found.root):
        fail(
            f"{found.root} is only the folder of a log: expected the directory of the store, which contains it",
            EXIT_USAGE,
        )
    old = Path(found.root) / OLD_NAME
    if keep_old and old.exists() and not (Path(found.root) / "rebuild.new").exists():
        fail(f"{old} exists already, from an earlier --keep-old: move it away", EXIT_USAGE)


def _lock(stack: ExitStack, found: StoreDirectory) -> None:
    files = OsFiles()
    stack.callback(lock_store(files, found.root).release)
    for path in found.lock_paths[1:]:
        if files.exists(path):
            stack.callback(files.lock(path).release)
