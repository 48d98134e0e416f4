"""The brokers of a command for messages: one given by address, or those registered with name servers.

Each broker is called separately (`cluster.client.broker_calls`); commands merge the results, such as the messages with
a key.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar

from cluster.client.broker_calls import BrokerCalls
from cluster.client.name_server_calls import ask_each, list_brokers
from cluster.client.routing.finder import RouteFinder
from cluster.client.routing.queue_choice import readable_queues, writable_queues
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.routes import routes_of
from cluster.v1 import broker_pb2 as pb
from cluster.v1.nameserver_pb2 import RouteRequest
from dledger import event_loop
from dledger.client.endpoints import parse_endpoints
from dledger.client.reaching import PATIENCE_S
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from cluster.client.routing.cache import Routes
    from cluster.v1.nameserver_pb2 import RegisteredBroker
    from dledger.security.settings import Security

Answer = TypeVar("Answer")


class _Node(Protocol):
    @property
    def address(self) -> str: ...


class BrokerTarget(NamedTuple):
    """One broker.

    Attributes:
        broker: name of the broker; empty if it was given by address.
        calls: client of the broker.
    """

    broker: str
    calls: BrokerCalls


class Targets:
    """The brokers of a command; `with` closes all connections.

    Args:
        brokers: `host:port` of nodes of one broker, comma separated; empty when name servers are given.
        name_servers: `host:port` of all name servers, comma separated; empty when a broker is given.
        timeout_s: timeout of each call to a broker.
        security: of all connections.

    Raises:
        ValueError: an address is not `host:port`.
    """

    def __init__(self, brokers: str, name_servers: str, timeout_s: float, security: Security = PLAIN) -> None:
        self._timeout_s = timeout_s
        self._name_servers = tuple(parse_endpoints(name_servers)) if name_servers else ()
        self._stack = ExitStack()
        self._security = security
        self._targets: dict[str, BrokerTarget] = {}
        if not name_servers:
            calls = BrokerCalls(brokers, timeout_s, security=security)
            self._targets[""] = BrokerTarget("", self._stack.enter_context(calls))

    def __enter__(self) -> Self:
        """Return itself; connections are opened at the first call."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close all connections."""
        self._stack.close()

    @property
    def is_named(self) -> bool:
        """Whether brokers are known by name: name servers are used."""
        return bool(self._name_servers)

    def all(self) -> list[BrokerTarget]:
        """Return all brokers, in order of their names.

        Raises:
            RequestFailed: no name server answers.
        """
        if not self._name_servers:
            return list(self._targets.values())
        return [self._target(each.broker, each.nodes) for each in self._registered()]

    def chosen(self, names: Collection[str], cluster: str, *, is_change: bool) -> list[BrokerTarget]:
        """Return the brokers to change or list, in order of their names.

        Args:
            names: names of brokers; empty: all.
            cluster: cluster of the brokers; empty: any.
            is_change: whether all brokers must belong to one cluster, so that no other cluster is changed by accident.

        Raises:
            ValueError: there are brokers of several clusters, or the options need name servers.
            RequestFailed: UNKNOWN_BROKER, or no name server answers.
        """
        if not self._name_servers:
            if names or cluster:
                raise ValueError("--broker-name and --cluster: expected together with --name-servers")
            return list(self._targets.values())
        known = self._registered()
        if unknown := sorted(set(names) - {each.broker for each in known}):
            text = f"there is no broker {', '.join(unknown)}; `dledger brokers list` shows all"
            raise RequestFailed(Reason.UNKNOWN_BROKER, text)
        if names:
            known = [each for each in known if each.broker in names]
        clusters = sorted({each.cluster for each in known})
        if is_change and not (names or cluster) and len(clusters) > 1:
            found = ", ".join(clusters)
            raise ValueError(f"these name servers know several clusters ({found}): choose one with --cluster")
        if cluster:
            known = [each for each in known if each.cluster == cluster]
        if not known:
            text = f"none of these brokers is in cluster {cluster!r}; they are in {', '.join(clusters)}"
            raise RequestFailed(Reason.UNKNOWN_BROKER, text)
        return [self._target(each.broker, each.nodes) for each in known]

    def _registered(self) -> list[RegisteredBroker]:
        return registered_brokers(self._name_servers, self._security)

    def queues(self, topic: str, *, is_write: bool) -> list[tuple[BrokerTarget, int]]:
        """Return the writable or the readable queues of a topic, grouped by broker.

        Raises:
            RequestFailed: UNKNOWN_TOPIC, TOPIC_NOT_WRITABLE, TOPIC_NOT_READABLE; or no node answers.
        """
        if not self._name_servers:
            (target,) = self._targets.values()
            return [(target, queue_id) for queue_id in _queues_of(target.calls, topic, is_write=is_write)]
        routes = event_loop.run(self._routes(topic))
        targets = {
            route.registration.broker: self._target(route.registration.broker, route.registration.nodes)
            for route in routes
        }
        queues = writable_queues(routes) if is_write else readable_queues(routes)
        if not queues:
            reason = Reason.TOPIC_NOT_WRITABLE if is_write else Reason.TOPIC_NOT_READABLE
            what = "accepts messages" if is_write else "permits reads"
            text = f"no broker of topic {topic!r} {what}; `dledger brokers list` and `dledger topic list` show why"
            raise RequestFailed(reason, text)
        return [(targets[queue.broker], queue.queue_id) for queue in queues]

    def having(self, topic: str) -> list[BrokerTarget]:
        """Return the brokers that have a topic.

        Raises:
            RequestFailed: UNKNOWN_TOPIC, or no node answers.
        """
        if not self._name_servers:
            return list(self._targets.values())
        registrations = [route.registration for route in event_loop.run(self._routes(topic))]
        return [self._target(each.broker, each.nodes) for each in registrations]

    def routes(self, topic: str) -> Routes:
        """Return the routes of a topic, as clients receive them.

        Raises:
            RequestFailed: UNKNOWN_TOPIC, or no node answers.
        """
        if self._name_servers:
            return event_loop.run(self._routes(topic))
        (target,) = self._targets.values()
        response = target.calls.ask(lambda stub: stub.Route, RouteRequest(topics=[topic]))
        found = routes_of(response).get(topic, ())
        if not found:
            raise RequestFailed(Reason.UNKNOWN_TOPIC, f"there is no topic {topic!r}")
        return found

    async def _routes(self, topic: str) -> Routes:
        async with RouteFinder(self._name_servers, security=self._security) as finder:
            return await finder.find(topic)

    def _target(self, broker: str, nodes: Iterable[_Node]) -> BrokerTarget:
        if broker not in self._targets:
            addresses = ",".join(node.address for node in nodes)
            calls = BrokerCalls(addresses, self._timeout_s, security=self._security)
            self._targets[broker] = BrokerTarget(broker, self._stack.enter_context(calls))
        return self._targets[broker]


