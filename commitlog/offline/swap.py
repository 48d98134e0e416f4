"""Replaces queues and index of a store by new ones that were built next to them; a crash in between is completed later.

    rebuild.new/  consumequeue/ index/   while they are built; the file `complete` when they are complete and durable
    rebuild.old/  consumequeue/ index/   the old ones, from then on

A crash before `complete` leaves the store unchanged. After it, four renames follow: the old queues and the old index
are moved away, then the new index and the new queues into place. Between them the store has its old or its new queues
and index, or no queues: then both this program and RocketMQ rebuild them from the log when the store is opened. The
next rebuild completes an interrupted one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from commitlog.offline.directory import INDEX_NAME, QUEUES_NAME

if TYPE_CHECKING:
    from store.fs.ports import Files

NEW_NAME = "rebuild.new"
OLD_NAME = "rebuild.old"
COMPLETE_NAME = "complete"


def swap(files: Files, root: str, *, is_old_kept: bool) -> None:
    """Replace the old queues and index by the complete new ones; steps already done are skipped."""
    new, old = f"{root}/{NEW_NAME}", f"{root}/{OLD_NAME}"
    files.make_directory(old)
    for name in (QUEUES_NAME, INDEX_NAME):
        # If the new one is no longer in `rebuild.new`, it is already in place.
        if files.exists(f"{new}/{name}") and (files.exists(f"{root}/{name}") or Path(f"{root}/{name}").is_symlink()):
            remove_tree(f"{old}/{name}")
            _move(files, root, old, name)
    for name in (INDEX_NAME, QUEUES_NAME):
        if files.exists(f"{new}/{name}"):
            _move(files, new, root, name)
    remove_tree(new)
    if not is_old_kept:
        remove_tree(old)
    files.sync_directory(root)


def finish_begun(files: Files, root: str, *, is_old_kept: bool) -> bool:
    """Complete an interrupted rebuild; return whether there was one."""
    if not files.exists(f"{root}/{NEW_NAME}/{COMPLETE_NAME}"):
        return False
    swap(files, root, is_old_kept=is_old_kept)
    return True


def _move(files: Files, source: str, target: str, name: str) -> None:
    files.rename(f"{source}/{name}", f"{target}/{name}")
    files.sync_directory(target)
    files.sync_directory(source)


def remove_tree(path: str) -> None:
    """Remove a directory with its content, or a file of that name."""
    if Path(path).is_symlink() or (Path(path).exists() and not Path(path).is_dir()):
        Path(path).unlink()
    else:
        shutil.rmtree(path, ignore_errors=not Path(path).exists())
