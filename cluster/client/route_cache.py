"""The routes that a client knows: which brokers have a topic, and who leads them. Pure: who asks name servers is below.

Routes are kept for as long as no newer ones come: when all name servers are down a client goes on with the last ones.
Of two routes that name different leaders of a broker the one of the higher term counts, wherever it came from; so a
leader that a broker itself has named is not forgotten because a name server has not heard of it yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cluster.route_table import BrokerRoute

REFRESH_INTERVAL_MS: Final = 30_000
TOPICS_MAX: Final = 10_000

Routes = tuple[BrokerRoute, ...]


@dataclass(slots=True)
class _Entry:
    routes: Routes
    asked_ms: int


class RouteCache:
    """Routes by topic; of `TOPICS_MAX` topics, the least used ones go first.

    Times are milliseconds of a monotonic clock.
    """

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self._topics_max = topics_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def get(self, topic: str) -> Routes | None:
        """Return the routes of a topic; None: ask for them. An empty tuple: nobody had it when last asked."""
        entry = self._entries.get(topic)
        if entry is None:
            return None
        self._entries.move_to_end(topic)
        return entry.routes

    def topics_of(self, broker: str) -> list[str]:
        """Return the topics that a broker has, as far as is known."""
        return [
            topic
            for topic, entry in self._entries.items()
            if any(route.registration.broker == broker for route in entry.routes)
        ]

    def due(self, now_ms: int) -> list[str]:
        """Return the topics whose routes should be asked for again."""
        return [name for name, entry in self._entries.items() if now_ms - entry.asked_ms >= REFRESH_INTERVAL_MS]

    def update(self, asked: Sequence[str], found: Mapping[str, Sequence[BrokerRoute]], now_ms: int) -> set[str]:
        """Take the answer of a name server; return the topics whose routes are others now.

        Args:
            asked: the topics that were asked for.
            found: what came; a topic that is missing has no broker. That is believed only of a topic that had none
                before: a name server that was just started knows nothing yet.
            now_ms: when it came.
        """
        changed = set()
        for topic in asked:
            known = self._entries.get(topic)
            routes = _newest(() if known is None else known.routes, tuple(found.get(topic, ())))
            if known is None or known.routes != routes:
                changed.add(topic)
            self._entries[topic] = _Entry(routes, now_ms)
            self._entries.move_to_end(topic)
        while len(self._entries) > self._topics_max:
            self._entries.popitem(last=False)
        return changed

    def leader_is(self, broker: str, term: int, leader_id: str) -> None:
        """Take note of what a node said of its broker's leader; an older term than the known one counts nothing."""
        for entry in self._entries.values():
            entry.routes = tuple(
                replace(route, registration=replace(route.registration, term=term, leader_id=leader_id))
                if route.registration.broker == broker and route.registration.term < term
                else route
                for route in entry.routes
            )

    def forget(self, topic: str) -> None:
        """Forget a topic: a broker said that there is no such."""
        self._entries.pop(topic, None)


def _newest(known: Routes, found: Routes) -> Routes:
    """Return the routes of `found`, with the leader of `known` where that is of a higher term."""
    if not found:
        return known
    by_broker = {route.registration.broker: route.registration for route in known}
    newest = []
    for route in found:
        old = by_broker.get(route.registration.broker)
        if old is not None and old.term > route.registration.term:
            newer = replace(route.registration, term=old.term, leader_id=old.leader_id, nodes=old.nodes)
            newest.append(replace(route, registration=newer))
        else:
            newest.append(route)
    return tuple(newest)
