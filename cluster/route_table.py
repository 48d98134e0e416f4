"""Which brokers there are, what topics they have, and who leads them: what a name server knows. Pure: no clock, no I/O.

A *broker* is one Raft group. Its leader registers it; registrations are ordered by (term, sequence), so that what a
deposed leader sends late, or what was overtaken on the way, never replaces what is newer. A broker that is silent for
`SILENCE_MS_MAX` is dropped; its term is remembered for as long again, so that a leader that was frozen meanwhile does
not come back with it.

Times are milliseconds of a monotonic clock. Source: RocketMQ `RouteInfoManager`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from cluster.topic_config import PERMISSION_INHERIT, PERMISSION_WRITE
from dledger.errors import DLedgerError
from store.topics import AUTO_CREATE_TOPIC, check_stored_topic, is_system_topic, is_topic_name

SILENCE_MS_MAX: Final = 120_000
SCAN_INTERVAL_MS: Final = 10_000
BROKERS_MAX: Final = 1_000
TOPICS_PER_BROKER_MAX: Final = 100_000
# In one request; a broker with more sends several.
TOPICS_PER_REGISTRATION_MAX: Final = 100_000
# Far above any term that elections can reach, and far below what a field can hold.
TERM_MAX: Final = (1 << 62) - 1
NODES_MAX: Final = 32
_NAME_LENGTH_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """The queues of one topic on one broker: 0 to count - 1.

    Attributes:
        topic: its name.
        read_queues: how many are read.
        write_queues: how many are written.
        permission: RocketMQ's bits (`cluster.topic_config`).
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
    """

    broker: str
    cluster: str
    term: int
    sequence: int
    leader_id: str
    nodes: tuple[BrokerNode, ...]
    topics: tuple[TopicQueues, ...]

    @property
    def version(self) -> tuple[int, int]:
        """By which registrations of one broker are ordered."""
        return self.term, self.sequence

    @property
    def leader_address(self) -> str:
        """Where the leader is reached; empty when it is none of the nodes."""
        return next((node.address for node in self.nodes if node.id == self.leader_id), "")

    def check(self) -> None:
        """Raise unless all of it can be.

        Raises:
            IllegalRegistration, store.errors.IllegalMessage: what is wrong.
        """
        for what, name in (("broker", self.broker), ("cluster", self.cluster)):
            if not 1 <= len(name) <= _NAME_LENGTH_MAX or not name.isprintable():
                raise IllegalRegistration(what, f"a name of 1 to {_NAME_LENGTH_MAX} characters", repr(name[:200]))
        if self.term < 0:
            raise IllegalRegistration("term", "at least 0", str(self.term))
        if not 1 <= len(self.nodes) <= NODES_MAX or len({node.id for node in self.nodes}) < len(self.nodes):
            raise IllegalRegistration("nodes", f"1 to {NODES_MAX} with different ids", f"{len(self.nodes)}")
        if not self.leader_address:
            raise IllegalRegistration("leader_id", "one of the nodes", repr(self.leader_id))
        if len(self.topics) > TOPICS_PER_BROKER_MAX:
            raise IllegalRegistration("topics", f"at most {TOPICS_PER_BROKER_MAX}", str(len(self.topics)))
        for queues in self.topics:
            check_stored_topic(queues.topic)
            if queues.read_queues < 0 or queues.write_queues < 0:
                found = f"{queues.read_queues} and {queues.write_queues}"
                raise IllegalRegistration(f"queues of topic {queues.topic}", "at least 0", found)


class IllegalRegistration(DLedgerError):
    """A registration says what cannot be. Nothing was changed; mend the broker that sent it."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}. Nothing was registered; mend the broker")
        self.field = field


class StaleRegistration(DLedgerError):
    """A later registration of that broker is known. Nothing was changed: the sender leads no longer, or sent again."""

    def __init__(self, broker: str, found: tuple[int, int], known: tuple[int, int]) -> None:
        super().__init__(
            f"broker {broker}: found term {found[0]}, sequence {found[1]}, but term {known[0]}, sequence {known[1]} is "
            "known. Nothing was registered"
        )
        self.broker = broker


