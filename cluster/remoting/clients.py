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
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.remoting.command import Language, Rejected, RemotingCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cluster.remoting.front import RemotingClient

SILENCE_MS_MAX: Final = 120_000
# Memberships: a client counts once for each of its groups.
MEMBERS_MAX: Final = 50_000
# Subscriptions of all members.
SUBSCRIPTIONS_MAX: Final = 200_000
# Of one group; each change of one member may look at all of them.
GROUP_MEMBERS_MAX: Final = 5_000
GROUP_SUBSCRIPTIONS_MAX: Final = 20_000


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
        subscribed: number of subscriptions of all members.
    """

    data: ConsumerData
    members: dict[str, RegisteredMember] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    subscribed: int = 0


@dataclass(frozen=True, slots=True)
class Beat:
    """The effect of a heartbeat.

    Attributes:
        changed_groups: consumer groups of which the members, or the subscribed topics, have changed.
        is_full_wanted: the table lacks the subscriptions that a heartbeat without them means.
    """

    changed_groups: tuple[str, ...]
    is_full_wanted: bool


class _Place(NamedTuple):
    """Where a member is: in a group of producers, or of consumers."""

    is_consumer: bool
    group: str
    client_id: str


class ClientTable:
    """All registered clients of this node."""

    def __init__(self) -> None:
        # A group without members has no item, in both.
        self._producers: dict[str, dict[str, RegisteredMember]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        # The newest connection of each client, and the number of its memberships.
        self._connections: dict[str, RemotingClient] = {}
        # The members of each connection, so that its end costs nothing for all others.
        self._places: dict[RemotingClient, set[_Place]] = {}
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
            self._count(_Place(is_consumer=False, group=group, client_id=client_id), connection, members.get(client_id))
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

    def unregister(
        self, client_id: str, connection: RemotingClient, *, producer_group: str = "", consumer_group: str = ""
    ) -> list[str]:
        """Remove a client from a group of producers, and from one of consumers; return the changed consumer groups.

        A client can be removed by its newest connection only, as in RocketMQ: ids of clients are no secrets.
        """
        named = (
            _Place(is_consumer=False, group=producer_group, client_id=client_id),
            _Place(is_consumer=True, group=consumer_group, client_id=client_id),
        )
        return self._remove(place for place in named if place in self._places.get(connection, ()))

    def closed(self, connection: RemotingClient) -> list[str]:
        """Remove the clients of a closed connection that have no newer one; return the changed consumer groups."""
        return self._remove(sorted(self._places.get(connection, ())))

    def expire(self, now_ms: int) -> list[str]:
        """Remove the clients without a heartbeat for 120 s; return the changed consumer groups."""
        return self._remove(
            place
            for places in list(self._places.values())
            for place in list(places)
            if now_ms - self._at(place).last_ms >= SILENCE_MS_MAX
        )

    def _at(self, place: _Place) -> RegisteredMember:
        is_consumer, group, client_id = place
        return (self._consumers[group].members if is_consumer else self._producers[group])[client_id]

    def _remove(self, places: Iterable[_Place]) -> list[str]:
        """Remove members; return the changed consumer groups, in order."""
        gone: dict[str, list[RegisteredMember]] = {}
        for place in places:
            member = self._at(place)
            self._uncount(place, member.connection)
            if place.is_consumer:
                gone.setdefault(place.group, []).append(self._consumers[place.group].members.pop(place.client_id))
                continue
            del self._producers[place.group][place.client_id]
            if not self._producers[place.group]:
                del self._producers[place.group]
        for name, members in gone.items():
            self._forget(name, members)
        return sorted(gone)

    def _forget(self, name: str, gone: Sequence[RegisteredMember]) -> None:
        """Drop the subscriptions of members that have left a consumer group."""
        group = self._consumers[name]
        lost = sum(map(_subscribed, gone))
        self._subscriptions -= lost
        group.subscribed -= lost
        if not group.members:
            del self._consumers[name]
        elif any(_counts(each, group) for member in gone for each in _subscriptions_of(member)):
            _merge(group)

    def _member(self, group: str, client_id: str) -> RegisteredMember | None:
        kept = self._consumers.get(group)
        return None if kept is None else kept.members.get(client_id)

    def _register(self, member: RegisteredMember, data: ConsumerData) -> bool:
        """Register a consumer; return whether the members, or the topics, of its group have changed."""
        kept = self._consumers.get(data.group)
        if kept is None:
            kept = self._consumers[data.group] = ConsumerGroup(data)
        known = kept.members.get(member.client_id)
        self._count(_Place(is_consumer=True, group=data.group, client_id=member.client_id), member.connection, known)
        kept.members[member.client_id] = member
        kept.data = data
        if known is not None and known.data == data:
            # The same objects, by which the subscriptions of a group are found.
            member.data = known.data
            return False
        added = len(data.subscriptions) - _subscribed(known)
        self._subscriptions += added
        kept.subscribed += added
        return _change(kept, known, data) or known is None

    def _count(self, place: _Place, connection: RemotingClient, known: RegisteredMember | None) -> None:
        """Note that a member is new, or has another connection."""
        if known is None:
            self._memberships[place.client_id] = self._memberships.get(place.client_id, 0) + 1
            self._count_all += 1
        elif known.connection is not connection:
            self._leave(place, known.connection)
        self._places.setdefault(connection, set()).add(place)

    def _uncount(self, place: _Place, connection: RemotingClient) -> None:
        self._leave(place, connection)
        client_id = place.client_id
        self._memberships[client_id] -= 1
        self._count_all -= 1
        if not self._memberships[client_id]:
            del self._memberships[client_id]
            self._connections.pop(client_id, None)

    def _leave(self, place: _Place, connection: RemotingClient) -> None:
        places = self._places[connection]
        places.discard(place)
        if not places:
            del self._places[connection]

    def _check_space(self, heartbeat: ClientHeartbeat) -> None:
        """Raise if a heartbeat would need more space than there is."""
        client_id = heartbeat.client_id
        new = sum(client_id not in self._producers.get(group, {}) for group in heartbeat.producers)
        subscribed = 0
        for data in heartbeat.consumers:
            known = self._member(data.group, client_id)
            new += known is None
            added = max(len(data.subscriptions) - _subscribed(known), 0)
            subscribed += added
            _check_group(self._consumers.get(data.group), data.group, added, is_new=known is None)
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


def _check_group(group: ConsumerGroup | None, name: str, added: int, *, is_new: bool) -> None:
    """Raise if a consumer group would have too many members or subscriptions."""
    members, subscribed = (0, 0) if group is None else (len(group.members), group.subscribed)
    if members + is_new > GROUP_MEMBERS_MAX or subscribed + added > GROUP_SUBSCRIPTIONS_MAX:
        text = f"group {name!r} has {members} members with {subscribed} subscriptions here, near its limit"
        raise Rejected(RemotingCode.FLOW_CONTROL, text)


def _change(group: ConsumerGroup, known: RegisteredMember | None, data: ConsumerData) -> bool:
    """Set the subscriptions of a group after a member has changed its own; return whether its topics have changed."""
    for each in () if known is None else _subscriptions_of(known):
        new = data.subscriptions.get(each.topic)
        if _counts(each, group) and (new is None or new.version < each.version):
            # Another member's may count now.
            return _merge(group)
    is_changed = False
    for topic, each in data.subscriptions.items():
        counted = group.subscriptions.get(topic)
        is_changed = is_changed or counted is None
        if counted is None or each.version > counted.version or counted is _of(known, topic):
            group.subscriptions[topic] = each
    return is_changed


def _merge(group: ConsumerGroup) -> bool:
    """Set the subscriptions of a group to the newest of its members; return whether its topics have changed."""
    newest: dict[str, Subscription] = {}
    for member in group.members.values():
        for each in _subscriptions_of(member):
            known = newest.get(each.topic)
            if known is None or each.version > known.version:
                newest[each.topic] = each
    is_changed = newest.keys() != group.subscriptions.keys()
    group.subscriptions = newest
    return is_changed


def _subscriptions_of(member: RegisteredMember) -> Iterable[Subscription]:
    return () if member.data is None else member.data.subscriptions.values()


def _of(member: RegisteredMember | None, topic: str) -> Subscription | None:
    return None if member is None or member.data is None else member.data.subscriptions.get(topic)


def _counts(subscription: Subscription, group: ConsumerGroup) -> bool:
    """Return whether a subscription of a member is the one of its group."""
    return group.subscriptions.get(subscription.topic) is subscription
