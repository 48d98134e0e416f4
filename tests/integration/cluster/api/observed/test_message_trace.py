"""Message trace of our clients: what they did is in the trace topic, in RocketMQ's format, and costs no message."""

import json
import os
import subprocess
import sys

import grpc
import pytest

from cluster import Consumer, MessageNotAppended, Producer
from cluster.client.tracing import trace_sender
from cluster.client.tracing.trace_records import DeliveredTrace, ProcessedTrace, SentTrace, decode_traces
from cluster.protocol.errors import Reason
from cluster.protocol.topic_config import TopicConfig
from cluster.state.commands import SetTopic
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from commitlog.record.properties import decode_properties
from store.model.topics import SCHEDULE_TOPIC, TRACE_TOPIC
from tests.integration.cluster.api.conftest import SMALL, TOPIC, run
from tests.support.brokers.process import BrokerProcess
from tests.support.waiting import PATIENCE_S, until, wait_until


async def has_trace_topic(shop):
    await until(lambda: TRACE_TOPIC in shop.replica.state.topics)


async def messages_of_the_trace(shop):
    """Return all messages of the trace topic: what is acknowledged is in its queue before this read."""
    await until(lambda: shop.replica.store.derived.dispatcher.behind_bytes == 0)
    return (await shop.get(topic=TRACE_TOPIC, max_messages=32)).columns


async def traces(shop):
    return [trace for body in (await messages_of_the_trace(shop)).bodies for trace in decode_traces(body)]


def test_sends_and_deliveries_are_in_the_trace_topic_under_the_keys_of_the_messages(shop):
    async def scenario():
        async with shop.open(trace_topic_enable=True):
            await has_trace_topic(shop)
            address = str(shop.address)
            async with Producer(address, trace=True) as producer:
                sent = await producer.send(TOPIC, b"body", tags="paid", keys=["o-17", "o-18"], queue_id=0)
                await producer.send(TOPIC, b"later", delay_level=18)
                with pytest.raises(MessageNotAppended):
                    await producer.send("no-topic", b"x", deadline_s=0.01)
            produced = await traces(shop)

            assert [(each.topic, each.kind, each.is_success, each.keys) for each in produced] == [
                (TOPIC, 0, True, "o-17 o-18"),
                (TOPIC, 3, True, ""),
                ("no-topic", 0, False, ""),
            ]
            assert produced[0] == SentTrace(
                produced[0].time_ms,
                "DEFAULT_PRODUCER",
                TOPIC,
                sent.unique_key,
                "paid",
                "o-17 o-18",
                f"127.0.0.1:{sent.store_host.port}",
                4,
                produced[0].cost_ms,
                0,
                sent.message_id,
                is_success=True,
            )
            (properties,) = (await messages_of_the_trace(shop)).properties
            assert decode_properties(properties)["KEYS"].split()[:3] == [sent.unique_key, "o-17", "o-18"]

            async with Consumer(address, group="billing", topics=[TOPIC], start="first", trace=True) as consumer:
                message = await anext(consumer)
                assert message.body == b"body"
                consumer.acknowledge(message)
                consumer.acknowledge(message)
            consumed = (await traces(shop))[len(produced) :]

            assert [type(each) for each in consumed] == [DeliveredTrace, ProcessedTrace]
            before, after = consumed
            assert before[1:] == ("billing", after.request_id, sent.unique_key, 0, "o-17 o-18", "DefaultRegion")
            assert (after.message_id, after.is_success, after.group) == (sent.unique_key, True, "billing")
            assert after.time_ms - before.time_ms == after.cost_ms

    run(scenario)


def test_missing_trace_topic_fails_no_send_and_its_loss_is_logged(shop, caplog):
    async def scenario():
        async with shop.open():
            async with Producer(str(shop.address), trace=True) as producer:
                await producer.send(TOPIC, b"body")
            assert TRACE_TOPIC not in shop.replica.state.topics

    run(scenario)
    assert "trace_lost group=DEFAULT_PRODUCER records=1" in caplog.text


def test_full_queue_of_a_trace_fails_no_send(shop, monkeypatch):
    async def scenario():
        async with shop.open(trace_topic_enable=True):
            await has_trace_topic(shop)
            async with Producer(str(shop.address), trace=True) as producer:
                sender = producer._traces._sender
                sender._queue._count_max = 3
                for number in range(5):
                    await producer.send(TOPIC, b"%d" % number)
                dropped = sender.dropped_count
            assert dropped == 2
            assert len(await traces(shop)) == 3

    monkeypatch.setattr(trace_sender, "LINGER_S", PATIENCE_S)
    monkeypatch.setattr(trace_sender, "CLOSE_LIMIT_S", PATIENCE_S)
    run(scenario)


def test_clients_may_use_the_trace_topic_and_no_other_topic_of_the_broker(shop):
    async def scenario():
        async with shop.open(trace_topic_enable=True) as stub:
            await has_trace_topic(shop)
            topic = shop.replica.state.topics[TRACE_TOPIC]
            assert (topic.read_queues, topic.write_queues) == (1, 1)
            assert (await shop.put(b"x", topic=TRACE_TOPIC)).answer.code == 0
            await shop.replica.change(SetTopic(TopicConfig(SCHEDULE_TOPIC, 18, 18)))
            refused = (await shop.put(b"x", topic=SCHEDULE_TOPIC)).answer
            assert refused.reason == Reason.TOPIC_NOT_WRITABLE.name
            assert (await shop.get(topic=SCHEDULE_TOPIC)).answer.reason == Reason.TOPIC_NOT_READABLE.name
            new = pb.Topic(name=TRACE_TOPIC, read_queues=9, write_queues=9, permission=6)
            assert (await stub.SetTopic(pb.SetTopicRequest(topic=new))).answer.reason == Reason.ILLEGAL_REQUEST.name

    run(scenario)


@pytest.fixture
def tracing_broker(tmp_path):
    """Return a broker process that has the trace topic, and creates other topics."""
    process = BrokerProcess(tmp_path / "store", options=["--trace-topic", "--auto-create-topics"], **SMALL)
    process.start()
    with grpc.insecure_channel(process.address) as channel:
        stub, request = BrokerServiceStub(channel), pb.ListTopicsRequest(is_system_included=True)
        wait_until(lambda: TRACE_TOPIC in [each.name for each in stub.ListTopics(request).topics])
    yield process
    process.kill()


def test_command_prints_the_steps_of_a_message(tracing_broker):
    broker = tracing_broker
    with Producer(broker.address, trace=True) as producer:
        sent = producer.send(TOPIC, b"body", keys="o-17")
    with Consumer(broker.address, group="billing", topics=[TOPIC], start="first", trace=True) as consumer:
        (message,) = consumer.poll(timeout_s=PATIENCE_S)
        consumer.acknowledge(message)

    def printed(*words):
        command = [sys.executable, "-m", "cluster.cli", "query", "trace", *words, "--broker", broker.address]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ, check=False)

    for key in (sent.unique_key, "o-17"):
        rows = [json.loads(line) for line in printed(key, "--json").stdout.splitlines()]
        assert [(row["event"], row["group"], row["result"], row["id"]) for row in rows] == [
            ("sent", "DEFAULT_PRODUCER", "ok", sent.unique_key),
            ("delivered", "billing", None, sent.unique_key),
            ("processed", "billing", "ok", sent.unique_key),
        ]
    table = printed("o-17")
    assert (table.returncode, table.stdout.count("billing")) == (0, 2)
    absent = printed("o-18")
    assert absent.returncode == 1
    assert "no message o-18" in absent.stderr
