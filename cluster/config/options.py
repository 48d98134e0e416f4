"""The table of a node's options: name, type, range, default and meaning.

Names are DLedger's (`DLedgerConfig`) in snake_case, if it has them; defaults are those of `dledger.config`.

Not here: options of security (`cluster.config.security_options`) and of brokers (`cluster.config.broker_options`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cluster.config.values import (
    parse_address,
    parse_address_or_off,
    parse_group,
    parse_hours,
    parse_id,
    parse_ids,
    parse_peers,
)
from dledger.config import Address, NodeConfig, Peer
from dledger.core.config import RaftConfig

_NODE = NodeConfig("default", "n0", (), "", Address("", 0))
_RAFT = RaftConfig()
_HOUR_MS = 3_600_000
_GIB = 1 << 30

ADDRESS_HELP = "Addresses are host:port, the host a name or an IPv4 address that the others can reach."


class NodeOptions(BaseModel):
    """The options; `cluster.config.load` sets and checks them one by one."""

    model_config = ConfigDict(extra="forbid", strict=True, validate_assignment=True)

    group: Annotated[str, BeforeValidator(parse_group)] = Field(
        default="default",
        description="Name of the replication group. Nodes and clients of another group are refused. Equal on all "
        "nodes.",
    )
    self_id: Annotated[str, BeforeValidator(parse_id)] = Field(
        examples=["n0"],
        description="Id of this node, one of those in peers. Its files are in <store_base_dir>/dledger-<self_id>.",
    )
    peers: Annotated[tuple[Peer, ...], BeforeValidator(parse_peers)] = Field(
        examples=["n0-127.0.0.1:20911;n1-127.0.0.1:20912;n2-127.0.0.1:20913"],
        description="The founding nodes of the group, this one included: id, dash and peer address, separated by "
        "semicolons. Three nodes tolerate the loss of one, five of two. Equal on all founding nodes. Later changes are "
        "made by `dledger members`, and are stored in the log.",
    )
    is_joining: bool = Field(
        default=_NODE.is_joining,
        description="true: this node joins an existing group: peers has some of its members and this node, which "
        "`dledger members add` adds. Without effect once the log contains the membership.",
    )
    is_adopting: bool = Field(
        default=_NODE.is_adopting,
        description="true, or `dledger server --adopt`, for one start: adopt a directory that contains a log and no "
        "identity file (of a Java program or an older version). Without effect on a directory with an identity file.",
    )
    store_base_dir: str = Field(
        min_length=1,
        examples=["data"],
        description="Directory of the log's files; created if absent. It needs space for at least two data files and "
        "two index files. Losing it loses this node's replica.",
    )
    client_address: Annotated[Address, BeforeValidator(parse_address)] = Field(
        default=Address("127.0.0.1", 20921),
        description="Address at which clients reach this node over gRPC. If other machines can reach it, it needs "
        "client_tls, or insecure.",
    )
    frame_address: Annotated[Address | None, BeforeValidator(parse_address_or_off)] = Field(
        default=None,
        examples=["127.0.0.1:20941"],
        description="Address at which clients may send appends and puts by frames, which are quicker than gRPC; with "
        "the TLS, the rights and the limits of client_address. Clients learn it from this node, and use gRPC where "
        "they cannot reach it. Usually the host of client_address and port 20941. off: there is no such port.",
    )
    metrics_address: Annotated[Address, BeforeValidator(parse_address)] = Field(
        default=Address("127.0.0.1", 20931),
        description="Address of the page /metrics for Prometheus. If other machines can reach it, it needs "
        "metrics_tls, or insecure.",
    )
    read_mode: Literal["read_index", "lease"] = Field(
        default=_NODE.read_mode,
        description="How a leader confirms its leadership before it serves a linearizable read. read_index: by a round "
        "of heartbeats to a majority. lease: by recent answers of a majority, which is quicker, but correct only while "
        "clocks keep to max_clock_drift_ppm.",
    )
    flush: Literal["sync", "async"] = Field(
        default="sync",
        description="sync: an entry counts as stored on a node only after fdatasync. async: as soon as it is in the "
        "page cache (RocketMQ's ASYNC_FLUSH); a power failure of a majority may then lose acknowledged entries.",
    )
    flush_interval_ms: int = Field(
        default=_NODE.flush_interval_ms,
        ge=1,
        le=60_000,
        description="With flush = async, the interval of background syncs in milliseconds.",
    )
    mapped_file_size_for_entry_data: int = Field(
        default=_NODE.mapped_file_size_for_entry_data,
        ge=4096,
        le=1024 * _GIB,
        description="Size of one data file in bytes, allocated when the file is created. Below 4 MiB it also limits a "
        "body to this size minus 56. Equal on all nodes, and fixed for the life of the data.",
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
        description="Maximum entries of a leader that are appended but not committed; more are refused immediately "
        "(503).",
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
    max_watchers_num: int = Field(
        default=_NODE.max_watchers_num,
        ge=0,
        le=1_024,
        description="Streams that watch this node at the same time (dledger watch, consoles); more are refused (503). "
        "0: none are allowed.",
    )
    checkpoint_interval_ms: int = Field(
        default=_NODE.checkpoint_interval_ms,
        ge=10,
        le=_HOUR_MS,
        description="Interval of writes of the checkpoint file in milliseconds; it bounds the verification at a "
        "restart.",
    )
    heart_beat_time_interval_ms: int = Field(
        default=_RAFT.heart_beat_time_interval_ms,
        ge=1,
        le=_HOUR_MS,
        description="Interval of heartbeats in milliseconds; min_election_timeout_ms must be several times as long.",
    )
    min_election_timeout_ms: int = Field(
        default=_RAFT.min_election_timeout_ms,
        ge=2,
        le=_HOUR_MS,
        description="A follower without messages from its leader starts an election after a random time from this ...",
    )
    max_election_timeout_ms: int = Field(
        default=_RAFT.max_election_timeout_ms,
        ge=3,
        le=_HOUR_MS,
        description="... to this many milliseconds. Also the time after which a leader without answers of a majority "
        "steps down.",
    )
    max_push_size_bytes: int = Field(
        default=_RAFT.max_push_size_bytes,
        ge=1024,
        le=16 << 20,
        description="Maximum bytes of entries in one message to a follower; a single entry may be larger.",
    )
    max_push_window: int = Field(
        default=_RAFT.max_push_window,
        ge=1,
        le=4096,
        description="Maximum unanswered messages with entries to one follower.",
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
        description="Maximum unanswered bytes of entries to one follower.",
    )
    max_in_flight_total_size_bytes: int = Field(
        default=_RAFT.max_in_flight_total_size_bytes,
        ge=4096,
        le=16 * _GIB,
        description="The same for all followers together; one message to each is always permitted.",
    )
    peer_push_quota: int = Field(
        default=_RAFT.peer_push_quota,
        ge=64 << 10,
        le=64 * _GIB,
        description="Bytes per second to a follower whose log lags, so that its catch-up leaves bandwidth for "
        "the others.",
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
        description="With a state machine: entries applied between two snapshots.",
    )
    preferred_leader_ids: Annotated[tuple[str, ...], BeforeValidator(parse_ids)] = Field(
        default=_RAFT.preferred_leader_ids,
        description="Ids of the preferred leaders, separated by semicolons, the most preferred first; empty: none. "
        "Another leader transfers its leadership as soon as one of them has caught up and its disk is healthy.",
    )
    preferred_leader_interval_ms: int = Field(
        default=_RAFT.preferred_leader_interval_ms,
        ge=10,
        le=_HOUR_MS,
        description="Interval in milliseconds at which a leader that is not preferred checks for one that is.",
    )
    max_leadership_transfer_wait_index: int = Field(
        default=_RAFT.max_leadership_transfer_wait_index,
        ge=1,
        le=1 << 40,
        description="Leadership is transferred only to a follower that lags by at most this many entries.",
    )
    max_clock_drift_ppm: int = Field(
        default=_RAFT.max_clock_drift_ppm,
        ge=0,
        le=499_999,
        description="Maximum drift of a node's clock against true time, in parts per million; a leader's lease is "
        "shortened by it.",
    )
    file_reserved_hours: int = Field(
        default=_NODE.file_reserved_hours,
        ge=1,
        le=24 * 366 * 100,
        description="Age of its last entry from which a data file is deleted, at the hours of delete_when or when the "
        "disk fills.",
    )
    delete_when: Annotated[tuple[int, ...], BeforeValidator(parse_hours)] = Field(
        default=_NODE.delete_when,
        description="Hours of the day (local time) in which expired data files are deleted, separated by semicolons.",
    )
    disk_space_ratio_to_check_expired: float = Field(
        default=_NODE.disk_space_ratio_to_check_expired,
        ge=0.1,
        le=0.95,
        description="Disk usage above which expired files are deleted at any hour.",
    )
    disk_space_ratio_to_force_clean: float = Field(
        default=_NODE.disk_space_ratio_to_force_clean,
        ge=0.1,
        le=0.95,
        description="Disk usage above which the oldest files are deleted before they expire; 0.05 above it (at most "
        "0.95), appends are refused.",
    )
    enable_disk_force_clean: bool = Field(
        default=_NODE.enable_disk_force_clean,
        description="false: files are never deleted before they expire, even if the disk is full.",
    )
    trace_file: str = Field(
        default="",
        description="File for a trace of the consensus core, one line of JSON per event, up to 1 GiB; empty: none. It "
        "slows the node down, and is meant for debugging.",
    )
