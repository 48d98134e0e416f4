"""Transactions of the Python producer, with a real broker: commits, rollbacks, and answers to checks."""

import asyncio
from contextlib import suppress

import pytest

from cluster import Producer, RequestFailed, TransactionEnd
from cluster.client.producer.transaction_ends import REQUEST_ENDS_MAX
from cluster.delivery.transactions.checks import CheckSettings
from cluster.protocol.errors import Reason
from cluster.protocol.request_bounds import ENDS_PER_REQUEST_MAX
from cluster.state.effects import Ending
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import until

FAST = CheckSettings(timeout_ms=50, interval_ms=100, checks_max=50)


class Failed(Exception):
    """The local work failed."""


def stored(shop):
    return [
        (each.queue_id, each.body)
        for queue in (0, 1)
        for each in shop.replica.store.get(TOPIC, queue, 0, 1_000).messages
    ]


def bodies(shop):
    return sorted(body for _, body in stored(shop))


def table(shop):
    return shop.replica.state.transactions


def test_body_that_ends_commits_and_one_that_raises_rolls_back(shop):
    async def scenario():
        async with shop.open(), Producer(str(shop.address)) as producer:
            async with producer.transaction(TOPIC, b"a", group="g", tags="t", keys=["k"]) as transaction:
                assert bodies(shop) == []
                assert transaction.end is None
            assert (bodies(shop), transaction.end) == ([b"a"], TransactionEnd.COMMIT)
            with pytest.raises(Failed):
                async with producer.transaction(TOPIC, b"b", group="g") as transaction:
                    raise Failed
            assert transaction.end is TransactionEnd.ROLLBACK
            assert table(shop).ended(transaction.half.queue_offset).ending is Ending.ROLLED_BACK
            assert bodies(shop) == [b"a"]

    run(scenario)


def test_explicit_end_counts_and_may_be_repeated(shop):
    async def scenario():
        async with shop.open(), Producer(str(shop.address)) as producer:
            async with producer.transaction(TOPIC, b"a", group="g") as first:
                await first.rollback()
                await first.rollback()
            with suppress(Failed):
                async with producer.transaction(TOPIC, b"b", group="g") as second:
                    await second.commit()
                    raise Failed
            await second.commit()
            with pytest.raises(RequestFailed) as refused:
                await second.rollback()
            assert refused.value.reason is Reason.TRANSACTION_ENDED
            assert bodies(shop) == [b"b"]

    run(scenario)


def test_many_transactions_at_once_are_each_delivered_once(shop):
    async def scenario():
        async with shop.open(), Producer(str(shop.address)) as producer:

            async def one(number):
                with suppress(Failed):
                    async with producer.transaction(TOPIC, b"%d" % number, group="g", queue_key=str(number)):
                        if number % 3 == 0:
                            raise Failed

            await asyncio.gather(*map(one, range(200)))
            await until(lambda: len(bodies(shop)) == 133)
            assert sorted(map(int, bodies(shop))) == [number for number in range(200) if number % 3]
            assert table(shop).open_count == 0

    run(scenario)


def test_another_producer_of_the_group_answers_for_one_that_is_gone(shop):
    decisions = {b"a" * 9_000: TransactionEnd.COMMIT, b"b": TransactionEnd.ROLLBACK, b"c": None, b"d": Failed}
    asked = {}

    async def decide(question):
        asked.setdefault(question.body, []).append(question)
        decision = decisions[question.body]
        if decision is Failed:
            raise Failed
        return decision

    async def scenario():
        async with shop.open(checks=FAST):
            async with Producer(str(shop.address)) as producer:
                for body in decisions:
                    await producer.transaction(TOPIC, body, group="g", tags="t").__aenter__()
            async with (
                Producer(str(shop.address)) as other,
                other.answer_checks("g", [TOPIC], decide),
            ):
                await until(lambda: len(asked.get(b"c", ())) > 2 and len(asked.get(b"d", ())) > 2)
                await until(lambda: table(shop).open_count == 2)
                decisions[b"c"] = TransactionEnd.COMMIT
                await until(lambda: table(shop).open_count == 1)
            question = asked[b"c"][1]
            assert (question.topic, question.properties["TAGS"], question.check) == (TOPIC, "t", 2)
            assert question.transaction_id == question.properties["UNIQ_KEY"]
            assert sorted(map(len, bodies(shop))) != []
            assert len(stored(shop)) == 2
            assert shop.broker.core.metrics.counts.transactions_ended == {"committed": 2, "rolled_back": 1}

    run(scenario)


def test_blocking_producer_has_the_same_transactions_and_answers_checks_in_threads(shop):
    asked = []

    def decide(question):
        asked.append(question.check)
        return TransactionEnd.COMMIT

    def work(address):
        with Producer(address) as producer:
            with producer.transaction(TOPIC, b"a", group="g") as first:
                assert first.end is None
            with suppress(Failed), producer.transaction(TOPIC, b"b", group="g") as second:
                raise Failed
            assert (first.end, second.end) == (TransactionEnd.COMMIT, TransactionEnd.ROLLBACK)
            third = producer.transaction(TOPIC, b"c", group="g", immunity_s=0)
            third.__enter__()
            assert third.half.queue_offset == 2
            with producer.answer_checks("g", [TOPIC], decide):
                while not (asked and table(shop).open_count == 0):
                    producer.flush()
            with producer.transaction(TOPIC, b"d", group="g") as fourth:
                fourth.rollback()
                fourth.rollback()
            with producer.transaction(TOPIC, b"e", group="g") as fifth:
                fifth.commit()

    async def scenario():
        async with shop.open(checks=FAST):
            await asyncio.to_thread(work, str(shop.address))
            await until(lambda: table(shop).open_count == 0)
            assert bodies(shop) == [b"a", b"c", b"e"]
            assert asked[0] == 1

    run(scenario)


def test_requests_of_producers_keep_the_bound_of_brokers():
    assert REQUEST_ENDS_MAX == ENDS_PER_REQUEST_MAX


def test_half_message_to_an_unknown_topic_begins_no_transaction(shop):
    async def scenario():
        async with shop.open(), Producer(str(shop.address)) as producer:
            with pytest.raises(RequestFailed, match="UNKNOWN_TOPIC"):
                async with producer.transaction("nothing", b"a", group="g"):
                    pytest.fail("the body ran")
            assert table(shop).open_count == 0

    run(scenario)
