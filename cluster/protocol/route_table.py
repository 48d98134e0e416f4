"""The route table: nodes, topics, queues and leaders, registered by brokers and read by clients; with checks. Pure.

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
# In one request; a broker with more sends several.
TOPICS_PER_REGISTRATION_MAX: Final = 2_000
# Of all brokers together: about 150 MiB.
TOPICS_MAX: Final = 500_000
# A registration whose next piece does not come is forgotten.
PIECES_MS_MAX: Final = 30_000
# Far above any term that elections can reach, and far below what a field can hold.
TERM_MAX: Final = (1 << 62) - 1
NODES_MAX: Final = 32
_NAME_LENGTH_MAX: Final = 128
_NODE_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}", re.ASCII)
# A name or an address of a host, and a port; nothing that could break a line of a log, or mean more to a dialler.
_ADDRESS: Final = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,253}:[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """The queues of one topic on one broker: 0 to count - 1.

    Attributes:
        topic: its name.
        read_queues: how many are read.
        write_queues: how many are written.
        permission: RocketMQ's bits (`cluster.protocol.topic_config`).
        is_ordered: queues are only ever chosen by key.
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
    """What a leader says of its broker.

    Attributes:
        broker: its name, which is that of the Raft group.
        cluster: brokers of one installation share it.
        term: in which the leader leads.
        sequence: grows with each change within the term.
        leader_id: the leader; one of `nodes`.
        nodes: all of them.
        topics: those that clients may use.
        life: the secret of the process that registers; empty in routes, and from senders that have none.
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
        """By which registrations of one broker are ordered."""
        return self.term, self.sequence

    @property
    def leader_address(self) -> str:
        """Where the leader is reached; empty when it is none of the nodes."""
        return next((node.address for node in self.nodes if node.id == self.leader_id), "")

    def check(self, *, is_leader_needed: bool = True) -> None:
        """Raise unless all of it can be.

        Args:
            is_leader_needed: the leader must be one of the nodes; of a route it may not be known.

        Raises:
            IllegalRegistration, store.errors.IllegalMessage: what is wrong.
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
    """A later registration of that broker is known. Nothing was changed: the sender leads no longer, or sent again."""

    def __init__(self, broker: str, found: tuple[int, int], known: tuple[int, int]) -> None:
        super().__init__(
            f"broker {broker!r}: found term {found[0]}, sequence {found[1]}, but term {known[0]}, sequence {known[1]} "
            "is known. Nothing was registered"
        )
        self.broker = broker


class UnconfirmedRegistration(DLedgerError):
    """A registration changes the leader of a known broker, and no known node confirms it. Nothing was changed.

    Send it again: a leader that was just elected may be confirmed a moment later.
    """

    def __init__(self, broker: str, why: str) -> None:
        super().__init__(f"broker {broker!r}: {why}. Nothing was registered")
        self.broker = broker


class TooManyBrokers(DLedgerError):
    """As many brokers are registered as may be. Nothing was changed."""

    def __init__(self) -> None:
        super().__init__(
            f"{BROKERS_MAX} brokers are registered, which is the limit. Start name servers for another cluster"
        )


class TooManyTopics(DLedgerError):
    """As many topics are registered as may be, of all brokers together. Nothing was changed."""

    def __init__(self) -> None:
        super().__init__(
            f"{TOPICS_MAX} topics of all brokers are registered, which is the limit. Start name servers for another "
            "cluster"
        )


class UnknownBroker(DLedgerError):
    """No broker of that name is registered: it never was, was silent for too long, or this name server is new."""

    def __init__(self, broker: str) -> None:
        super().__init__(f"no broker {broker!r} is registered here; look at the list of brokers, or wait a minute")
        self.broker = broker


@dataclass(frozen=True, slots=True)
class Extent:
    """What the topics of a registration are.

    Attributes:
        since_sequence: None: all topics, or a piece of them; else those that are new or changed since the registration
            of that sequence in the same term.
        deleted: with `since_sequence`: topics that are gone since.
        piece: which piece, from 0.
        has_more: another piece follows.
    """

    since_sequence: int | None = None
    deleted: tuple[str, ...] = ()
    piece: int = 0
    has_more: bool = False


ALL: Final = Extent()


@dataclass(frozen=True, slots=True)
class BrokerRoute:
    """A topic on one broker: the leader and the queues; without permission to write while that is revoked."""

    registration: Registration
    queues: TopicQueues


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A registered broker.

    Attributes:
        registration: its latest, without topics.
        silent_ms: since its last request.
        is_writable: False while clients must not put messages there.
        topics_count: how many topics clients may use.
    """

    registration: Registration
    silent_ms: int
    is_writable: bool
    topics_count: int
