"""The gRPC service `cluster.v1.NameServer`: brokers register, clients look up routes. All state is in memory.

A restarted name server has no registrations; it answers every broker's next heartbeat, at most 30 s later, with
"register again". Until then clients keep their routes, and answers have a flag that topics may be missing.

Not here: the registrations (`cluster.nameserver.registered_brokers`), the sender of registrations
(`cluster.nameserver.registration`), the process (`cluster.server.name_server`).
"""

# ruff: noqa: ARG002, N802  (gRPC prescribes names and arguments of the methods)
from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import grpc.aio

from cluster.api.gates.callers import names_of_certificate
from cluster.api.name_servers.links import ask_leader
from cluster.api.name_servers.metrics import NameServerGauges, NameServerMetrics
from cluster.nameserver.registered_brokers import HeartbeatAnswer, RegisterResult, RouteTable
from cluster.nameserver.registration import HEARTBEAT_INTERVAL_S
from cluster.nameserver.registration_checks import RegistrationChecker
from cluster.process.cooperative import run_cooperatively
from cluster.protocol.request_bounds import NAME_SERVER_BOUNDS
from cluster.protocol.route_table import (
    BrokerRoute,
    Registration,
    StaleRegistration,
    UnconfirmedRegistration,
)
from cluster.protocol.wire.answers import answer_of
from cluster.protocol.wire.routes import extent_of, registered_broker, registration_of, route_response
from cluster.v1 import answer_pb2, nameserver_pb2, nameserver_pb2_grpc
from dledger.errors import DLedgerError
from dledger.service.grpc_server import Served
from dledger.service.guarded_method import Guard
from store.errors import IllegalRequest, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from google.protobuf.message import Message

    from cluster.nameserver.ports import AskLeader
    from store.steps import Steps

Context = grpc.aio.ServicerContext[Any, Any]

# Within this time every broker has registered with a restarted name server: one heartbeat, and one retry.
YOUNG_MS = int(HEARTBEAT_INTERVAL_S * 1000) + 5_000
# Topics in one answer of ListTopics: at most 2.5 MiB.
TOPICS_PER_PAGE = 10_000
_NAMES_PER_STEP = 10_000
# Maximum nodes in the routes of one answer, unless one topic alone has more: some 3 MiB.
_ROUTE_NODES_MAX = 30_000

logger = logging.getLogger(__name__)


class _Response(Protocol):
    @property
    def answer(self) -> answer_pb2.Answer: ...


