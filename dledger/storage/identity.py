"""The owner of a directory: the small file `identity`, created at the first start and checked at every later one.

    nodeId=n1
    group=orders
    directoryId=5c1f3a…
    starts=7
    lives=0a44…,77b0…

with a checksum (see `dledger.storage.properties`). `directoryId` is drawn when the file is created, so an emptied disk
gets another one. Each start is a *life*: it increments `starts` and appends a random number to `lives`. Peers record
the last life that connected (`dledger.storage.peer_directories`), which lets them detect an older copy of a directory.

The id of the group is in the file `membership` (`Membership.group_id`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from dledger.storage.properties import describe_fault, format_checked, parse_checked
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.fs.ports import Files

FILE_NAME = "identity"
# Lives in the list: after more starts without a connection a peer can no longer detect an old copy.
LIVES_MAX: Final = 32
NUMBER_END: Final = 1 << 63
_SIZE_BYTES = 4096
_KEYS = ("nodeId", "group", "directoryId", "starts", "lives")


class WrongDirectory(StoreError):
    """The directory is not this node's, or its node is unknown; do not start. Nothing was changed.

    Attributes:
        path: the directory, or its file. expected: the expected content. found: the actual content.
    """

    def __init__(self, path: str, expected: str, found: str, advice: str) -> None:
        super().__init__(f"{path}: expected {expected}, found {found}. Nothing was changed. {advice}")
        self.path = path
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a directory; the module's docstring describes each field. `starts` counts from 1."""

    node_id: str
    group: str
    directory_id: int
    starts: int
    lives: tuple[int, ...]


class IdentityFile:
    """The identity of one directory."""

    __slots__ = ("_directory", "_files", "_path")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"

    @classmethod
    def check(cls, files: Files, directory: str, node_id: str, group: str) -> Self:
        """Check the file before anything else of the directory is opened; it must be this node's.

        Raises:
            WrongDirectory: it belongs to another node or group, or cannot be read.
        """
        file = cls(files, directory)
        file._load(node_id, group)
        return file

    def begin(
        self, node_id: str, group: str, *, has_state: bool, is_adopting: bool, draw: Callable[[int, int], int]
    ) -> Identity:
        """Record a new life durably; only the holder of the directory's lock may call this, before any other write.

        Args:
            node_id: of this node.
            group: name of its group.
            has_state: the directory has term and vote, memberships or entries.
            is_adopting: the operator declares that a directory without this file is this node's.
            draw: returns a random number in a half-open range.

        Raises:
            WrongDirectory: it is not this node's, or may not be.
            store.errors.DiskFull: no space for the file.
            store.errors.StorageFailed: it cannot be written.
        """
        found = self._load(node_id, group)
        if found is None and has_state and not is_adopting:
            raise WrongDirectory(
                self._directory,
                f"the file {FILE_NAME}, which identifies the node of the directory",
                "a log without it",
                "A Java program or an older version left it, or the file was lost. If it is the directory of node "
                f"{node_id!r} of group {group!r}, and of no other, start the node once with --adopt (is_adopting = "
                "true)",
            )
        if found is None:
            found = Identity(node_id, group, draw(1, NUMBER_END), 0, ())
        lives = (*found.lives, draw(1, NUMBER_END))[-LIVES_MAX:]
        identity = replace(found, starts=found.starts + 1, lives=lives)
        self._files.prepare_replace(self._path, _SIZE_BYTES)
        self._files.replace(self._path, _content_of(identity))
        return identity

    def read(self) -> Identity | None:
        """Return the identity in the file; None if there is no file.

        Raises:
            WrongDirectory: the file is damaged.
            store.errors.StorageFailed: the file cannot be read.
        """
        content = self._files.read_bytes(self._path)
        if content is None:
            return None
        try:
            return _identity_from(content)
        except (ValueError, KeyError) as error:
            advice = "Restore the file from a backup of this very directory, or give the node an empty directory"
            expected = f"lines {', '.join(_KEYS)} and their checksum"
            raise WrongDirectory(self._path, expected, describe_fault(error), advice) from error

    def _load(self, node_id: str, group: str) -> Identity | None:
        found = self.read()
        if found is None:
            return None
        if (found.node_id, found.group) != (node_id, group):
            raise WrongDirectory(
                self._path,
                f"the directory of node {node_id!r} of group {group!r}",
                f"that of node {found.node_id!r} of group {found.group!r}",
                "Directories were exchanged, or a setting names the wrong one: give each node its own",
            )
        return found


def _content_of(identity: Identity) -> bytes:
    values = (
        identity.node_id,
        identity.group,
        f"{identity.directory_id:016x}",
        str(identity.starts),
        ",".join(f"{life:016x}" for life in identity.lives),
    )
    return format_checked(dict(zip(_KEYS, values, strict=True)))


def _identity_from(content: bytes) -> Identity:
    properties = parse_checked(content)
    node_id, group, directory_id, starts, lives = (properties[key] for key in _KEYS)
    identity = Identity(
        node_id, group, int(directory_id, 16), int(starts), tuple(int(life, 16) for life in lives.split(","))
    )
    if content != _content_of(identity) or identity.starts < len(identity.lives):
        raise ValueError(f"{properties}, which is not what was written")
    return identity