def registered_brokers(name_servers: Sequence[str], security: Security) -> list[RegisteredBroker]:
    """Return the brokers registered with name servers, at least one, in order of their names.

    Raises:
        RequestFailed: no name server answers, or none knows a broker.
    """
    answers = ask_each(name_servers, list_brokers, PATIENCE_S, security=security).values()
    failures = [answer for answer in answers if isinstance(answer, str)]
    answered = [each for answer in answers if not isinstance(answer, str) for each in answer.brokers]
    # If several name servers have a broker, the one with the newest leader is used.
    found = {each.broker: each for each in sorted(answered, key=lambda each: (each.term, -each.silent_ms))}
    if len(failures) == len(answers):
        raise RequestFailed(Reason.NOT_REACHED, "no name server answers: " + "; ".join(failures))
    if not found:
        raise RequestFailed(Reason.UNKNOWN_BROKER, "no broker has registered with these name servers")
    return [found[name] for name in sorted(found)]


def first_with(targets: Iterable[BrokerTarget], ask: Callable[[BrokerCalls], Answer]) -> Answer:
    """Return the answer of the first broker that has the requested message.

    Raises:
        RequestFailed: NO_MESSAGE or UNKNOWN_TOPIC, if no broker has it; or the first other refusal.
    """
    missing: RequestFailed | None = None
    for target in targets:
        try:
            return ask(target.calls)
        except RequestFailed as failure:
            if failure.reason not in (Reason.NO_MESSAGE, Reason.UNKNOWN_TOPIC):
                raise
            missing = failure
    raise missing or RequestFailed(Reason.NO_MESSAGE, "there is no broker to ask")


def _queues_of(calls: BrokerCalls, topic: str, *, is_write: bool) -> list[int]:
    """Return the queues of a topic; queue 0 for a topic that a put would create."""
    try:
        found = calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest(topic=topic)).topics[0]
    except RequestFailed as failure:
        if is_write and failure.reason is Reason.UNKNOWN_TOPIC:
            return [0]
        raise
    return list(range(found.write_queues if is_write else found.read_queues))
