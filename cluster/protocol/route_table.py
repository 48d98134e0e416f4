"""Routes and registrations: nodes, topics, queues and leaders, registered by brokers and read by clients. Pure.

A *broker* is one Raft group. Not here: the table of all registrations (`cluster.nameserver.registered_brokers`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from cluster.protocol.topic_config import QUEUES_MAX
from dledger.errors import DLedgerError
from store.model.topics import check_stored_topic

SILENCE_MS_MAX: Final = 120_000
SCAN_INTERVAL_MS: Final = 10_000
BROKERS_MAX: Final = 1_000
TOPICS_PER_BROKER_MAX: Final = 100_000
# Topics in one request; a broker with more sends several requests.
TOPICS_PER_REGISTRATION_MAX: Final = 2_000
# Topics of all brokers together: about 150 MiB.
TOPICS_MAX: Final = 500_000
# A registration is dropped if its next piece does not arrive in this time.
PIECES_MS_MAX: Final = 30_000
# Far above any term that elections can reach, and far below the maximum of the field.
TERM_MAX: Final = (1 << 62) - 1
NODES_MAX: Final = 32
_NAME_LENGTH_MAX: Final = 128
_NODE_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}", re.ASCII)
# Host and port, without characters that could forge a log line or select another gRPC scheme.
_ADDRESS: Final = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,253}:[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """The queues of one topic on one broker: 0 to count - 1.

    Attributes:
        topic: its name.
        read_queues: number of queues for reads.
        write_queues: number of queues for writes.
        permission: RocketMQ's bits (`cluster.protocol.topic_config`).
        is_ordered: whether queues are chosen only by key.
    """

    topic: str
    read_queues: int
    write_queues: int
    permission: int
    is_ordered: bool = False


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """One node of a broker: its id, and `host:port` of its gRPC services."""

    id: str
    address: str


@dataclass(frozen=True, slots=True)
class Registration:
    """The registration of a broker by its leader.

    Attributes:
        broker: name of the broker, which is the name of its Raft group.
        cluster: cluster name, common to the brokers of one installation.
        term: term of the leader.
        sequence: grows with each change within the term.
        leader_id: id of the leader; one of `nodes`.
        nodes: all nodes.
        topics: the topics for clients.
        life: secret of the registering process; empty in routes, and from senders without one.
    """

    broker: str
    cluster: str
    term: int
    sequence: int
    leader_id: str
    nodes: tuple[BrokerNode, ...]
    topics: tuple[TopicQueues, ...]
    life: bytes = field(default=b"", repr=False)

    @property
    def version(self) -> tuple[int, int]:
        """The order of registrations of one broker."""
        return self.term, self.sequence

    @property
    def leader_address(self) -> str:
        """The address of the leader; empty if it is not one of the nodes."""
        return next((node.address for node in self.nodes if node.id == self.leader_id), "")

    def check(self, *, is_leader_needed: bool = True) -> None:
        """Raise unless the registration is valid.

        Args:
            is_leader_needed: whether the leader must be one of the nodes; the leader in a route may be unknown.

        Raises:
            IllegalRegistration, store.errors.IllegalMessage: a field is invalid.
        """
        for what, name in (("broker", self.broker), ("cluster", self.cluster)):
            if not 1 <= len(name) <= _NAME_LENGTH_MAX or not name.isprintable():
                raise IllegalRegistration(what, f"a name of 1 to {_NAME_LENGTH_MAX} characters", repr(name[:200]))
        if not 0 <= self.term <= TERM_MAX:
            raise IllegalRegistration("term", f"0 to {TERM_MAX}", str(self.term))
        if not 1 <= len(self.nodes) <= NODES_MAX or len({node.id for node in self.nodes}) < len(self.nodes):
            raise IllegalRegistration("nodes", f"1 to {NODES_MAX} with different ids", f"{len(self.nodes)}")
        for node in self.nodes:
            if not _NODE_ID.fullmatch(node.id) or not _ADDRESS.fullmatch(node.address):
                raise IllegalRegistration("nodes", "ids, and addresses as host:port", f"{node.id!r}, {node.address!r}")
        if is_leader_needed and not self.leader_address:
            raise IllegalRegistration("leader_id", "one of the nodes", repr(self.leader_id))
        for queues in self.topics:
            check_stored_topic(queues.topic)
            if not (0 <= queues.read_queues <= QUEUES_MAX and 0 <= queues.write_queues <= QUEUES_MAX):
                found = f"{queues.read_queues} and {queues.write_queues}"
                raise IllegalRegistration(f"queues of topic {queues.topic}", f"0 to {QUEUES_MAX}", found)


class IllegalRegistration(DLedgerError):
    """A registration is invalid. Nothing was changed; correct the broker that sent it."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}. Nothing was registered; correct the broker")
        self.field = field


class StaleRegistration(DLedgerError):
    """A newer registration of that broker is known. Nothing was changed: the sender is deposed, or sent a duplicate."""

    def __init__(self, broker: str, found: tuple[int, int], known: tuple[int, int]) -> None:
        super().__init__(
            f"broker {broker!r}: found term {found[0]}, sequence {found[1]}, but term {known[0]}, sequence {known[1]} "
            "is known. Nothing was registered"
        )
        self.broker = broker


class UnconfirmedRegistration(DLedgerError):
    """A registration changes the leader of a known broker, and no known node confirms it. Nothing was changed.

    Retry: a leader that was just elected may be confirmed soon.
    """

    def __init__(self, broker: str, why: str) -> None:
        super().__init__(f"broker {broker!r}: {why}. Nothing was registered")
        self.broker = broker


class TooManyBrokers(DLedgerError):
    """The limit of registered brokers is reached. Nothing was changed."""

    def __init__(self) -> None:
        super().__init__(
            f"{BROKERS_MAX} brokers are registered, which is the limit. Start name servers for another cluster"
        )


class TooManyTopics(DLedgerError):
    """The limit of registered topics of all brokers is reached. Nothing was changed."""

    def __init__(self) -> None:
        super().__init__(
            f"{TOPICS_MAX} topics of all brokers are registered, which is the limit. Start name servers for another "
            "cluster"
        )


class UnknownBroker(DLedgerError):
    """The broker is not registered: it never was, it was dropped, or this name server has just started."""

    def __init__(self, broker: str) -> None:
        super().__init__(f"no broker {broker!r} is registered here; check `dledger brokers list`, or retry in a minute")
        self.broker = broker


@dataclass(frozen=True, slots=True)
class Extent:
    """The meaning of a registration's topics: all, a difference, or a piece.

    Attributes:
        since_sequence: None: all topics, or a piece of them; otherwise the topics created or changed since the
            registration with that sequence in the same term.
        deleted: with `since_sequence`: topics deleted since then.
        piece: number of the piece, from 0.
        has_more: whether another piece follows.
    """

    since_sequence: int | None = None
    deleted: tuple[str, ...] = ()
    piece: int = 0
    has_more: bool = False


ALL: Final = Extent()


@dataclass(frozen=True, slots=True)
class BrokerRoute:
    """The route of a topic on one broker: leader and queues; without write permission while that is revoked."""

    registration: Registration
    queues: TopicQueues


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A registered broker.

    Attributes:
        registration: its latest registration, without topics.
        silent_ms: milliseconds since its last request.
        is_writable: False while its write permission is revoked.
        topics_count: number of its topics.
    """

    registration: Registration
    silent_ms: int
    is_writable: bool
    topics_count: int
