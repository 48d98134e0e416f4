"""The requests of a broker to a name server: pieces and differences, without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.nameserver.registration import Registrar, TopicChange
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.route_table import ALL, BrokerNode, Extent, Registration, TopicQueues
from tests.support.waiting import PATIENCE_S, in_a_loop, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NODES = (BrokerNode("n0", "127.0.0.1:1"),)


class Link:
    """A name server that accepts all requests, unless a test makes it fail.

    Attributes:
        said: each request: its kind, sequence, names of topics and their extent.
        lives: the secrets of the requests.
        wants_all: number of differences to refuse, as a name server without the registration does.
        failure: failure of every call.
    """

    def __init__(self, _address: str, on_lost: Callable[[], None]) -> None:
        self.on_lost = on_lost
        self.said: list[tuple[object, ...]] = []
        self.lives: set[bytes] = set()
        self.wants_all = 0
        self.failure: RequestFailed | None = None
        self.is_known = False

    async def register(self, registration: Registration, topics: Sequence[TopicQueues], extent: Extent) -> bool:
        self._note(registration, "register", [each.topic for each in topics], extent)
        self.wants_all -= 1
        self.is_known = self.wants_all < 0
        return self.is_known

    async def heartbeat(self, registration: Registration) -> bool:
        self._note(registration, "heartbeat")
        return self.is_known

    async def unregister(self, registration: Registration) -> None:
        self._note(registration, "unregister")

    async def close(self) -> None:
        self.said.append(("closed",))

    def _note(self, registration: Registration, kind: str, *what: object) -> None:
        self.said.append((kind, registration.sequence, *what))
        self.lives.add(registration.life)
        if self.failure is not None:
            raise self.failure


class Topics:
    """Three topics, one in each piece; `change` is the change since any sequence."""

    def __init__(self, change: TopicChange | None = None) -> None:
        self.change = change

    def changed_since(self, _sequence: int) -> TopicChange | None:
        return self.change

    def pieces(self) -> Iterator[Sequence[TopicQueues]]:
        for name in "abc":
            yield [queues(name)]


def queues(topic: str) -> TopicQueues:
    return TopicQueues(topic, 1, 1, 6)


def registration(sequence: int, term: int = 1) -> Registration:
    return Registration("b", "c", term, sequence, "n0", NODES, ())


ALL_PIECES = [
    (["a"], Extent(piece=0, has_more=True)),
    (["b"], Extent(piece=1, has_more=True)),
    (["c"], Extent(piece=2)),
]


def one_link(**intervals: float) -> tuple[Registrar, Link]:
    links: list[Link] = []

    def dial(address: str, on_lost: Callable[[], None]) -> Link:
        links.append(Link(address, on_lost))
        return links[-1]

    return Registrar("127.0.0.1:1", dial, **intervals), links[0]


@in_a_loop
async def test_all_topics_are_sent_in_pieces_and_again_if_the_name_server_lost_one() -> None:
    registrar, link = one_link()
    link.wants_all = 1
    async with registrar:
        registrar.publish(registration(1), Topics())
        await registrar.settled(PATIENCE_S)

    assert [("register", 1, *piece) for piece in ALL_PIECES[:1] + ALL_PIECES] + [("closed",)] == link.said
    assert len(link.lives) == 1
    assert len(*link.lives) == 16


@in_a_loop
async def test_change_is_sent_as_a_difference_and_after_a_new_term_or_a_refusal_as_a_whole() -> None:
    registrar, link = one_link()
    topics = Topics(TopicChange([queues("d")], ("a",)))
    difference = ["d"], Extent(1, ("a",))
    async with registrar:
        registrar.publish(registration(1), topics)
        await registrar.settled(PATIENCE_S)
        link.said.clear()
        registrar.publish(registration(2), topics)
        await registrar.settled(PATIENCE_S)
        assert [("register", 2, *difference)] == link.said

        link.said.clear()
        registrar.publish(registration(3, term=2), topics)
        await registrar.settled(PATIENCE_S)
        assert [("register", 3, *piece) for piece in ALL_PIECES] == link.said

        link.said.clear()
        link.wants_all = 1
        registrar.publish(registration(4, term=2), topics)
        await registrar.settled(PATIENCE_S)
        assert [("register", 4, ["d"], Extent(3, ("a",)))] + [("register", 4, *p) for p in ALL_PIECES] == link.said


@in_a_loop
async def test_name_server_gets_a_heartbeat_at_once_after_a_lost_connection_and_all_if_it_forgot() -> None:
    registrar, link = one_link(heartbeat_interval_s=3_600.0)
    async with registrar:
        registrar.publish(registration(1))
        await registrar.settled(PATIENCE_S)
        link.is_known = False
        link.on_lost()
        await until(lambda: link.is_known, "the registration after a lost connection")

    assert [("register", 1, [], ALL), ("heartbeat", 1), ("register", 1, [], ALL), ("closed",)] == link.said


@in_a_loop
async def test_failure_is_logged_once_until_the_name_server_accepts_the_registration(caplog) -> None:
    caplog.set_level("INFO")
    registrar, link = one_link(retry_interval_s=0.001)
    link.failure = RequestFailed(Reason.NOT_REACHED, "connection refused")
    async with registrar:
        registrar.publish(registration(1))
        await until(lambda: len(link.said) > 2, "retries")
        link.failure = None
        await until(lambda: link.is_known, "the registration")
        await registrar.settled(PATIENCE_S)

    events = [each.message.partition(" ")[0] for each in caplog.records if "name_server" in each.message]
    assert ["name_server_failed", "name_server_back"] == events


@in_a_loop
async def test_broker_is_unregistered_once_with_the_life_that_registered_it() -> None:
    registrar, link = one_link()
    async with registrar:
        registrar.publish(registration(1))
        await registrar.settled(PATIENCE_S)
        link.failure = RequestFailed(Reason.NOT_REACHED, "connection refused")
        await registrar.unregister()
        await registrar.unregister()

    assert [("register", 1, [], ALL), ("unregister", 1), ("closed",)] == link.said
    assert len(link.lives) == 1
