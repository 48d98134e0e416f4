"""Requests routes from name servers and refreshes the cache.

One answer is enough if it has all requested topics. Each client asks name servers in its own random order, which
spreads the load; one that fails or does not connect soon moves to the end of that order. A topic that one name server
does not know is requested from the others, and counts as unknown only if at least one that answers has run long enough
to know.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import grpc
import grpc.aio

from cluster.client.routing.cache import RouteCache, Routes
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import check_answer, failure_of_call
from cluster.protocol.wire.routes import routes_of
from cluster.v1 import nameserver_pb2
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from dledger.client.endpoints import parse_endpoints
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.client.reaching import next_to_ask_soon
from dledger.security.channels import open_aio_channel
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dledger.security.settings import Security

_CALL_TIMEOUT_S: Final = 3.0
_CHECK_INTERVAL_S: Final = 1.0
_TOPICS_PER_CALL: Final = 500

logger = logging.getLogger(__name__)


class LookedUp(NamedTuple):
    """The combined answer of the nodes that were asked.

    Attributes:
        routes: by topic; topics that no broker has are omitted.
        may_lack_topics: an omitted topic may exist nevertheless.
        unconfirmed: the brokers whose routes no leader reported.
    """

    routes: Mapping[str, Routes]
    may_lack_topics: bool
    unconfirmed: Collection[str] = ()


class RouteFinder:
    """Routes of topics, from name servers; `async with` starts and stops it.

    Args:
        endpoints: `host:port` of all name servers, comma separated or as an iterable.
        order: random source for the order in which they are asked.
        security: of the connections.

    Raises:
        ValueError: an endpoint is not `host:port`.
    """

    def __init__(
        self, endpoints: str | Iterable[str], order: random.Random | None = None, *, security: Security = PLAIN
    ) -> None:
        self._security = security
        self._addresses = list(parse_endpoints(endpoints))
        (order or random.Random()).shuffle(self._addresses)
        self.cache = RouteCache()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False

    async def __aenter__(self) -> Self:
        """Start refreshing the cache in the background."""
        self._task = asyncio.create_task(self._keep_fresh())
        return self

    async def __aexit__(self, *_error: object) -> None:
        """End."""
        if self._task is not None:
            await end_tasks([self._task])
        for channel in self._channels.values():
            await channel.close()

    async def find(self, topic: str) -> Routes:
        """Return the routes of a topic: the known ones, or else those that a name server returns now.

        Raises:
            RequestFailed: UNKNOWN_TOPIC: no broker has it; ROUTES_INCOMPLETE: no answering node knows all topics yet;
                or no name server answers.
        """
        routes = self.cache.get(topic)
        if routes:
            return routes
        looked = await self._look_up([topic])
        self.cache.update([topic], looked.routes, _now_ms(), looked.unconfirmed)
        routes = self.cache.get(topic)
        if routes:
            return routes
        if looked.may_lack_topics:
            text = f"no node knows topic {topic!r} yet, but every node that answers has just started, or has no leader"
            raise RequestFailed(Reason.ROUTES_INCOMPLETE, f"{text}; if this persists: create it, or correct its name")
        raise RequestFailed(Reason.UNKNOWN_TOPIC, f"no broker has topic {topic!r}: create it, or correct its name")

    async def refresh(self, topics: Sequence[str]) -> set[str]:
        """Request routes now; return the topics whose routes changed.

        Raises:
            RequestFailed: no name server answers; the cache is unchanged.
        """
        looked = await self._look_up(topics)
        return self.cache.update(topics, looked.routes, _now_ms(), looked.unconfirmed)

    async def _look_up(self, topics: Sequence[str]) -> LookedUp:
        """Ask name servers one after another until every topic is found.

        Raises:
            RequestFailed: see `none_answers`.
        """
        failures: list[RequestFailed] = []
        routes: dict[str, Routes] = {}
        missing, answers_count, may_lack_topics = topics, 0, True
        waiting = list(self._addresses)
        while waiting:
            first, address = waiting[0], await self._next(waiting)
            waiting.remove(address)
            if address != first:
                self._ask_last(first)
            try:
                response = await self._ask(address, missing)
            except RequestFailed as failure:
                failures.append(failure)
                self._ask_last(address)
                continue
            answers_count += 1
            may_lack_topics = may_lack_topics and response.may_lack_topics
            routes |= routes_of(response)
            missing = [topic for topic in missing if not (routes.get(topic) or self.cache.get(topic))]
            if not missing:
                break
        if not answers_count:
            raise none_answers("name server", failures)
        return LookedUp(routes, may_lack_topics)

    async def _next(self, waiting: Sequence[str]) -> str:
        channels = {self._channel(address): address for address in waiting}
        return channels[await next_to_ask_soon([*channels])]

    def _ask_last(self, address: str) -> None:
        """Move an address to the end of the order."""
        self._addresses.remove(address)
        self._addresses.append(address)

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = open_aio_channel(address, self._security, CHANNEL_OPTIONS)
        return self._channels[address]

    async def _ask(self, address: str, topics: Sequence[str]) -> nameserver_pb2.RouteResponse:
        stub = NameServerStub(self._channel(address))
        try:
            response = await stub.Route(nameserver_pb2.RouteRequest(topics=topics), timeout=_CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise failure_of_call(address, error.code(), error.details() or "", "NameServer") from error
        check_answer(response.answer, address)
        return response

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            due = self.cache.due(_now_ms())
            try:
                for begin in range(0, len(due), _TOPICS_PER_CALL):
                    await self.refresh(due[begin : begin + _TOPICS_PER_CALL])
            except RequestFailed as failure:
                if not self._is_failing:
                    logger.warning("name_servers_failed: %s; continuing with the known routes", failure.message)
                self._is_failing = True
            else:
                self._is_failing = self._is_failing and not due


def none_answers(what: str, failures: Sequence[RequestFailed]) -> RequestFailed:
    """Return the failure of a search that no node answers: NOT_REACHED, or that one of them refuses this user.

    A refused user is not worth another attempt: other credentials are needed.
    """
    reasons = {each.reason for each in failures}
    refused = [each for each in (Reason.NOT_AUTHENTICATED, Reason.ACCESS_DENIED) if each in reasons]
    text = "; ".join(each.message for each in failures)
    return RequestFailed(refused[0] if refused else Reason.NOT_REACHED, f"no {what} answers: {text}")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
