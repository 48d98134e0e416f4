"""The base log on one node's disk: the statement that the node sends to others, and the files that it saves.

`cluster.replica.bootstrap` agrees on the base log with the other nodes. All methods here use files and may be slow:
they run in one thread at a time, outside the event loop.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from commitlog.conversion.base_log_files import (
    UNKNOWN_DIVIDE,
    BaseLogFetch,
    BaseLogFile,
    BaseLogManifest,
    end_fetch,
    make_manifest,
)
from commitlog.conversion.bootstrap_rule import NOTHING, Claim, Statement
from commitlog.conversion.divide import (
    Divided,
    LogDirectories,
    begin_entries,
    begin_of_entries,
    divide_log,
    has_entries,
    pad_base_log,
)
from commitlog.conversion.old_config import own_config_size, save_config
from commitlog.conversion.origin import begin_of
from commitlog.conversion.saved_manifest import load_manifest, save_manifest
from commitlog.plain.store import LOG_DIRECTORY, exit_with
from dledger.entries.store import EntryStoreConfig
from store.dispatch.checkpoint import read_checkpoint
from store.errors import CorruptData, StoreStopped
from store.fs.mapped.mapped_file_queue import MappedFileQueue
from store.maintenance.lock import lock_store, note_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.config import NodeConfig
    from dledger.entries.format.codec import EntryCodec
    from store.fs.ports import DirectoryLock, Files

logger = logging.getLogger(__name__)

_PROGRESS_INTERVAL_S: Final = 10.0
# An offset after the end of any log.
_ALL: Final = 1 << 63


def places_of(config: NodeConfig, *, has_property_crc: bool = False) -> LogDirectories:
    """Return the directories of the logs of a broker's node."""
    root = config.store_base_dir
    sizes = EntryStoreConfig(config.mapped_file_size_for_entry_data, config.mapped_file_size_for_entry_index)
    directories = (f"{root}/{LOG_DIRECTORY}", f"{root}/dledger-{config.self_id}")
    return LogDirectories(*directories, sizes, has_property_crc=has_property_crc)


class ProgressLines:
    """Limits progress lines to one per ten seconds; the first one is due immediately."""

    def __init__(self) -> None:
        self._shown_at = 0.0

    def is_due(self) -> bool:
        """Return whether a line is due now, and start the next interval if so."""
        now = monotonic()
        if now - self._shown_at < _PROGRESS_INTERVAL_S:
            return False
        self._shown_at = now
        return True


