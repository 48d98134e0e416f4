"""Routes from the brokers themselves, for clients that know brokers and no name server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc.aio

from cluster.client.route_finder import LookedUp, RouteFinder
from cluster.errors import Reason, RequestFailed, check_answer, failure_of_call
from cluster.route_messages import routes_of
from cluster.route_table import BrokerRoute
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from cluster.v1.nameserver_pb2 import RouteRequest, RouteResponse
from dledger.client.failures import CHANNEL_OPTIONS

_CALL_TIMEOUT_S = 3.0


class BrokerRouteFinder(RouteFinder):
    """Asks all given nodes, for each knows its own broker alone; of a broker the answer of the highest term counts."""

    async def _look_up(self, topics: Sequence[str]) -> LookedUp:
        """Ask all nodes.

        Raises:
            RequestFailed: none answers.
        """
        answers = await asyncio.gather(
            *(self._ask(address, topics) for address in self._addresses), return_exceptions=True
        )
        failures = [answer for answer in answers if isinstance(answer, RequestFailed)]
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, RequestFailed):
                raise answer
        if len(failures) == len(answers):
            text = "; ".join(failure.message for failure in failures)
            raise RequestFailed(Reason.NOT_REACHED, f"no broker answers: {text}")
        found: dict[str, dict[str, BrokerRoute]] = {topic: {} for topic in topics}
        if failures:
            # The broker of a node that does not answer still has its queues.
            for topic in topics:
                _merge(found[topic], self.cache.get(topic) or ())
        brokers, serving = set(), set()
        for answer in answers:
            if isinstance(answer, RouteResponse):
                brokers.add(answer.broker)
                if not answer.may_lack_topics:
                    serving.add(answer.broker)
                for topic, routes in routes_of(answer).items():
                    _merge(found.setdefault(topic, {}), routes)
        merged = {topic: tuple(by_broker[name] for name in sorted(by_broker)) for topic, by_broker in found.items()}
        # What the leader of a broker does not know, its broker has not; any other node may have it still to learn.
        return LookedUp(merged, may_lack_topics=brokers != serving)

    async def _ask(self, address: str, topics: Sequence[str]) -> RouteResponse:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        stub = BrokerServiceStub(self._channels[address])
        try:
            response = await stub.Route(RouteRequest(topics=topics), timeout=_CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise failure_of_call(address, error.code(), error.details() or "", "BrokerService") from error
        check_answer(response.answer, address)
        return response


def _merge(by_broker: dict[str, BrokerRoute], routes: Sequence[BrokerRoute]) -> None:
    for route in routes:
        known = by_broker.get(route.registration.broker)
        if known is None or known.registration.term <= route.registration.term:
            by_broker[route.registration.broker] = route
