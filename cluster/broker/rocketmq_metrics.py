"""Metrics of a broker under the names and labels of RocketMQ 5, so that its Grafana boards show this broker.

Only those that this broker has the facts for. The names are those on RocketMQ's page: its exporter appends units, and
`_total` to counters. Every series has the labels `cluster`, `node_type` and `node_id`.

The facts are taken on the event loop, in steps, when a page is read, at most once in `CACHE_S`; the thread of the page
formats them. If the loop needs longer than `WAIT_S`, the page shows those of the last time.

Source: RocketMQ `BrokerMetricsManager`, `BrokerMetricsConstant`, `DefaultStoreMetricsManager`,
`RemotingMetricsManager`.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from cluster.broker.group_lag import GroupLag, bounded
from dledger.metrics import MetricKind
from store.model.topics import is_retry_topic, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from cluster.broker.traffic import CallKey, PutKey, PutRow, ReadKey, ReadRow
    from dledger.metrics import Histogram

CACHE_S: Final = 5.0
WAIT_S: Final = 2.0
# Prefix of RocketMQ's own groups, in lower case.
_SYSTEM_GROUP_PREFIX: Final = "cid_rmq_sys_"


class MetricRow(NamedTuple):
    """One metric: its name, kind and help text, and its labels besides those of all."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


_GAUGE, _COUNTER, _HISTOGRAM = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM
_IN: Final = ("topic", "message_type", "is_system")
_OUT: Final = ("topic", "consumer_group", "is_retry", "is_system")
_LAG: Final = ("consumer_group", "topic", "is_retry", "is_system")
_STORAGE: Final = ("storage_type", "storage_medium")
_CONNECTION: Final = ("language", "version", "protocol_type")

ROCKETMQ_TABLE: Final = (
    MetricRow("rocketmq_broker_permission", _GAUGE, "Broker permission: 6 while it accepts messages, else 4."),
    MetricRow("rocketmq_topic_number", _GAUGE, "Active topic number."),
    MetricRow("rocketmq_consumer_group_number", _GAUGE, "Active subscription group number."),
    MetricRow("rocketmq_messages_in", _COUNTER, "Total number of incoming messages.", _IN),
    MetricRow("rocketmq_messages_out", _COUNTER, "Total number of outgoing messages.", _OUT),
    MetricRow("rocketmq_throughput_in", _COUNTER, "Total traffic of incoming messages, in bytes.", _IN),
    MetricRow("rocketmq_throughput_out", _COUNTER, "Total traffic of outgoing messages, in bytes.", _OUT),
    MetricRow("rocketmq_message_size", _HISTOGRAM, "Incoming messages size, in bytes.", ("topic", "message_type")),
    MetricRow("rocketmq_producer_connections", _GAUGE, "Producer connections.", _CONNECTION),
    MetricRow(
        "rocketmq_consumer_connections",
        _GAUGE,
        "Consumer connections.",
        ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
    ),
    MetricRow("rocketmq_consumer_lag_messages", _GAUGE, "Consumer lag messages.", _LAG),
    MetricRow("rocketmq_consumer_lag_latency_milliseconds", _GAUGE, "Consumer lag time.", _LAG),
    MetricRow("rocketmq_consumer_inflight_messages", _GAUGE, "Consumer inflight messages.", _LAG),
    MetricRow("rocketmq_consumer_queueing_latency_milliseconds", _GAUGE, "Consumer queueing time.", _LAG),
    MetricRow("rocketmq_consumer_ready_messages", _GAUGE, "Consumer ready messages.", _LAG),
    MetricRow(
        "rocketmq_rpc_latency_milliseconds",
        _HISTOGRAM,
        "Rpc latency.",
        ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
    ),
    MetricRow("rocketmq_storage_size_bytes", _GAUGE, "Broker storage size: bytes of its log.", _STORAGE),
    MetricRow(
        "rocketmq_storage_dispatch_behind_bytes", _GAUGE, "Bytes of the log that are not in queues yet.", _STORAGE
    ),
    MetricRow("rocketmq_storage_message_reserve_time_milliseconds", _GAUGE, "Broker message reserve time.", _STORAGE),
)


@dataclass(slots=True)
class BrokerFacts:
    """What the metrics show; taken at one time, except for numbers that grow meanwhile.

    Attributes:
        is_serving_puts: whether the node accepts messages.
        members: connected consumers by group.
        streams: connected producers.
        lags: of groups by topics; empty on a node that does not lead.
        log_bytes, behind_bytes: size of the log, and its part that is not in queues yet.
        reserve_ms: age of the oldest message; -1: there is none.
    """

    is_serving_puts: bool = False
    topics: int = 0
    groups: int = 0
    puts: Mapping[PutKey, PutRow] = field(default_factory=dict)
    reads: Mapping[ReadKey, ReadRow] = field(default_factory=dict)
    calls: Mapping[CallKey, Histogram] = field(default_factory=dict)
    members: Mapping[str, int] = field(default_factory=dict)
    streams: int = 0
    lags: Sequence[GroupLag] = ()
    log_bytes: int = 0
    behind_bytes: int = 0
    reserve_ms: int = -1


# Label values of a series, and its value.
_Series = tuple[tuple[str, ...], Any]


