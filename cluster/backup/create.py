"""Makes a backup: reads the entries that a folder does not have yet, and stores them in parts.

Consistent, because the log is: a backup has all entries up to an index that was committed when it began. Incremental:
it begins after the last entry of the last complete backup. An interrupted one is continued: its complete parts are
checked and used again, so at most one part is read twice.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cluster.backup.chain import ChainBroken, ChainEnd, beginning, encoded, follow
from cluster.backup.errors import BackupNotContinued
from cluster.backup.manifest import UNKNOWN_TIME, BackupManifest, BackupPart
from cluster.backup.part_entries import decode_part, store_time_of
from dledger.client.reading import DamagedBytesError
from dledger.entries.format.entry import ENTRY_NORMAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cluster.backup.folder import BackupFolder
    from cluster.backup.throttle import Throttle
    from dledger.entries.format.codec import EntryChecks
    from dledger.entries.format.entry import Entry

# A part is held in memory until it is complete. An interrupted backup loses at most this much.
PART_SIZE_BYTES: Final = 16 << 20
# A throttled reader pauses after this number of bytes.
_PIECE_SIZE_BYTES: Final = 64 << 10


class SourceFacts(NamedTuple):
    """What a group says of its log.

    Attributes:
        group, group_id: name and id of the group.
        node: client address of the node that said it.
        begin_index, begin_position: of the first entry that it keeps.
        commit_index: all entries up to this one are committed.
        has_state: the log has messages: a state of the broker belongs to it.
    """

    group: str
    group_id: str
    node: str
    begin_index: int
    begin_position: int
    commit_index: int
    has_state: bool


class LogSource(Protocol):
    """The group of which a backup is made."""

    def facts(self) -> SourceFacts:
        """Return the facts of its log now."""
        ...

    def entries(self, begin: int) -> Iterable[Entry]:
        """Yield all committed entries from index `begin` on, checked, also those that leaders appended."""
        ...


class BackupRun:
    """One run of `dledger backup create`.

    Args:
        folder: locked by the caller.
        source: the group.
        throttle: of the bytes that are read.
        checks: which entries may be a leader's own.
        now_ms: the wall clock, in milliseconds since 1970.
        on_progress: called with the index of the last stored entry.
    """

    def __init__(
        self,
        folder: BackupFolder,
        source: LogSource,
        *,
        throttle: Throttle,
        checks: EntryChecks,
        now_ms: Callable[[], int],
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._source = source
        self._throttle = throttle
        self._checks = checks
        self._now_ms = now_ms
        self._on_progress = on_progress
        self._parts: list[BackupPart] = []
        # The last entry of a client among those of this backup.
        self._last_message: Entry | None = None

    def run(self) -> BackupManifest:
        """Make the backup; return its manifest, which is stored. It has no parts if the log has no new entries.

        Raises:
            BackupNotContinued: the log is not that of the folder, or no longer has the next entry.
            BackupDamaged: of the manifests in the folder.
            dledger.client.outcomes.ReadFailed: the group does not answer; run it again.
            store.errors.StoreError: the disk is full, or a file cannot be written.
        """
        earlier = self._folder.manifests()
        last = earlier[-1] if earlier else None
        facts = self._source.facts()
        self._check(facts, last)
        begin = (facts.begin_index, facts.begin_position) if last is None else (last.begin_index, last.begin_position)
        end = beginning(*begin) if last is None else last.end
        end = self._adopt(end)
        if end.index < facts.commit_index:
            end = self._read(end)
        manifest = BackupManifest(
            serial=len(earlier) + 1,
            previous_sha256="" if last is None else self._folder.digest(last),
            created_ms=self._now_ms(),
            group=facts.group,
            group_id=facts.group_id,
            node=facts.node,
            begin_index=begin[0],
            begin_position=begin[1],
            parts=tuple(self._parts),
            end=end,
            last_time_ms=self._last_time_ms(UNKNOWN_TIME if last is None else last.last_time_ms),
        )
        self._folder.add_manifest(manifest)
        return manifest

    def _check(self, facts: SourceFacts, last: BackupManifest | None) -> None:
        path = self._folder.path
        new = "Make a new backup in an empty folder"
        if not facts.group_id:
            raise BackupNotContinued(path, "a group with an id", "none yet", "Wait until the group has a leader")
        if last is None:
            self._check_begin(facts)
            return
        if facts.group_id != last.group_id:
            raise BackupNotContinued(path, f"group id {last.group_id}", facts.group_id, f"It is another group. {new}")
        if facts.begin_index > last.end.index + 1:
            found = f"a log that begins at index {facts.begin_index}"
            advice = f"The entries between were deleted by retention. {new}, and then make backups more often"
            raise BackupNotContinued(path, f"entry {last.end.index + 1}", found, advice)
        if facts.commit_index < last.end.index:
            found = f"commit index {facts.commit_index}"
            raise BackupNotContinued(
                path, f"commit index {last.end.index} or above", found, f"Entries were lost. {new}"
            )

    def _check_begin(self, facts: SourceFacts) -> None:
        """Check that entries alone are the whole log."""
        path = self._folder.path
        if not facts.begin_index and facts.begin_position:
            found = f"a log that begins at position {facts.begin_position}, after files of another program"
            advice = "Copy the folder commitlog of a stopped node, or wait until retention has deleted those files"
            raise BackupNotContinued(path, "a log that begins at position 0", found, advice)
        if facts.begin_index and facts.has_state:
            found = f"a log that begins at index {facts.begin_index}, after entries with changes of broker state"
            advice = "Begin backups before retention deletes the first entries"
            raise BackupNotContinued(path, "a log that begins at index 0", found, advice)

    # ------------------------------------------------------------------------------------------------- entries

    def _adopt(self, end: ChainEnd) -> ChainEnd:
        """Use the parts of an interrupted backup that continue the last one; remove the others."""
        is_continued = True
        for first_index, last_index, content in self._folder.unclaimed(end.index):
            found = self._end_of(end, content) if is_continued else None
            is_continued = found is not None and found.index == last_index
            if found is None or not is_continued:
                self._folder.remove_part(first_index, last_index)
                continue
            end = found
            self._parts.append(BackupPart(first_index, last_index, len(content), sha256(content).hexdigest()))
            self._on_progress(end.index)
        return end

    def _end_of(self, end: ChainEnd, content: bytes) -> ChainEnd | None:
        """Return the end after the entries of a part; None: they do not follow `end`, or are damaged."""
        try:
            entries, _ = decode_part(content, self._checks)
            for entry in entries:
                end = follow(end, entry)
                self._note(entry)
        except (DamagedBytesError, ChainBroken):
            return None
        return end

    def _read(self, end: ChainEnd) -> ChainEnd:
        """Read and store all entries after `end`; return the new end."""
        pieces: list[bytes] = []
        first_index, size, unpaid = end.index + 1, 0, 0
        for entry in self._source.entries(end.index + 1):
            end = self._follow(end, entry)
            self._note(entry)
            pieces.append(encoded(entry))
            size, unpaid = size + entry.size, unpaid + entry.size
            if unpaid >= _PIECE_SIZE_BYTES:
                self._throttle.spend(unpaid)
                unpaid = 0
            if size >= PART_SIZE_BYTES:
                self._store(first_index, end.index, pieces)
                first_index, size, pieces = end.index + 1, 0, []
        if pieces:
            self._store(first_index, end.index, pieces)
        return end

    def _follow(self, end: ChainEnd, entry: Entry) -> ChainEnd:
        try:
            return follow(end, entry)
        except ChainBroken as error:
            advice = (
                "The group has other entries than those of the backup, as after the loss of its majority. Make a new "
                "backup in an empty folder, and keep this one"
            )
            raise BackupNotContinued(self._folder.path, error.expected, error.found, advice) from error

    def _note(self, entry: Entry) -> None:
        if entry.magic == ENTRY_NORMAL and not entry.channel:
            self._last_message = entry

    def _last_time_ms(self, before_ms: int) -> int:
        found = None if self._last_message is None else store_time_of(self._last_message)
        return before_ms if found is None else found

    def _store(self, first_index: int, last_index: int, pieces: list[bytes]) -> None:
        self._parts.append(self._folder.add_part(first_index, last_index, b"".join(pieces)))
        self._on_progress(last_index)
