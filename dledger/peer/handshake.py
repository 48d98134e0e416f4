"""The handshake: each side checks the other's Hello before it reads anything else.

Not here: bytes (`dledger.peer.wire.frames`), sockets (`dledger.peer.connection`).

Source: the checks that DLedger makes for every request (`DLedgerServer`: group, remoteId, leaderId), made once per
connection instead, plus the settings that DLedger never compares.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dledger.config import Address, NodeConfig, check_id
from dledger.errors import DLedgerError, ResponseCode
from dledger.peer.dialing import DialedNode
from dledger.peer.proven import require_node
from dledger.peer.wire.frames import PROTOCOL_VERSION, Hello
from dledger.security.errors import CertificateFault
from dledger.security.peers import PLAIN_PEERS
from dledger.types import NO_GROUP

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from dledger.peer.origin import Origin
    from dledger.security.peers import PeerSecurity
    from dledger.storage.peer_directories import PeerDirectories

_SEE_LOG = "refused; the log of the node that refuses says why"


class PeerRefused(DLedgerError):
    """One side refuses the other: correct the configuration of one of them; this node continues without it.

    Attributes:
        code: DLedger's response code for the reason.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class ForeignIdentity(PeerRefused):
    """The other side is not proven to be the node in its greeting; the connection ends without an answer."""

    def __init__(self, message: str) -> None:
        super().__init__(ResponseCode.UNEXPECTED_MEMBER, message)


class StaleDirectory(PeerRefused):
    """A member of the group reports that this node runs on an old copy of its directory: stop the node."""

    def __init__(self, message: str) -> None:
        super().__init__(ResponseCode.OLD_DIRECTORY, message)


class LateGreeting(PeerRefused):
    """A greeting of a life that is older than one which has connected already; only its log line is milder."""

    def __init__(self, peer_id: str, starts: int) -> None:
        super().__init__(
            ResponseCode.OLD_DIRECTORY,
            f"{peer_id} greets from its start {starts}, and a later start of the same directory was met here. "
            "The greeting came late; or, if that process still runs, another one uses a copy of its directory: then "
            "stop both, and start one of them with an empty directory: it is re-synced",
        )


