"""The directory identity that a node sends in greetings, and those of its peers: the small file `peers`.

    n2=5c1f3a…,7,77b0…;20a4d1…,3,0a44…

with a checksum (see `dledger.storage.properties`): the directories with which the node n2 has connected, the last one
first; of each its id, and its starts and its life at the last connection (`dledger.storage.identity`). A peer that
connects with an older life of that directory runs on a copy of it: later acknowledgements are missing in it, and the
peer may vote twice in a term. It is refused.

Every earlier directory of the node is refused, too: the disk was replaced, and later votes and acknowledgements are on
the new one only. A few of them are recorded; older ones have no vote after the node was readmitted on a later disk.

A greeting of an earlier life may also be delayed: its process sent it and died, and the next life connected first. Such
a life is in the newer life's list; the life of a copy is not, because each start draws another number. The greeting is
still refused, because the newer life may run on a copy, but the warning does not report an old directory.

A copy that was made within the last life that connected cannot be detected: it is indistinguishable from the next
start.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dledger.storage.properties import format_checked, parse_checked
from dledger.types import NO_GROUP, MembershipEntry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dledger.storage.identity import Identity
    from store.fs.ports import Files

logger = logging.getLogger(__name__)

FILE_NAME = "peers"
# Per member: disks are replaced occasionally, and copies of the last few may exist.
DIRECTORIES_MAX: Final = 8
# The size for all members, with the longest ids and numbers.
_SIZE_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class PeerDirectory:
    """A directory that connected, and its last life."""

    directory_id: int
    starts: int
    life: int


class PeerDirectories:
    """This node's group and directory, and those of its peers.

    Args:
        files, directory: of the file `peers`; its space was reserved by `open`.
        own: this node's identity.

    Attributes:
        group_id: of the group, once it is in the log and committed; 0 before.
    """

    def __init__(self, files: Files, directory: str, own: Identity) -> None:
        self.group_id = NO_GROUP
        self.own = own
        self._files = files
        self._path = f"{directory}/{FILE_NAME}"
        self._members: frozenset[str] = frozenset()
        # The directories of each member, the last one first; at most `DIRECTORIES_MAX` of each. The file
        # has the same content whenever `fault_of` has returned.
        self._met: dict[str, tuple[PeerDirectory, ...]] = {}
        # The lives in the last greeting. Not saved: a greeting that was sent to an earlier process of this node never
        # arrives here.
        self._lives: dict[str, tuple[int, ...]] = {}

    @classmethod
    def open(cls, files: Files, directory: str, own: Identity) -> PeerDirectories:
        """Read the file; a damaged one is replaced by an empty one, because it is only a safeguard.

        Raises:
            store.errors.DiskFull: no space for it.
            store.errors.StorageFailed: it cannot be read.
        """
        opened = cls(files, directory, own)
        files.prepare_replace(opened._path, _SIZE_BYTES)
        content = files.read_bytes(opened._path)
        if content is not None:
            try:
                opened._met = peer_directories_from(content)
            except ValueError as error:
                logger.warning("peers_forgotten file=%r reason=%r", opened._path, str(error))
        return opened

    def learn(self, memberships: Sequence[MembershipEntry]) -> None:
        """Record the members of the group; the first membership is committed."""
        self.group_id = memberships[0].membership.group_id
        self._members = frozenset(member.id for entry in memberships for member in entry.membership.members)

    def may_learn_group(self, peer_id: str) -> bool:
        """Return whether the group id may be sent to the node dialled as `peer_id`: only to members."""
        return peer_id in self._members

    def proves(self, group_id: int) -> bool:
        """Return whether `group_id` proves that its sender belongs to this group; False while this node knows no id."""
        return group_id == self.group_id != NO_GROUP

    def met(self, peer_id: str) -> tuple[PeerDirectory, ...]:
        """Return the directories with which this node id has connected, the last one first."""
        return self._met.get(peer_id, ())

    def is_late(self, peer_id: str, directory_id: int, starts: int, lives: Sequence[int]) -> bool:
        """Return whether the greeting is of a life that is in the list of a newer life which connected before."""
        known = next(iter(self.met(peer_id)), None)
        if peer_id not in self._members or known is None or not lives or known.directory_id != directory_id:
            return False
        known_lives, starts_since = self._lives.get(peer_id, ()), known.starts - starts
        return 0 < starts_since < len(known_lives) and known_lives[-1 - starts_since] == lives[-1]

    def fault_of(self, peer_id: str, directory_id: int, starts: int, lives: Sequence[int]) -> str | None:
        """Return a description of the fault of a member's directory, or record the directory if there is none.

        The record is durable when this returns.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if peer_id not in self._members or not lives:
            return None
        known = self.met(peer_id)
        last = next(iter(known), None)
        if last is not None and last.directory_id == directory_id:
            starts_since = starts - last.starts
            if starts_since < 0 or (starts_since < len(lives) and lives[-1 - starts_since] != last.life):
                return (
                    f"the directory of {peer_id} is an old copy, or another process uses a copy of it: it sends start "
                    f"{starts}, and start {last.starts} of another life was met here. What {peer_id} acknowledged "
                    "since the copy is missing in it. Stop that node, move its directory away, and start it with an "
                    "empty one: it is re-synced"
                )
        elif last is not None and any(each.directory_id == directory_id for each in known):
            return (
                f"the directory of {peer_id} is an old copy, or of a disk that was replaced: directory "
                f"{directory_id:016x}, and {last.directory_id:016x}, its start {last.starts}, was met here after it. "
                f"What {peer_id} acknowledged since is missing in it. Stop that node, move its directory away, and "
                "start it with the later one, or with an empty one: it is re-synced"
            )
        met = PeerDirectory(directory_id, starts, lives[-1])
        self._lives[peer_id] = tuple(lives)
        if met != last:
            former = tuple(each for each in known if each.directory_id != directory_id)
            self._met[peer_id] = (met, *former)[:DIRECTORIES_MAX]
            self._met = {name: each for name, each in self._met.items() if name in self._members}
            self._lives = {name: known_lives for name, known_lives in self._lives.items() if name in self._members}
            self._files.replace(self._path, _content_of(self._met))
        return None


def peer_directories_from(content: bytes) -> dict[str, tuple[PeerDirectory, ...]]:
    """Return the directories in the file for each peer, the last one first.

    Raises:
        ValueError: `content` is not what was written.
    """
    met = {peer_id: _peer_directories_from(text) for peer_id, text in parse_checked(content).items()}
    if content != _content_of(met) or any(len(each) > DIRECTORIES_MAX for each in met.values()):
        raise ValueError(f"{content[:80]!r}, which is not what was written")
    return met


def _content_of(met: Mapping[str, Sequence[PeerDirectory]]) -> bytes:
    return format_checked({peer_id: ";".join(map(_text_of, each)) for peer_id, each in met.items()})


def _text_of(met: PeerDirectory) -> str:
    return f"{met.directory_id:016x},{met.starts},{met.life:016x}"


def _peer_directories_from(text: str) -> tuple[PeerDirectory, ...]:
    fields = [each.split(",") for each in text.split(";")]
    return tuple(
        PeerDirectory(int(directory_id, 16), int(starts), int(life, 16)) for directory_id, starts, life in fields
    )
