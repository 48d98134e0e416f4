"""Reads a whole backup back: checksums of manifests, parts and entries, and that each entry follows the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.backup.chain import ChainBroken, ChainEnd, beginning, follow
from cluster.backup.errors import BackupDamaged
from cluster.backup.part_entries import decode_part
from dledger.client.reading import DamagedBytesError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cluster.backup.folder import BackupFolder
    from cluster.backup.manifest import BackupManifest, BackupPart
    from dledger.entries.format.codec import EntryChecks
    from dledger.entries.format.entry import Entry


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification.

    Attributes:
        manifests, parts, entries, size_bytes: what was read; of entries those in undamaged parts.
        damages: in order; empty: the backup can be restored.
    """

    manifests: int
    parts: int
    entries: int
    size_bytes: int
    damages: tuple[BackupDamaged, ...]


class BackupReader:
    """Reads the entries of a backup in order, and checks each.

    Args:
        folder: of the backup.
        manifests: all up to the one that is read.
        checks: which entries may be a leader's own.

    Attributes:
        end: the last entry that was read.
    """

    def __init__(self, folder: BackupFolder, manifests: Sequence[BackupManifest], checks: EntryChecks) -> None:
        self._folder = folder
        self._manifests = manifests
        self._checks = checks
        self.end = beginning(manifests[0].begin_index, manifests[0].begin_position)

    @property
    def parts(self) -> list[BackupPart]:
        """All parts, in order."""
        return [part for manifest in self._manifests for part in manifest.parts]

    def read(self, part: BackupPart) -> list[Entry]:
        """Return the entries of the next part.

        Raises:
            BackupDamaged: the part, or an entry in it, is damaged; `end` is unchanged.
        """
        content = self._folder.read_part(part)
        path = self._folder.path_of(part)
        end = self.end
        offset = 0
        try:
            entries, _ = decode_part(content, self._checks)
            for entry in entries:
                end = follow(end, entry)
                offset += entry.size
        except (DamagedBytesError, ChainBroken) as error:
            raise BackupDamaged(path, offset, "entries as they were written", str(error)) from error
        if (part.first_index, part.last_index) != (self.end.index + 1, end.index):
            expected = f"entries {part.first_index} to {part.last_index}"
            raise BackupDamaged(path, 0, expected, f"entries {self.end.index + 1} to {end.index}")
        self.end = end
        return entries

    def skip(self, part: BackupPart) -> None:
        """Continue after a damaged part: of the entry before the next one only the index is known."""
        self.end = ChainEnd(part.last_index, 0, 0, -1)

    def __iter__(self) -> Iterator[list[Entry]]:
        """Yield the entries of each part.

        Raises:
            BackupDamaged: as `read`.
        """
        for part in self.parts:
            yield self.read(part)


def verify_backup(
    folder: BackupFolder, checks: EntryChecks, on_progress: Callable[[int], None] = lambda _: None
) -> Verified:
    """Read all parts of all manifests.

    Args:
        folder: of the backup.
        checks: which entries may be a leader's own.
        on_progress: called with the bytes of each part that was read.

    Raises:
        NoBackup: there is no complete backup.
        BackupDamaged: a manifest is damaged, so that its parts are not known.
    """
    manifests = folder.existing()
    reader = BackupReader(folder, manifests, checks)
    damages: list[BackupDamaged] = []
    entries = size_bytes = 0
    for part in reader.parts:
        try:
            entries += len(reader.read(part))
        except BackupDamaged as damage:
            damages.append(damage)
            reader.skip(part)
        size_bytes += part.size
        on_progress(part.size)
    if not damages and reader.end != manifests[-1].end:
        path = f"{folder.path}/manifests/{manifests[-1].name}"
        damages.append(BackupDamaged(path, 0, f"the end {reader.end}", f"{manifests[-1].end}"))
    return Verified(len(manifests), len(reader.parts), entries, size_bytes, tuple(damages))
