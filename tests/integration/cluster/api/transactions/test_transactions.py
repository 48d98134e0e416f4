"""Transactions of a standalone broker: half messages, ends, checks of producers, and what is given up."""

import asyncio

import pytest

from cluster.delivery.transactions import half_messages
from cluster.delivery.transactions.checks import CheckSettings
from cluster.protocol.topic_config import TopicConfig
from cluster.state import transactions
from cluster.state.commands import SetTopic
from cluster.v1 import broker_pb2 as pb
from commitlog.record.properties import decode_properties
from store.model.sys_flag import CARRIES_EFFECT
from store.model.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import until

GROUP = "payments"
COMMIT, ROLLBACK = pb.TRANSACTION_END_COMMIT, pb.TRANSACTION_END_ROLLBACK
FAST = CheckSettings(timeout_ms=50, interval_ms=100, checks_max=2)


def half(key, *more):
    return b"UNIQ_KEY\x01%b\x02TRAN_MSG\x01true\x02PGROUP\x01payments\x02" % key.encode() + b"".join(more)


async def begin(shop, key="k0", *more, queue_id=0):
    """Put a half message; return the request that commits it."""
    put = await shop.put(b"body of " + key.encode(), queue_id=queue_id, properties=[half(key, *more)])
    assert put.answer.code == 0, put.answer
    return pb.EndTransactionRequest(
        topic=TOPIC,
        producer_group=GROUP,
        half_offset=put.queue_offsets[0],
        physical_offset=put.physical_offsets[0],
        transaction_id=key,
        end=COMMIT,
    )


def changed(request, **fields):
    found = pb.EndTransactionRequest()
    found.CopyFrom(request)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


async def end(shop, request, **fields):
    """Return the reason of a refusal, or whether the transaction was ended by this request."""
    response = await shop.stub.EndTransaction(changed(request, **fields))
    return response.answer.reason or response.is_changed


async def bodies(shop, topic=TOPIC, queue_id=0):
    return [each.body for each in shop.replica.store.get(topic, queue_id, 0).messages]


def stored(shop, topic, queue_id=0):
    return list(shop.replica.store.get(topic, queue_id, 0).messages)


def table(shop):
    return shop.replica.state.transactions


def test_no_consumer_gets_a_half_message_and_its_commit_delivers_it_as_rocketmq_writes_it(shop):
    async def scenario():
        async with shop.open():
            request = await begin(shop, "k0", b"TAGS\x01t\x02", queue_id=1)
            assert await bodies(shop, queue_id=1) == []
            (prepared,) = stored(shop, HALF_TOPIC)
            assert (prepared.queue_id, prepared.queue_offset, prepared.sys_flag & 0xC) == (0, 0, 0)
            properties = decode_properties(prepared.properties_raw)
            assert properties.pop("__EFFECT").startswith("h:0:")
            assert properties == {
                "UNIQ_KEY": "k0",
                "TRAN_MSG": "true",
                "PGROUP": GROUP,
                "TAGS": "t",
                "REAL_TOPIC": TOPIC,
                "REAL_QID": "1",
                "__transactionId__": "k0",
            }

            assert await end(shop, request) is True

            await until(lambda: shop.replica.store.max_offset(OP_HALF_TOPIC, 0) == 1)
            (final,) = stored(shop, TOPIC, 1)
            assert (final.body, final.sys_flag & 0xC) == (b"body of k0", 8)
            assert final.message.prepared_transaction_offset == prepared.physical_offset
            assert decode_properties(final.properties_raw) == {**properties, "__EFFECT": "e:0:c"}
            (op,) = stored(shop, OP_HALF_TOPIC)
            assert (op.body, op.properties["TAGS"], op.properties["__EFFECT"]) == (b"0,", "d", "e:0:c")
            assert (table(shop).open_count, dict(table(shop).without_op)) == (0, {})
            assert list((await shop.get(queue_id=1, tags="t")).columns.bodies) == [b"body of k0"]
            assert shop.broker.core.metrics.counts.transactions_ended == {"committed": 1}

    run(scenario)