class TooManyBrokers(DLedgerError):
    """As many brokers are registered as may be. Nothing was changed."""

    def __init__(self) -> None:
        super().__init__(
            f"{BROKERS_MAX} brokers are registered, and no more may be. Start name servers for another cluster"
        )


class UnknownBroker(DLedgerError):
    """No broker of that name is registered: it never was, was silent for too long, or this name server is new."""

    def __init__(self, broker: str) -> None:
        super().__init__(f"no broker {broker!r} is registered here; look at the list of brokers, or wait a minute")
        self.broker = broker


class HeartbeatAnswer(Enum):
    """What a name server says to a heartbeat."""

    KNOWN = "known"
    # It holds no such registration, or an older one.
    REGISTER = "register"


@dataclass(frozen=True, slots=True)
class BrokerRoute:
    """A topic on one broker: who leads it, and its queues; without permission to write while that is taken away."""

    registration: Registration
    queues: TopicQueues


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A registered broker.

    Attributes:
        registration: its latest.
        silent_ms: since it was heard.
        is_writable: False while clients shall put no messages there.
    """

    registration: Registration
    silent_ms: int
    is_writable: bool


@dataclass(slots=True)
class _Entry:
    registration: Registration
    topics: dict[str, TopicQueues]
    heard_ms: int
    is_writable: bool = True


class RouteTable:
    """All registrations of one name server."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Entry] = {}
        self._names_by_topic: dict[str, set[str]] = {}
        # Of brokers that were dropped: the last version, and when to forget it.
        self._dropped: dict[str, tuple[tuple[int, int], int]] = {}

    # ------------------------------------------------------------------------------------------------ from brokers

    def register(self, registration: Registration, now_ms: int) -> bool:
        """Take a registration; return whether it says anything new.

        Raises:
            StaleRegistration: a later one is known, or another leader in the same term.
            IllegalRegistration, store.errors.IllegalMessage, TooManyBrokers: see their messages.
        """
        registration.check()
        name = registration.broker
        known = self._brokers.get(name)
        if known is None:
            dropped, _ = self._dropped.get(name, ((-1, 0), 0))
            # The very version that was dropped may come back: its leader was only slow.
            if registration.version < dropped:
                raise StaleRegistration(name, registration.version, dropped)
            if len(self._brokers) >= BROKERS_MAX:
                raise TooManyBrokers
            self._dropped.pop(name, None)
        else:
            _check_newer(known.registration, registration)
            if known.registration == registration:
                known.heard_ms = now_ms
                return False
        self._put(registration, now_ms, is_writable=known is None or known.is_writable)
        return True

    def heartbeat(self, broker: str, term: int, sequence: int, now_ms: int) -> HeartbeatAnswer:
        """Take note that a leader lives whose last registration was this one.

        Raises:
            StaleRegistration: a later registration is known.
        """
        known = self._brokers.get(broker)
        if known is None or (term, sequence) > known.registration.version:
            return HeartbeatAnswer.REGISTER
        if (term, sequence) < known.registration.version:
            raise StaleRegistration(broker, (term, sequence), known.registration.version)
        known.heard_ms = now_ms
        return HeartbeatAnswer.KNOWN

    def unregister(self, broker: str, term: int, now_ms: int) -> None:
        """Drop a broker that ends for good; nothing happens when it is not there.

        Raises:
            StaleRegistration: a leader of a higher term is known.
        """
        known = self._brokers.get(broker)
        if known is None:
            return
        if term < known.registration.term:
            raise StaleRegistration(broker, (term, 0), known.registration.version)
        self._drop(broker, now_ms)

    def scan(self, now_ms: int) -> list[str]:
        """Drop who was silent for `SILENCE_MS_MAX`; return their names. Call it every `SCAN_INTERVAL_MS`."""
        silent = [name for name, entry in self._brokers.items() if now_ms - entry.heard_ms >= SILENCE_MS_MAX]
        for name in silent:
            self._drop(name, now_ms)
        for name in [name for name, (_, forget_ms) in self._dropped.items() if now_ms >= forget_ms]:
            del self._dropped[name]
        return silent

    def _put(self, registration: Registration, now_ms: int, *, is_writable: bool) -> None:
        self._remove(registration.broker)
        topics = {queues.topic: queues for queues in registration.topics}
        self._brokers[registration.broker] = _Entry(registration, topics, now_ms, is_writable)
        for topic in topics:
            self._names_by_topic.setdefault(topic, set()).add(registration.broker)

    def _drop(self, name: str, now_ms: int) -> None:
        # Bounded: names come in only with a broker, of which there are BROKERS_MAX at a time.
        if len(self._dropped) < BROKERS_MAX:
            self._dropped[name] = (self._brokers[name].registration.version, now_ms + SILENCE_MS_MAX)
        self._remove(name)

    def _remove(self, name: str) -> None:
        entry = self._brokers.pop(name, None)
        for topic in () if entry is None else entry.topics:
            names = self._names_by_topic[topic]
            names.discard(name)
            if not names:
                del self._names_by_topic[topic]

    # ------------------------------------------------------------------------------------------- for administrators

    def set_writable(self, broker: str, *, is_writable: bool) -> int:
        """Take away, or give back, the permission to write of all topics of a broker; return how many have it now.

        It holds over new registrations and leaders, until it is given back or the broker is dropped.

        Raises:
            UnknownBroker: see its message.
        """
        entry = self._brokers.get(broker)
        if entry is None:
            raise UnknownBroker(broker)
        entry.is_writable = is_writable
        topics = entry.topics.keys() - {AUTO_CREATE_TOPIC}
        return sum(bool(_seen(entry, topic).permission & PERMISSION_WRITE) for topic in topics)

    # ------------------------------------------------------------------------------------------------- for clients

    @property
    def is_empty(self) -> bool:
        """Whether no broker is known."""
        return not self._brokers

    def routes(self, topic: str) -> list[BrokerRoute]:
        """Return the brokers that have `topic`, in order of their names; if none has, those that would create it.

        Source: RocketMQ `MQClientInstance.updateTopicRouteInfoFromNameServer`, where clients look for the second ones.
        """
        if topic not in self._names_by_topic and is_topic_name(topic) and not is_system_topic(topic):
            return [_to_create(topic, pattern) for pattern in self._having(AUTO_CREATE_TOPIC)]
        return self._having(topic)

    def _having(self, topic: str) -> list[BrokerRoute]:
        entries = [self._brokers[name] for name in sorted(self._names_by_topic.get(topic, ()))]
        return [BrokerRoute(entry.registration, _seen(entry, topic)) for entry in entries]

    def topics(self) -> list[str]:
        """Return the names of all topics, in order."""
        return sorted(self._names_by_topic.keys() - {AUTO_CREATE_TOPIC})

    def brokers(self, now_ms: int) -> Sequence[KnownBroker]:
        """Return all brokers, in order of their names."""
        return [
            KnownBroker(entry.registration, now_ms - entry.heard_ms, entry.is_writable)
            for _, entry in sorted(self._brokers.items())
        ]


def _to_create(topic: str, pattern: BrokerRoute) -> BrokerRoute:
    """Return the route to a topic that would be created as `AUTO_CREATE_TOPIC` says."""
    queues = replace(pattern.queues, topic=topic, permission=pattern.queues.permission & ~PERMISSION_INHERIT)
    return BrokerRoute(pattern.registration, queues)


def _check_newer(known: Registration, found: Registration) -> None:
    # In one term there is one leader: another one is a fault of who sent it, and the first one counts.
    is_other_leader = found.term == known.term and found.leader_id != known.leader_id
    if found.version < known.version or is_other_leader:
        raise StaleRegistration(found.broker, found.version, known.version)


def _seen(entry: _Entry, topic: str) -> TopicQueues:
    queues = entry.topics[topic]
    return queues if entry.is_writable else replace(queues, permission=queues.permission & ~PERMISSION_WRITE)
