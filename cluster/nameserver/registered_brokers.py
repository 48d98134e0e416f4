"""The brokers of a name server, their topics and leaders. Pure: no clock, no I/O.

The leader of a broker registers it; registrations are ordered by (term, sequence), so that what a deposed leader sends
late, or what was overtaken on the way, never replaces what is newer. A broker that is silent for `SILENCE_MS_MAX` is
dropped; its term is remembered for as long again, so that a leader that was frozen during that time cannot return with
it.

A registration with many topics comes in pieces, and counts when the last one is there; a change of topics comes as a
difference. No call does more work than one request brings: iterating over the topics of all brokers, of which
there are up to `TOPICS_MAX`, is done by the caller, step by step.

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


class Taken(Enum):
    """What became of a registration."""

    CHANGED = "changed"
    # It says nothing that was not known.
    UNCHANGED = "unchanged"
    # It is kept until the last piece is there.
    PIECE = "piece"
    # What it adds to is not known.
    WANTS_ALL = "wants_all"


class HeartbeatAnswer(Enum):
    """What a name server says to a heartbeat."""

    KNOWN = "known"
    # It holds no such registration, or an older one.
    REGISTER = "register"


@dataclass(slots=True)
class _Entry:
    """A broker: its registration without topics, and its topics."""

    registration: Registration
    topics: dict[str, TopicQueues]
    last_message_ms: int
    is_writable: bool = True


@dataclass(slots=True)
class _Pieces:
    """A registration of which more pieces come."""

    registration: Registration
    began_ms: int
    next_piece: int = 0
    topics: dict[str, TopicQueues] = field(default_factory=dict)


class RouteTable:
    """All registrations of one name server.

    Attributes:
        topics_count: topics that are kept, of all brokers, also of registrations whose last piece is to come.
    """

    def __init__(self) -> None:
        # In order of their names.
        self._brokers: dict[str, _Entry] = {}
        # By broker.
        self._pieces: dict[str, _Pieces] = {}
        self.topics_count = 0
        # Of brokers that were dropped: the last registration, and when to forget it.
        self._dropped: dict[str, tuple[Registration, int]] = {}

    # ------------------------------------------------------------------------------------------------ from brokers

    def register(self, registration: Registration, now_ms: int, extent: Extent = ALL) -> Taken:
        """Take a registration, a difference to the one before, or a piece of one; return what became of it.

        Raises:
            StaleRegistration: a later one is known, or another leader in the same term.
            IllegalRegistration, store.errors.IllegalMessage, TooManyBrokers, TooManyTopics: see their messages.
        """
        registration.check()
        name = registration.broker
        known = self._brokers.get(name)
        if known is None:
            dropped, _ = self._dropped.get(name, (None, 0))
            # The very version that was dropped may come back: its leader was only slow.
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

    def _change(self, head: Registration, topics: Mapping[str, TopicQueues], extent: Extent, now_ms: int) -> Taken:
        """Take what has changed since the registration that is known."""
        known = self._brokers.get(head.broker)
        if known is None or known.registration.version != (head.term, extent.since_sequence):
            return Taken.WANTS_ALL
        if known.registration.life != head.life:
            return Taken.WANTS_ALL
        new_count = len(topics.keys() - known.topics.keys())
        self._check_room(len(known.topics) + new_count, new_count)
        before = len(known.topics)
        known.topics.update(topics)
        for name in extent.deleted:
            known.topics.pop(name, None)
        self.topics_count += len(known.topics) - before
        known.registration, known.last_message_ms = head, now_ms
        return Taken.CHANGED

    def _take_piece(self, head: Registration, topics: Mapping[str, TopicQueues], extent: Extent, now_ms: int) -> Taken:
        """Keep a piece until the last one is there."""
        if extent.piece == 0:
            self._drop_pieces(head.broker)
            self._pieces[head.broker] = _Pieces(head, now_ms)
        pieces = self._pieces.get(head.broker)
        if pieces is None or pieces.registration != head or pieces.next_piece != extent.piece:
            self._drop_pieces(head.broker)
            return Taken.WANTS_ALL
        new_count = len(topics.keys() - pieces.topics.keys())
        try:
            self._check_room(len(pieces.topics) + new_count, new_count)
        except (IllegalRegistration, TooManyTopics):
            self._drop_pieces(head.broker)
            raise
        pieces.topics.update(topics)
        pieces.next_piece += 1
        self.topics_count += new_count
        if extent.has_more:
            return Taken.PIECE
        self.topics_count -= len(pieces.topics)
        del self._pieces[head.broker]
        return self._put(head, pieces.topics, now_ms)

    def _drop_pieces(self, name: str) -> None:
        pieces = self._pieces.pop(name, None)
        self.topics_count -= 0 if pieces is None else len(pieces.topics)

    def _put(self, head: Registration, topics: dict[str, TopicQueues], now_ms: int) -> Taken:
        """Put all topics of a broker in place of those that are known."""
        known = self._brokers.get(head.broker)
        if known is not None and known.registration == head and known.topics == topics:
            known.last_message_ms = now_ms
            return Taken.UNCHANGED
        before = 0 if known is None else len(known.topics)
        self._check_room(len(topics), len(topics) - before)
        self.topics_count += len(topics) - before
        self._dropped.pop(head.broker, None)
        self._brokers[head.broker] = _Entry(head, topics, now_ms, known is None or known.is_writable)
        if known is None:
            self._brokers = dict(sorted(self._brokers.items()))
        return Taken.CHANGED

    def _check_room(self, count: int, new_count: int) -> None:
        """Raise unless a broker may have this many topics, this many of them new.

        Raises:
            IllegalRegistration, TooManyTopics: see their messages.
        """
        if count > TOPICS_PER_BROKER_MAX:
            raise IllegalRegistration("topics", f"at most {TOPICS_PER_BROKER_MAX}", str(count))
        if new_count > 0 and self.topics_count + new_count > TOPICS_MAX:
            raise TooManyTopics

    def doubted(self, registration: Registration, now_ms: int) -> Registration | None:
        """Return the known registration whose nodes must confirm this one; None: it may be registered.

        The process that registered last is believed. Another process has to be confirmed, or any sender could
        take a broker's place with a high term, until the known registration expires.

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
        """Record a heartbeat of the leader whose last registration was this one.

        Raises:
            StaleRegistration: a later registration is known.
        """
        known = self._brokers.get(broker)
        if known is None or (term, sequence) > known.registration.version:
            return HeartbeatAnswer.REGISTER
        if term == known.registration.term and life != known.registration.life:
            # A sender without the secret keeps no registration alive, and a process that began again registers again.
            return HeartbeatAnswer.REGISTER
        if (term, sequence) < known.registration.version:
            raise StaleRegistration(broker, (term, sequence), known.registration.version)
        known.last_message_ms = now_ms
        return HeartbeatAnswer.KNOWN

    def unregister(self, broker: str, term: int, now_ms: int, life: bytes = b"") -> None:
        """Drop a broker that ends for good; nothing happens when it is not there.

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
            raise UnconfirmedRegistration(broker, "only the process that registered it may remove it")
        self._drop(broker, now_ms)

    def scan(self, now_ms: int) -> list[str]:
        """Drop brokers that were silent for `SILENCE_MS_MAX`; return their names. Call it every `SCAN_INTERVAL_MS`."""
        silent = [name for name, entry in self._brokers.items() if now_ms - entry.last_message_ms >= SILENCE_MS_MAX]
        for name in silent:
            self._drop(name, now_ms)
        for name in [name for name, each in self._pieces.items() if now_ms - each.began_ms >= PIECES_MS_MAX]:
            self._drop_pieces(name)
        for name in [name for name, (_, forget_ms) in self._dropped.items() if now_ms >= forget_ms]:
            del self._dropped[name]
        return silent

    def _drop(self, name: str, now_ms: int) -> None:
        # Bounded: names are added only with a broker, of which there are BROKERS_MAX at a time.
        if len(self._dropped) < BROKERS_MAX:
            self._dropped[name] = (self._brokers[name].registration, now_ms + SILENCE_MS_MAX)
        self._remove(name)

    def _remove(self, name: str) -> None:
        entry = self._brokers.pop(name, None)
        self.topics_count -= 0 if entry is None else len(entry.topics)

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
        """Yield the names of all topics, in no order; a topic of several brokers several times."""
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
    """Return the route to a topic that would be created as `AUTO_CREATE_TOPIC` says."""
    queues = replace(pattern.queues, topic=topic, permission=pattern.queues.permission & ~PERMISSION_INHERIT)
    return BrokerRoute(pattern.registration, queues)


def _check_newer(known: Registration, found: Registration) -> None:
    # In one term there is one leader: a second one is a fault of its sender, and the first one counts.
    is_other_leader = found.term == known.term and found.leader_id != known.leader_id
    if _is_older(known, found) or is_other_leader:
        raise StaleRegistration(found.broker, found.version, known.version)


def _is_older(known: Registration, found: Registration) -> bool:
    """Return whether what was found is overtaken.

    Sequences of two processes are not compared: a broker without a group has no terms, and counts from a lower one
    after its directory was restored.
    """
    is_older = found.version < known.version
    return is_older if found.life == known.life else found.term < known.term


def _seen(entry: _Entry, topic: str) -> TopicQueues:
    queues = entry.topics[topic]
    return queues if entry.is_writable else replace(queues, permission=queues.permission & ~PERMISSION_WRITE)
