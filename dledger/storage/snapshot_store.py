"""Snapshots of the state machine on disk: saved, loaded, sent and received in chunks.

A snapshot is one file, named after the index of its last entry in 20 digits, in the directory `snapshot`. It is written
under another name, synced and renamed: under its final name it is complete, unless the disk damages it, which its
checksums detect. The newest three are kept (DLedger's number).

One snapshot at a time can be received: the file `incoming`, with its full size, and `incoming.progress`, which has the
number of durable bytes, so that a transfer continues after a restart.

Source: DLedger `SnapshotManager`, `FileSnapshotStore` (whose data and meta are two files, neither of them synced).
"""

from __future__ import annotations

from dataclasses import asdict
from threading import Lock
from typing import TYPE_CHECKING, Self

from dledger.storage.properties import format_checked, parse_checked
from dledger.storage.snapshot_file import HEADER_SIZE, BodySum, check, encode_header, read_header
from dledger.types import SnapshotInfo
from store.errors import DiskFull, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.fs.ports import File, Files

SNAPSHOTS_MAX = 3
_NAME_DIGITS = 20
_SAVING = "saving"
_INCOMING = "incoming"
_PROGRESS = "incoming.progress"
_RECEIVED_KEY = "received"
# Received bytes between two syncs: after a restart at most this many are received again.
_SYNC_EVERY_BYTES = 16 << 20
# Snapshots that are being sent, to different peers; a file that is deleted meanwhile can be read until it is closed.
_SENDING_MAX = 4


class SnapshotDamaged(StoreError):
    """A snapshot is damaged."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(
            f"{path}: expected a snapshot as it was written, found {found}. An older one is enough if the log still "
            "reaches back to it; else keep a copy of the directory and give the node an empty one: it is re-synced"
        )
        self.path = path
        self.found = found


class SnapshotGone(StoreError):
    """A snapshot that is to be read was deleted or replaced, because there are newer ones."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: deleted or replaced, because there are newer snapshots. Request the newest one")
        self.path = path


