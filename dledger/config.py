"""Settings of one node, already checked: `cluster.config.load` reads and validates them, this package uses them.

The *cluster part* must be equal on all nodes, because the log's bytes and the group's identity depend on it; its digest
is compared when nodes connect. The rest may differ from node to node and change at a restart. The membership in the
settings is used at the first start only; afterwards it is in the log. Names are DLedger's (`DLedgerConfig`) in
snake_case where it has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from crc32c import crc32c

from dledger.core.config import RaftConfig
from dledger.types import Member, Membership

MIB = 1 << 20
# Members of a group, voters and learners: more make a log slower but not safer. All must fit into one peer frame.
MEMBERS_MAX = 32
# Ids are part of paths (`dledger-<self_id>`), so only permitted characters are accepted.
# A host name of DNS has at most 253 characters.
_ADDRESS_LENGTH_MAX = 253 + len(":65535")
_SHOWN_LENGTH_MAX = 64
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]{0,31}")


def check_id(text: str) -> str:
    """Return a node's id.

    Raises:
        ValueError: it is not made of 1 to 32 letters, digits, "_" and "."; the message shows it.
    """
    if not _ID.fullmatch(text):
        raise ValueError(f"expected an id of 1 to 32 letters, digits, '_' or '.', found {text!r}")
    return text


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @staticmethod
    def parse(text: str) -> Address:
        """Return the address in `host:port`.

        Raises:
            ValueError: it is no address; the message shows it.
        """
        if len(text) > _ADDRESS_LENGTH_MAX or not text.isprintable() or " " in text:
            shown = repr(text if len(text) <= _ADDRESS_LENGTH_MAX else text[:_SHOWN_LENGTH_MAX] + "…")
            expected = f"host:port of at most {_ADDRESS_LENGTH_MAX} printable characters without spaces"
            raise ValueError(f"expected {expected}, found {len(text)} characters: {shown}")
        host, _, port = text.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ValueError(f"expected host:port with a port of 1 to 65535, found {text!r}")
        return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class Peer:
    """A member of the group: its id and the address of its peer transport."""

    id: str
    address: Address


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """All settings of one node.

    Attributes:
        group: name of the replication group; clients and peers of another group are refused.
        self_id: this node's id; one of `peers`.
        peers: the voters that found the group, this node among them; with `is_joining`, some members and this node.
        store_base_dir: the node's files are in `<store_base_dir>/dledger-<self_id>`.
        client_address: of the gRPC LogService; also sent to clients as the leader hint.
        mapped_file_size_for_entry_data: bytes of one data file; cluster part.
        mapped_file_size_for_entry_index: bytes of one index file, a multiple of 32; cluster part.
        is_flush_sync: acknowledge only after fdatasync. False (RocketMQ's ASYNC_FLUSH) acknowledges from the page
            cache: a power cut of a majority may then lose acknowledged entries.
        flush_interval_ms: with `is_flush_sync` False, how often dirty files are synced in the background.
        max_pending_requests_num: entries appended but not yet committed on a leader; more are refused with 503.
        max_pending_size_bytes: the same bound in bytes of bodies.
        max_wait_ack_time_ms: an append not committed by then is answered with 502, outcome unknown.
        max_watchers_num: streams of `Watch` at the same time; more are refused with 503.
        checkpoint_interval_ms: how often the checkpoint file is written; bounds the work of a recovery.
        is_joining: this node joins an existing group: it is not a member until the log has it as one.
        is_adopting: the operator declares that a directory with a log but no file `identity` (Java's, or an older
            version's) is this node's; the first start then writes the file.
        read_mode: how a leader confirms that it leads before it serves a linearizable read: by a round of heartbeats,
            or by its lease (dissertation §6.4, §6.4.1).
        snapshot_threshold: with a state machine, entries applied since the last snapshot until the next is saved.
        file_reserved_hours: a data file whose last change is older may be deleted ...
        delete_when: ... in these hours of the day, local time, ...
        disk_space_ratio_to_check_expired: ... or at any hour when the disk is fuller than this.
        disk_space_ratio_to_force_clean: when the disk is fuller than this, the oldest files are deleted, however young;
            0.05 above it (at most 0.95) appends are refused.
        enable_disk_force_clean: False: files younger than `file_reserved_hours` are never deleted.
        raft: timings and limits of the consensus core.
    """

    group: str
    self_id: str
    peers: tuple[Peer, ...]
    store_base_dir: str
    client_address: Address
    mapped_file_size_for_entry_data: int = 1024 * MIB
    mapped_file_size_for_entry_index: int = 5 * MIB * 32
    is_flush_sync: bool = True
    flush_interval_ms: int = 10
    max_pending_requests_num: int = 20_000
    max_pending_size_bytes: int = 64 * MIB
    max_wait_ack_time_ms: int = 2_500
    max_watchers_num: int = 32
    checkpoint_interval_ms: int = 3_000
    is_joining: bool = False
    is_adopting: bool = False
    read_mode: Literal["read_index", "lease"] = "read_index"
    snapshot_threshold: int = 100_000
    file_reserved_hours: int = 72
    delete_when: tuple[int, ...] = (4,)
    disk_space_ratio_to_check_expired: float = 0.70
    disk_space_ratio_to_force_clean: float = 0.85
    enable_disk_force_clean: bool = True
    raft: RaftConfig = field(default_factory=RaftConfig)

    @property
    def self_address(self) -> Address:
        """The address of this node's peer transport."""
        return self.peer(self.self_id).address

    def peer(self, peer_id: str) -> Peer:
        """Return the peer `peer_id`; KeyError for an unknown id."""
        for peer in self.peers:
            if peer.id == peer_id:
                return peer
        raise KeyError(peer_id)

    def membership(self) -> Membership:
        """Return the membership in the settings; a node that joins is not one of its members yet."""
        members = [
            Member(peer.id, str(peer.address))
            for peer in sorted(self.peers, key=lambda peer: peer.id)
            if not (self.is_joining and peer.id == self.self_id)
        ]
        return Membership(tuple(members))

    def cluster_digest(self) -> int:
        """Return a CRC-32C over the cluster part: equal on nodes that may communicate.

        If one node acknowledges before a sync and others only after it, acknowledged entries may not be on a majority
        of disks, and after a power cut a node that relies on this would refuse a healthy group (ADR 29).
        """
        sizes = f"{self.mapped_file_size_for_entry_data}/{self.mapped_file_size_for_entry_index}"
        flush = "" if self.is_flush_sync else "|async"
        return crc32c(f"{self.group}|{sizes}{flush}".encode())
