"""Checks the small files of a node: identity, peers, term, vote, checkpoint, memberships, log head, snapshots.

The files are read in the same way as at a start of the node, and compared with the entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commitlog.conversion.saved_manifest import FILE_NAME as MANIFEST_NAME
from commitlog.conversion.saved_manifest import load_manifest
from dledger.entries.aside import FOLDER_NAME as ASIDE_NAME
from dledger.entries.aside import RECORD_NAME, AsideRecord
from dledger.entries.log_head import FILE_NAME as HEAD_NAME
from dledger.entries.log_head import LogHeadFile
from dledger.entries.membership_file import FILE_NAME as MEMBERSHIP_NAME
from dledger.entries.membership_file import FILE_SIZE_BYTES as MEMBERSHIP_SIZE
from dledger.entries.membership_file import MembershipFile
from dledger.storage.checkpoint import FILE_NAME as CHECKPOINT_NAME
from dledger.storage.hard_state import FILE_NAME as TERM_NAME
from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import FILE_NAME as IDENTITY_NAME
from dledger.storage.identity import IdentityFile
from dledger.storage.membership_codec import MembershipUnreadable
from dledger.storage.peer_directories import FILE_NAME as PEERS_NAME
from dledger.storage.peer_directories import peer_directories_from
from dledger.storage.properties import describe_fault, parse_checked
from dledger.storage.snapshot_file import check, read_header
from dledger.types import NO_INDEX
from store.errors import StorageFailed, StoreError
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store.fs.read_only_files import ReadOnlyFiles

SNAPSHOT_NAME: Final = "snapshot"
_NAME_DIGITS: Final = 20
_LOST_DISK: Final = "See `a lost disk` in docs/operations.md, or restore the file from a backup of this node"
_ADOPT: Final = (
    "If this is certainly the node's own directory, start the node once with --adopt (move a damaged file away "
    "first); otherwise see `a lost disk` in docs/operations.md"
)
_ASIDE_REMEDY: Final = "Remove the folder if the node works and nothing in it is needed: see docs/operations.md"
_CHECKPOINT_REMEDY: Final = "The next start of the node checks more entries, and rewrites it"
_ENTRY_REMEDY: Final = (
    "Another node of the group has the entries: see `a lost disk` in docs/operations.md, or restore a backup"
)


class NodeFilesCheck:
    """Checks a node's small files.

    Args:
        files: the file system.
        directory: the node's own directory.
        has_messages: whether its log contains messages of a broker.
    """

    def __init__(self, files: ReadOnlyFiles, directory: str, *, has_messages: bool) -> None:
        self._files = files
        self._directory = directory
        self._has_messages = has_messages
        # RocketMQ never writes this file; this program writes it before the first entry.
        self._is_ours = files.exists(self._path(MEMBERSHIP_NAME))

    def findings(self, first_index: int, last_index: int, last_term: int, begin_offset: int) -> Iterator[Finding]:
        """Yield the faults of the node's small files.

        Args:
            first_index: index of the first intact entry; -1: there is none.
            last_index: index of the last intact entry; -1: there is none.
            last_term: term of that entry.
            begin_offset: position of the first data file; 0 without files.
        """
        yield from self._check_identity()
        yield from self._check_peers()
        yield from self._check_term(last_index, last_term)
        yield from self._check_checkpoint(last_index)
        yield from self._check_memberships()
        yield from self._check_head(first_index, begin_offset)
        yield from self._check_aside()
        yield from self._check_base_log()
        yield from self._check_snapshots()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _check_identity(self) -> Iterator[Finding]:
        path = self._path(IDENTITY_NAME)
        meaning = "the owner of this directory is unknown, and the node does not start"
        file = IdentityFile(self._files, self._directory)
        fault = self._fault(file.read)
        if fault is not None:
            yield _damage(path, "the identity of the node, with a matching checksum", fault, meaning, _ADOPT)
        elif not self._files.exists(path) and self._is_ours:
            yield _damage(path, "this file, because a node of this program has run here", "none", meaning, _ADOPT)

    def _check_peers(self) -> Iterator[Finding]:
        path = self._path(PEERS_NAME)
        meaning = "the node does not know the directories of its peers, and cannot refuse an old copy of one"
        expected = "the directories of members, with a matching checksum"
        try:
            content = self._files.read_bytes(path)
            if content is not None:
                peer_directories_from(content)
        except StorageFailed as error:
            yield _damage(path, expected, _reason(error), meaning, _LOST_DISK)
        except ValueError as error:
            remedy = "The node rewrites the file when it connects to the other members"
            yield _damage(path, expected, describe_fault(error), meaning, remedy)

    def _check_term(self, last_index: int, last_term: int) -> Iterator[Finding]:
        path = self._path(TERM_NAME)
        meaning = "the node does not start, or could vote twice in a term"
        fault = self._fault(HardStateFile(self._files, path).load)
        if fault is not None:
            yield _damage(path, "term and vote, with a matching checksum", fault, meaning, _LOST_DISK)
        elif not self._files.exists(path):
            if last_index != NO_INDEX or self._is_ours:
                yield _damage(
                    path, "this file, because the node has taken part in elections", "none", meaning, _LOST_DISK
                )
        else:
            term = HardStateFile(self._files, path).load().term
            if "voteLeader" not in parse_checked(self._files.read_bytes(path) or b""):
                yield _damage(path, "a line voteLeader=...", "none", meaning, _LOST_DISK)
            if term < last_term:
                yield _damage(path, f"term {last_term} or later, of the last entry", str(term), meaning, _LOST_DISK)

    def _check_checkpoint(self, last_index: int) -> Iterator[Finding]:
        path = self._path(CHECKPOINT_NAME)
        expected = "lines committedIndex=... and endIndex=..., with a matching checksum"
        meaning = "the end of the durable entries is unknown"
        content = None
        try:
            content = self._files.read_bytes(path)
            pairs = parse_checked(content or b"")
            end_index, committed_index = (int(pairs[name]) for name in ("endIndex", "committedIndex"))
        except StorageFailed as error:
            yield _damage(path, expected, _reason(error), meaning, _CHECKPOINT_REMEDY)
            return
        except (ValueError, KeyError) as error:
            if content is not None:
                yield _damage(path, expected, describe_fault(error), meaning, _CHECKPOINT_REMEDY)
            elif self._is_ours or self._files.exists(f"{path}.bak"):
                yield Finding(Area.FILES, path, 0, "this file", "none", meaning, _CHECKPOINT_REMEDY, is_unfinished=True)
            return
        if not NO_INDEX <= committed_index <= end_index:
            expected = f"a committed index from -1 to the end index {end_index}"
            yield _damage(path, expected, str(committed_index), meaning, _CHECKPOINT_REMEDY)
        if end_index > last_index:
            expected = f"entries up to index {end_index}, which the checkpoint records as durable"
            found = f"{last_index} as the last one" if last_index != NO_INDEX else "no entry"
            lost = "entries are lost: their files were removed, or damaged"
            yield Finding(Area.ENTRIES, path, 0, expected, found, lost, _ENTRY_REMEDY)

    def _check_memberships(self) -> Iterator[Finding]:
        path = self._path(MEMBERSHIP_NAME)
        meaning = "the node does not know the members of its group, and does not start"
        fault = self._fault(MembershipFile(self._files, path).load)
        if fault is not None:
            yield _damage(path, "memberships, with a matching checksum", fault, meaning, _LOST_DISK)
        elif self._is_ours and self._files.size_of(path) != MEMBERSHIP_SIZE:
            found = f"{self._files.size_of(path)} bytes"
            padding = "only its padding is missing; on a full disk it might not be saved"
            yield _damage(path, f"{MEMBERSHIP_SIZE} bytes", found, padding, "The next membership change rewrites it")
        elif not self._is_ours and self._is_sealed_term():
            yield _damage(path, "this file, because a node of this program has run here", "none", meaning, _LOST_DISK)

    def _is_sealed_term(self) -> bool:
        try:
            return (self._files.read_bytes(self._path(TERM_NAME)) or b"").startswith(b"#checked")
        except StorageFailed:
            return False

    def _check_head(self, first_index: int, begin_offset: int) -> Iterator[Finding]:
        path = self._path(HEAD_NAME)
        meaning = "the start of the log is unknown"
        fault = self._fault(LogHeadFile(self._files, self._directory).load)
        if fault is not None:
            yield _damage(path, "the start of the log, with a matching checksum", fault, meaning, _LOST_DISK)
        # With entry 0 the log is complete: in a mixed store of RocketMQ the base log precedes that entry.
        elif self._is_ours and begin_offset and first_index and not self._files.exists(path):
            expected = f"this file, because the first data file begins at {begin_offset}"
            yield _damage(path, expected, "none", meaning, _LOST_DISK)

    def _check_aside(self) -> Iterator[Finding]:
        path = self._path(f"{ASIDE_NAME}/{RECORD_NAME}")
        meaning = "the old log in this folder will not be deleted automatically"
        expected = "the description of the old log, with a matching checksum"
        try:
            content = self._files.read_bytes(path)
            if content is not None:
                AsideRecord.parse(content)
        except StorageFailed as error:
            yield _damage(path, expected, _reason(error), meaning, _ASIDE_REMEDY)
        except (ValueError, KeyError) as error:
            yield _damage(path, expected, describe_fault(error), meaning, _ASIDE_REMEDY)

    def _check_base_log(self) -> Iterator[Finding]:
        path = self._path(MANIFEST_NAME)
        meaning = "the node does not know which base log its group has"
        fault = self._fault(lambda: load_manifest(self._files, self._directory))
        if fault is not None:
            yield _damage(path, "the base log of the group, with a matching checksum", fault, meaning, _LOST_DISK)
        elif self._is_ours and self._has_messages and not self._files.exists(path):
            yield _damage(path, "this file, because a broker has run here", "none", meaning, _LOST_DISK)

    def _check_snapshots(self) -> Iterator[Finding]:
        meaning = "the state machine starts from an older snapshot, or the node does not start"
        return check_snapshots(self._files, self._path(SNAPSHOT_NAME), meaning, "The node saves a new one later")

    def _fault(self, load: Callable[[], object]) -> str | None:
        """Return the fault of a file that a node could not load; None if it can."""
        try:
            load()
        except (StoreError, MembershipUnreadable) as error:
            return _reason(error)
        return None


def check_snapshots(files: ReadOnlyFiles, directory: str, meaning: str, remedy: str) -> Iterator[Finding]:
    """Yield findings for the unloadable snapshots in a directory, with these texts for meaning and remedy."""
    for name in files.list_directory(directory):
        if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit():
            path = f"{directory}/{name}"
            fault = _snapshot_fault(files, path)
            if fault is not None:
                yield _damage(path, "a snapshot with matching checksums", fault, meaning, remedy)


def _snapshot_fault(files: ReadOnlyFiles, path: str) -> str | None:
    try:
        content = files.open(path).view()
    except StorageFailed as error:
        return _reason(error)
    info = read_header(content)
    return info if isinstance(info, str) else check(content, info)


def _reason(error: Exception) -> str:
    if isinstance(error, StorageFailed):
        return f"a file that cannot be read: {error.reason.strerror or error.reason}"
    return str(getattr(error, "found", error))


def _damage(path: str, expected: str, found: str, meaning: str, remedy: str) -> Finding:
    return Finding(Area.FILES, path, 0, expected, found, meaning, remedy)
