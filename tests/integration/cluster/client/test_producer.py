"""The producer against brokers in memory: retries, outcomes, and batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster import MessageAppended, MessageAppendUnknown, MessageNotAppended, Producer, RequestFailed
from cluster.client.producer import fault_avoidance
from cluster.client.producer.fault_avoidance import FAILED_LATENCY_MS
from cluster.client.routing import cache as route_cache
from cluster.protocol.errors import Reason
from commitlog.record.compression import uncompressed_body
from store.errors import Certainty
from tests.integration.cluster.client.helpers import bodies_of, kinds
from tests.integration.cluster.client.stored_messages import EARLIER_HOST
from tests.support.growing_deadlines import growing_deadlines
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S, run

MakeBroker = Callable[..., Any]


def send_asyncio(endpoints: str, bodies: list[bytes], options: dict[str, Any], how: dict[str, Any]) -> list[Any]:
    async def main() -> list[Any]:
        outcomes: list[Any] = []
        async with Producer(endpoints, **options) as producer:
            for body in bodies:
                try:
                    outcomes.append(await producer.send("orders", body, **how))
                except RequestFailed as error:
                    outcomes.append(error)
        return outcomes

    return run(main())


def send_blocking(endpoints: str, bodies: list[bytes], options: dict[str, Any], how: dict[str, Any]) -> list[Any]:
    outcomes: list[Any] = []
    with Producer(endpoints, **options) as producer:
        for body in bodies:
            try:
                outcomes.append(producer.send("orders", body, **how))
            except RequestFailed as error:
                outcomes.append(error)
    return outcomes


@pytest.fixture(params=[send_asyncio, send_blocking], ids=["asyncio", "blocking"])
def send(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """Send bodies one after another through one interface of the producer; return the outcome of each."""

    def call(endpoints: str, *bodies: bytes, how: dict[str, Any] | None = None, **options: Any) -> list[Any]:
        patient = {"deadline_s": PATIENCE_S, "answer_timeout_s": PATIENCE_S}
        return request.param(endpoints, list(bodies), patient | options, how or {})

    return call


def test_result_has_the_position_of_the_message(send: Callable[..., list[Any]], make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})

    first, second = send(broker.address, b"a", b"b")

    assert ("orders", "b0", 0, 0, 0, 1_000) == first[:6]
    assert (1, broker.stored.places[second.unique_key][0]) == (second.queue_offset, second.physical_offset)
    assert f"7F00000100002A9F{second.physical_offset:016X}" == second.message_id
    assert not second.is_repeated


def test_queues_are_used_in_turn_and_a_key_keeps_its_queue(
    send: Callable[..., list[Any]], make_broker: MakeBroker
) -> None:
    broker = make_broker({"orders": 4})

    assert {0, 1, 2, 3} == {sent.queue_id for sent in send(broker.address, *[b"x"] * 4)}
    assert 1 == len({sent.queue_id for sent in send(broker.address, *[b"x"] * 8, how={"queue_key": "o-17"})})
    assert {3} == {sent.queue_id for sent in send(broker.address, b"x", b"y", how={"queue_id": 3})}


def test_leader_is_found_through_any_node_and_followed(send: Callable[..., list[Any]], make_broker: MakeBroker) -> None:
    follower = make_broker()
    leader = make_broker(beside=follower)
    follower.leader = leader.leader = leader

    assert [MessageAppended, MessageAppended] == kinds(send(follower.address, b"a", b"b"))
    assert [] == follower.requests


def test_deposed_leader_names_the_new_one(make_broker: MakeBroker) -> None:
    old = make_broker()
    new = make_broker(beside=old)

    async def main() -> list[Any]:
        async with Producer(old.address) as producer:
            before = await producer.send("orders", b"a")
            new.leader = new
            old.follow(new)
            return [before, await producer.send("orders", b"b")]

    assert [MessageAppended, MessageAppended] == kinds(run(main()))
    assert 1 == len(new.requests)
    assert [b"a", b"b"] == bodies_of(old)


@pytest.mark.parametrize(
    "reason", [Reason.LEADER_NOT_READY, Reason.LEADER_PENDING_FULL, Reason.TERM_CHANGED, Reason.STORE_STOPPED]
)
def test_temporary_refusal_is_retried_until_it_succeeds(
    send: Callable[..., list[Any]], make_broker: MakeBroker, reason: Reason
) -> None:
    broker = make_broker()
    broker.refuse(reason, times=3)

    assert [MessageAppended] == kinds(send(broker.address, b"a"))
    assert 4 == len(broker.requests)
    assert [b"a"] == bodies_of(broker)


@pytest.mark.parametrize("reason", [Reason.ILLEGAL_MESSAGE, Reason.DISK_FULL, Reason.TOPIC_NOT_WRITABLE])
def test_permanent_refusal_is_not_retried(
    send: Callable[..., list[Any]], make_broker: MakeBroker, reason: Reason
) -> None:
    broker = make_broker()
    broker.refuse(reason)

    outcomes = send(broker.address, b"a", b"b")

    assert [MessageNotAppended, MessageAppended] == kinds(outcomes)
    assert (reason, Certainty.NOT_APPENDED) == (outcomes[0].reason, outcomes[0].certainty)
    assert [b"b"] == bodies_of(broker)


@pytest.mark.parametrize("is_answer_lost", [False, True])
def test_unknown_outcome_is_not_retried_unless_allowed(
    send: Callable[..., list[Any]], make_broker: MakeBroker, is_answer_lost: bool
) -> None:
    broker = make_broker()
    if is_answer_lost:
        broker.lose_answer()
    else:
        broker.refuse(Reason.WAIT_QUORUM_ACK_TIMEOUT)

    outcomes = send(broker.address, b"a", b"b")

    assert [MessageAppendUnknown, MessageAppended] == kinds(outcomes)
    assert 32 == len(outcomes[0].unique_keys[0])
    assert 2 == len(broker.requests)


def test_unknown_outcome_is_resolved_by_an_allowed_retry_with_the_same_key(
    send: Callable[..., list[Any]], make_broker: MakeBroker
) -> None:
    broker = make_broker()
    broker.lose_answer()

    outcomes = send(broker.address, b"a", is_unknown_retried=True)

    assert [MessageAppended] == kinds(outcomes)
    assert outcomes[0].is_repeated
    assert EARLIER_HOST == outcomes[0].store_host
    assert [b"a"] == bodies_of(broker)
    assert broker.requests[0].properties == broker.requests[1].properties


def test_outcome_stays_unknown_when_its_retries_are_refused(
    send: Callable[..., list[Any]], make_broker: MakeBroker
) -> None:
    for deadline_s in growing_deadlines(0.5):
        broker = make_broker()
        broker.refuse(Reason.WAIT_QUORUM_ACK_TIMEOUT)
        broker.refuse(Reason.LEADER_NOT_READY, times=1_000)
        outcomes = send(broker.address, b"a", is_unknown_retried=True, deadline_s=deadline_s)
        # Otherwise the deadline passed before a retry was refused.
        if len(broker.requests) > 2:
            break

    assert [MessageAppendUnknown] == kinds(outcomes)


def test_outcome_at_a_silent_node_is_unknown(send: Callable[..., list[Any]], make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.stay_silent()

    began = time.monotonic()
    outcomes = send(broker.address, b"a", answer_timeout_s=0.3, deadline_s=SCENARIO_LIMIT_S)

    assert [MessageAppendUnknown] == kinds(outcomes)
    assert time.monotonic() - began < PATIENCE_S


def test_deadline_bounds_the_retries_of_a_refused_message(
    send: Callable[..., list[Any]], make_broker: MakeBroker
) -> None:
    for deadline_s in growing_deadlines(0.4):
        broker = make_broker()
        broker.refuse(Reason.LEADER_NOT_READY, times=10_000)
        began = time.monotonic()
        (outcome,) = send(broker.address, b"a", deadline_s=deadline_s)
        took_s = time.monotonic() - began
        # Otherwise the deadline passed before the first refusal arrived.
        if len(broker.requests) > 1:
            break

    assert took_s < PATIENCE_S
    assert [] == bodies_of(broker)
    # At the deadline the message may wait for its next attempt, or be in flight.
    if isinstance(outcome, MessageNotAppended):
        assert "why" in str(outcome)
    else:
        assert Reason.ANSWER_LATE is outcome.reason


def test_append_without_a_reachable_node_is_not_appended(
    send: Callable[..., list[Any]], make_broker: MakeBroker
) -> None:
    broker = make_broker()
    broker.stop()

    outcomes = send(broker.address, b"a", deadline_s=0.4)

    assert [MessageNotAppended] == kinds(outcomes)
    assert broker.address in str(outcomes[0])


def test_unknown_topic_is_refused_at_once(send: Callable[..., list[Any]], make_broker: MakeBroker) -> None:
    broker = make_broker({"other": 1})

    began = time.monotonic()
    outcomes = send(broker.address, b"a", deadline_s=SCENARIO_LIMIT_S)

    assert (MessageNotAppended, Reason.UNKNOWN_TOPIC) == (type(outcomes[0]), outcomes[0].reason)
    assert time.monotonic() - began < PATIENCE_S


def test_bodies_above_4_kib_are_compressed_and_others_are_not(
    send: Callable[..., list[Any]], make_broker: MakeBroker
) -> None:
    broker = make_broker({"orders": 1})
    large = b"large" * 1_000

    for kind, flag in (("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201), (None, 0)):
        send(broker.address, large, b"small" * 10, compression=kind)
        stored, small = broker.stored.queues["orders", 0][-2:]
        assert (flag, 0) == (stored.sys_flag, small.sys_flag)
        assert large == uncompressed_body(stored.sys_flag, stored.body)


def test_message_moves_to_another_broker_while_its_own_refuses_puts(
    send: Callable[..., list[Any]], make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A late answer from a busy machine is no reason to avoid its broker.
    monkeypatch.setattr(fault_avoidance, "AVOIDANCE", ((FAILED_LATENCY_MS, 180_000),))
    refusing, well = make_broker(name="b0"), make_broker(name="b1")
    refusing.refuse(Reason.LEADER_NOT_READY, times=10_000)

    outcomes = send(f"{refusing.address},{well.address}", *[b"x"] * 12)

    assert {"b1"} == {sent.broker for sent in outcomes}
    # Avoided since its first refusal.
    assert len(refusing.requests) <= 1


def test_message_moves_to_a_slow_broker_when_the_others_refuse_puts(
    send: Callable[..., list[Any]], make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every answer is late.
    monkeypatch.setattr(fault_avoidance, "AVOIDANCE", ((0, 30_000), (FAILED_LATENCY_MS, 180_000)))
    refusing, slow = make_broker(name="b0"), make_broker(name="b1")
    refusing.refuse(Reason.LEADER_NOT_READY, times=10_000)

    outcomes = send(f"{refusing.address},{slow.address}", *[b"x"] * 12)

    assert [MessageAppended] * 12 == kinds(outcomes)
    assert {"b1"} == {sent.broker for sent in outcomes}


def test_message_with_a_queue_key_stays_with_its_queue(make_broker: MakeBroker) -> None:
    brokers = {"b0": make_broker(name="b0"), "b1": make_broker(name="b1")}
    endpoints = ",".join(broker.address for broker in brokers.values())

    async def main() -> list[Any]:
        async with Producer(endpoints) as producer:
            first = await producer.send("orders", b"a", queue_key="k")
            brokers[first.broker].refuse(Reason.LEADER_NOT_READY, times=2)
            return [first, await producer.send("orders", b"b", queue_key="k")]

    first, second = run(main())

    assert first[1:3] == second[1:3]


def test_key_of_an_ordered_topic_keeps_its_queue_while_its_broker_is_away_and_is_not_sent_elsewhere(
    make_broker: MakeBroker,
) -> None:
    brokers = {"b0": make_broker(name="b0"), "b1": make_broker(name="b1")}
    ordered = {"orders": "b0:1;b1:1"}

    async def sent(*names: str, deadline_s: float = PATIENCE_S) -> dict[str, Any]:
        found: dict[str, Any] = {}
        endpoints = ",".join(brokers[name].address for name in names)
        async with Producer(endpoints, ordered_topics=ordered, deadline_s=deadline_s) as producer:
            for key in "abcd":
                try:
                    found[key] = (await producer.send("orders", b"x", queue_key=key)).broker
                except MessageNotAppended as error:
                    found[key] = error.reason
        return found

    with_both = run(sent("b0", "b1"))
    with_one = run(sent("b0", deadline_s=0.3))

    assert set(with_both.values()) == {"b0", "b1"}
    assert with_one == {key: "b0" if name == "b0" else Reason.ROUTES_INCOMPLETE for key, name in with_both.items()}


def test_name_server_that_is_down_does_not_stop_a_producer_that_has_routes(
    make_broker: MakeBroker, make_name_server: Callable[..., Any]
) -> None:
    broker = make_broker()
    server = make_name_server(broker)

    async def main() -> list[Any]:
        async with Producer(name_servers=server.address) as producer:
            first = await producer.send("orders", b"a")
            server.stop()
            second = await producer.send("orders", b"b")
            with pytest.raises(MessageNotAppended, match="no name server answers"):
                await producer.send("another", b"c", deadline_s=0.3)
            return [first, second]

    assert [MessageAppended, MessageAppended] == kinds(run(main()))


def test_invalid_settings_are_reported_when_the_producer_is_created() -> None:
    with pytest.raises(ValueError, match="expected either endpoints"):
        Producer()
    with pytest.raises(ValueError, match="bad endpoint"):
        Producer("nowhere")
    with pytest.raises(ValueError, match="batch_messages_max"):
        Producer("127.0.0.1:1", batch_messages_max=0)
    with pytest.raises(ValueError, match="ordered topic orders"):
        Producer("127.0.0.1:1", ordered_topics={"orders": "b0"})


def test_invalid_arguments_cause_no_request(send: Callable[..., list[Any]], make_broker: MakeBroker) -> None:
    broker = make_broker()

    outcomes = send(broker.address, b"x" * (4 << 20) + b"x")
    assert (MessageNotAppended, Reason.ILLEGAL_MESSAGE) == (type(outcomes[0]), outcomes[0].reason)
    outcomes = send(broker.address, b"x", how={"tags": "a\x01b"})
    assert (MessageNotAppended, Reason.ILLEGAL_MESSAGE) == (type(outcomes[0]), outcomes[0].reason)
    assert [] == broker.requests


def test_broker_without_reachable_nodes_is_looked_up_at_once(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Routes are not requested again automatically.
    monkeypatch.setattr(route_cache, "REFRESH_INTERVAL_MS", 1000 * SCENARIO_LIMIT_S)
    old = make_broker()
    new = make_broker(beside=old)

    async def main() -> list[Any]:
        async with Producer(f"{old.address},{new.address}", deadline_s=PATIENCE_S, is_unknown_retried=True) as producer:
            # The route has only the old node.
            old.nodes.remove(new)
            await producer.send("orders", b"a")
            new.nodes = [new]
            new.leader, new.term = new, 2
            old.stop()
            return [await producer.send("orders", b"b")]

    assert [MessageAppended] == kinds(run(main()))
