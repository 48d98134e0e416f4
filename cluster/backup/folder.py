"""A backup as files in a folder: reading and adding parts and manifests.

A file gets its final name when it is complete and durable; one that a killed process left has the ending `.partial`,
and is removed by the next run. `cluster.backup.manifest` describes the files.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from cluster.backup.errors import BackupDamaged, NoBackup
from cluster.backup.manifest import (
    BackupManifest,
    BackupPart,
    decode_manifest,
    encode_manifest,
    indexes_of,
    manifest_name,
)
from cluster.backup.manifest import part_name as name_of_part

if TYPE_CHECKING:
    from store.fs.ports import DirectoryLock, Files

_MANIFESTS: Final = "manifests"
_PARTS: Final = "parts"
_LOCK: Final = "lock"
_PARTIAL: Final = ".partial"


class BackupFolder:
    """The files of one backup.

    Args:
        files: the file system.
        path: of the folder; it need not exist.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    def lock(self) -> DirectoryLock:
        """Create the folder if it is missing, and lock it: one backup is made at a time.

        Raises:
            store.errors.DirectoryLocked: another process makes one.
        """
        for name in (_MANIFESTS, _PARTS):
            self._files.make_directory(f"{self.path}/{name}")
        lock = self._files.lock(f"{self.path}/{_LOCK}")
        for name in (_MANIFESTS, _PARTS):
            folder = f"{self.path}/{name}"
            left = [each for each in self._files.list_directory(folder) if each.endswith(_PARTIAL)]
            for each in left:
                self._files.remove(f"{folder}/{each}")
            # A killed process may have left a name that is not durable.
            self._files.sync_directory(folder)
        return lock

    # ------------------------------------------------------------------------------------------------- manifests

    def manifests(self) -> list[BackupManifest]:
        """Return all manifests, oldest first; none in a new folder.

        Raises:
            BackupDamaged: one is missing, damaged, or does not continue the one before it.
        """
        names = self._files.list_directory(f"{self.path}/{_MANIFESTS}")
        found: list[BackupManifest] = []
        previous_sha256 = ""
        for serial, name in enumerate((each for each in names if not each.endswith(_PARTIAL)), 1):
            path = f"{self.path}/{_MANIFESTS}/{name}"
            if name != manifest_name(serial):
                raise BackupDamaged(path, 0, f"{manifest_name(serial)} as the next manifest", name)
            raw = self._files.read_bytes(path) or b""
            try:
                manifest = decode_manifest(raw)
            except ValueError as error:
                raise BackupDamaged(path, 0, "a manifest as it was written", str(error)) from error
            if manifest.serial != serial or manifest.previous_sha256 != previous_sha256:
                expected = f"serial {serial} after the manifest with SHA-256 {previous_sha256 or 'of none'}"
                raise BackupDamaged(path, 0, expected, f"serial {manifest.serial} after {manifest.previous_sha256}")
            found.append(manifest)
            previous_sha256 = sha256(raw).hexdigest()
        for before, after in pairwise(found):
            self._check_follows(before, after)
        return found

    def existing(self, serial: int | None = None) -> list[BackupManifest]:
        """Return the manifests up to the one with this serial, by default up to the newest one; at least one.

        Raises:
            NoBackup: there is no such manifest.
            BackupDamaged: as `manifests`.
        """
        found = self.manifests()
        if not found:
            raise NoBackup(self.path, "a folder with a complete backup", "none: a backup is complete with its manifest")
        if serial is not None and serial > len(found):
            raise NoBackup(self.path, f"backup {serial}", f"backups 1 to {len(found)}")
        return found[:serial]

    def add_manifest(self, manifest: BackupManifest) -> None:
        """Make a backup complete; its parts are durable."""
        self._add(f"{self.path}/{_MANIFESTS}", manifest.name, encode_manifest(manifest))

    def digest(self, manifest: BackupManifest) -> str:
        """Return the SHA-256 of the file of a manifest, which covers all manifests before it."""
        return sha256(encode_manifest(manifest)).hexdigest()

    def _check_follows(self, before: BackupManifest, after: BackupManifest) -> None:
        begins = [(each.group_id, each.begin_index, each.begin_position) for each in (before, after)]
        last = after.parts[-1].last_index if after.parts else before.end.index
        follows = not after.parts or after.parts[0].first_index == before.end.index + 1
        if begins[0] != begins[1] or not follows or last != after.end.index:
            path = f"{self.path}/{_MANIFESTS}/{after.name}"
            found = f"parts up to index {last}, end {after.end.index}"
            raise BackupDamaged(
                path, 0, f"parts of group {before.group_id} from index {before.end.index + 1} on", found
            )

    # ----------------------------------------------------------------------------------------------------- parts

    def read_part(self, part: BackupPart) -> bytes:
        """Return the bytes of a part.

        Raises:
            BackupDamaged: its file is missing, or has other bytes.
        """
        path = self.path_of(part)
        content = self._files.read_bytes(path)
        if content is None:
            raise BackupDamaged(path, 0, f"{part.size} bytes", "no file")
        if len(content) != part.size:
            raise BackupDamaged(path, min(len(content), part.size), f"{part.size} bytes", f"{len(content)}")
        found = sha256(content).hexdigest()
        if found != part.sha256:
            raise BackupDamaged(path, 0, f"SHA-256 {part.sha256}", found)
        return content

    def path_of(self, part: BackupPart) -> str:
        """Return the path of the file of a part."""
        return f"{self.path}/{_PARTS}/{part.name}"

    def add_part(self, first_index: int, last_index: int, content: bytes) -> BackupPart:
        """Store entries durably; they belong to a backup once a manifest names the part."""
        self._add(f"{self.path}/{_PARTS}", name_of_part(first_index, last_index), content)
        return BackupPart(first_index, last_index, len(content), sha256(content).hexdigest())

    def unclaimed(self, index: int) -> list[tuple[int, int, bytes]]:
        """Return (first index, last index, content) of the parts that begin after `index`, in order.

        No manifest names them: the backup that wrote them was interrupted.
        """
        found = []
        for name in self._files.list_directory(f"{self.path}/{_PARTS}"):
            indexes = indexes_of(name)
            if indexes is not None and indexes[0] > index:
                content = self._files.read_bytes(f"{self.path}/{_PARTS}/{name}") or b""
                found.append((*indexes, content))
        return found

    def remove_part(self, first_index: int, last_index: int) -> None:
        """Remove a part that no manifest names."""
        self._files.remove(f"{self.path}/{_PARTS}/{name_of_part(first_index, last_index)}")
        self._files.sync_directory(f"{self.path}/{_PARTS}")

    def _add(self, folder: str, name: str, content: bytes) -> None:
        path = f"{folder}/{name}"
        self._files.create_from(path + _PARTIAL, [content])
        self._files.rename(path + _PARTIAL, path)
        self._files.sync_directory(folder)