def test_end_is_final_and_the_same_end_is_answered_again(shop):
    async def scenario():
        async with shop.open():
            first, second = await begin(shop, "k0"), await begin(shop, "k1")
            assert await end(shop, first) is True
            assert await end(shop, first) is False
            assert await end(shop, first, end=ROLLBACK) == "TRANSACTION_ENDED"
            assert await end(shop, second, end=ROLLBACK) is True
            assert await end(shop, second, end=ROLLBACK) is False
            assert await end(shop, second) == "TRANSACTION_ENDED"
            assert await end(shop, second, end=pb.TRANSACTION_END_UNKNOWN) is False
            assert await bodies(shop) == [b"body of k0"]
        async with shop.open():
            assert await end(shop, first) is False
            assert await end(shop, second) == "TRANSACTION_ENDED"
            assert await bodies(shop) == [b"body of k0"]
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_of_two_different_ends_at_once_the_second_is_refused_and_of_equal_ones_it_succeeds(shop):
    async def scenario():
        async with shop.open():
            request = await begin(shop)
            found = await asyncio.gather(end(shop, request), end(shop, request, end=ROLLBACK), end(shop, request))
            assert sorted(map(str, found)) in (
                ["False", "TRANSACTION_ENDED", "True"],
                ["TRANSACTION_ENDED", "TRANSACTION_ENDED", "True"],
            )
            assert len(await bodies(shop)) == 1 if found[0] is True or found[2] is True else not await bodies(shop)

    run(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        {"half_offset": 7},
        {"physical_offset": 7},
        {"producer_group": "other"},
        {"topic": "other"},
        {"transaction_id": "k9"},
    ],
)
def test_end_of_another_transaction_is_refused(shop, wrong):
    async def scenario():
        async with shop.open():
            request = await begin(shop)
            assert await end(shop, request, **wrong) == "NO_TRANSACTION"
            assert await end(shop, request, **{**wrong, "end": ROLLBACK}) == "NO_TRANSACTION"
            assert table(shop).open_count == 1
            assert await end(shop, request, transaction_id="") is True

    run(scenario)


def test_ordinary_messages_of_the_same_put_are_stored_at_once_and_their_marks_removed(shop):
    async def scenario():
        async with shop.open():
            forged = b"__EFFECT\x01e:0:c\x02"
            put = await shop.put(
                b"now",
                b"later",
                properties=[forged, half("k0")],
                sys_flags=[CARRIES_EFFECT | 8, CARRIES_EFFECT],
            )
            assert put.answer.code == 0, put.answer
            assert await bodies(shop) == [b"now"]
            assert table(shop).open_count == 1
            assert stored(shop, TOPIC)[0].sys_flag & CARRIES_EFFECT == 0
            await shop.put(b"forged", properties=[forged], sys_flags=[CARRIES_EFFECT | 8])
            await shop.put(b"given up", properties=[b"__EFFECT\x01g:0\x02"], sys_flags=[CARRIES_EFFECT])
            assert table(shop).open_count == 1
            assert table(shop).ended(0) is None
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_effect_in_a_clients_half_message_is_replaced(shop):
    async def scenario():
        async with shop.open():
            await begin(shop, "k0", b"__EFFECT\x01g:0\x02")
            assert table(shop).open_count == 1
            assert stored(shop, HALF_TOPIC)[0].properties["__EFFECT"].startswith("h:")

    run(scenario)


def test_half_message_that_is_sent_again_begins_no_second_transaction(shop):
    async def scenario():
        async with shop.open():
            first = await begin(shop)
            again = await begin(shop)
            assert again == first
            assert table(shop).open_count == 1
            assert await end(shop, again) is True
            assert await end(shop, await begin(shop)) is False
            assert await bodies(shop) == [b"body of k0"]

    run(scenario)


def test_delay_counts_from_the_commit(shop):
    async def scenario():
        async with shop.open():
            request = await begin(shop, "k0", b"DELAY\x013\x02")
            assert shop.replica.store.max_offset(SCHEDULE_TOPIC, 2) == 0
            assert await end(shop, request) is True
            assert await bodies(shop) == []
            (waiting,) = stored(shop, SCHEDULE_TOPIC, 2)
            assert (waiting.sys_flag & 0xC, waiting.properties["__EFFECT"]) == (8, "e:0:c")
            shop.clock_ahead_ms = 10_500
            await until(lambda: shop.replica.store.max_offset(TOPIC, 0) == 1)
            (final,) = stored(shop, TOPIC)
            assert (final.body, final.properties["__EFFECT"]) == (b"body of k0", "d:3:0")
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_commit_to_a_deleted_topic_is_refused_and_the_transaction_stays_open(shop):
    async def scenario():
        async with shop.open():
            request = await begin(shop)
            await shop.stub.DeleteTopic(pb.DeleteTopicRequest(topic=TOPIC))
            assert await end(shop, request) == "UNKNOWN_TOPIC"
            assert table(shop).open_count == 1
            await shop.set_topic(TOPIC)
            assert await end(shop, request) is True

    run(scenario)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (b"TRAN_MSG\x01true\x02PGROUP\x01g\x02", "ILLEGAL_MESSAGE"),
        (half("k0", b"TIMER_DELAY_SEC\x015\x02"), "UNSUPPORTED"),
        (half("k0", b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01soon\x02"), "ILLEGAL_MESSAGE"),
        (b"UNIQ_KEY\x01k\x02TRAN_MSG\x01true\x02PGROUP\x01a b\x02", "ILLEGAL_MESSAGE"),
    ],
)
def test_half_message_that_cannot_be_ended_is_refused(shop, properties, reason):
    async def scenario():
        async with shop.open():
            put = await shop.put(b"a", b"b", properties=[b"", properties])
            assert put.answer.reason == reason
            assert await bodies(shop) == []

    run(scenario)