class LocalBaseLog:
    """The base log on this node.

    Args:
        files: the file system.
        config: settings of the node.
        codec: distinguishes a leader's own entries from those of clients.
        has_property_crc: whether the plain log was written with property CRCs.

    Attributes:
        own: the statement of this node to others. Its claim changes at most once, from nothing to awaited.
        manifest: the manifest that the group agreed on; empty until `look` finds it or `save_agreed` saves it.
        directories: directories of the logs of this node.
        progress: limits the progress lines.
    """

    def __init__(self, files: Files, config: NodeConfig, codec: EntryCodec, *, has_property_crc: bool) -> None:
        self.own: Statement = NOTHING
        self.manifest = BaseLogManifest(0)
        self.directories = places_of(config, has_property_crc=has_property_crc)
        self.progress = ProgressLines()
        self._files = files
        self._root = config.store_base_dir
        self._codec = codec
        self._notes: list[str] = []
        self._is_ending = False

    def lock(self) -> DirectoryLock:
        """Lock the store against other processes."""
        self._files.make_directory(self._root)
        return lock_store(self._files, self._root)

    def end(self) -> None:
        """Stop reading files."""
        self._is_ending = True

    def check(self) -> bool:
        """Read the directory; return whether the base log is known without asking other nodes."""
        files, places, root = self._files, self.directories, self._root
        # Unreadable configuration is refused before anything is saved.
        checkpoint = read_checkpoint(files, root)
        saved = load_manifest(files, places.node_directory)
        if saved is not None and saved.is_agreed:
            end_fetch(files, places.node_directory)
            self._check_present(saved.manifest)
            self.manifest = saved.manifest
            return True
        config_size_bytes = own_config_size(files, root, places.node_directory)
        if saved is not None:
            self.own = Statement(Claim.AWAITED, saved.manifest, saved.manifest.divide, config_size_bytes)
            return False
        if has_entries(files, places.node_directory):
            self._check_base_log()
            self.save_agreed(self._compute_manifest(self._divide_of_entries()))
            return True
        last_exit = exit_with(files, root, checkpoint, is_clean=note_in(files, root) is None)
        divide, _, self._notes = pad_base_log(files, places, last_exit)
        if divide:
            manifest = self._compute_manifest(divide)
            self.own = Statement(Claim.HELD, manifest, begin_of(files, places.base_directory, manifest))
        self.own = replace(self.own, config_size_bytes=config_size_bytes)
        return False

    def save_agreed(self, manifest: BaseLogManifest) -> None:
        """Save durably the base log that the group agreed on."""
        save_manifest(self._files, self.directories.node_directory, manifest, is_agreed=True)
        self.manifest = manifest

    def save_awaited(self, manifest: BaseLogManifest) -> None:
        """Save durably the base log that this node will fetch."""
        save_manifest(self._files, self.directories.node_directory, manifest, is_agreed=False)

    def save_config(self, contents: Mapping[str, bytes]) -> None:
        """Save the configuration of the old store that was fetched from another node; see the function of this name."""
        save_config(self._files, self._root, self.directories.node_directory, contents)

    def begin_fetch(self, wanted: BaseLogManifest) -> BaseLogFetch:
        """Return a fetch of the files of `wanted` that this node lacks; the caller closes it."""
        return BaseLogFetch(self._files, self.directories.base_directory, self.directories.node_directory, wanted)

    def conclude(self) -> Divided:
        """Begin the log of entries at the end of the base log, unless it exists; return the divide."""
        files, places, manifest = self._files, self.directories, self.manifest
        if manifest.divide > 0 and not has_entries(files, places.node_directory):
            begin_entries(files, places, self._codec, manifest.divide)
            self._notes.append(f"{places.base_directory}: the base log up to {manifest.divide}; entries begin there")
        divided = divide_log(files, places, self._codec)
        return replace(divided, notes=(*self._notes, *divided.notes))

    def _check_base_log(self) -> None:
        """Refuse a base log that is not a contiguous run of whole files: its manifest never changes again."""
        places = self.directories
        queue = MappedFileQueue(self._files, places.base_directory, places.sizes.data_file_size_bytes)
        try:
            queue.load(is_read_only=True, durable_end=_ALL)
        finally:
            queue.close()

    def _check_present(self, manifest: BaseLogManifest) -> None:
        """Refuse files that appeared later: this node has stated to the group that it lacks them."""
        directory, known = self.directories.base_directory, {file.name for file in manifest.files}
        names = self._files.list_directory(directory) if self._files.is_directory(directory) else []
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            expected = "only files of the base log that this node agreed on with its group"
            raise CorruptData(f"{directory}/{unknown}", 0, expected, "one that appeared later")

    def _divide_of_entries(self) -> int:
        """Return the divide of a log of entries that another program, or an older version, created."""
        files, places = self._files, self.directories
        begin, is_whole = begin_of_entries(files, places.node_directory)
        if is_whole:
            return begin
        names = files.list_directory(places.base_directory) if files.is_directory(places.base_directory) else []
        return int(names[-1]) + places.sizes.data_file_size_bytes if names else UNKNOWN_DIVIDE

    def _compute_manifest(self, divide: int) -> BaseLogManifest:
        directory, size = self.directories.base_directory, 0

        def on_file(file: BaseLogFile) -> None:
            nonlocal size
            size += file.size
            if self._is_ending:
                raise StoreStopped("the node was stopped while it read its base log")
            if self.progress.is_due():
                logger.info("base_log_summed directory=%r bytes=%d file=%s", directory, size, file.name)

        return make_manifest(self._files, directory, divide, on_file)
