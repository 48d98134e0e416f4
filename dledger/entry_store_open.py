"""Opens the directory of a log: lock, checkpoint, files, recovery; undone in reverse when any of it fails."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.aside import Aside
from dledger.checkpoint import CheckpointFile
from dledger.entry_index import EntryIndex
from dledger.entry_recovery import DamagePolicy, RecoveredLog, recover
from dledger.log_head import LogHeadFile, complete
from dledger.membership_file import FILE_NAME as MEMBERSHIP_NAME
from store.errors import DiskFull, MissingFile
from store.mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    from dledger.checkpoint import Checkpoint
    from dledger.damaged_tail import GiveUp
    from dledger.entry_codec import EntryCodec
    from dledger.entry_store_config import EntryStoreConfig
    from store.files import DirectoryLock, Files


@dataclass(frozen=True, slots=True)
class OpenLog:
    """What an open store consists of.

    Attributes:
        data: the data files.
        index: the index files.
        checkpoint_file: where checkpoints go.
        checkpoint: the one that was found.
        head_file: where the log's beginning is noted.
        aside: the log that a reset replaced, if it is still there.
        lock: held until the store is closed.
        log: what recovery found.
        notes: what opening repaired or cut, one sentence each.
    """

    data: MappedFileQueue
    index: EntryIndex
    checkpoint_file: CheckpointFile
    checkpoint: Checkpoint
    head_file: LogHeadFile
    aside: Aside
    lock: DirectoryLock
    log: RecoveredLog
    notes: tuple[str, ...]


def open_log(files: Files, directory: str, config: EntryStoreConfig, codec: EntryCodec, give_up: GiveUp) -> OpenLog:
    """Lock and recover the log in `directory`; arguments and errors as of `EntryStore.open`."""
    notes: list[str] = []
    with ExitStack() as on_failure:
        data_directory, index_directory = f"{directory}/data", f"{directory}/index"
        files.make_directory(data_directory)
        files.make_directory(index_directory)
        lock = files.lock(f"{directory}/lock")
        on_failure.callback(lock.release)
        # A process that was killed may have left names that only the page cache knows: what is found must be durable.
        for path in (directory, data_directory, index_directory):
            files.sync_directory(path)
        checkpoint_file = CheckpointFile(files, directory, is_flush_sync=config.is_flush_sync)
        checkpoint = checkpoint_file.load()
        with suppress(DiskFull):  # then checkpoints have to wait for room, which harms nothing
            files.prepare_replace(checkpoint_file.path)
        head_file = LogHeadFile.open(files, directory)
        data = MappedFileQueue(files, data_directory, config.data_file_size_bytes)
        on_failure.callback(data.close)
        notes += data.load()
        index = MappedFileQueue(files, index_directory, config.index_file_size_bytes)
        on_failure.callback(index.close)
        _load_index(files, index, notes)
        entry_index = EntryIndex(index)
        aside = Aside.open(files, directory)
        head = complete(head_file, data, index, aside, notes)
        # Whoever ran here before us left this file, and zeros after the end of the log.
        policy = DamagePolicy(files.exists(f"{directory}/{MEMBERSHIP_NAME}"), give_up)
        log = recover(data, entry_index, checkpoint, head, codec, notes, policy)
        on_failure.pop_all()
    return OpenLog(data, entry_index, checkpoint_file, checkpoint, head_file, aside, lock, log, tuple(notes))


def _load_index(files: Files, index: MappedFileQueue, notes: list[str]) -> None:
    """Load the index files; if one between others is gone, remove them all, for recovery makes new ones."""
    try:
        notes += index.load()
    except MissingFile as error:
        index.close()
        for name in sorted(files.list_directory(index.directory), reverse=True):
            files.remove(f"{index.directory}/{name}")
        files.sync_directory(index.directory)
        notes.append(f"{error.path}: missing; all of {index.directory} is rebuilt")
