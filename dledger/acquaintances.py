"""What a node tells of its directory in greetings, and what it remembers of those of others: the small file `peers`.

    n2=5c1f3a…,7,77b0…

with a checksum (see `dledger.properties`): the id of the directory that was met last under the name n2, its starts and
its life then (`dledger.identity`). Who comes with an older life of that directory runs on a copy of it: what the node
acknowledged since is missing there, and it may vote again where it has voted. It is refused.

A greeting of an earlier life may also be late: its process wrote it and died, and the next life was met first. Such a
life is one that the newer one told of, which that of a copy is not: each start draws another number. It is refused all
the same, for the newer one may run on a copy; but the warning does not claim that a directory is old.

What nobody remembers nobody can refuse: a copy made within the last life that was met looks like the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.identity import Identity
from dledger.properties import format_checked, parse_checked
from dledger.types import NO_GROUP, MembershipEntry

if TYPE_CHECKING:
    from store.files import Files

logger = logging.getLogger(__name__)

FILE_NAME = "peers"
_SIZE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Met:
    """The last life of a directory that was met."""

    directory_id: int
    starts: int
    life: int


class Acquaintances:
    """This node's group and directory, and those of its peers.

    Args:
        files, directory: where the file `peers` is; its room was set aside by `open`.
        own: this node's identity.

    Attributes:
        group_id: of the group, once the log says it and it is committed; 0 before.
    """

    def __init__(self, files: Files, directory: str, own: Identity) -> None:
        self.group_id = NO_GROUP
        self.own = own
        self._files = files
        self._path = f"{directory}/{FILE_NAME}"
        self._members: frozenset[str] = frozenset()
        self._met: dict[str, Met] = {}
        # What the last one told. Not saved: what a peer sent before it was met by an earlier process never comes here.
        self._lives: dict[str, tuple[int, ...]] = {}

    @classmethod
    def open(cls, files: Files, directory: str, own: Identity) -> Acquaintances:
        """Read the file; one that is damaged is forgotten, for it only remembers.

        Raises:
            store.errors.DiskFull: no room for it.
            store.errors.StorageFailed: it cannot be read.
        """
        opened = cls(files, directory, own)
        files.prepare_replace(opened._path, _SIZE_BYTES)
        content = files.read_bytes(opened._path)
        if content is not None:
            try:
                opened._met = met_from(content)
            except ValueError as error:
                logger.warning("peers_forgotten file=%r reason=%r", opened._path, str(error))
        return opened

    def learn(self, memberships: Sequence[MembershipEntry]) -> None:
        """Take note of who belongs to the group; the first membership is committed."""
        self.group_id = memberships[0].membership.group_id
        self._members = frozenset(member.id for entry in memberships for member in entry.membership.members)

    def is_told(self, peer_id: str) -> bool:
        """Say whether the node that is dialled as `peer_id` is told the group; strangers are not."""
        return peer_id in self._members

    def proves(self, group_id: int) -> bool:
        """Say whether who names `group_id` belongs to this very group; nobody can while we know of none."""
        return group_id == self.group_id != NO_GROUP

    def is_late(self, peer_id: str, directory_id: int, starts: int, lives: Sequence[int]) -> bool:
        """Say whether a member that proved its group greets from a life which a newer one, met already, told of."""
        known = self._met.get(peer_id)
        if peer_id not in self._members or known is None or not lives or known.directory_id != directory_id:
            return False
        told, behind = self._lives.get(peer_id, ()), known.starts - starts
        return 0 < behind < len(told) and told[-1 - behind] == lives[-1]

    def fault_of(self, peer_id: str, directory_id: int, starts: int, lives: Sequence[int]) -> str | None:
        """Say, for people, what is wrong with the directory of a member that proved its group; else remember it.

        What is remembered is durable when this returns.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if peer_id not in self._members or not lives:
            return None
        known = self._met.get(peer_id)
        if known is not None and known.directory_id == directory_id:
            behind = starts - known.starts
            if behind < 0 or (behind < len(lives) and lives[-1 - behind] != known.life):
                return (
                    f"the directory of {peer_id} is an old copy, or another process uses a copy of it: it tells start "
                    f"{starts}, and start {known.starts} of another life was met here. What {peer_id} acknowledged "
                    "since the copy is missing in it. Stop that node, move its directory away, and start it with an "
                    "empty one: it is filled again"
                )
        met = Met(directory_id, starts, lives[-1])
        self._lives[peer_id] = tuple(lives)
        if met != known:
            self._met[peer_id] = met
            self._met = {name: each for name, each in self._met.items() if name in self._members}
            self._lives = {name: told for name, told in self._lives.items() if name in self._members}
            self._files.replace(self._path, _content_of(self._met))
        return None


def met_from(content: bytes) -> dict[str, Met]:
    """Return what the file says of each peer.

    Raises:
        ValueError: `content` is not what was written.
    """
    met = {peer_id: _met_from(text) for peer_id, text in parse_checked(content).items()}
    if content != _content_of(met):
        raise ValueError(f"{content[:80]!r}, which is not what was written")
    return met


def _content_of(met: Mapping[str, Met]) -> bytes:
    return format_checked({peer_id: _text_of(each) for peer_id, each in met.items()})


def _text_of(met: Met) -> str:
    return f"{met.directory_id:016x},{met.starts},{met.life:016x}"


def _met_from(text: str) -> Met:
    directory_id, starts, life = text.split(",")
    return Met(int(directory_id, 16), int(starts), int(life, 16))