class SnapshotStore:
    """The snapshots of one node. Construct it by `open`.

    All methods belong to one thread, except that another one may `save` while this one calls `read_chunk`.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        # Held for what a save and `read_chunk` both access: the next three attributes. A save holds it during no
        # operation on files, because `read_chunk` runs in the event loop.
        self._lock = Lock()
        # Newest first, each of another index; at most `SNAPSHOTS_MAX` after each save.
        self._snapshots: list[SnapshotInfo] = []
        # Found damaged by this process; the next save deletes their files.
        self._damaged: list[SnapshotDamaged] = []
        # Open files that were verified, the one used last at the end; at most `_SENDING_MAX` after each chunk.
        self._sending: dict[SnapshotInfo, File] = {}
        self._incoming: tuple[SnapshotInfo, File] | None = None
        # Of the incoming file: `_synced <= _received <= its size`. Bytes up to `_synced` are durable, and so is the
        # file that records their number. Meaningless without an incoming snapshot.
        self._received = self._synced = 0

    @classmethod
    def open(cls, files: Files, directory: str) -> Self:
        """Find the snapshots in `directory`/snapshot, which is created if it is missing; remove what a crash left.

        Raises:
            store.errors.StorageFailed: a file cannot be opened or removed.
        """
        store = cls(files, f"{directory}/snapshot")
        files.make_directory(store._directory)
        # A killed process may have left names in the page cache only.
        files.sync_directory(store._directory)
        store._remove(_SAVING)
        for name in files.list_directory(store._directory):
            if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit():
                store._find(name)
        store._resume()
        return store

    def close(self) -> None:
        """Close all files; an incoming snapshot can be resumed from the last sync on."""
        for file in self._sending.values():
            file.close()
        self._sending.clear()
        if self._incoming is not None:
            self._incoming[1].close()
            self._incoming = None

    @property
    def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """All snapshots with a valid header, newest first; the body is checked when it is loaded or sent."""
        return tuple(self._snapshots)

    @property
    def damaged(self) -> tuple[SnapshotDamaged, ...]:
        """The snapshots found damaged so far, which are no longer among `snapshots`."""
        return tuple(self._damaged)

    def latest(self) -> SnapshotInfo | None:
        """Return the newest snapshot."""
        return self._snapshots[0] if self._snapshots else None

    # ------------------------------------------------------------------------------------------ saving and loading

    def save(self, index: int, term: int, content: bytes | Iterable[bytes]) -> SnapshotInfo:
        """Save the state after entry `index` of `term`, durably; delete the oldest beyond three.

        Args:
            index: of the last entry applied to it.
            term: of that entry.
            content: the state, complete or in chunks of any size; only one chunk is in memory at a time.

        Raises:
            store.errors.DiskFull: nothing was saved; the older ones stay valid.
            store.errors.StorageFailed: the node must stop.
        """
        path, body = f"{self._directory}/{_SAVING}", BodySum()
        self._files.create_from(path, body.pass_through([content] if isinstance(content, bytes) else content))
        header, info = encode_header(index, term, body)
        file = self._files.open(path)
        file.write(header, 0)
        file.sync()
        file.close()
        self._take_in(_SAVING, info)
        return info

    def load(self, info: SnapshotInfo) -> bytes:
        """Return the saved state.

        Raises:
            SnapshotDamaged: it is no longer among `snapshots`; the log decides whether an older one can be used.
            SnapshotGone: it was deleted or replaced.
            store.errors.StorageFailed: the file cannot be opened.
        """
        file = self._open_checked(info)
        try:
            return file.read(HEADER_SIZE, info.size_bytes)
        finally:
            file.close()

    def _open_checked(self, info: SnapshotInfo) -> File:
        path = self._path_of(info.index)
        if info not in self._snapshots or not self._files.exists(path):
            raise SnapshotGone(path)
        file = self._files.open(path)
        fault = check(file.view(), info)
        if fault is not None:
            found = read_header(file.view())
            file.close()
            if isinstance(found, SnapshotInfo) and found != info:
                # A save of the same index has renamed its file, and not yet recorded it.
                raise SnapshotGone(path)
            self._snapshots.remove(info)
            self._damaged.append(SnapshotDamaged(path, fault))
            raise self._damaged[-1]
        return file

    # ---------------------------------------------------------------------------------------------------- sending

    def read_chunk(self, info: SnapshotInfo, offset: int, length: int) -> bytes | None:
        """Return `length` bytes of the snapshot's file from `offset`, fewer at its end; None: it is deleted or damaged.

        The file is checked when the first chunk is read, and can be read to its end even if it is deleted meanwhile.

        Raises:
            store.errors.StorageFailed: the file cannot be opened.
        """
        with self._lock:
            try:
                file = self._sending.pop(info, None) or self._open_checked(info)
            except (SnapshotDamaged, SnapshotGone):
                return None
            chunk = file.read(offset, length)
            if offset + length >= info.size_bytes:
                file.close()
                return chunk
            self._sending[info] = file
            if len(self._sending) > _SENDING_MAX:
                self._sending.pop(next(iter(self._sending))).close()
            return chunk

    # -------------------------------------------------------------------------------------------------- receiving

    def incoming(self) -> tuple[SnapshotInfo, int] | None:
        """Return the snapshot that is being received, and the number of bytes received; None if there is none."""
        return None if self._incoming is None else (self._incoming[0], self._received)

    def write_chunk(self, info: SnapshotInfo, offset: int, payload: bytes) -> int:
        """Write bytes of an incoming snapshot; return the total received. A different incoming snapshot is dropped.

        Bytes that were already received are not written again; a chunk that leaves a gap, or does not fit, is not
        written. If the snapshot does not fit on the disk, all of it is dropped.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        try:
            if self._incoming is None or self._incoming[0] != info:
                self.drop_incoming()
                self._begin_incoming(info)
            assert self._incoming is not None
            file = self._incoming[1]
            end = offset + len(payload)
            if offset <= self._received < end <= file.size:
                file.write(payload[self._received - offset :], self._received)
                self._received = end
                if self._received - self._synced >= _SYNC_EVERY_BYTES:
                    self._sync_incoming()
        except DiskFull:
            self.drop_incoming()
        return self._received

    def finish(self, info: SnapshotInfo) -> bool:
        """Verify an incoming snapshot and store it durably; False: it is damaged or incomplete, and was dropped.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if self._incoming is None:
            return False
        coming, file = self._incoming
        if coming != info or self._received != info.size_bytes or check(file.view(), info) is not None:
            self.drop_incoming()
            return False
        file.sync()
        file.close()
        self._incoming = None
        self._take_in(_INCOMING, info)
        self._remove(_PROGRESS)
        return True

    def drop_incoming(self) -> None:
        """Drop the incoming snapshot, if there is one."""
        if self._incoming is not None:
            self._incoming[1].close()
            self._incoming = None
        self._received = self._synced = 0
        self._remove(_PROGRESS)
        self._remove(_INCOMING)

    def _begin_incoming(self, info: SnapshotInfo) -> None:
        assert info.size_bytes >= HEADER_SIZE, info
        file = self._files.create(f"{self._directory}/{_INCOMING}", info.size_bytes)
        self._incoming = info, file
        self._received = self._synced = 0
        self._sync_incoming()

    def _sync_incoming(self) -> None:
        """Sync the received bytes, and then record their number."""
        assert self._incoming is not None
        info, file = self._incoming
        file.sync()
        lines = {key: str(value) for key, value in asdict(info).items()} | {_RECEIVED_KEY: str(self._received)}
        self._files.replace(f"{self._directory}/{_PROGRESS}", format_checked(lines))
        self._synced = self._received

    def _resume(self) -> None:
        """Continue the snapshot that was being received; drop it if its number of durable bytes is unknown."""
        content = self._files.read_bytes(f"{self._directory}/{_PROGRESS}")
        try:
            properties = {key: int(value) for key, value in parse_checked(content or b"").items()}
            received = properties.pop(_RECEIVED_KEY)
            info = SnapshotInfo(**properties)
            file = self._files.open(f"{self._directory}/{_INCOMING}")
        except (ValueError, KeyError, TypeError, StoreError):
            self.drop_incoming()
            return
        self._incoming = info, file
        self._received = self._synced = received
        if file.size != info.size_bytes or not 0 <= received <= file.size:
            self.drop_incoming()

    # ------------------------------------------------------------------------------------------------------- files

    def _take_in(self, name: str, info: SnapshotInfo) -> None:
        """Rename a complete and synced file durably; delete damaged ones, and the oldest beyond three."""
        path = self._path_of(info.index)
        self._files.rename(f"{self._directory}/{name}", path)
        with self._lock:
            # A receiver of a snapshot that was saved again begins with the new one.
            for sent in [sent for sent in self._sending if sent.index == info.index]:
                self._sending.pop(sent).close()
            others = [other for other in self._snapshots if other.index != info.index]
            self._snapshots = sorted([info, *others], key=lambda other: other.index, reverse=True)
            # The file of a damaged snapshot may have been replaced since by a good one.
            kept_paths = {self._path_of(kept.index) for kept in self._snapshots[:SNAPSHOTS_MAX]}
            old_paths = [damaged.path for damaged in self._damaged if damaged.path not in kept_paths]
            old_paths += [self._path_of(old.index) for old in self._snapshots[SNAPSHOTS_MAX:]]
            del self._snapshots[SNAPSHOTS_MAX:]
        # Before older ones are deleted. `read_chunk` opens none of those any more.
        self._files.sync_directory(self._directory)
        for old_path in old_paths:
            if self._files.exists(old_path):
                self._files.remove(old_path)

    def _find(self, name: str) -> None:
        path = f"{self._directory}/{name}"
        file = self._files.open(path)
        found = read_header(file.view())
        file.close()
        if isinstance(found, SnapshotInfo) and found.index == int(name):
            self._snapshots.insert(0, found)
        else:
            self._damaged.append(SnapshotDamaged(path, str(found)))

    def _remove(self, name: str) -> None:
        path = f"{self._directory}/{name}"
        if self._files.exists(path):
            self._files.remove(path)
            self._files.sync_directory(self._directory)

    def _path_of(self, index: int) -> str:
        return f"{self._directory}/{index:0{_NAME_DIGITS}d}"
