"""Every option of a node: name, type, range, default and meaning. One table; nothing is read or compared here.

Names are DLedger's (`DLedgerConfig`) in snake_case where it has them; defaults are those of `dledger.config`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cluster.config.values import parse_address, parse_group, parse_hours, parse_id, parse_ids, parse_peers
from dledger.config import Address, NodeConfig, Peer
from dledger.core.config import RaftConfig

_NODE = NodeConfig("default", "n0", (), "", Address("", 0))
_RAFT = RaftConfig()
_HOUR_MS = 3_600_000
_GIB = 1 << 30

ADDRESS_HELP = "Addresses are host:port, the host a name or an IPv4 address that the others can reach."


class NodeOptions(BaseModel):
    """The options, as they are set one by one; `cluster.config.load` fills and checks them."""

    model_config = ConfigDict(extra="forbid", strict=True, validate_assignment=True)

    group: Annotated[str, BeforeValidator(parse_group)] = Field(
        default="default",
        description="Name of the replication group. Nodes and clients of another group are refused. Equal on all "
        "nodes.",
    )
    self_id: Annotated[str, BeforeValidator(parse_id)] = Field(
        examples=["n0"],
        description="Id of this node, one of those in peers. It keeps its files in <store_base_dir>/dledger-<self_id>.",
    )
    peers: Annotated[tuple[Peer, ...], BeforeValidator(parse_peers)] = Field(
        examples=["n0-127.0.0.1:20911;n1-127.0.0.1:20912;n2-127.0.0.1:20913"],
        description="The nodes of the group when it was founded, this one among them: id, dash and address where its "
        "peers reach it, separated by semicolons. Three nodes survive the loss of one, five of two. Equal on all nodes "
        "that found a group. Later changes are made by `dledger members`, and the log keeps them.",
    )
    is_joining: bool = Field(
        default=_NODE.is_joining,
        description="true: this node joins a group that exists: peers names some of its members and this node, which "
        "takes part once `dledger members add` has added it. Without effect once the log contains the "
        "membership.",
    )
    is_adopting: bool = Field(
        default=_NODE.is_adopting,
        description="true, or `dledger server --adopt`, for one start: a directory that holds a log and does not say "
        "whose it is (it comes from a Java program or an older version) is this node's. Without effect on a directory "
        "that says it.",
    )
    store_base_dir: str = Field(
        min_length=1,
        examples=["data"],
        description="Directory of the log's files; made if absent. Needs room for two data files and two index files "
        "at least. Losing it loses this node's copy.",
    )
    client_address: Annotated[Address, BeforeValidator(parse_address)] = Field(
        default=Address("127.0.0.1", 20921),
        description="Where clients reach this node over gRPC. There is no authentication: leave it on loopback or in "
        "a network that you trust.",
    )
    metrics_address: Annotated[Address, BeforeValidator(parse_address)] = Field(
        default=Address("127.0.0.1", 20931),
        description="Where the page /metrics is served to Prometheus.",
    )
    client_tls: Literal["off", "on", "mutual"] = Field(
        default="off",
        description="TLS on client_address. off: plain connections. on: this node shows a certificate. mutual: clients "
        "must show one of tls_authority_file, too. For connections between nodes see peer_security. Not possible with "
        "name_servers yet.",
    )
    peer_security: Literal["off", "secret", "tls"] = Field(
        default="off",
        description="How connections between nodes are secured. off: plain connections, to be used on loopback or in a "
        "network that you trust. tls: each node shows a certificate of tls_authority_file that names it, and checks "
        "that of the other. secret: both prove that they know the secret of peer_secret_file, and all bytes are "
        "encrypted; a node can then act as any other. Equal on all nodes, except during a change.",
    )
    peer_security_also: Literal["none", "off", "secret", "tls"] = Field(
        default="none",
        description="For a change of peer_security on one node after the other: connections that are accepted, too, "
        "and dialed if those of peer_security fail. While one of the two is off, plain connections stay possible, so "
        "remove it after the change.",
    )
    peer_secret_file: str = Field(
        default="",
        examples=["certs/peers.secret"],
        description="The secret that all nodes of the group share, mode 0600; `dledger certs secret` makes one. During "
        "a change two lines: the first is used to dial, both are accepted. Read again within ten seconds.",
    )
    tls_certificate_file: str = Field(
        default="",
        examples=["certs/default.node.n0.crt"],
        description="Certificate of this node in PEM, with intermediate ones after it; `dledger certs node` makes one. "
        "This file and the two others are read again within ten seconds after a change.",
    )
    tls_key_file: str = Field(
        default="",
        examples=["certs/default.node.n0.key"],
        description="Its private key, without a password, mode 0600.",
    )
    tls_authority_file: str = Field(
        default="",
        examples=["certs/authority.crt"],
        description="Certificates of the authority that signs those of clients and other nodes; two during a change of "
        "the authority.",
    )
    read_mode: Literal["read_index", "lease"] = Field(
        default=_NODE.read_mode,
        description="How a leader makes sure that it still leads before it serves a linearizable read. read_index: it "
        "asks a majority. lease: it trusts the answers of the last moments, which is quicker and holds only while "
        "clocks keep to max_clock_drift_ppm.",
    )
    flush: Literal["sync", "async"] = Field(
        default="sync",
        description="sync: an entry counts as stored on a node only after fdatasync. async: as soon as it is in the "
        "page cache (RocketMQ's ASYNC_FLUSH); the loss of power on a majority may then take acknowledged entries.",
    )
    flush_interval_ms: int = Field(
        default=_NODE.flush_interval_ms,
        ge=1,
        le=60_000,
        description="With flush = async, how often what was written is synced in the background, in milliseconds.",
    )
    mapped_file_size_for_entry_data: int = Field(
        default=_NODE.mapped_file_size_for_entry_data,
        ge=4096,
        le=1024 * _GIB,
        description="Size of one data file in bytes, allocated when the file is begun. Below 4 MiB it also lowers the "
        "largest body to this size less 56. Equal on all nodes, and fixed for the life of the data.",
    )
    mapped_file_size_for_entry_index: int = Field(
        default=_NODE.mapped_file_size_for_entry_index,
        ge=32,
        le=1024 * _GIB,
        multiple_of=32,
        description="Size of one index file in bytes, 32 for each entry. Equal on all nodes, and fixed for the life "
        "of the data.",
    )
    max_pending_requests_num: int = Field(
        default=_NODE.max_pending_requests_num,
        ge=1,
        le=10_000_000,
        description="Entries that a leader holds appended and not yet committed; more are refused at once (503).",
    )
    max_pending_size_bytes: int = Field(
        default=_NODE.max_pending_size_bytes,
        ge=4096,
        le=64 * _GIB,
        description="The same bound in bytes of bodies.",
    )
    max_wait_ack_time_ms: int = Field(
        default=_NODE.max_wait_ack_time_ms,
        ge=10,
        le=_HOUR_MS,
        description="An append that is not committed after this many milliseconds is answered with 502: its outcome is "
        "unknown.",
    )
    checkpoint_interval_ms: int = Field(
        default=_NODE.checkpoint_interval_ms,
        ge=10,
        le=_HOUR_MS,
        description="How often the checkpoint file is written, in milliseconds; bounds how much a restart verifies.",
    )
    heart_beat_time_interval_ms: int = Field(
        default=_RAFT.heart_beat_time_interval_ms,
        ge=1,
        le=_HOUR_MS,
        description="How often a leader shows itself, in milliseconds. Several must fit into min_election_timeout_ms.",
    )
    min_election_timeout_ms: int = Field(
        default=_RAFT.min_election_timeout_ms,
        ge=2,
        le=_HOUR_MS,
        description="A follower without messages of its leader starts an election after a random time from here ...",
    )
    max_election_timeout_ms: int = Field(
        default=_RAFT.max_election_timeout_ms,
        ge=3,
        le=_HOUR_MS,
        description="... up to here, in milliseconds. Also the time after which a leader that no majority answers "
        "steps down.",
    )
    max_push_size_bytes: int = Field(
        default=_RAFT.max_push_size_bytes,
        ge=1024,
        le=16 << 20,
        description="Bytes of entries in one message to a follower; one entry goes whatever its size.",
    )
    max_push_window: int = Field(
        default=_RAFT.max_push_window,
        ge=1,
        le=4096,
        description="Messages with entries under way to one follower without an answer.",
    )
    max_push_time_out_ms: int = Field(
        default=_RAFT.max_push_time_out_ms,
        ge=10,
        le=_HOUR_MS,
        description="A message with entries that is not answered after this many milliseconds is sent again.",
    )
    max_in_flight_size_bytes: int = Field(
        default=_RAFT.max_in_flight_size_bytes,
        ge=4096,
        le=_GIB,
        description="Bytes of entries under way to one follower without an answer.",
    )
    max_in_flight_total_size_bytes: int = Field(
        default=_RAFT.max_in_flight_total_size_bytes,
        ge=4096,
        le=16 * _GIB,
        description="The same to all followers together; one message to each is always allowed.",
    )
    peer_push_quota: int = Field(
        default=_RAFT.peer_push_quota,
        ge=64 << 10,
        le=64 * _GIB,
        description="Bytes a second to a follower that lags far behind: its catch-up leaves bandwidth for the others.",
    )
    snapshot_chunk_size_bytes: int = Field(
        default=_RAFT.snapshot_chunk_size_bytes,
        ge=1024,
        le=16 << 20,
        description="Bytes of a snapshot in one message.",
    )
    snapshot_threshold: int = Field(
        default=_NODE.snapshot_threshold,
        ge=1,
        le=1 << 40,
        description="With a state machine: entries applied since the last snapshot until the next one is saved.",
    )
    preferred_leader_ids: Annotated[tuple[str, ...], BeforeValidator(parse_ids)] = Field(
        default=_RAFT.preferred_leader_ids,
        description="Ids of the nodes that should lead, separated by semicolons, the best first; empty: any. Another "
        "leader hands over as soon as one of them has caught up and its disk is well.",
    )
    preferred_leader_interval_ms: int = Field(
        default=_RAFT.preferred_leader_interval_ms,
        ge=10,
        le=_HOUR_MS,
        description="How often a leader that is not preferred looks for one that is, in milliseconds.",
    )
    max_leadership_transfer_wait_index: int = Field(
        default=_RAFT.max_leadership_transfer_wait_index,
        ge=1,
        le=1 << 40,
        description="Leadership is transferred only to a follower that lacks at most this many entries.",
    )
    max_clock_drift_ppm: int = Field(
        default=_RAFT.max_clock_drift_ppm,
        ge=0,
        le=499_999,
        description="How much a node's clock may run faster or slower than true time, in parts per million; a leader's "
        "lease is shortened by it.",
    )
    file_reserved_hours: int = Field(
        default=_NODE.file_reserved_hours,
        ge=1,
        le=24 * 366 * 100,
        description="A data file whose last entry is so old may be deleted, at the hours of delete_when or when the "
        "disk fills.",
    )
    delete_when: Annotated[tuple[int, ...], BeforeValidator(parse_hours)] = Field(
        default=_NODE.delete_when,
        description="Hours of the day, local time, in which data files that are old enough are deleted; several are "
        "separated by semicolons.",
    )
    disk_space_ratio_to_check_expired: float = Field(
        default=_NODE.disk_space_ratio_to_check_expired,
        ge=0.1,
        le=0.95,
        description="When the disk is fuller than this, files that are old enough are deleted at any hour.",
    )
    disk_space_ratio_to_force_clean: float = Field(
        default=_NODE.disk_space_ratio_to_force_clean,
        ge=0.1,
        le=0.95,
        description="When the disk is fuller than this, the oldest files are deleted though they are not old enough; "
        "0.05 above it (at most 0.95), appends are refused.",
    )
    enable_disk_force_clean: bool = Field(
        default=_NODE.enable_disk_force_clean,
        description="false: files that are not old enough are never deleted, however full the disk.",
    )
    trace_file: str = Field(
        default="",
        description="File that takes a line of JSON for every event of the consensus core, up to 1 GiB; empty: none. "
        "For the study of faults: it costs speed.",
    )
