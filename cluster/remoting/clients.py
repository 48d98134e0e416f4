"""The clients that are registered at this node by their heartbeats: producers and consumers, by their groups. Pure.

A client sends heartbeats each 30 s to all nodes, so each node has its own table of all clients. A client is known by
its id, not by its connection: after it has connected again, its newest connection counts. It is removed when that
connection is closed, or after 120 s without a heartbeat.

Each member keeps its own subscriptions, and of a group counts for each topic the newest one of its members. So members
with different subscriptions do not replace one another's with each heartbeat (a difference to RocketMQ).

Times are milliseconds of a monotonic clock. Source: RocketMQ `ConsumerManager`, `ConsumerGroupInfo`,
`ProducerManager`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.remoting.command import Language, Rejected, RemotingCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cluster.remoting.front import RemotingClient

SILENCE_MS_MAX: Final = 120_000
# Memberships: a client counts once for each of its groups.
MEMBERS_MAX: Final = 50_000
# Subscriptions of all members.
SUBSCRIPTIONS_MAX: Final = 200_000


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer wants of a topic.

    Attributes:
        topic: its name.
        expression: tags, as `*` or `A || B`; or an SQL92 expression.
        is_sql: whether it is an SQL92 expression.
        version: grows with each change at the client; milliseconds since 1970, or 0.
    """

    topic: str
    expression: str = "*"
    is_sql: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """What a heartbeat says about a consumer group of the client.

    Attributes:
        group: its name.
        consume_type: CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull).
        message_model: CLUSTERING or BROADCASTING.
        consume_from_where: where a new group begins, by RocketMQ's names.
        subscriptions: by topic.
    """

    group: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets all messages."""
        return self.message_model == "BROADCASTING"


@dataclass(frozen=True, slots=True)
class ClientHeartbeat:
    """A heartbeat.

    Attributes:
        client_id: of the client.
        producers: names of its producer groups.
        consumers: its consumer groups.
        fingerprint: of the subscriptions; 0: the client sends the subscriptions with each heartbeat.
        is_without_subscriptions: the subscriptions are those of an earlier heartbeat.
    """

    client_id: str
    producers: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    fingerprint: int = 0
    is_without_subscriptions: bool = False


@dataclass(slots=True)
class RegisteredMember:
    """A client in a group.

    Attributes:
        client_id: of the client.
        connection: its newest one.
        language, version: of the client.
        last_ms: when its last heartbeat came.
        data: of a consumer: its last subscriptions.
        fingerprint: of these.
    """

    client_id: str
    connection: RemotingClient
    language: Language
    version: int
    last_ms: int
    data: ConsumerData | None = None
    fingerprint: int = 0


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group with at least one member.

    Attributes:
        data: of the heartbeat that came last; its subscriptions are those of one member only.
        members: by client id.
        subscriptions: the newest of all members, by topic.
    """

    data: ConsumerData
    members: dict[str, RegisteredMember] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Beat:
    """The effect of a heartbeat.

    Attributes:
        changed_groups: consumer groups of which the members, or the subscribed topics, have changed.
        is_full_wanted: the table lacks the subscriptions that a heartbeat without them means.
    """

    changed_groups: tuple[str, ...]
    is_full_wanted: bool