class NameServer(nameserver_pb2_grpc.NameServerServicer):
    """The servicer; gRPC prescribes the names of its methods.

    Args:
        clock_ms: a monotonic clock.
        ask: asks a node of a broker whether it leads.
        metrics: of the process; None: they are not shown anywhere.
    """

    def __init__(
        self,
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
        ask: AskLeader = ask_leader,
        metrics: NameServerMetrics | None = None,
    ) -> None:
        self._table = RouteTable()
        self._metrics = NameServerMetrics() if metrics is None else metrics
        self._metrics.gauges = lambda: NameServerGauges(self._table.brokers_count, self._table.topics_count)
        self._registration_checker = RegistrationChecker(ask)
        self._clock_ms = clock_ms
        self._begin_ms = clock_ms()

    def served(self) -> Served:
        """Return the registration of this service at a server."""
        descriptor = nameserver_pb2.DESCRIPTOR.services_by_name["NameServer"]
        guard = Guard(NAME_SERVER_BOUNDS, self._refuse)
        return Served(nameserver_pb2_grpc.add_NameServerServicer_to_server, self, descriptor, guard)

    @property
    def topics_count(self) -> int:
        """The number of stored topics of all brokers, incomplete registrations included."""
        return self._table.topics_count

    def scan(self) -> None:
        """Drop brokers without recent heartbeats."""
        for name in self._table.scan(self._clock_ms()):
            self._metrics.dropped_brokers += 1
            logger.warning("broker_dropped broker=%r: no heartbeat for too long", name)

    # ------------------------------------------------------------------------------------------------ from brokers

    async def Register(
        self, request: nameserver_pb2.RegisterRequest, context: Context
    ) -> nameserver_pb2.RegisterResponse:
        """Accept or refuse a leader's registration of its broker."""
        response = nameserver_pb2.RegisterResponse()
        with self._answered(response):
            registration = registration_of(request)
            # The gate has compared a certificate with the registration: it needs no other confirmation.
            if not names_of_certificate(context):
                await self._confirm(registration, is_difference=request.HasField("since_sequence"))
            taken = self._table.register(registration, self._clock_ms(), extent_of(request))
            self._metrics.count_registration(taken.value)
            response.wants_all = taken is RegisterResult.WANTS_ALL
            if taken is RegisterResult.CHANGED:
                logger.info(
                    "registered broker=%r term=%d sequence=%d leader=%r topics=%d deleted=%d is_difference=%s",
                    registration.broker,
                    registration.term,
                    registration.sequence,
                    registration.leader_address,
                    len(registration.topics),
                    len(request.deleted_topics),
                    request.HasField("since_sequence"),
                )
        return response

    async def _confirm(self, registration: Registration, *, is_difference: bool) -> None:
        """Wait until a registration may be accepted; the caller must accept it before it yields to the loop.

        Raises:
            StaleRegistration, IllegalRegistration, store.errors.IllegalMessage: see `RouteTable.register`.
            UnconfirmedRegistration: no node of the known registration confirms it.
        """
        if is_difference:
            # A difference is accepted only from the process that registered the broker.
            return
        replace(registration, topics=()).check()
        known = self._table.registration_to_confirm_with(registration, self._clock_ms())
        if known is None:
            return
        await self._registration_checker.confirm(known, registration)
        if self._table.registration_to_confirm_with(registration, self._clock_ms()) not in (known, None):
            raise UnconfirmedRegistration(known.broker, "another registration was accepted while nodes were asked")

    async def Heartbeat(
        self, request: nameserver_pb2.HeartbeatRequest, context: Context
    ) -> nameserver_pb2.HeartbeatResponse:
        """Record the heartbeat of a leader."""
        response = nameserver_pb2.HeartbeatResponse()
        with self._answered(response):
            now_ms = self._clock_ms()
            found = self._table.heartbeat(request.broker, request.term, request.sequence, now_ms, request.life)
            response.is_registered = found is HeartbeatAnswer.KNOWN
            self._metrics.heartbeats += response.is_registered
        return response

    async def Unregister(
        self, request: nameserver_pb2.UnregisterRequest, context: Context
    ) -> nameserver_pb2.UnregisterResponse:
        """Remove a broker that stops."""
        response = nameserver_pb2.UnregisterResponse()
        with self._answered(response):
            self._table.unregister(request.broker, request.term, self._clock_ms(), request.life)
            logger.info("unregistered broker=%r term=%d", request.broker, request.term)
        return response

    # ------------------------------------------------------------------------------------------------- for clients

    async def Route(self, request: nameserver_pb2.RouteRequest, context: Context) -> nameserver_pb2.RouteResponse:
        """Return the routes of topics."""
        routes = await run_cooperatively(self._routes(request.topics))
        response = route_response(routes)
        self._metrics.routes += len(routes)
        is_young = self._clock_ms() - self._begin_ms < YOUNG_MS
        response.may_lack_topics = is_young or not self._table.brokers_count or len(routes) < len(set(request.topics))
        return response

    def _routes(self, topics: Iterable[str]) -> Steps[dict[str, list[BrokerRoute]]]:
        """Return the routes of topics, in order, up to the limit of an answer; at least all of one topic."""
        found: dict[str, list[BrokerRoute]] = {}
        nodes_count = 0
        for topic in topics:
            yield
            routes = self._table.routes(topic)
            nodes_count += sum(len(each.registration.nodes) for each in routes)
            if found and nodes_count > _ROUTE_NODES_MAX:
                break
            found[topic] = routes
        return found

    async def ListTopics(
        self, request: nameserver_pb2.ListRegisteredTopicsRequest, context: Context
    ) -> nameserver_pb2.ListRegisteredTopicsResponse:
        """Return the names of all topics, one page at a time."""
        names = await run_cooperatively(self._page(request.after))
        has_more = len(names) > TOPICS_PER_PAGE
        return nameserver_pb2.ListRegisteredTopicsResponse(topics=names[:TOPICS_PER_PAGE], has_more=has_more)

    def _page(self, after: str) -> Steps[list[str]]:
        """Return the ordered names after `after`: one page, and one more."""
        page: list[str] = []
        names = (name for name in self._table.topics() if name > after)
        while chunk := set(islice(names, _NAMES_PER_STEP)):
            yield
            # Selects the page without sorting all names.
            page = sorted(chunk.union(page))[: TOPICS_PER_PAGE + 1]
        return page

    async def ListBrokers(
        self, request: nameserver_pb2.ListBrokersRequest, context: Context
    ) -> nameserver_pb2.ListBrokersResponse:
        """Return all brokers."""
        brokers = map(registered_broker, self._table.brokers(self._clock_ms()))
        return nameserver_pb2.ListBrokersResponse(brokers=brokers)

    async def SetWritable(
        self, request: nameserver_pb2.SetWritableRequest, context: Context
    ) -> nameserver_pb2.SetWritableResponse:
        """Revoke or restore the write permission of a broker."""
        response = nameserver_pb2.SetWritableResponse()
        with self._answered(response):
            count = self._table.set_writable(request.broker, is_writable=request.is_writable)
            logger.info("set_writable broker=%r is_writable=%s", request.broker, request.is_writable)
            response.topics_count = count
        return response

    def _refuse(self, error: IllegalRequest, response: Any, _request: Any) -> Message:
        """Return the response to a request that exceeds a bound: see `dledger.service.guarded_method.Refuse`."""
        self._set_refusal(response, error)
        filled: Message = response
        return filled

    @contextmanager
    def _answered(self, response: _Response) -> Iterator[None]:
        """Turn an exception into the response's answer."""
        try:
            yield
        except (DLedgerError, StoreError) as error:
            if isinstance(error, StaleRegistration | UnconfirmedRegistration):
                logger.info("refused: %s", error)
            self._set_refusal(response, error)

    def _set_refusal(self, response: _Response, error: DLedgerError | StoreError) -> None:
        answer = answer_of(error)
        self._metrics.count_refusal(answer.reason)
        response.answer.CopyFrom(answer)
