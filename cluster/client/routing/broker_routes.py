"""Routes from the brokers themselves, for clients that are configured with brokers instead of name servers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import grpc.aio

from cluster.client.routing.finder import LookedUp, RouteFinder, none_answers
from cluster.protocol.errors import RequestFailed
from cluster.protocol.wire.answers import check_answer, failure_of_call
from cluster.protocol.wire.routes import routes_of
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from cluster.v1.nameserver_pb2 import RouteRequest, RouteResponse
from dledger.client.reaching import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.protocol.route_table import BrokerRoute

_CALL_TIMEOUT_S = 3.0


class BrokerRouteFinder(RouteFinder):
    """Asks all given nodes, because each knows only its own broker; the leader's answer decides for its broker."""

    async def _look_up(self, topics: Sequence[str]) -> LookedUp:
        """Ask all nodes.

        Raises:
            RequestFailed: see `none_answers`.
        """
        answers, failures = await self._ask_all(topics)
        if not answers:
            raise none_answers("broker", failures)
        deciding = _deciding_answers(answers)
        # A topic that the leader of a broker does not know does not exist there; another node may not know it yet.
        unconfirmed = frozenset(broker for broker, answer in deciding.items() if answer.may_lack_topics)
        found: dict[str, dict[str, BrokerRoute]] = {topic: {} for topic in topics}
        for topic, by_broker in found.items():
            for route in self.cache.get(topic) or ():
                broker = route.registration.broker
                # The topic may still exist if no node of the broker answers, or none that must know its topics.
                if broker in unconfirmed or (failures and broker not in deciding):
                    by_broker[broker] = route
        for answer in deciding.values():
            for topic, routes in routes_of(answer).items():
                found.setdefault(topic, {}).update((route.registration.broker, route) for route in routes)
        merged = {topic: tuple(by_broker[name] for name in sorted(by_broker)) for topic, by_broker in found.items()}
        return LookedUp(merged, may_lack_topics=bool(unconfirmed), unconfirmed=unconfirmed)

    async def _ask_all(self, topics: Sequence[str]) -> tuple[list[RouteResponse], list[RequestFailed]]:
        """Ask all nodes; return the answers and the failures.

        The wait for a node is short once another node of its broker has answered.
        """
        answers: list[RouteResponse] = []
        failures: list[RequestFailed] = []
        asked = {asyncio.ensure_future(self._ask(address, topics)): address for address in self._addresses}
        waiting, late_from_s = set(asked), time.monotonic() + PATIENCE_S
        try:
            while waiting:
                patience_s = late_from_s - time.monotonic()
                done, waiting = await asyncio.wait(
                    waiting, timeout=patience_s if patience_s > 0 else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    try:
                        answers.append(task.result())
                    except RequestFailed as failure:
                        failures.append(failure)
                is_long = time.monotonic() >= late_from_s
                if is_long and {asked[task] for task in waiting} <= _nodes_named_by(answers):
                    break
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return answers, failures

    async def _ask(self, address: str, topics: Sequence[str]) -> RouteResponse:
        stub = BrokerServiceStub(self._channel(address))
        try:
            response = await stub.Route(RouteRequest(topics=topics), timeout=_CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise failure_of_call(address, error.code(), error.details() or "", "BrokerService") from error
        check_answer(response.answer, address)
        return response


def _nodes_named_by(answers: Iterable[RouteResponse]) -> set[str]:
    """Return the addresses of all nodes of the brokers that answered with a route of a topic."""
    brokers = (broker for answer in answers for route in answer.routes for broker in route.brokers)
    return {node.address for broker in brokers for node in broker.nodes}


def _deciding_answers(answers: Iterable[RouteResponse]) -> dict[str, RouteResponse]:
    """Return the deciding answer of each broker: its leader's, or else the one of the highest term."""
    deciding: dict[str, RouteResponse] = {}
    for answer in answers:
        known = deciding.get(answer.broker)
        if known is None or _rank(known) <= _rank(answer):
            deciding[answer.broker] = answer
    return deciding


def _rank(answer: RouteResponse) -> tuple[bool, int]:
    return not answer.may_lack_topics, answer.term
