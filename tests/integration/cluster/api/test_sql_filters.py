"""SQL92 filters over gRPC: reads, streams, the consumer, and what older brokers do with such a request."""

import asyncio

import pytest

from cluster.client.consumer.consumer import Consumer
from cluster.protocol.errors import RequestFailed
from cluster.protocol.wire.filters import TAGS_OF_SQL, filter_fields
from cluster.v1 import broker_pb2 as pb
from store.errors import IllegalRequest
from store.model.read_filter import Sql92
from store.model.tag_filter import TagFilter
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import PATIENCE_S

LARGE = "amount > 100 AND region = 'eu'"


def properties_of(amount, region="eu"):
    return f"amount\x01{amount}\x02region\x01{region}\x02".encode()


async def put_amounts(shop, *amounts, **fields):
    await shop.put(
        *[b"%d" % amount for amount in amounts], properties=[properties_of(each, **fields) for each in amounts]
    )


def test_get_returns_the_messages_for_which_the_expression_is_true(shop):
    async def scenario():
        async with shop.open():
            await put_amounts(shop, 5, 120, 130, 7)
            await put_amounts(shop, 140, region="us")
            for tags in ("", "*", TAGS_OF_SQL):
                found = await shop.get(sql=LARGE, tags=tags)
                assert (list(found.columns.bodies), found.next_offset) == ([b"120", b"130"], 5)

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"sql": "amount >"}, "at character"),
        ({"sql": "amount ! 5"}, "at character"),
        ({"sql": "x" * 5_000}, "at most 4096 characters"),
        ({"sql": LARGE, "tags": "paid"}, "only one of them"),
        # A client that lost the expression on its way.
        ({"tags": TAGS_OF_SQL}, "tags expression"),
    ],
)
def test_expression_that_cannot_be_used_is_refused_and_no_message_passes(shop, fields, expected):
    async def scenario():
        async with shop.open() as stub:
            await put_amounts(shop, 120)
            found = await shop.get(**fields)
            assert (found.answer.reason, list(found.columns.bodies)) == ("ILLEGAL_REQUEST", [])
            assert expected in found.answer.message
            stream = stub.Subscribe(pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0], **fields))
            (answer,) = [each.answer async for each in stream]
            assert answer.reason == "ILLEGAL_REQUEST"

    run(scenario)


def test_long_poll_by_an_expression_ends_with_the_first_message_that_matches(shop):
    async def scenario():
        async with shop.open():
            await put_amounts(shop, 120)
            waiting = asyncio.ensure_future(shop.get(1, wait_ms=30_000, sql=LARGE))
            await put_amounts(shop, 5, 6)
            await put_amounts(shop, 7, 150)
            found = await waiting
            assert (list(found.columns.bodies), found.next_offset) == ([b"150"], 5)

    run(scenario)


def test_consumer_receives_only_messages_that_match_and_its_group_passes_the_others(shop):
    async def scenario():
        async with shop.open() as stub:
            await put_amounts(shop, 5, 120, 6, 130)
            topics = {TOPIC: Sql92(LARGE)}
            consumer = Consumer(str(shop.address), group="alerts", topics=topics, start="first", commit_interval_s=0.05)
            async with asyncio.timeout(PATIENCE_S), consumer as messages:
                found = [await anext(aiter(messages)) for _ in range(2)]
                assert [each.body for each in found] == [b"120", b"130"]
                await put_amounts(shop, 8, 140, 9)
                assert (await anext(aiter(messages))).body == b"140"
                fetch = pb.FetchOffsetRequest(group="alerts", topic=TOPIC, queue_ids=[0])
                while list((await stub.FetchOffset(fetch)).offsets) != [7]:
                    await messages.poll(1, 0.01)

    run(scenario)


def test_expression_of_a_subscription_that_cannot_be_compiled_reaches_the_program(shop):
    async def scenario():
        async with shop.open():
            await put_amounts(shop, 5)
            async with Consumer(str(shop.address), group="g", topics={TOPIC: Sql92("amount >")}) as messages:
                with pytest.raises(RequestFailed, match="SQL92 expression, at character 8"):
                    await anext(aiter(messages))

    run(scenario)


def test_broker_of_a_version_without_expressions_refuses_instead_of_delivering_everything():
    """It ignores the field that it does not know, and sees the tags."""
    fields = filter_fields(Sql92(LARGE))
    with pytest.raises(IllegalRequest):
        TagFilter.parse(fields["tags"])
    assert filter_fields("paid") == {"tags": "paid", "sql": ""}
