"""Checks of transactions by a standalone broker: when producers are asked, and what is given up."""

import asyncio
from contextlib import asynccontextmanager

from cluster.delivery.transactions.checks import CheckSettings
from cluster.state.effects import Ending
from cluster.v1 import broker_pb2 as pb
from store.model.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.transactions.test_transactions import (
    GROUP,
    ROLLBACK,
    begin,
    bodies,
    end,
    stored,
    table,
)
from tests.support.waiting import until

FAST = CheckSettings(timeout_ms=50, interval_ms=100, checks_max=2)


@asynccontextmanager
async def asked(shop, topics=(TOPIC,), group=GROUP):
    """Yield the list of questions to a producer."""
    found = []
    call = shop.stub.TransactionChecks(pb.TransactionChecksRequest(producer_group=group, topics=topics))

    async def listen():
        async for question in call:
            found.append(question)  # noqa: PERF401  (the caller sees each at once)

    listening = asyncio.create_task(listen())
    await until(lambda: len(shop.broker._checks.producers) > 0 or listening.done())
    try:
        yield found
    finally:
        call.cancel()
        await asyncio.gather(listening, return_exceptions=True)


def test_producer_is_asked_after_the_timeout_and_its_answer_ends_the_transaction(shop):
    async def scenario():
        async with shop.open(checks=FAST):
            request = await begin(shop)
            async with asked(shop) as questions:
                await until(lambda: questions)
                question = questions[0]
                assert (question.topic, question.half_offset, question.check) == (TOPIC, 0, 1)
                assert (question.physical_offset, question.transaction_id) == (request.physical_offset, "k0")
                assert question.record == bytes(stored(shop, HALF_TOPIC)[0].raw)
                assert await end(shop, request) is True
            assert await bodies(shop) == [b"body of k0"]
            assert shop.broker.core.metrics.counts.transaction_checks >= 1

    run(scenario)


def test_check_without_a_producer_of_the_group_and_topic_does_not_count(shop):
    async def scenario():
        async with shop.open(checks=FAST):
            await begin(shop)
            async with asked(shop, group="other") as others, asked(shop, topics=["other"]) as more:
                await asyncio.sleep(0.5)
                assert (others, more) == ([], [])
                assert table(shop).find(0).checks == 0
            async with asked(shop) as questions:
                await until(lambda: questions)
                assert table(shop).find(0).checks >= 1

    run(scenario)


def test_undecided_transaction_is_set_aside_once_where_it_can_be_read(shop):
    async def scenario():
        async with shop.open(checks=FAST):
            request = await begin(shop, "k0", b"TAGS\x01t\x02")
            async with asked(shop) as questions:
                await until(lambda: table(shop).ended(0) is not None)
                assert [each.check for each in questions] == [1, 2]
            assert table(shop).ended(0).ending is Ending.GIVEN_UP
            await until(lambda: not table(shop).without_op)
            assert [each.body for each in stored(shop, OP_HALF_TOPIC)] == [b"0,"]
            assert list((await shop.get(topic=CHECK_MAX_TIME_TOPIC)).columns.bodies) == [b"body of k0"]
            assert await end(shop, request) == "TRANSACTION_ENDED"
            assert await end(shop, request, end=ROLLBACK) == "TRANSACTION_ENDED"
            assert await bodies(shop) == []
            assert shop.broker.core.metrics.counts.transactions_ended == {"given_up": 1}

    run(scenario)


def test_immunity_delays_the_first_check(shop):
    async def scenario():
        async with shop.open(checks=FAST):
            await begin(shop, "k0", b"CHECK_IMMUNITY_TIME_IN_SECONDS\x013600\x02")
            await begin(shop, "k1")
            async with asked(shop) as questions:
                await until(lambda: questions)
                assert {each.half_offset for each in questions} == {1}
                shop.clock_ahead_ms = 3_600_500
                await until(lambda: {each.half_offset for each in questions} == {0, 1})

    run(scenario)


def test_counts_survive_a_restart(shop):
    async def scenario():
        async with shop.open(checks=FAST._replace(checks_max=100)):
            await begin(shop)
            async with asked(shop) as questions:
                await until(lambda: len(questions) >= 3)
            before = table(shop).find(0)
        async with shop.open(checks=CheckSettings()):
            assert table(shop).find(0) == before

    run(scenario)


def test_half_message_that_is_lost_is_rolled_back(shop, monkeypatch):
    async def scenario():
        async with shop.open(checks=FAST):
            await begin(shop)
            monkeypatch.setattr("cluster.delivery.transactions.ends.half_message", lambda _: None)
            async with asked(shop) as questions:
                await until(lambda: table(shop).ended(0) is not None)
            assert questions == []
            assert table(shop).ended(0).ending is Ending.ROLLED_BACK

    run(scenario)
