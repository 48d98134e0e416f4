"""The brokers of a name server, their topics and leaders. Pure: no clock, no I/O.

The leader of a broker registers it. Registrations are ordered by (term, sequence), so that a late one of a deposed
leader, or one that was reordered in transit, never replaces a newer one. A broker without heartbeats for
`SILENCE_MS_MAX` is dropped; its term is kept for the same time again, so that a leader that was paused meanwhile cannot
register with an older term.

A registration with many topics arrives in pieces, and takes effect with the last piece; a change of topics arrives as a
difference. The work of a call is bounded by the size of its request: only callers iterate over the topics of all
brokers, of which there are up to `TOPICS_MAX`, in steps.

Times are milliseconds of a monotonic clock. Source: RocketMQ `RouteInfoManager`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from cluster.protocol.route_table import (
    ALL,
    BROKERS_MAX,
    PIECES_MS_MAX,
    SILENCE_MS_MAX,
    TOPICS_MAX,
    TOPICS_PER_BROKER_MAX,
    BrokerRoute,
    Extent,
    IllegalRegistration,
    KnownBroker,
    Registration,
    StaleRegistration,
    TooManyBrokers,
    TooManyTopics,
    TopicQueues,
    UnconfirmedRegistration,
    UnknownBroker,
)
from cluster.protocol.topic_config import PERMISSION_INHERIT, PERMISSION_WRITE
from store.model.topics import AUTO_CREATE_TOPIC, is_system_topic, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class RegisterResult(Enum):
    """The result of a registration."""

    CHANGED = "changed"
    # It contains nothing new.
    UNCHANGED = "unchanged"
    # It is a piece, kept until the last piece arrives.
    PIECE = "piece"
    # It is a difference to a registration that is not known.
    WANTS_ALL = "wants_all"


class HeartbeatAnswer(Enum):
    """The answer of a name server to a heartbeat."""

    KNOWN = "known"
    # The name server has no registration of the broker, or an older one.
    REGISTER = "register"


@dataclass(slots=True)
class _Entry:
    """One broker: its registration without topics, and its topics."""

    registration: Registration
    topics: dict[str, TopicQueues]
    last_message_ms: int
    is_writable: bool = True


@dataclass(slots=True)
class _Pieces:
    """A registration whose last piece has not arrived yet."""

    registration: Registration
    began_ms: int
    next_piece: int = 0
    topics: dict[str, TopicQueues] = field(default_factory=dict)


class RouteTable:
    """All registrations of one name server.

    Attributes:
        topics_count: stored topics of all brokers, those of incomplete registrations included.
    """

    def __init__(self) -> None:
        # In order of the brokers' names.
        self._brokers: dict[str, _Entry] = {}
        # By broker.
        self._pieces: dict[str, _Pieces] = {}
        self.topics_count = 0
        # The last registration of each dropped broker, and when to remove it.
        self._dropped: dict[str, tuple[Registration, int]] = {}

    # ------------------------------------------------------------------------------------------------ from brokers

    def register(self, registration: Registration, now_ms: int, extent: Extent = ALL) -> RegisterResult:
        """Apply a registration, a difference to the previous one, or a piece of one; return the result.

        Raises:
            StaleRegistration: a later one is known, or another leader in the same term.
            IllegalRegistration, store.errors.IllegalMessage, TooManyBrokers, TooManyTopics: see their messages.
        """
        registration.check()
        name = registration.broker
        known = self._brokers.get(name)
        if known is None:
            dropped, _ = self._dropped.get(name, (None, 0))
            # The dropped version itself may return: its leader was only slow.
            if dropped is not None and _is_older(dropped, registration):
                raise StaleRegistration(name, registration.version, dropped.version)
            if len(self._brokers.keys() | self._pieces.keys() | {name}) > BROKERS_MAX:
                raise TooManyBrokers
        else:
            _check_newer(known.registration, registration)
        topics = {queues.topic: queues for queues in registration.topics}
        head = replace(registration, topics=())
        if extent.since_sequence is not None:
            return self._change(head, topics, extent, now_ms)
        if extent.has_more or extent.piece:
            return self._take_piece(head, topics, extent, now_ms)
        return self._put(head, topics, now_ms)

    def _change(
        self, head: Registration, topics: Mapping[str, TopicQueues], extent: Extent, now_ms: int
    ) -> RegisterResult:
        """Apply a difference to the known registration."""
        known = self._brokers.get(head.broker)
        if known is None or known.registration.version != (head.term, extent.since_sequence):
            return RegisterResult.WANTS_ALL
        if known.registration.life != head.life:
            return RegisterResult.WANTS_ALL
        new_count = len(topics.keys() - known.topics.keys())
        self._check_space(len(known.topics) + new_count, new_count)
        before = len(known.topics)
        known.topics.update(topics)
        for name in extent.deleted:
            known.topics.pop(name, None)
        self.topics_count += len(known.topics) - before
        known.registration, known.last_message_ms = head, now_ms
        return RegisterResult.CHANGED

    def _take_piece(
        self, head: Registration, topics: Mapping[str, TopicQueues], extent: Extent, now_ms: int
    ) -> RegisterResult:
        """Keep a piece until the last one arrives."""
        if extent.piece == 0:
            self._drop_pieces(head.broker)
            self._pieces[head.broker] = _Pieces(head, now_ms)
        pieces = self._pieces.get(head.broker)
        if pieces is None or pieces.registration != head or pieces.next_piece != extent.piece:
            self._drop_pieces(head.broker)
            return RegisterResult.WANTS_ALL
        new_count = len(topics.keys() - pieces.topics.keys())
        try:
            self._check_space(len(pieces.topics) + new_count, new_count)
        except (IllegalRegistration, TooManyTopics):
            self._drop_pieces(head.broker)
            raise
        pieces.topics.update(topics)
        pieces.next_piece += 1
        self.topics_count += new_count
        if extent.has_more:
            return RegisterResult.PIECE
        self.topics_count -= len(pieces.topics)
        del self._pieces[head.broker]
        return self._put(head, pieces.topics, now_ms)

    def _drop_pieces(self, name: str) -> None:
        pieces = self._pieces.pop(name, None)
        self.topics_count -= 0 if pieces is None else len(pieces.topics)

    def _put(self, head: Registration, topics: dict[str, TopicQueues], now_ms: int) -> RegisterResult:
        """Replace all topics of a broker."""
        known = self._brokers.get(head.broker)
        if known is not None and known.registration == head and known.topics == topics:
            known.last_message_ms = now_ms
            return RegisterResult.UNCHANGED
        before = 0 if known is None else len(known.topics)
        self._check_space(len(topics), len(topics) - before)
        self.topics_count += len(topics) - before
        self._dropped.pop(head.broker, None)
        self._brokers[head.broker] = _Entry(head, topics, now_ms, known is None or known.is_writable)
        if known is None:
            self._brokers = dict(sorted(self._brokers.items()))
        return RegisterResult.CHANGED

    def _check_space(self, count: int, new_count: int) -> None:
        """Check the limits on topics: `count` of one broker, `new_count` of them new.

        Raises:
            IllegalRegistration, TooManyTopics: see their messages.
        """
        if count > TOPICS_PER_BROKER_MAX:
            raise IllegalRegistration("topics", f"at most {TOPICS_PER_BROKER_MAX}", str(count))
        if new_count > 0 and self.topics_count + new_count > TOPICS_MAX:
            raise TooManyTopics

    def registration_to_confirm_with(self, registration: Registration, now_ms: int) -> Registration | None:
        """Return the known registration whose nodes must confirm this one; None: no confirmation is needed.

        The process that registered last is trusted. A registration by another process must be confirmed until the known
        one expires; otherwise any sender could replace a broker by using a high term.

        Raises:
            StaleRegistration: a later one is known, or another leader in the same term.
        """
        entry, pieces = self._brokers.get(registration.broker), self._pieces.get(registration.broker)
        if entry is None or now_ms - entry.last_message_ms >= SILENCE_MS_MAX:
            return None
        known = entry.registration
        _check_newer(known, registration)
        if pieces is not None and pieces.registration == replace(registration, topics=()):
            return None
        if not registration.life and not known.life:
            is_same = (known.term, known.nodes) == (registration.term, registration.nodes)
        else:
            is_same = known.life == registration.life
        return None if is_same else known

    def heartbeat(self, broker: str, term: int, sequence: int, now_ms: int, life: bytes = b"") -> HeartbeatAnswer:
        """Record a heartbeat of the leader that sent the registration with this term and sequence.

        Raises:
            StaleRegistration: a later registration is known.
        """
        known = self._brokers.get(broker)
        if known is None or (term, sequence) > known.registration.version:
            return HeartbeatAnswer.REGISTER
        if term == known.registration.term and life != known.registration.life:
            # A sender without the secret must not keep a registration alive; a restarted process has to register again.
            return HeartbeatAnswer.REGISTER
        if (term, sequence) < known.registration.version:
            raise StaleRegistration(broker, (term, sequence), known.registration.version)
        known.last_message_ms = now_ms
        return HeartbeatAnswer.KNOWN

    def unregister(self, broker: str, term: int, now_ms: int, life: bytes = b"") -> None:
        """Remove a broker permanently; a broker that is not registered is ignored.

        Raises:
            StaleRegistration: a leader of a higher term is known.
            UnconfirmedRegistration: another process registered it.
        """
        known = self._brokers.get(broker)
        if known is None:
            return
        if term < known.registration.term:
            raise StaleRegistration(broker, (term, 0), known.registration.version)
        if life != known.registration.life:
            raise UnconfirmedRegistration(broker, "only the process that registered it may unregister it")
        self._drop(broker, now_ms)

    def scan(self, now_ms: int) -> list[str]:
        """Drop brokers without heartbeats for `SILENCE_MS_MAX`; return their names. Called every `SCAN_INTERVAL_MS`."""
        silent = [name for name, entry in self._brokers.items() if now_ms - entry.last_message_ms >= SILENCE_MS_MAX]
        for name in silent:
            self._drop(name, now_ms)
        for name in [name for name, each in self._pieces.items() if now_ms - each.began_ms >= PIECES_MS_MAX]:
            self._drop_pieces(name)
        for name in [name for name, (_, forget_ms) in self._dropped.items() if now_ms >= forget_ms]:
            del self._dropped[name]
        return silent

    def _drop(self, name: str, now_ms: int) -> None:
        # Bounded: a name is added only for a registered broker, of which there are at most BROKERS_MAX.
        if len(self._dropped) < BROKERS_MAX:
            self._dropped[name] = (self._brokers[name].registration, now_ms + SILENCE_MS_MAX)
        self._remove(name)

    def _remove(self, name: str) -> None:
        entry = self._brokers.pop(name, None)
        self.topics_count -= 0 if entry is None else len(entry.topics)

    # ------------------------------------------------------------------------------------------- for administrators

    def set_writable(self, broker: str, *, is_writable: bool) -> int:
        """Revoke or restore the write permission of all topics of a broker; return the number of writable topics.

        The setting outlasts new registrations and leaders, until it is changed or the broker is dropped.

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
    def brokers_count(self) -> int:
        """The number of registered brokers."""
        return len(self._brokers)

    def routes(self, topic: str) -> list[BrokerRoute]:
        """Return the routes of `topic`, ordered by broker; if it does not exist, of brokers that would create it.

        Source: RocketMQ `MQClientInstance.updateTopicRouteInfoFromNameServer`, where clients look up the brokers that
        would create it.
        """
        found = self._having(topic)
        if not found and is_topic_name(topic) and not is_system_topic(topic):
            return [_to_create(topic, pattern) for pattern in self._having(AUTO_CREATE_TOPIC)]
        return found

    def _having(self, topic: str) -> list[BrokerRoute]:
        return [
            BrokerRoute(entry.registration, _seen(entry, topic))
            for entry in self._brokers.values()
            if topic in entry.topics
        ]

    def topics(self) -> Iterator[str]:
        """Yield the names of all topics, unordered; the topic of several brokers several times."""
        for entry in list(self._brokers.values()):
            yield from (name for name in tuple(entry.topics) if name != AUTO_CREATE_TOPIC)

    def brokers(self, now_ms: int) -> Sequence[KnownBroker]:
        """Return all brokers, in order of their names."""
        return [
            KnownBroker(
                entry.registration,
                now_ms - entry.last_message_ms,
                entry.is_writable,
                len(entry.topics) - (AUTO_CREATE_TOPIC in entry.topics),
            )
            for entry in self._brokers.values()
        ]


def _to_create(topic: str, pattern: BrokerRoute) -> BrokerRoute:
    """Return the route of a topic that would be created with the settings of `AUTO_CREATE_TOPIC`."""
    queues = replace(pattern.queues, topic=topic, permission=pattern.queues.permission & ~PERMISSION_INHERIT)
    return BrokerRoute(pattern.registration, queues)


def _check_newer(known: Registration, found: Registration) -> None:
    # A term has one leader: a second one is an error of its sender, and the first one is kept.
    is_other_leader = found.term == known.term and found.leader_id != known.leader_id
    if _is_older(known, found) or is_other_leader:
        raise StaleRegistration(found.broker, found.version, known.version)


def _is_older(known: Registration, found: Registration) -> bool:
    """Return whether `found` is older than `known`.

    Sequences of different processes are not compared: a standalone broker has no terms, and after its directory was
    restored its sequence begins at a lower number.
    """
    is_older = found.version < known.version
    return is_older if found.life == known.life else found.term < known.term


def _seen(entry: _Entry, topic: str) -> TopicQueues:
    queues = entry.topics[topic]
    return queues if entry.is_writable else replace(queues, permission=queues.permission & ~PERMISSION_WRITE)
