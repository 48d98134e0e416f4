"""Term and vote on disk: the file `currterm`, in DLedger's text format, replaced atomically and durably at each change.

    currTerm=7
    voteLeader=n1

with a checksum (see `dledger.storage.properties`).

An empty `voteLeader` means that no vote was given in this term. `founding=true`, `incarnation=N` and
`foundingGroup=HEX` show whether the node may have lost state (`dledger.types.HardState`); Java nodes ignore them. No
file means that the node never took part, or that its disk was wiped. A file that cannot be read is different: it may
have contained a vote, and two votes of a node in one term can elect two leaders, so the node refuses to start.

Source: Raft figure 2 (persistent state); DLedger `MemberState` (which syncs nothing and swallows read errors).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from dledger.storage.properties import describe_fault, format_checked, parse_checked
from dledger.types import GROUP_ID_END, NO_GROUP, TERM_MAX, HardState
from store.errors import StoreError

if TYPE_CHECKING:
    from store.fs.ports import Files

FILE_NAME = "currterm"
_TERM_KEY = "currTerm"
_VOTE_KEY = "voteLeader"
_FOUNDING_KEY = "founding"
_INCARNATION_KEY = "incarnation"
_FOUNDING_GROUP_KEY = "foundingGroup"
# DLedger deletes `currterm` before it renames `currterm.tmp`, and keeps the previous content in `currterm.bak`.
_JAVA_LEFTOVERS = (".tmp", ".bak")


class HardStateUnreadable(StoreError):
    """The file with term and vote exists, or existed, and cannot be read."""

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(
            f"{path}: expected {expected}, found {found}. This node may have voted in a term that it no longer knows, "
            "so it must not start. Restore the file as it was when the node stopped, or replace the node by one with "
            "a new id and an empty directory"
        )
        self.path = path
        self.expected = expected
        self.found = found


class HardStateFile:
    """Loads and saves term and vote."""

    __slots__ = ("_files", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    @classmethod
    def open(cls, files: Files, directory: str) -> Self:
        """Prepare the file in `directory`, which is created, and reserve space for the next save.

        Raises:
            store.errors.DiskFull: a node without space for its vote must not start; free some.
        """
        files.make_directory(directory)
        path = f"{directory}/{FILE_NAME}"
        # A process that was killed inside `save` may have left a state in the page cache only: it must not be sent to
        # peers before it is durable.
        files.sync_directory(directory)
        files.prepare_replace(path)
        return cls(files, path)

    @property
    def exists(self) -> bool:
        """Whether a state was ever saved in this file."""
        return self._files.exists(self._path)

    def load(self) -> HardState:
        """Return the saved state; term 0, without a vote, when nothing was ever saved.

        The caller decides whether that means a founding node, from the other files of the directory.

        Raises:
            HardStateUnreadable: do not start.
        """
        content = self._files.read_bytes(self._path)
        if content is None:
            return self._load_absent()
        try:
            properties = parse_checked(content)
            term = int(properties[_TERM_KEY])
            incarnation = int(properties.get(_INCARNATION_KEY, "0"))
            founding_group_id = int(properties.get(_FOUNDING_GROUP_KEY, "0"), 16)
        except (ValueError, KeyError) as error:
            raise HardStateUnreadable(
                self._path, f"lines {_TERM_KEY}=... and {_VOTE_KEY}=...", describe_fault(error)
            ) from error
        if not 0 <= term <= TERM_MAX:
            raise HardStateUnreadable(self._path, f"a term from 0 to {TERM_MAX}", str(term))
        is_founding = properties.get(_FOUNDING_KEY) == "true"
        if not 0 <= founding_group_id < GROUP_ID_END:
            raise HardStateUnreadable(self._path, "a group id below 2^63", f"{founding_group_id:#x}")
        return HardState(term, properties.get(_VOTE_KEY) or None, is_founding, incarnation, founding_group_id)

    def save(self, state: HardState) -> None:
        """Make `state` durable before returning; it works on a full disk, too.

        Raises:
            store.errors.StorageFailed: the node must stop without sending the answer that depends on it.
        """
        lines = {_TERM_KEY: str(state.term), _VOTE_KEY: state.voted_for or ""}
        if state.is_founding:
            lines[_FOUNDING_KEY] = "true"
        if state.incarnation:
            lines[_INCARNATION_KEY] = str(state.incarnation)
        if state.founding_group_id != NO_GROUP:
            lines[_FOUNDING_GROUP_KEY] = f"{state.founding_group_id:016x}"
        self._files.replace(self._path, format_checked(lines))

    def _load_absent(self) -> HardState:
        for ending in _JAVA_LEFTOVERS:
            if self._files.exists(self._path + ending):
                expected = "this file, because it once existed"
                found = (
                    f"only {self._path + ending} (if a Java node was killed here, rename the newer of .tmp and .bak)"
                )
                raise HardStateUnreadable(self._path, expected, found)
        return HardState()