class ClientTable:
    """All registered clients of this node."""

    def __init__(self) -> None:
        # A group without members has no item, in both.
        self._producers: dict[str, dict[str, RegisteredMember]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        # The newest connection of each client, and the number of its memberships.
        self._connections: dict[str, RemotingClient] = {}
        self._memberships: dict[str, int] = {}
        self._count_all = 0
        self._subscriptions = 0

    def __len__(self) -> int:
        """Return the number of memberships."""
        return self._count_all

    def client(self, client_id: str) -> RemotingClient | None:
        """Return the newest connection of a client; None: it is not registered."""
        return self._connections.get(client_id)

    def producers_of(self, group: str) -> list[RegisteredMember]:
        """Return the producers of a group, in order of their ids."""
        return _in_order(self._producers.get(group, {}))

    def consumers_of(self, group: str) -> ConsumerGroup | None:
        """Return a consumer group; None: it has no member."""
        return self._consumers.get(group)

    def producer_groups(self) -> list[str]:
        """Return the names of all producer groups with members, in order."""
        return sorted(self._producers)

    def consumer_groups(self) -> list[str]:
        """Return the names of all consumer groups with members, in order."""
        return sorted(self._consumers)

    def beat(
        self, heartbeat: ClientHeartbeat, connection: RemotingClient, language: Language, version: int, now_ms: int
    ) -> Beat:
        """Register a client, or keep it registered.

        Raises:
            Rejected: FLOW_CONTROL: there are too many clients or subscriptions; nothing was changed.
        """
        self._check_space(heartbeat)
        client_id = heartbeat.client_id
        member = RegisteredMember(client_id, connection, language, version, now_ms, fingerprint=heartbeat.fingerprint)
        for group in heartbeat.producers:
            members = self._producers.setdefault(group, {})
            self._count(client_id, is_new=client_id not in members)
            members[client_id] = member
        changed, is_full_wanted = [], False
        for sent in heartbeat.consumers:
            kept = self._member(sent.group, client_id)
            data, fingerprint = sent, heartbeat.fingerprint
            if heartbeat.is_without_subscriptions:
                is_full_wanted = is_full_wanted or kept is None or kept.fingerprint != fingerprint
                data = sent if kept is None or kept.data is None else kept.data
                # That of the subscriptions that the table has.
                fingerprint = 0 if kept is None else kept.fingerprint
            consumer = RegisteredMember(client_id, connection, language, version, now_ms, data, fingerprint)
            if self._register(consumer, data):
                changed.append(data.group)
        if client_id in self._memberships:
            self._connections[client_id] = connection
        return Beat(tuple(changed), is_full_wanted)

    def unregister(self, client_id: str, *, producer_group: str = "", consumer_group: str = "") -> list[str]:
        """Remove a client from a group of producers, and from one of consumers; return the changed consumer groups."""
        if client_id in self._producers.get(producer_group, {}):
            self._remove_producer(producer_group, client_id)
        if self._member(consumer_group, client_id) is None:
            return []
        self._remove_consumer(consumer_group, client_id)
        return [consumer_group]

    def closed(self, connection: RemotingClient) -> list[str]:
        """Remove the clients of a closed connection that have no newer one; return the changed consumer groups."""
        return self._remove_where(lambda member: member.connection is connection)

    def expire(self, now_ms: int) -> list[str]:
        """Remove the clients without a heartbeat for 120 s; return the changed consumer groups."""
        return self._remove_where(lambda member: now_ms - member.last_ms >= SILENCE_MS_MAX)

    def _remove_where(self, is_gone: Callable[[RegisteredMember], bool]) -> list[str]:
        for group, members in list(self._producers.items()):
            for member in [each for each in members.values() if is_gone(each)]:
                self._remove_producer(group, member.client_id)
        changed = []
        for group, kept in list(self._consumers.items()):
            gone = [each for each in kept.members.values() if is_gone(each)]
            for member in gone:
                self._remove_consumer(group, member.client_id)
            if gone:
                changed.append(group)
        return changed

    def _member(self, group: str, client_id: str) -> RegisteredMember | None:
        kept = self._consumers.get(group)
        return None if kept is None else kept.members.get(client_id)

    def _register(self, member: RegisteredMember, data: ConsumerData) -> bool:
        """Register a consumer; return whether the members, or the topics, of its group have changed."""
        kept = self._consumers.get(data.group)
        if kept is None:
            kept = self._consumers[data.group] = ConsumerGroup(data)
        known = kept.members.get(member.client_id)
        self._count(member.client_id, is_new=known is None)
        kept.members[member.client_id] = member
        kept.data = data
        if known is not None and known.data == data:
            return False
        self._subscriptions += len(data.subscriptions) - _subscribed(known)
        return _merge(kept) or known is None

    def _remove_producer(self, group: str, client_id: str) -> None:
        members = self._producers[group]
        del members[client_id]
        if not members:
            del self._producers[group]
        self._uncount(client_id)

    def _remove_consumer(self, group: str, client_id: str) -> None:
        kept = self._consumers[group]
        self._subscriptions -= _subscribed(kept.members.pop(client_id))
        _merge(kept)
        if not kept.members:
            del self._consumers[group]
        self._uncount(client_id)

    def _count(self, client_id: str, *, is_new: bool) -> None:
        if is_new:
            self._memberships[client_id] = self._memberships.get(client_id, 0) + 1
            self._count_all += 1

    def _uncount(self, client_id: str) -> None:
        self._memberships[client_id] -= 1
        self._count_all -= 1
        if not self._memberships[client_id]:
            del self._memberships[client_id]
            self._connections.pop(client_id, None)

    def _check_space(self, heartbeat: ClientHeartbeat) -> None:
        """Raise if a heartbeat would need more space than there is."""
        client_id = heartbeat.client_id
        new = sum(client_id not in self._producers.get(group, {}) for group in heartbeat.producers)
        subscribed = 0
        for data in heartbeat.consumers:
            known = self._member(data.group, client_id)
            new += known is None
            subscribed += max(len(data.subscriptions) - _subscribed(known), 0)
        if len(self) + new > MEMBERS_MAX:
            raise Rejected(RemotingCode.FLOW_CONTROL, f"this node has {len(self)} clients in groups, near its limit")
        if self._subscriptions + subscribed > SUBSCRIPTIONS_MAX:
            raise Rejected(
                RemotingCode.FLOW_CONTROL, f"this node has {self._subscriptions} subscriptions, near its limit"
            )


def _in_order(members: Mapping[str, RegisteredMember]) -> list[RegisteredMember]:
    return [members[client_id] for client_id in sorted(members)]


def _subscribed(member: RegisteredMember | None) -> int:
    return 0 if member is None or member.data is None else len(member.data.subscriptions)


def _merge(group: ConsumerGroup) -> bool:
    """Set the subscriptions of a group to the newest of its members; return whether its topics have changed."""
    newest: dict[str, Subscription] = {}
    for each in _all_subscriptions(group.members.values()):
        known = newest.get(each.topic)
        if known is None or each.version > known.version:
            newest[each.topic] = each
    is_changed = newest.keys() != group.subscriptions.keys()
    group.subscriptions = newest
    return is_changed


def _all_subscriptions(members: Iterable[RegisteredMember]) -> Iterable[Subscription]:
    for member in members:
        if member.data is not None:
            yield from member.data.subscriptions.values()
