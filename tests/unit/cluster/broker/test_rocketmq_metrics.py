"""Metrics under RocketMQ's names: the exact names and labels on the page, by hand from RocketMQ's sources."""

from __future__ import annotations

import asyncio
import threading

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cluster.broker.group_lag import GroupLag
from cluster.broker.rocketmq_metrics import BrokerFacts, RocketMQMetrics
from cluster.broker.traffic import Traffic

# Names of samples on the page, and their labels besides cluster, node_type and node_id.
EXPECTED = {
    "rocketmq_broker_permission": "",
    "rocketmq_topic_number": "",
    "rocketmq_consumer_group_number": "",
    "rocketmq_messages_in_total": "topic message_type is_system",
    "rocketmq_messages_out_total": "topic consumer_group is_retry is_system",
    "rocketmq_throughput_in_total": "topic message_type is_system",
    "rocketmq_throughput_out_total": "topic consumer_group is_retry is_system",
    "rocketmq_message_size_bucket": "topic message_type le",
    "rocketmq_message_size_count": "topic message_type",
    "rocketmq_message_size_sum": "topic message_type",
    "rocketmq_producer_connections": "language version protocol_type",
    "rocketmq_consumer_connections": "consumer_group language version consume_mode protocol_type is_system",
    "rocketmq_consumer_lag_messages": "consumer_group topic is_retry is_system",
    "rocketmq_consumer_lag_latency_milliseconds": "consumer_group topic is_retry is_system",
    "rocketmq_consumer_inflight_messages": "consumer_group topic is_retry is_system",
    "rocketmq_consumer_queueing_latency_milliseconds": "consumer_group topic is_retry is_system",
    "rocketmq_consumer_ready_messages": "consumer_group topic is_retry is_system",
    "rocketmq_rpc_latency_milliseconds_bucket": "protocol_type request_code response_code is_long_polling result le",
    "rocketmq_rpc_latency_milliseconds_count": "protocol_type request_code response_code is_long_polling result",
    "rocketmq_rpc_latency_milliseconds_sum": "protocol_type request_code response_code is_long_polling result",
    "rocketmq_storage_size_bytes": "storage_type storage_medium",
    "rocketmq_storage_dispatch_behind_bytes": "storage_type storage_medium",
    "rocketmq_storage_message_reserve_time_milliseconds": "storage_type storage_medium",
}


def facts() -> BrokerFacts:
    traffic = Traffic(lambda _: True)
    traffic.put("orders", "normal", 2, 30)
    traffic.read("%RETRY%billing", "billing", 3, 40)
    traffic.called("send_batch_message", "success", 0.002)
    return BrokerFacts(
        is_serving_puts=True,
        topics=5,
        groups=6,
        puts=traffic.puts,
        reads=traffic.reads,
        calls=traffic.calls,
        members={"billing": 2},
        streams=4,
        lags=[GroupLag("billing", "orders", 9, 4, 5, 700, 600)],
        log_bytes=1_000,
        behind_bytes=100,
        reserve_ms=50,
    )


def page_of(metrics: RocketMQMetrics, found: BrokerFacts) -> str:
    class Collected:
        def collect(self):
            return metrics.families(found)

    registry = CollectorRegistry()
    registry.register(Collected())
    return generate_latest(registry).decode()


def test_page_has_rocketmq_names_with_its_labels() -> None:
    page = page_of(RocketMQMetrics(CollectorRegistry(), "c", "broker-a"), facts())
    found = {
        sample.name: frozenset(sample.labels)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    common = {"cluster", "node_type", "node_id"}
    assert found == {name: frozenset(common | set(labels.split())) for name, labels in EXPECTED.items()}


def test_series_have_the_values_of_rocketmq() -> None:
    page = page_of(RocketMQMetrics(CollectorRegistry(), "c", "broker-a"), facts())
    own = 'cluster="c",node_type="broker",node_id="broker-a"'
    unordered = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    for name, labels, value in (
        ("rocketmq_messages_in_total", 'topic="orders",message_type="normal",is_system="false"', 2),
        (
            "rocketmq_messages_out_total",
            'topic="%RETRY%billing",consumer_group="billing",is_retry="true",is_system="false"',
            3,
        ),
        (
            "rocketmq_consumer_lag_latency_milliseconds",
            'consumer_group="billing",topic="orders",is_retry="false",is_system="false"',
            700,
        ),
        (
            "rocketmq_consumer_connections",
            'consumer_group="billing",is_system="false",language="other",version="unknown",consume_mode="push",protocol_type="grpc"',
            2,
        ),
        ("rocketmq_storage_size_bytes", 'storage_type="local",storage_medium="disk"', 1_000),
        ("rocketmq_broker_permission", "", 6),
    ):
        pairs = frozenset(
            (part.partition("=")[0], part.partition("=")[2].strip('"')) for part in f"{own},{labels}".split(",") if part
        )
        assert unordered[name, pairs] == value, name


def test_facts_are_taken_on_the_loop_once_for_pages_that_are_read_soon_after_another() -> None:
    registry = CollectorRegistry()
    metrics = RocketMQMetrics(registry, "c", "broker-a")
    assert generate_latest(registry) == b""
    threads: list[int] = []

    async def take() -> BrokerFacts:
        threads.append(threading.get_ident())
        return facts()

    async def scenario() -> list[bytes]:
        metrics.watch(take)
        pages = [await asyncio.to_thread(generate_latest, registry) for _ in range(3)]
        metrics.watch(None)
        return [*pages, await asyncio.to_thread(generate_latest, registry)]

    *pages, last = asyncio.run(scenario())
    assert threads == [threading.get_ident()]
    assert all(b"rocketmq_topic_number" in page for page in pages)
    assert last == b""
