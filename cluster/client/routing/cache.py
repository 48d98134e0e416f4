"""The route cache of a client: the brokers of each topic, and their leaders. Pure: `finder` asks name servers.

Routes are kept until newer ones arrive: while all name servers are down a client uses the last known ones.
A route has two parts, each with an order of its own:

- the leader, by its term, whatever the route's source: a leader that a broker named is kept although a name server does
not know it yet;
- the queues, by (term, sequence) of the leader that reported them: a name server that missed a change does not undo it
at a client that knows the change.

Queues are trusted only when a leader reported them, directly or through a name server. A report of any other node is
*unconfirmed*: it may be outdated. It is used while nothing else is known, and refreshed soon.

A broker that lost its data and starts empty counts from 0 again: queues of an older version are accepted after nothing
newer was received for `OLD_QUEUES_MS`. No name server keeps outdated routes for that long without a registration of
the broker.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cluster.protocol.route_table import SILENCE_MS_MAX, BrokerRoute

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

REFRESH_INTERVAL_MS: Final = 30_000
UNCONFIRMED_INTERVAL_MS: Final = 3_000
OLD_QUEUES_MS: Final = 2 * SILENCE_MS_MAX
TOPICS_MAX: Final = 10_000

Routes = tuple[BrokerRoute, ...]
# The version of the queues of one topic on one broker: term and sequence of the leader that reported them.
_Version = tuple[int, int]
_UNCONFIRMED_TERM: Final = -1


@dataclass(slots=True)
class _Entry:
    """The cached state of one topic.

    Attributes:
        routes: one for each broker.
        versions: versions of their queues, by broker.
        newest_ms: arrival time of the last answer with no part older than the known one.
        due_ms: time of the next refresh.
    """

    routes: Routes
    versions: Mapping[str, _Version]
    newest_ms: int
    due_ms: int


class RouteCache:
    """Routes by topic; above `TOPICS_MAX` topics, the least recently used ones are evicted.

    Times are milliseconds of a monotonic clock.
    """

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self._topics_max = topics_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def get(self, topic: str) -> Routes | None:
        """Return the routes of a topic; None: not known, ask for them; empty: no broker had it at the last refresh."""
        entry = self._entries.get(topic)
        if entry is None:
            return None
        self._entries.move_to_end(topic)
        return entry.routes

    def topics_of(self, broker: str) -> list[str]:
        """Return the known topics of a broker."""
        return [
            topic
            for topic, entry in self._entries.items()
            if any(route.registration.broker == broker for route in entry.routes)
        ]

    def due(self, now_ms: int) -> list[str]:
        """Return the topics whose routes are due for a refresh."""
        return [name for name, entry in self._entries.items() if now_ms >= entry.due_ms]

    def update(
        self,
        asked: Sequence[str],
        found: Mapping[str, Sequence[BrokerRoute]],
        now_ms: int,
        unconfirmed: Collection[str] = (),
    ) -> set[str]:
        """Merge the answer of a name server; return the topics whose routes changed.

        Args:
            asked: the requested topics.
            found: the routes in the answer; a missing topic has no broker. That is accepted only for a topic without
                known routes: a name server that has just started knows nothing yet.
            now_ms: arrival time of the answer.
            unconfirmed: the brokers whose routes no leader reported.
        """
        changed = set()
        due_ms = now_ms + (UNCONFIRMED_INTERVAL_MS if unconfirmed else REFRESH_INTERVAL_MS)
        for topic in asked:
            known = self._entries.get(topic) or _Entry((), {}, now_ms, now_ms)
            entry = _newest(known, found.get(topic, ()), unconfirmed, now_ms)
            entry.due_ms = due_ms
            if topic not in self._entries or known.routes != entry.routes:
                changed.add(topic)
            self._entries[topic] = entry
            self._entries.move_to_end(topic)
        while len(self._entries) > self._topics_max:
            self._entries.popitem(last=False)
        return changed

    def forget(self, topic: str) -> None:
        """Remove a topic: a broker answered that it does not exist."""
        self._entries.pop(topic, None)


def _newest(known: _Entry, found: Sequence[BrokerRoute], unconfirmed: Collection[str], now_ms: int) -> _Entry:
    """Return, for each broker in the answer, the newer leader and the newer queues of the known and the found ones."""
    if not found:
        return replace(known)
    by_broker = {route.registration.broker: route for route in known.routes}
    is_forgotten = now_ms - known.newest_ms >= OLD_QUEUES_MS
    routes, versions, newest_ms = [], {}, now_ms
    for route in found:
        broker, (term, sequence) = route.registration.broker, route.registration.version
        old, version = by_broker.get(broker), (_UNCONFIRMED_TERM if broker in unconfirmed else term, sequence)
        if old is not None and version < known.versions[broker] and not is_forgotten:
            version, newest_ms = known.versions[broker], known.newest_ms
            route = _with_queues_of(route, old)  # noqa: PLW2901
        routes.append(route if old is None else _with_newest_leader(route, old))
        versions[broker] = version
    return _Entry(tuple(routes), versions, newest_ms, known.due_ms)


def _with_queues_of(route: BrokerRoute, old: BrokerRoute) -> BrokerRoute:
    registration = replace(route.registration, sequence=old.registration.sequence, topics=old.registration.topics)
    return BrokerRoute(registration, old.queues)


def _with_newest_leader(route: BrokerRoute, old: BrokerRoute) -> BrokerRoute:
    """Return a route with the old route's leader, where that has a higher term."""
    if old.registration.term <= route.registration.term:
        return route
    leader = old.registration
    newer = replace(route.registration, term=leader.term, leader_id=leader.leader_id, nodes=leader.nodes)
    return replace(route, registration=newer)
