"""A broker whose metrics have RocketMQ's names: what it puts and delivers is on the page."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cluster.broker import rocketmq_metrics
from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import until


async def page(shop):
    """Return the values on the page, by name and the labels of interest."""
    text = (await asyncio.to_thread(generate_latest, shop.registry)).decode()
    shown = ("topic", "consumer_group", "message_type", "request_code", "response_code")
    return {
        (sample.name, *(sample.labels[each] for each in shown if each in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setattr(rocketmq_metrics, "CACHE_S", 0.0)


def test_messages_lag_and_calls_are_on_the_page(shop):
    async def scenario():
        shop.registry = CollectorRegistry()
        async with shop.open(metrics_names="rocketmq") as stub:
            await shop.put(b"1", b"22", b"333")
            await shop.put(b"later", properties=[b"DELAY\x015\x02"])
            await until(lambda: shop.replica.store.max_offset(TOPIC, 0) == 3)
            commit = pb.CommitOffsetRequest(group="billing", topic=TOPIC, queue_ids=[0], offsets=[1])
            assert (await stub.CommitOffset(commit)).answer.code == 0
            await shop.get(max_messages=2, group="billing")
            await shop.get(max_messages=1, group="unknown")
            found = await page(shop)

            assert found["rocketmq_messages_in_total", TOPIC, "normal"] == 3
            assert found["rocketmq_throughput_in_total", TOPIC, "normal"] == 6
            assert found["rocketmq_messages_in_total", TOPIC, "delay"] == 1
            assert found["rocketmq_messages_out_total", TOPIC, "billing"] == 2
            assert found["rocketmq_messages_out_total", TOPIC, ""] == 1
            assert found["rocketmq_consumer_lag_messages", TOPIC, "billing"] == 2
            assert found["rocketmq_consumer_inflight_messages", TOPIC, "billing"] == 1
            assert found["rocketmq_consumer_ready_messages", TOPIC, "billing"] == 1
            assert found["rocketmq_consumer_lag_latency_milliseconds", TOPIC, "billing"] >= 0
            assert found["rocketmq_rpc_latency_milliseconds_count", "send_batch_message", "success"] == 2
            assert found["rocketmq_rpc_latency_milliseconds_count", "pull_message", "success"] == 2
            assert found["rocketmq_topic_number",] == len(shop.replica.state.topics)
            assert found["rocketmq_storage_message_reserve_time_milliseconds",] >= 0
            assert not any(name.startswith("dledger_broker") for name, *_ in found)

    run(scenario)


def test_streams_of_a_group_move_its_read_position(shop):
    async def scenario():
        shop.registry = CollectorRegistry()
        async with shop.open(metrics_names="both") as stub:
            await shop.put(b"1", b"2")
            commit = pb.CommitOffsetRequest(group="billing", topic=TOPIC, queue_ids=[0], offsets=[0])
            assert (await stub.CommitOffset(commit)).answer.code == 0
            stream = stub.Subscribe(
                pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0], group="billing", tags="*")
            )
            while (await stream.read()).next_offset < 2:
                pass
            stream.cancel()
            found = await page(shop)

            assert found["rocketmq_consumer_inflight_messages", TOPIC, "billing"] == 2
            assert found["dledger_broker_put_messages_total",] == 2

    run(scenario)


def test_page_has_no_rocketmq_names_by_default_and_nothing_is_counted_for_them(shop):
    async def scenario():
        shop.registry = CollectorRegistry()
        async with shop.open():
            await shop.put(b"1")
            found = await page(shop)

            assert shop.broker.core.traffic is None
            assert {name.partition("_")[0] for name, *_ in found} == {"dledger"}

    run(scenario)
