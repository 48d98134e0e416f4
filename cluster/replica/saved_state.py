"""Reads the saved broker state of a standalone broker, its newest snapshot and its journal, without changing them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.replica.journal.reading import FOLDER, JournalContent, check_unused, read_journal
from cluster.state.broker_state import BrokerState
from cluster.state.features import WITH_JOURNAL
from cluster.state.rocketmq_config import import_config
from commitlog.conversion.old_config import LOCAL_STATE_DIRECTORY
from dledger.storage.snapshot_file import HEADER_SIZE, check, read_header
from dledger.storage.snapshot_store import SnapshotDamaged
from dledger.types import SnapshotInfo

if TYPE_CHECKING:
    from cluster.replica.journal.format import JournalCommand
    from store.fs.ports import Files

_SNAPSHOTS: Final = "snapshot"
_NAME_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class SavedState:
    """The broker state in the files of a standalone broker.

    Attributes:
        state: of the newest snapshot; `cluster.replica.record_effects.RecordEffects.replay` completes it.
        index: of the last command in it.
        journal: what the journal contains; None: the snapshot is of a program without one.
    """

    state: BrokerState
    index: int
    journal: JournalContent | None

    def changes(self) -> list[JournalCommand]:
        """Return the commands after the snapshot."""
        return [] if self.journal is None else self.journal.changes()


def load_state(files: Files, root: str) -> SavedState | None:
    """Return the state of the standalone broker in the store `root`; None if there was no such broker.

    Raises:
        dledger.storage.snapshot_store.SnapshotDamaged: the newest one is damaged: restore it, or remove it to continue
            with the one before, and the journal.
        cluster.state.compact_bytes.Unreadable: the snapshot is of a newer version.
        cluster.replica.journal.format.JournalDamaged, store.errors.MissingFile: the journal is damaged or incomplete.
        store.errors.StorageFailed: a file cannot be read.
    """
    directory = f"{root}/{LOCAL_STATE_DIRECTORY}"
    names = files.list_directory(f"{directory}/{_SNAPSHOTS}") if files.is_directory(directory) else []
    snapshots = [name for name in names if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()]
    content = None
    for name in snapshots:
        content = _content_of(files, f"{directory}/{_SNAPSHOTS}/{name}", is_body_needed=name == snapshots[-1])
    journal_directory = f"{directory}/{FOLDER}"
    if content is None:
        check_unused(files, journal_directory)
        return None
    state, index = BrokerState(), int(snapshots[-1])
    state.snapshot_load(content)
    if state.feature_level >= WITH_JOURNAL:
        return SavedState(state, index, read_journal(files, journal_directory, index))
    check_unused(files, journal_directory)
    return SavedState(state, index, None)


def _content_of(files: Files, path: str, *, is_body_needed: bool) -> bytes:
    """Return the state in a snapshot, checked; without `is_body_needed` only its header is, and nothing is returned."""
    file = files.open(path)
    try:
        content = file.view()
        info = read_header(content)
        if not isinstance(info, SnapshotInfo) or info.index != int(path.rpartition("/")[2]):
            raise SnapshotDamaged(path, str(info))
        if not is_body_needed:
            return b""
        fault = check(content, info)
        if fault is not None:
            raise SnapshotDamaged(path, fault)
        return file.read(HEADER_SIZE, len(content) - HEADER_SIZE)
    finally:
        del content
        file.close()


def check_state(files: Files, root: str) -> None:
    """Check that a standalone broker can open its state, before the store `root` is opened.

    Raises:
        cluster.state.rocketmq_config.UnreadableConfig: RocketMQ's configuration cannot be imported.
        see `load_state`.
    """
    if load_state(files, root) is None:
        import_config(Path(root))
