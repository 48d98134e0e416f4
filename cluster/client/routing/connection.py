"""The connection of a producer or consumer to its brokers: the routes, and the nodes in them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from cluster.client.routing.broker_nodes import BrokerNodes
from cluster.client.routing.broker_routes import BrokerRouteFinder
from cluster.client.routing.finder import RouteFinder
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import RequestFailed
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from cluster.client.routing.cache import Routes
    from dledger.security.settings import Security

Endpoints = str | Iterable[str]

# Topics that are looked up when a broker is lost: the route of any of them names its nodes.
_LOOK_TOPICS_MAX = 500
_LOOK_INTERVAL_S = 1.0

logger = logging.getLogger(__name__)


class BrokerConnection:
    """The routes and nodes of one client; `async with` opens and closes it.

    Args:
        endpoints: `host:port` of nodes of all brokers to use; empty when name servers are given.
        name_servers: `host:port` of all name servers; empty when brokers are given.
        security: of all connections.
        may_use_frames: puts are sent by frames to nodes that have a port for them.

    Raises:
        ValueError: both or neither are given, or one is not `host:port`.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        name_servers: Endpoints,
        security: Security = PLAIN,
        *,
        may_use_frames: bool = False,
    ) -> None:
        if bool(endpoints) == bool(name_servers):
            raise ValueError("expected either endpoints (of brokers) or name_servers, not both")
        kind = RouteFinder if name_servers else BrokerRouteFinder
        self.finder = kind(name_servers or endpoints, security=security)
        self.nodes = BrokerNodes(self._lost, security, may_use_frames=may_use_frames)
        self._questions: dict[str, asyncio.Task[Routes]] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        """Start refreshing routes in the background."""
        await self.finder.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close all connections."""
        await end_tasks([*self._questions.values(), *self._looking.values()])
        await self.finder.__aexit__(*error)
        await self.nodes.close()

    def known(self, topic: str) -> Routes:
        """Return the known routes of a topic; empty when none are known."""
        return self.finder.cache.get(topic) or ()

    async def find(self, topic: str) -> Routes:
        """Return the routes of a topic; request them when none are known.

        Raises:
            RequestFailed: UNKNOWN_TOPIC, or no node that knows routes answers.
        """
        routes = self.known(topic)
        if not routes:
            # Concurrent callers share one request.
            question = self._questions.get(topic)
            if question is None:
                question = self._questions[topic] = asyncio.ensure_future(self.finder.find(topic))
                question.add_done_callback(lambda _: self._questions.pop(topic, None))
            routes = await asyncio.shield(question)
        self.nodes.learn(routes)
        return routes

    def _lost(self, broker: str) -> None:
        """Refresh routes, at most once per interval, because none of the known nodes leads the broker."""
        if broker not in self._looking:
            task = self._looking[broker] = asyncio.ensure_future(self._look_for(broker))
            task.add_done_callback(lambda _: self._looking.pop(broker, None))

    async def _look_for(self, broker: str) -> None:
        topics = self.finder.cache.topics_of(broker)[:_LOOK_TOPICS_MAX]
        try:
            await self.finder.refresh(topics)
        except RequestFailed as failure:
            logger.info("broker_not_found broker=%s: %s", broker, failure.message)
        for topic in topics:
            self.nodes.learn(self.known(topic))
        await asyncio.sleep(_LOOK_INTERVAL_S)