class RocketMQMetrics:
    """The collector of one broker; registered with `registry`."""

    def __init__(self, registry: CollectorRegistry, cluster: str, broker: str) -> None:
        self._labels = {"cluster": cluster, "node_type": "broker", "node_id": broker}
        self._take: Callable[[], Awaitable[BrokerFacts]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._facts: BrokerFacts | None = None
        self._taken_s = 0.0
        self._taking: asyncio.Future[None] | None = None
        registry.register(self)

    def watch(self, take: Callable[[], Awaitable[BrokerFacts]] | None) -> None:
        """Take facts by `take`, on the running event loop; None: the broker has stopped."""
        self._take = take
        self._loop = None if take is None else asyncio.get_running_loop()
        if take is None and self._taking is not None:
            self._taking.cancel()

    async def refresh(self) -> None:
        """Take the facts again if they are old; concurrent callers share one attempt. On the loop of `watch`."""
        if self._take is None or (self._facts is not None and time.monotonic() - self._taken_s < CACHE_S):
            return
        if self._taking is None:
            self._taking = asyncio.ensure_future(self._take_now(self._take))
            self._taking.add_done_callback(self._taken)
        # A page that no longer waits does not end it: the next one needs the facts.
        await asyncio.wait([self._taking])

    async def _take_now(self, take: Callable[[], Awaitable[BrokerFacts]]) -> None:
        self._facts = await take()
        self._taken_s = time.monotonic()

    def _taken(self, _ended: asyncio.Future[None]) -> None:
        self._taking = None

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the table (prometheus calls this, in a thread of its own)."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        waiting = asyncio.run_coroutine_threadsafe(self.refresh(), loop)
        try:
            waiting.result(WAIT_S)
        except LateError:
            waiting.cancel()
        if self._facts is not None:
            yield from self.families(self._facts)

    def families(self, facts: BrokerFacts) -> Iterator[Metric]:
        """Yield the metrics of these facts."""
        series = _series_of(facts)
        for row in ROCKETMQ_TABLE:
            yield self._family(row, series[row.name])

    def _family(self, row: MetricRow, series: Iterable[_Series]) -> Metric:
        names, own = [*self._labels, *row.labels], tuple(self._labels.values())
        if row.kind is _HISTOGRAM:
            histograms = HistogramMetricFamily(row.name, row.help, labels=names)
            for values, histogram in series:
                buckets, total = histogram.cumulated()
                histograms.add_metric([*own, *values], buckets=buckets, sum_value=total)
            return histograms
        family = (CounterMetricFamily if row.kind is _COUNTER else GaugeMetricFamily)(row.name, row.help, labels=names)
        for values, number in series:
            family.add_metric([*own, *values], number)
        return family


def _series_of(facts: BrokerFacts) -> dict[str, list[_Series]]:
    """Return the series of every metric of the table."""
    lags = [(_group_labels(each.group, each.topic), each) for each in bounded(facts.lags)]
    # The broker does not know languages and versions of clients.
    connection = ("other", "unknown", "grpc")
    storage = ("local", "disk")
    puts = [((*each, _flag(is_system_topic(each.topic))), row) for each, row in facts.puts.items()]
    reads = [((key.topic, *_reader_labels(key)), row) for key, row in facts.reads.items()]
    return {
        "rocketmq_broker_permission": [((), 6 if facts.is_serving_puts else 4)],
        "rocketmq_topic_number": [((), facts.topics)],
        "rocketmq_consumer_group_number": [((), facts.groups)],
        "rocketmq_messages_in": [(values, row.messages) for values, row in puts],
        "rocketmq_messages_out": [(values, row.messages) for values, row in reads],
        "rocketmq_throughput_in": [(values, row.size_bytes) for values, row in puts],
        "rocketmq_throughput_out": [(values, row.size_bytes) for values, row in reads],
        "rocketmq_message_size": [(tuple(key), row.sizes) for key, row in facts.puts.items()],
        "rocketmq_producer_connections": [(connection, facts.streams)],
        "rocketmq_consumer_connections": [
            ((group, *connection[:2], "push", connection[2], _flag(_is_system("", group))), count)
            for group, count in facts.members.items()
        ],
        "rocketmq_consumer_lag_messages": [(values, each.lag) for values, each in lags],
        "rocketmq_consumer_lag_latency_milliseconds": [(values, each.lag_latency_ms) for values, each in lags],
        "rocketmq_consumer_inflight_messages": [(values, each.inflight) for values, each in lags],
        "rocketmq_consumer_queueing_latency_milliseconds": [
            (values, each.queueing_latency_ms) for values, each in lags
        ],
        "rocketmq_consumer_ready_messages": [(values, each.ready) for values, each in lags],
        "rocketmq_rpc_latency_milliseconds": [
            (("grpc", key.request_code, key.response_code, _flag(key.is_long_polling), "success"), histogram)
            for key, histogram in facts.calls.items()
        ],
        "rocketmq_storage_size_bytes": [(storage, facts.log_bytes)],
        "rocketmq_storage_dispatch_behind_bytes": [(storage, facts.behind_bytes)],
        "rocketmq_storage_message_reserve_time_milliseconds": [(storage, facts.reserve_ms)]
        if facts.reserve_ms >= 0
        else [],
    }


def _group_labels(group: str, topic: str) -> tuple[str, ...]:
    return group, topic, _flag(is_retry_topic(topic)), _flag(_is_system(topic, group))


def _reader_labels(key: ReadKey) -> tuple[str, ...]:
    return key.group, _flag(is_retry_topic(key.topic)), _flag(_is_system(key.topic, key.group))


def _is_system(topic: str, group: str) -> bool:
    return is_system_topic(topic) or group.lower().startswith(_SYSTEM_GROUP_PREFIX)


def _flag(is_so: bool) -> str:
    return "true" if is_so else "false"
