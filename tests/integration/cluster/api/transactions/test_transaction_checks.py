"""Checks of transactions by a standalone broker: when producers are asked, and what is given up."""

import asyncio
from contextlib import asynccontextmanager

from cluster.broker.core import wall_clock_ms
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
    changed,
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
            monkeypatch.setattr("cluster.delivery.transactions.ends.half_message", lambda *_: None)
            async with asked(shop) as questions:
                await until(lambda: table(shop).ended(0) is not None)
            assert questions == []
            assert table(shop).ended(0).ending is Ending.ROLLED_BACK

    run(scenario)


def at(shop, ahead_ms):
    """Set the clocks of the broker and of its log ahead."""
    shop.clock_ahead_ms = ahead_ms
    shop.replica.plain.log._clock = lambda: wall_clock_ms() + ahead_ms


def test_half_message_whose_record_the_log_will_delete_is_put_again_and_ends_by_its_first_place(shop):
    async def scenario():
        # Three quarters of three days.
        kept_ms = 194_400_000
        async with shop.open(checks=FAST) as stub:
            requests = [await begin(shop, f"k{number}") for number in range(3)]
            at(shop, kept_ms - 60_000)
            assert await end(shop, requests[2]) is True
            assert shop.replica.store.max_offset(HALF_TOPIC, 0) == 3
            at(shop, kept_ms + 60_000)
            await until(lambda: shop.replica.store.max_offset(HALF_TOPIC, 0) == 5)
            await until(lambda: shop.broker.gauges().halves_put_again == 2)
            again = stored(shop, HALF_TOPIC)[3]
            assert (again.body, again.properties["__EFFECT"]) == (b"body of k0", "n:0")
            assert table(shop).open_count == 2
            listed = (await stub.ListTransactions(pb.ListTransactionsRequest())).transactions
            assert [each.transaction_id for each in listed] == ["k0", "k1"]
            # The client knows only the first place.
            assert await end(shop, requests[0]) is True
            assert await end(shop, requests[0]) is False
            assert (await stub.EndTransaction(changed(requests[1], end=ROLLBACK))).answer.code == 0
            assert await bodies(shop) == [b"body of k2", b"body of k0"]
            ops = [int(each) for op in stored(shop, OP_HALF_TOPIC) for each in op.body.split(b",")[:-1]]
            assert sorted(set(ops)) == [0, 1, 2, 3, 4]
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_half_message_that_no_producer_decides_is_put_again_three_times_and_then_given_up(shop):
    async def scenario():
        async with shop.open(checks=FAST):
            await begin(shop)
            for times in range(1, 4):
                at(shop, times * 200_000_000)
                await until(lambda times=times: shop.replica.store.max_offset(HALF_TOPIC, 0) == 1 + times)
            assert table(shop).open_count == 1
            at(shop, 800_000_000)
            await until(lambda: table(shop).open_count == 0)
            assert [each.body for each in stored(shop, CHECK_MAX_TIME_TOPIC)] == [b"body of k0"]
            assert table(shop).ended(0).ending is Ending.GIVEN_UP
            assert shop.replica.store.max_offset(HALF_TOPIC, 0) == 4

    run(scenario)
