"""Every option of a node: name, type, range, default and meaning. One table; nothing is read or compared here.

Names are DLedger's (`DLedgerConfig`) in snake_case where it has them; defaults are those of `dledger.config`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from dledger.config import Address, NodeConfig, Peer
from dledger.core.config import RaftConfig

_NODE = NodeConfig("default", "n0", (), "", Address("", 0))
_RAFT = RaftConfig()
_HOUR_MS = 3_600_000
_GIB = 1 << 30

ADDRESS_HELP = "Addresses are host:port, the host a name or an IPv4 address that the others can reach."
# Names come near paths (`dledger-<self_id>`), so they are checked against what is allowed, not what is not.
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]{0,31}")
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.%-]{0,127}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def parse_address(value: object) -> Address:
    """Return the address that `host:port` names.

    Raises:
        ValueError: it names none; the message shows it.
    """
    if isinstance(value, Address):
        return value
    host, _, port = _text(value, "host:port").rpartition(":")
    if not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"expected host:port with a port of 1 to 65535, found {value!r}")
    if host == "0.0.0.0":  # noqa: S104 - refused here
        raise ValueError(f"expected a host that others can reach, found {value!r}: name one interface of this machine")
    return Address(host, int(port))


def parse_peers(value: object) -> tuple[Peer, ...]:
    """Return the peers that `n0-host:port;n1-host:port` names, in DLedger's notation.

    Raises:
        ValueError: with everything that is wrong in it.
    """
    peers: list[Peer] = []
    faults: list[str] = []
    for text in filter(None, (part.strip() for part in _text(value, "id-host:port;id-host:port;...").split(";"))):
        try:
            peers.append(_parse_peer(text))
        except ValueError as error:
            faults.append(f"{text!r}: {error}")
    if not peers and not faults:
        faults.append("expected at least one peer, found none")
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(peers)


def _parse_peer(text: str) -> Peer:
    peer_id, dash, address = text.partition("-")
    if not dash:
        raise ValueError("expected an id, a dash and an address")
    return Peer(parse_id(peer_id), parse_address(address))


def _text(value: object, expected: str) -> str:
    if isinstance(value, str):
        return value.strip()
    # What pydantic reports as a fault of the option, which a TypeError is not.
    raise ValueError(f"expected {expected} as text, found {value!r}")


def parse_id(value: object) -> str:
    """Return a node's id.

    Raises:
        ValueError: it is not made of 1 to 32 letters, digits, "_" and ".".
    """
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError(f"expected an id of 1 to 32 letters, digits, '_' or '.', found {value!r}")
    return value


def parse_group(value: object) -> str:
    """Return a group's name.

    Raises:
        ValueError: it is not made of 1 to 128 letters, digits, "_", ".", "%" and "-".
    """
    if not isinstance(value, str) or not _GROUP.fullmatch(value):
        raise ValueError(f"expected a name of 1 to 128 letters, digits, '_', '.', '%' or '-', found {value!r}")
    return value


class NodeOptions(BaseModel):
    """The options, as they are set one by one; `cluster.config` fills and checks them."""

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
        examples=["n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913"],
        description="All nodes of the group, this one among them: id, dash and address where its peers reach it, "
        "separated by semicolons. Three nodes survive the loss of one, five of two. Equal on all nodes.",
    )
    store_base_dir: str = Field(
        min_length=1,
        examples=["data"],
        description="Directory of the log's files; made if absent. Needs room for two data files and two index files "
        "at least. Losing it loses this node's copy.",
    )
    client_address: Annotated[Address, BeforeValidator(parse_address)] = Field(
        default=Address("127.0.0.1", 40921),
        description="Where clients reach this node over gRPC. There is no authentication: leave it on loopback or in "
        "a network that you trust.",
    )
    metrics_address: Annotated[Address, BeforeValidator(parse_address)] = Field(
        default=Address("127.0.0.1", 40931),
        description="Where the page /metrics is served to Prometheus.",
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
        description="An append that is not committed after so many milliseconds is answered with 502: its outcome is "
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
        description="A follower that hears nothing of its leader stands for election after a random time from here ...",
    )
    max_election_timeout_ms: int = Field(
        default=_RAFT.max_election_timeout_ms,
        ge=3,
        le=_HOUR_MS,
        description="... up to here, in milliseconds. Also the time after which a leader that hears no majority "
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
        description="A message with entries that is not answered after so many milliseconds is sent again.",
    )
