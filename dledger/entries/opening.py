"""Opens the directory of a log: lock, checkpoint, files, recovery; a failure undoes all steps in reverse order."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.entries.aside import Aside
from dledger.entries.format.entry import HEADER
from dledger.entries.index import EntryIndex
from dledger.entries.log_head import LogHeadFile, complete
from dledger.entries.membership_file import FILE_NAME as MEMBERSHIP_NAME
from dledger.entries.recovery import DamagePolicy, RecoveredEntries, recover
from dledger.storage.checkpoint import CheckpointFile
from dledger.storage.hard_state import FILE_NAME as HARD_STATE_NAME
from dledger.storage.properties import is_checked
from store.errors import CorruptData, DiskFull, MissingFile
from store.fs.mapped.mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    from dledger.entries.config import EntryStoreConfig
    from dledger.entries.damaged_tail import GiveUp
    from dledger.entries.format.codec import EntryCodec
    from dledger.storage.checkpoint import Checkpoint
    from store.fs.ports import DirectoryLock, Files

# Followed by the position of the first existing file: an operator gives up the entries before it.
_PERMISSION_NAME = "begin-at"


def open_log(files: Files, directory: str, config: EntryStoreConfig, codec: EntryCodec, give_up: GiveUp) -> OpenLog:
    """Lock and recover the log in `directory`; arguments and errors as for `EntryStore.open`."""
    notes: list[str] = []
    with ExitStack() as on_failure:
        data_directory, index_directory = f"{directory}/data", f"{directory}/index"
        files.make_directory(data_directory)
        files.make_directory(index_directory)
        lock = files.lock(f"{directory}/lock")
        on_failure.callback(lock.release)
        # A killed process may have left names in the page cache only; all files found must be durable.
        for path in (directory, data_directory, index_directory):
            files.sync_directory(path)
        checkpoint_file = CheckpointFile(files, directory, is_flush_sync=config.is_flush_sync)
        checkpoint = checkpoint_file.load()
        head_file = LogHeadFile(files, directory)
        data = MappedFileQueue(files, data_directory, config.data_file_size_bytes)
        on_failure.callback(data.close)
        notes += data.load()
        index = MappedFileQueue(files, index_directory, config.index_file_size_bytes)
        on_failure.callback(index.close)
        _load_index(files, index, notes)
        entry_index = EntryIndex(index)
        aside = Aside.open(files, directory)
        _check_beginning(files, directory, data, head_file)
        index.remove_cut_short()
        head = complete(head_file, data, index, aside, notes)
        # If this file exists, this program wrote the log, and the bytes after its end are zeros.
        policy = DamagePolicy(files.exists(f"{directory}/{MEMBERSHIP_NAME}"), give_up)
        log = recover(data, entry_index, checkpoint, head, codec, notes, policy)
        # Space for later saves is reserved only after recovery, so that a log that is refused is not changed.
        LogHeadFile.open(files, directory)
        with suppress(DiskFull):  # checkpoints then wait for space, which is harmless
            files.prepare_replace(checkpoint_file.path)
        on_failure.pop_all()
    return OpenLog(data, entry_index, checkpoint_file, checkpoint, head_file, aside, lock, log, tuple(notes))


@dataclass(frozen=True, slots=True)
class OpenLog:
    """The parts of an open store.

    Attributes:
        data: the data files.
        index: the index files.
        checkpoint_file: the file of checkpoints.
        checkpoint: the one found at opening.
        head_file: the file with the start of the log.
        aside: the log that a reset replaced, until it is deleted.
        lock: held until the store is closed.
        log: the recovered log.
        notes: one sentence for each repair or cut.
    """

    data: MappedFileQueue
    index: EntryIndex
    checkpoint_file: CheckpointFile
    checkpoint: Checkpoint
    head_file: LogHeadFile
    aside: Aside
    lock: DirectoryLock
    log: RecoveredEntries
    notes: tuple[str, ...]


def _check_beginning(files: Files, directory: str, data: MappedFileQueue, head_file: LogHeadFile) -> None:
    """Refuse a log whose first files are missing, unless another program deleted them or an operator gives them up.

    This program records the new start of the log before it deletes old files. Java DLedger does not; but it writes
    `currterm`, without a checksum, whenever it runs, and its entries have no checksums either.

    Raises:
        CorruptData: files are missing at the beginning.
        LogHeadUnreadable: do not start.
    """
    head = head_file.load()
    begin_position = 0 if head is None else head.begin_position
    if not data.mapped_files or data.begin_offset <= begin_position or (head is not None and head.is_reset):
        return
    currterm = files.read_bytes(f"{directory}/{HARD_STATE_NAME}")
    is_ours = currterm is not None and is_checked(currterm)
    if head is None and is_ours:
        # If another program began the log, its first entries may have been deleted before this program ran here.
        _, _, _, _, _, _, chain_crc, body_crc, _ = HEADER.unpack_from(data.mapped_files[0].view(), 0)
        is_ours = bool(chain_crc or body_crc)
    permission = f"{directory}/{_PERMISSION_NAME}.{data.begin_offset}"
    if not is_ours or files.exists(permission):
        return
    raise CorruptData(
        data.directory,
        0,
        f"the file that holds position {begin_position}, where the log begins",
        f"no file before position {data.begin_offset}",
        f", or give the node an empty directory: it is re-synced. If the files were deleted on purpose, and "
        f"these entries are not needed, create the empty file {permission} and start the node",
    )


def _load_index(files: Files, index: MappedFileQueue, notes: list[str]) -> None:
    """Load the index files; if one is missing, remove all: recovery creates new ones."""
    try:
        notes += index.load()
    except MissingFile as error:
        index.close()
        for name in sorted(files.list_directory(index.directory), reverse=True):
            files.remove(f"{index.directory}/{name}")
        files.sync_directory(index.directory)
        notes.append(f"{error.path}: missing; all of {index.directory} is rebuilt")