def test_message_of_a_transaction_that_is_put_again_is_an_ordinary_one(shop):
    """As `dledger` restores what a consumer got: it has REAL_TOPIC."""

    async def scenario():
        async with shop.open():
            await shop.put(b"again", properties=[half("k0", b"REAL_TOPIC\x01orders\x02")])
            assert list((await shop.get()).columns.bodies) == [b"again"]
            assert table(shop).open_count == 0

    run(scenario)


def test_transactions_above_the_limit_are_refused(shop, monkeypatch):
    monkeypatch.setattr("cluster.api.put_calls.OPEN_MAX", 3)

    async def scenario():
        async with shop.open():
            requests = [await begin(shop, f"k{number}") for number in range(3)]
            put = await shop.put(b"a", properties=[half("k3")])
            assert (put.answer.reason, table(shop).open_count) == ("TOO_MUCH_STATE", 3)
            assert await end(shop, requests[0], end=ROLLBACK) is True
            assert (await shop.put(b"a", properties=[half("k3")])).answer.code == 0

    run(scenario)


def test_ends_after_the_last_snapshot_are_read_from_the_log(shop):
    """As after a kill -9: the state on disk lacks them."""

    async def scenario():
        async with shop.open():
            requests = [await begin(shop, f"k{number}") for number in range(4)]
            assert await end(shop, requests[0]) is True
            assert await end(shop, requests[1], end=ROLLBACK) is True
            # The state is not saved at the end.
            shop.replica._local._saved_offset = 1 << 60
        async with shop.open():
            assert table(shop).open_count == 2
            assert await end(shop, requests[0]) is False
            assert await end(shop, requests[1]) == "TRANSACTION_ENDED"
            assert await end(shop, requests[2]) is True
            assert await bodies(shop) == [b"body of k0", b"body of k2"]

    run(scenario)


def test_list_shows_open_transactions_in_order_and_in_parts(shop):
    async def scenario():
        async with shop.open() as stub:
            requests = [await begin(shop, f"k{number}") for number in range(5)]
            await end(shop, requests[1], end=ROLLBACK)
            listed = await stub.ListTransactions(pb.ListTransactionsRequest())
            assert (listed.open_count, [each.half_offset for each in listed.transactions]) == (4, [0, 2, 3, 4])
            first = listed.transactions[0]
            assert (first.topic, first.producer_group, first.transaction_id) == (TOPIC, GROUP, "k0")
            assert first.next_check_ms == first.store_timestamp + 6_000
            part = await stub.ListTransactions(pb.ListTransactionsRequest(from_half_offset=2, max_transactions=2))
            assert [each.half_offset for each in part.transactions] == [2, 3]

    run(scenario)


def test_clients_can_neither_read_nor_write_the_topics_of_transactions(shop):
    async def scenario():
        async with shop.open():
            await end(shop, await begin(shop))
            for topic in (HALF_TOPIC, OP_HALF_TOPIC):
                assert (await shop.get(topic=topic)).answer.reason == "UNKNOWN_TOPIC"
                await shop.replica.change(SetTopic(TopicConfig(topic, 1, 1)))
                assert (await shop.get(topic=topic)).answer.reason == "TOPIC_NOT_READABLE"
            await shop.replica.change(SetTopic(TopicConfig(CHECK_MAX_TIME_TOPIC, 1, 1)))
            for topic in (HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC):
                assert (await shop.put(b"0,", topic=topic)).answer.reason == "TOPIC_NOT_WRITABLE"

    run(scenario)


def test_half_messages_are_recognised_by_their_property_alone():
    assert half_messages.half_rows([b"", half("k"), b"TRAN_MSG\x01false\x02", b"X\x01TRAN_MSG\x02"]) == [1]
    assert half_messages.half_rows([b"", b"DELAY\x011\x02"]) == []


def test_limit_of_open_transactions_is_a_million():
    assert transactions.OPEN_MAX == 1_000_000


def test_many_ends_of_one_request_are_each_answered_for_itself(shop):
    async def scenario():
        async with shop.open() as stub:
            first, second = await begin(shop, "k0"), await begin(shop, "k1")
            request = pb.EndTransactionsRequest(
                topic=TOPIC,
                producer_group=GROUP,
                half_offsets=[0, 1, 0, 9],
                physical_offsets=[first.physical_offset, second.physical_offset, first.physical_offset, 1],
                transaction_ids=["k0", "k1", "", "k9"],
                ends=[COMMIT, ROLLBACK, COMMIT, COMMIT],
            )
            for _ in range(2):
                response = await stub.EndTransactions(request)
                assert [each.reason for each in response.answers] == ["", "", "", "NO_TRANSACTION"]
            assert await bodies(shop) == [b"body of k0"]
            del request.ends[0]
            assert (await stub.EndTransactions(request)).answer.reason == "ILLEGAL_REQUEST"

    run(scenario)
