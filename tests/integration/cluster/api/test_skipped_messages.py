"""Damaged messages: every kind of read reports them, and returns all others."""

import subprocess
import sys

import grpc
import pytest

from cluster import Consumer, RequestFailed
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from store.access.skipped_messages import SkipCause
from tests.integration.cluster.api.conftest import TOPIC, run

BODY_AT = 88


def damage(store_path, physical_offset):
    """Change a byte of the body of one message while the broker runs."""
    with (store_path / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(physical_offset + BODY_AT)
        file.write(b"\xff")


async def put_with_damage(shop, count=5, damaged=(2,), **fields):
    """Put messages and damage some of them; return the offsets of each."""
    put = await shop.put(*(b"%d" % number for number in range(count)), **fields)
    await shop.stub.Offsets(pb.OffsetsRequest(topic=TOPIC))  # a confirmed read: they are dispatched
    for number in damaged:
        damage(shop.path, put.physical_offsets[number])
    return put.physical_offsets


def skips_of(response):
    return [(each.queue_id, each.begin_offset, each.end_offset, each.cause) for each in response.skipped]


def test_get_returns_the_skipped_offsets_with_causes(shop):
    async def scenario():
        async with shop.open():
            places = await put_with_damage(shop, damaged=(2, 3))
            found = await shop.get(0)
            assert list(found.columns.bodies) == [b"0", b"1", b"4"]
            assert skips_of(found) == [(0, 2, 4, pb.SKIP_CAUSE_DAMAGED)]
            (note,) = found.skipped
            assert (note.physical_offset, note.file.endswith("commitlog/" + "0" * 20)) == (places[2], True)
            assert "CRC" in note.expected
            assert note.position >= places[2]
            skipped = shop.broker.core.metrics.counts.skipped_messages
            assert skipped == {"DAMAGED": 2}

    run(scenario)


def test_long_poll_ends_at_damage_instead_of_waiting_after_it(shop):
    async def scenario():
        async with shop.open():
            await put_with_damage(shop, count=2, damaged=(1,))
            found = await shop.get(1, wait_ms=30_000)
            assert (skips_of(found), found.next_offset) == ([(0, 1, 2, pb.SKIP_CAUSE_DAMAGED)], 2)

    run(scenario)


def test_subscription_reports_at_once_and_continues(shop):
    async def scenario():
        async with shop.open() as stub:
            await put_with_damage(shop, damaged=(0, 4))
            stream = stub.Subscribe(pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0]))
            await stream.read()
            first = await stream.read()
            assert list(first.columns.bodies) == [b"1", b"2", b"3"]
            assert skips_of(first) == [(0, 0, 1, pb.SKIP_CAUSE_DAMAGED), (0, 4, 5, pb.SKIP_CAUSE_DAMAGED)]
            # From offset 4 on there is only damage: it is reported anyway, and later messages follow.
            late = stub.Subscribe(pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[4]))
            await late.read()
            only = await late.read()
            assert (list(only.columns.bodies), skips_of(only)) == ([], [(0, 4, 5, pb.SKIP_CAUSE_DAMAGED)])
            await shop.put(b"new")
            for each in (stream, late):
                assert list((await each.read()).columns.bodies) == [b"new"]
                each.cancel()

    run(scenario)


def test_queries_report_damaged_records_that_may_match(shop):
    async def scenario():
        async with shop.open() as stub:
            properties = [b"UNIQ_KEY\x01U%d\x02KEYS\x01all\x02" % number for number in range(5)]
            places = await put_with_damage(shop, properties=properties)
            by_key = await stub.QueryByKey(pb.QueryByKeyRequest(topic=TOPIC, key="all"))
            assert sorted(by_key.columns.bodies) == [b"0", b"1", b"3", b"4"]
            assert [(each.queue_id, each.physical_offset) for each in by_key.skipped] == [(-1, places[2])]
            by_time = await stub.QueryByTime(pb.QueryByTimeRequest(topic=TOPIC))
            assert skips_of(by_time) == [(0, 2, 3, pb.SKIP_CAUSE_DAMAGED)]
            by_id = await stub.QueryById(pb.QueryByIdRequest(topic=TOPIC, unique_key="U2"))
            assert by_id.answer.reason == "CORRUPT_DATA"
            assert not (await stub.QueryById(pb.QueryByIdRequest(topic=TOPIC, unique_key="U3"))).answer.code

    run(scenario)


