"""Checks the state of a standalone broker: snapshots and journal, or RocketMQ's configuration that it would import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.cli.store.node_files_check import SNAPSHOT_NAME, check_snapshots
from cluster.replica.journal.format import JournalDamaged
from cluster.replica.journal.reading import FOLDER, path_of
from cluster.replica.saved_state import load_state
from cluster.state.rocketmq_config import UnreadableConfig, import_config
from commitlog.conversion.old_config import LOCAL_STATE_DIRECTORY
from store.errors import MissingFile
from store.fs.read_only_files import ReadOnlyFiles
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEANING: Final = "the broker does not start: it would lose topics, groups and offsets"
_REMEDY: Final = "Restore the file from a backup, or move it away: the broker then starts with the previous state"
_JOURNAL_REMEDY: Final = "Restore config/broker from a backup, or see `a damaged journal` in docs/operations.md"


def check_broker_state(root: str) -> Iterator[Finding]:
    """Yield the faults that prevent a standalone broker from starting with the state in the store `root`."""
    files = ReadOnlyFiles()
    directory = f"{root}/{LOCAL_STATE_DIRECTORY}/{SNAPSHOT_NAME}"
    if files.is_directory(directory) and files.list_directory(directory):
        faults = list(check_snapshots(files, directory, _MEANING, _REMEDY))
        yield from faults or _check_journal(files, root)
        return
    try:
        import_config(Path(root))
    except UnreadableConfig as error:
        expected = "the configuration of RocketMQ, which the broker imports at its first start"
        yield Finding(Area.FILES, error.path, 0, expected, f"another content at {error.position}", _MEANING, _REMEDY)


def _check_journal(files: ReadOnlyFiles, root: str) -> Iterator[Finding]:
    """Yield the faults of a journal after intact snapshots."""
    try:
        saved = load_state(files, root)
    except JournalDamaged as error:
        yield Finding(Area.FILES, error.path, error.position, error.expected, error.found, _MEANING, _JOURNAL_REMEDY)
    except MissingFile as error:
        yield Finding(Area.FILES, error.path, 0, "this file of the journal", "none", _MEANING, _JOURNAL_REMEDY)
    else:
        segments = {} if saved is None or saved.journal is None else saved.journal.segments
        for number, content in segments.items():
            if content.is_torn:
                path = path_of(f"{root}/{LOCAL_STATE_DIRECTORY}/{FOLDER}", number)
                meaning = "a crash interrupted a write that was not acknowledged"
                expected, found = "zeros after the last batch", "a part of a batch"
                remedy = "The next start of the broker removes it"
                yield Finding(Area.FILES, path, content.end, expected, found, meaning, remedy, is_unfinished=True)