class Handshake:
    """This node's side of the greeting.

    Args:
        config: the node's identity and the settings that the cluster agrees on.
        has_place_for: whether a node of this id is accepted: a peer, or a non-member while there are few.
        origin: the store that this node's log continues; None: the node has not joined yet, and only bootstrap
            connections are accepted.
        peer_directories: this node's group and directory, and those of its peers; None: none is sent or compared.
        security: how connections are secured.
        feature_level: of this node's program; see `dledger.node.node.Node`.
    """

    def __init__(
        self,
        config: NodeConfig,
        has_place_for: Callable[[str], bool],
        origin: Origin | None,
        peer_directories: PeerDirectories | None = None,
        security: PeerSecurity = PLAIN_PEERS,
        feature_level: int = 0,
    ) -> None:
        self.security = security
        self._peer_directories = peer_directories
        self._origin = origin
        self._self_id = config.self_id
        self._group = config.group
        self._has_place_for = has_place_for
        self._cluster_digest = config.cluster_digest()
        self._client_address = str(config.client_address)
        self._peer_address = str(config.self_address)
        self._feature_level = feature_level

    def hello(self, peer_id: str, *, is_bulk: bool, is_bootstrap: bool = False) -> Hello:
        """Return the greeting for the dialled peer `peer_id`."""
        names_group = self._peer_directories is not None and self._peer_directories.may_learn_group(peer_id)
        return self._hello(peer_id, is_bulk=is_bulk, is_bootstrap=is_bootstrap, names_group=names_group)

    def dialed(self, peer_id: str) -> DialedNode:
        """Return the settings for dialing the node `peer_id`."""
        return DialedNode(peer_id, self._group, self._self_id, self.security)

    def check_identity(self, transport: asyncio.BaseTransport, peer_id: str) -> None:
        """Check that the other side is node `peer_id` of this group, as far as the connection proves it.

        Args:
            transport: of the connection.
            peer_id: the dialed node; on the accepting end the sender of the greeting.

        Raises:
            ForeignIdentity: it is another node, a user, or of another group, or its certificate was revoked or
                has expired; close the connection.
        """
        try:
            require_node(transport, self._group, peer_id, self.security.revoked())
        except CertificateFault as fault:
            raise ForeignIdentity(str(fault)) from fault

    def proves_group(self, hello: Hello) -> bool:
        """Return whether the sender of `hello` belongs to this group, and not only to one of the same name."""
        return self._peer_directories is not None and self._peer_directories.proves(hello.group_id)

    def _hello(self, peer_id: str, *, is_bulk: bool, is_bootstrap: bool, names_group: bool) -> Hello:
        hello = Hello(
            group=self._group,
            self_id=self._self_id,
            peer_id=peer_id,
            cluster_digest=self._cluster_digest,
            client_address=self._client_address,
            is_bulk=is_bulk,
            peer_address=self._peer_address,
            is_bootstrap=is_bootstrap,
            origin=b"" if self._origin is None else self._origin.hello_bytes,
            feature_level=self._feature_level,
        )
        if self._peer_directories is None or not names_group:
            return hello
        own = self._peer_directories.own
        return replace(
            hello,
            group_id=self._peer_directories.group_id,
            directory_id=own.directory_id,
            starts=own.starts,
            lives=own.lives,
        )

    def answer(self, asked: Hello) -> tuple[Hello, PeerRefused | None]:
        """Return the answer to `asked`, and the reason to refuse the connection; None: it is accepted.

        Once the group has an id, a node of another group is refused without a reason, and gets no data of the group.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        proves = self.proves_group(asked)
        hello = self._hello(asked.self_id, is_bulk=asked.is_bulk, is_bootstrap=asked.is_bootstrap, names_group=proves)
        try:
            self._check(asked)
        except PeerRefused as refused:
            if self._peer_directories is not None and self._peer_directories.group_id != NO_GROUP and not proves:
                return Hello("", "", asked.self_id, 0, "", asked.is_bulk, code=refused.code, message=_SEE_LOG), refused
            return replace(hello, code=refused.code, message=refused.message), refused
        return hello, None

    def check_answer(self, answer: Hello, peer_id: str) -> None:
        """Check the answer of the node that was dialled as `peer_id`.

        Raises:
            StaleDirectory: it belongs to our group and reports that our directory is an old copy: stop the node.
            store.errors.StorageFailed: stop the node.
            PeerRefused: it refuses us, or is another node than the dialled one; retry later, its configuration may have
                been corrected.
        """
        if answer.code != ResponseCode.SUCCESS:
            text = f"{answer.self_id or peer_id} says: {answer.message}"
            is_own = self.proves_group(answer) and answer.code == ResponseCode.OLD_DIRECTORY
            raise StaleDirectory(text) if is_own else PeerRefused(answer.code, text)
        self._check(answer)
        if answer.self_id != peer_id:
            raise PeerRefused(
                ResponseCode.UNEXPECTED_MEMBER, f"dialled {peer_id}, found {answer.self_id} at its address"
            )

    def _check(self, hello: Hello) -> None:
        if hello.protocol_version != PROTOCOL_VERSION:
            raise PeerRefused(
                ResponseCode.UNEXPECTED_ARGUMENT,
                f"protocol version: expected {PROTOCOL_VERSION}, found {hello.protocol_version}",
            )
        if hello.group != self._group:
            raise PeerRefused(ResponseCode.UNKNOWN_GROUP, f"group: expected {self._group!r}, found {hello.group!r}")
        if hello.peer_id != self._self_id:
            raise PeerRefused(ResponseCode.UNEXPECTED_MEMBER, f"this node is {self._self_id!r}, not {hello.peer_id!r}")
        if hello.self_id == self._self_id:
            raise PeerRefused(
                ResponseCode.UNEXPECTED_MEMBER, f"another node calls itself {self._self_id!r}, which is my id"
            )
        if hello.cluster_digest != self._cluster_digest:
            raise PeerRefused(
                ResponseCode.INCONSISTENT_STATE,
                f"cluster settings differ (group, mapped file sizes, flush): expected digest "
                f"{self._cluster_digest:#010x}, found {hello.cluster_digest:#010x}. Give all nodes the same; to change "
                "one of them, stop all nodes first",
            )
        try:
            check_id(hello.self_id)
            Address.parse(hello.peer_address)
        except ValueError as error:
            raise PeerRefused(ResponseCode.UNEXPECTED_ARGUMENT, f"id and peer address: {error}") from None
        if not hello.is_bootstrap:
            self._check_member(hello)

    def _check_member(self, hello: Hello) -> None:
        """Check what only matters for Raft messages."""
        if self._origin is None:
            raise PeerRefused(
                ResponseCode.LEADER_NOT_READY,
                f"{self._self_id!r} does not take part yet: it is determining the origin of the log",
            )
        self._check_directory(hello)
        difference = self._origin.difference(hello.self_id, hello.origin)
        if difference is not None:
            raise PeerRefused(ResponseCode.INCONSISTENT_STATE, difference)
        if not self._has_place_for(hello.self_id):
            raise PeerRefused(
                ResponseCode.UNKNOWN_MEMBER,
                f"{hello.self_id!r} is not a member of the group, and too many such nodes are connected; stop them",
            )

    def _check_directory(self, hello: Hello) -> None:
        """Check the directory of the other side."""
        known = self._peer_directories
        if known is None or NO_GROUP in (known.group_id, hello.group_id):
            return
        if hello.group_id != known.group_id:
            raise PeerRefused(
                ResponseCode.UNKNOWN_GROUP,
                f"group id: this node's directory belongs to group {known.group_id:016x} called {self._group!r}, that "
                f"of {hello.self_id} to another of this name, {hello.group_id:016x}. One of the two nodes was given "
                "a directory of another group: give it its own, or an empty one, which is re-synced",
            )
        if known.is_late(hello.self_id, hello.directory_id, hello.starts, hello.lives):
            raise LateGreeting(hello.self_id, hello.starts)
        fault = known.fault_of(hello.self_id, hello.directory_id, hello.starts, hello.lives)
        if fault is not None:
            raise PeerRefused(ResponseCode.OLD_DIRECTORY, fault)