def consumer_of(shop, **options):
    return Consumer(str(shop.address), group="g", topics=[TOPIC], start="first", **options)


async def poll_until(consumer, body):
    bodies = []
    while body not in bodies:
        bodies += [message.body for message in await consumer.poll(100, 1.0)]
    return bodies


def test_consumer_is_notified_of_skipped_messages(shop, caplog):
    async def scenario():
        async with shop.open():
            await put_with_damage(shop)
            reported = []
            async with consumer_of(shop, on_skipped=reported.append) as consumer:
                assert await poll_until(consumer, b"4") == [b"0", b"1", b"3", b"4"]
                await consumer.poll(1, 0.0)
            (skipped,) = reported
            assert skipped[:6] == (TOPIC, "b", 0, 2, 3, SkipCause.DAMAGED)
            assert "offset 2: skipped: damaged record at" in str(skipped)
            assert "messages_skipped" not in caplog.text
            # The group's offset is past it, and it was reported.
            kept = await shop.stub.FetchOffset(pb.FetchOffsetRequest(group="g", topic=TOPIC, queue_ids=[0]))
            assert list(kept.offsets) == [5]

    run(scenario)


def test_consumer_without_a_callback_logs_skipped_messages(shop, caplog):
    async def scenario():
        async with shop.open():
            await put_with_damage(shop)
            async with consumer_of(shop) as consumer:
                assert await poll_until(consumer, b"4") == [b"0", b"1", b"3", b"4"]

    run(scenario)
    assert "messages_skipped b: topic orders, queue 0, offset 2" in caplog.text


def test_consumer_may_stop_before_skipped_messages(shop):
    def stop(skipped):
        raise LookupError(f"not without {skipped.begin}")

    async def scenario():
        async with shop.open():
            await put_with_damage(shop)
            async with consumer_of(shop, on_skipped=stop) as consumer:
                with pytest.raises(RequestFailed, match="not without 2"):
                    await poll_until(consumer, b"4")
            kept = await shop.stub.FetchOffset(pb.FetchOffsetRequest(group="g", topic=TOPIC, queue_ids=[0]))
            # The messages before it were delivered, processed or not; the offset does not pass it.
            assert kept.offsets[0] <= 2

    run(scenario)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("consume", TOPIC), "0\n1\n3\n4\n"),
        (("query", "key", TOPIC, "all", "--format", "text"), "4\n3\n1\n0\n"),
        (("query", "time", TOPIC, "@0", "--format", "text"), "0\n1\n3\n4\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_commands_print_readable_messages_report_the_others_and_fail(broker, tmp_path, arguments, printed):
    with grpc.insecure_channel(broker.address) as channel:
        stub = BrokerServiceStub(channel)
        stub.SetTopic(pb.SetTopicRequest(topic=pb.Topic(name=TOPIC, read_queues=1, write_queues=1, permission=6)))
        bodies = [b"%d" % number for number in range(5)]
        request = pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=bodies, properties=[b"KEYS\x01all\x02"] * 5)
        put = stub.Put(request)
        stub.Offsets(pb.OffsetsRequest(topic=TOPIC))
    damage(tmp_path / "store", put.physical_offsets[2])

    command = [sys.executable, "-m", "cluster.cli", *arguments, "--broker", broker.address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (done.stdout, done.returncode) == (printed, 1)
    assert f"damaged record at {put.physical_offsets[2]}" in done.stderr
    assert "1 message is unreadable here" in done.stderr
