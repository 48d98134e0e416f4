"""Compacted topics of a broker: readers get the latest message of each key; messages must have keys."""

import json

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from cluster.delivery.compacted_messages import PROPERTIES_SIZE_MAX
from cluster.delivery.compaction import CompactionSettings
from cluster.v1 import answer_pb2
from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import until

PRICES = "prices"
HOUR_MS = 3_600_000
SOON = CompactionSettings(interval_s=0.05)


@pytest.fixture(autouse=True)
def _quick_turns(monkeypatch):
    monkeypatch.setattr("cluster.delivery.compaction._TURN_S", 0.02)


async def set_policy(shop, policy, name=PRICES, *, is_new=False):
    topic = pb.Topic(name=name, read_queues=1, write_queues=1, permission=6, attributes={"cleanup.policy": policy})
    return (await shop.stub.SetTopic(pb.SetTopicRequest(topic=topic, is_new=is_new))).answer


async def put(shop, key, body):
    answer = (await shop.put(body, topic=PRICES, properties=[f"KEYS\x01{key}\x02".encode()])).answer
    assert answer.code == 0, answer


async def read(shop):
    found, offset = {}, 0
    while True:
        got = await shop.get(offset, PRICES, max_messages=2)
        found |= dict(zip(got.columns.queue_offsets, got.columns.bodies, strict=True))
        if got.next_offset >= got.max_offset:
            return found
        assert got.next_offset > offset
        assert not got.skipped
        offset = got.next_offset


def test_readers_get_the_latest_message_of_each_key_also_after_a_restart(shop):
    async def scenario():
        expected = {1: b"b1", 2: b"a2", 4: b"c4"}
        async with shop.open(compaction=SOON):
            assert (await set_policy(shop, "COMPACTION", is_new=True)).code == 0
            for key, body in (("a", b"a0"), ("b", b"b1"), ("a", b"a2"), ("c", b"c3"), ("c", b"c4")):
                await put(shop, key, body)
            compaction = shop.replica.store.compaction
            await until(lambda: any(index.end_offset == 5 for _, index in compaction.queues()))
            assert await read(shop) == expected
            gauges = shop.broker.gauges()
            assert (gauges.compacted_messages, gauges.compaction_behind_bytes, gauges.compaction_copied) == (3, 0, 0)
        async with shop.open(compaction=CompactionSettings()):
            assert await read(shop) == expected
            await put(shop, "b", b"b5")
            # It is in the log, and not in the index yet.
            assert await read(shop) == {**expected, 5: b"b5"}

    run(scenario)


def test_old_records_are_copied_before_the_log_deletes_them_and_readers_see_nothing_of_it(shop):
    async def scenario():
        async with shop.open(compaction=SOON):
            assert (await set_policy(shop, "COMPACTION")).code == 0
            for key, body in (("a", b"a0"), ("b", b"b1"), ("a", b"a2")):
                await put(shop, key, body)
            compaction, task = shop.replica.store.compaction, shop.broker._compaction
            await until(lambda: compaction.merges_count and compaction.min_place > 0)
            assert task.copied_count == 0
            end = shop.replica.store.log.end_offset
            shop.clock_ahead_ms = 60 * HOUR_MS
            await until(lambda: task.copied_count >= 2)
            shop.clock_ahead_ms = 0
            await until(lambda: compaction.min_place >= end)
            assert shop.broker.gauges().compaction_copied == task.copied_count
            assert await read(shop) == {1: b"b1", 2: b"a2"}
            request = pb.ReceiveRequest(topic=PRICES, group="g", max_messages=8, invisible_ms=60_000)
            popped = await shop.stub.Receive(request)
            assert list(popped.columns.bodies) == [b"b1", b"a2"], popped

    run(scenario)


def test_messages_without_a_key_are_refused_and_nothing_of_their_put_is_stored(shop):
    async def scenario():
        async with shop.open():
            assert (await set_policy(shop, "COMPACTION")).code == 0
            end = shop.replica.store.log.end_offset
            key = b"KEYS\x01k\x02"
            large = key + b"p\x01" + b"x" * PROPERTIES_SIZE_MAX
            for properties in ([key, b""], [key, b"KEYS\x01 \x02"], [key, b"MYKEYS\x01k\x02"], [], [key, large]):
                answer = (await shop.put(b"x", b"y", topic=PRICES, properties=properties)).answer
                assert (answer.reason, answer.certainty) == ("ILLEGAL_MESSAGE", answer_pb2.CERTAINTY_NOT_DONE)
                assert "the compacted topic 'prices'" in answer.message
            assert shop.replica.store.log.end_offset == end
            assert (await shop.put(b"x", properties=[b""])).answer.code == 0

    run(scenario)


def test_policy_of_a_topic_cannot_be_changed(shop):
    async def scenario():
        async with shop.open():
            assert (await set_policy(shop, "compaction")).reason == "ILLEGAL_MESSAGE"
            assert (await set_policy(shop, "COMPACTION", TOPIC)).reason == "ILLEGAL_REQUEST"
            assert (await set_policy(shop, "DELETE", TOPIC)).code == 0
            assert (await set_policy(shop, "COMPACTION")).code == 0
            refused = await set_policy(shop, "DELETE")
            assert refused.reason == "ILLEGAL_REQUEST"
            assert "'prices' cannot be changed" in refused.message
            assert (await set_policy(shop, "COMPACTION")).code == 0

    run(scenario)


def test_group_with_older_members_refuses_compacted_topics(shop):
    async def scenario():
        async with shop.open():
            shop.replica.state._content.feature_level = 1
            assert (await set_policy(shop, "COMPACTION")).reason == "UNSUPPORTED"

    run(scenario)


def test_command_creates_a_compacted_topic(broker):
    address = ["--broker", str(broker.address)]
    created = CliRunner().invoke(app, ["topic", "create", PRICES, "--compacted", *address])
    assert created.exit_code == 0, created.output
    listed = CliRunner().invoke(app, ["topic", "list", "--json", *address])
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [row["attributes"] for row in rows if row["topic"] == PRICES] == [{"cleanup.policy": "COMPACTION"}]
