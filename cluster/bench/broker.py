"""Measures a temporary broker of three nodes: puts by a `Producer`, reads by a `Consumer`, and a killed leader.

Every run begins with empty stores. Clients run in this process, on the same machine as the nodes. A warm-up is
excluded.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from cluster.bench.cluster import NODE_OPTIONS
from cluster.bench.delays import delivered_per_second, lateness_p99_ms
from cluster.bench.group_queues import PATIENT, WRITE_INTERVAL_MS, p99_ratio
from cluster.bench.pop import taken_per_second
from cluster.bench.sending import TIME_SIZE, fill, send_times
from cluster.bench.store import BenchTarget, Figure
from cluster.bench.transactions import transactions_per_second
from cluster.client.consumer.consumer import Consumer
from cluster.client.outcomes import AppendUnknown, NotAppended
from cluster.client.producer.options import ProducerOptions, ProducerSettings
from cluster.client.producer.outgoing import OutgoingMessage
from cluster.client.producer.producer import Producer
from cluster.local.brokers import LocalBrokers
from dledger.event_loop import new_event_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from cluster.local.cluster import LocalCluster

TOPIC = "bench"
TARGETS = {
    "send1": BenchTarget("messages/s", 1_000),
    "send64": BenchTarget("messages/s", 25_000),
    "batch100": BenchTarget("messages/s", 40_000),
    "batch100x16": BenchTarget("messages/s", 85_000),
    "tail": BenchTarget("ms, p50", 3, is_less_better=True),
    "catch-up": BenchTarget("messages/s", 60_000),
    "delays": BenchTarget("messages/s", 20_000),
    "timers": BenchTarget("messages/s", 20_000),
    "delay-late": BenchTarget("ms, p99", 50, is_less_better=True),
    "transactions": BenchTarget("transactions/s", 5_000),
    "pop": BenchTarget("messages/s", 15_000),
    "put-many": BenchTarget("p99 of 8 queues = 1", 2, is_less_better=True),
    "failover": BenchTarget("s", 1.5, is_less_better=True),
}
_NODE_OPTIONS: dict[str, str | int] = {
    **NODE_OPTIONS,
    "auto_create_topic_enable": True,
    # Long timeouts, so that a machine that stalls for seconds worsens the figures but does not end the measurement.
    "max_wait_ack_time_ms": 20_000,
}
_CALLERS = {"send1": (1, 1), "send64": (64, 1), "batch100": (1, 100), "batch100x16": (16, 100)}
_FILL_BATCH = 200
_WARM_UP_S = 1.0
_POLL_MESSAGES = 5_000


@dataclass(frozen=True, slots=True)
class BrokerBench:
    """The settings of a measurement.

    Attributes:
        folder: parent of a temporary folder for the data of the nodes; it determines the disk.
        seconds: duration of one run, after its warm-up.
        body_size_bytes: body size of every message.
        flush: "sync" or "async".
        size_bytes: bytes of bodies in the log before a consumer catches up or the leader is killed.
        queues: number of queues of put-many.
        delayed: number of messages of delays, and of timers.
        popped: number of messages of pop.
    """

    folder: Path
    seconds: float
    body_size_bytes: int
    flush: str
    size_bytes: int
    queues: int
    delayed: int = 100_000
    popped: int = 100_000

    @property
    def title(self) -> str:
        """The title of the table."""
        durable = "fsync" if self.flush == "sync" else "no fsync"
        return f"a broker of three nodes, {self.body_size_bytes}-byte messages, {durable} before acknowledgement"

    def measure(self, parts: Sequence[str], runs: int, progress: Callable[[str], None]) -> list[Figure]:
        """Run each part `runs` times.

        Raises:
            ClusterError: nodes did not start.
            RequestFailed: a broker refused the preparation of a part.
            NotAppended, AppendUnknown: a message was not stored, or its outcome is unknown.
        """
        figures = [Figure(part, TARGETS[part], 0) for part in parts]
        for figure in figures:
            for number in range(1, runs + 1):
                progress(f"{figure.name}: run {number} of {runs}")
                figure.runs.append(self._run(figure.name, progress))
        return figures

    def _run(self, part: str, progress: Callable[[str], None]) -> float:
        if part == "put-many":
            with self._own_broker(flush_consume_queue_thorough_interval_ms=WRITE_INTERVAL_MS) as cluster:
                return p99_ratio(cluster, self.queues, self.body_size_bytes, self.seconds, progress)
        with self._own_broker() as cluster, asyncio.Runner(loop_factory=new_event_loop) as runner:
            if part in _CALLERS:
                return runner.run(self._send(cluster.endpoints, *_CALLERS[part]))
            if part in ("tail", "delays", "timers", "delay-late", "transactions"):
                return runner.run(self._deliver(part, cluster))
            if part == "pop":
                return runner.run(taken_per_second(cluster.endpoints, self.body_size_bytes, self.popped))
            count = runner.run(self._fill(cluster.endpoints))
            if part == "catch-up":
                return runner.run(_catch_up(cluster.endpoints, count))
            return runner.run(self._fail_over(cluster))

    @contextmanager
    def _own_broker(self, **more: int) -> Iterator[LocalCluster]:
        self.folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="broker-", dir=self.folder))
        options = {**_NODE_OPTIONS, **more, "flush": self.flush}
        try:
            with LocalBrokers.create(folder / "run", name_servers=0, options=options) as brokers:
                (cluster,) = brokers.clusters.values()
                cluster.wait_for_leader()
                yield cluster
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # ---------------------------------------------------------------------------------------------------- parts

    def _messages(self, count: int) -> list[OutgoingMessage]:
        return [OutgoingMessage(TOPIC, bytes(self.body_size_bytes))] * count

    async def _send(self, endpoints: str, callers: int, batch: int) -> float:
        """Return the acknowledged messages per second; every caller waits for its batch before it sends the next."""
        messages = self._messages(batch)
        batch_max = 1 if callers == batch == 1 else ProducerOptions().batch_messages_max
        settings: ProducerSettings = {**PATIENT, "batch_messages_max": batch_max}
        async with Producer(endpoints, **settings) as producer:

            async def send() -> None:
                if batch == 1:
                    await producer.send(TOPIC, messages[0].body)
                else:
                    await producer.send_many(messages)

            await _calls_until(time.perf_counter() + _WARM_UP_S, callers, send)
            began = time.perf_counter()
            calls = await _calls_until(began + self.seconds, callers, send)
            return calls * batch / (time.perf_counter() - began)

    async def _fill(self, endpoints: str) -> int:
        """Put messages up to the log size; return their number."""
        times = -(-self.size_bytes // (self.body_size_bytes * _FILL_BATCH))
        await fill(endpoints, self._messages(_FILL_BATCH), times)
        return times * _FILL_BATCH

    async def _deliver(self, part: str, cluster: LocalCluster) -> float:
        if part in ("delays", "timers"):
            has_time = part == "timers"
            return await delivered_per_second(cluster, self.body_size_bytes, self.delayed, has_time=has_time)
        if part == "delay-late":
            return await lateness_p99_ms(cluster.endpoints, self.body_size_bytes, self.seconds)
        if part == "transactions":
            return await transactions_per_second(cluster.endpoints, self.body_size_bytes, self.seconds)
        return await self._tail(cluster.endpoints)

    async def _tail(self, endpoints: str) -> float:
        """Return the median latency from the send call of a message to its delivery to a consumer, in ms."""
        padding = bytes(max(self.body_size_bytes - TIME_SIZE, 0))
        waits_ms: list[float] = []
        async with Producer(endpoints, **PATIENT) as producer:
            await producer.send(TOPIC, padding)
            async with Consumer(endpoints, group="bench", topics=TOPIC, start="first") as consumer:
                while not await consumer.poll():
                    continue
                measured_from = time.perf_counter() + _WARM_UP_S
                sending = asyncio.create_task(send_times(producer, TOPIC, padding, measured_from + self.seconds))
                while not sending.done():
                    for message in await consumer.poll(timeout_s=0.1):
                        sent_ns = int.from_bytes(message.body[:TIME_SIZE], "big")
                        if sent_ns >= measured_from * 1e9:
                            waits_ms.append((time.perf_counter_ns() - sent_ns) / 1e6)
                await sending
        return median(waits_ms)

    async def _fail_over(self, cluster: LocalCluster) -> float:
        """Kill the leader; return the seconds until the next message is acknowledged."""
        async with Producer(cluster.endpoints, compression=None) as producer:
            for message in self._messages(50):
                await producer.send(TOPIC, message.body)
            leader = await asyncio.to_thread(cluster.wait_for_leader)
            began = time.perf_counter()
            cluster.kill(leader)
            while True:
                try:
                    await producer.send(TOPIC, bytes(self.body_size_bytes))
                    return time.perf_counter() - began
                except (NotAppended, AppendUnknown):
                    continue


async def _calls_until(end: float, callers: int, call: Callable[[], Awaitable[None]]) -> int:
    """Run `callers` concurrent callers, each with one call after another, until `end`; return the number of calls."""

    async def one() -> int:
        count = 0
        while time.perf_counter() < end:
            await call()
            count += 1
        return count

    return sum(await asyncio.gather(*(one() for _ in range(callers))))


async def _catch_up(endpoints: str, count: int) -> float:
    """Return the messages per second at which a new consumer reads the whole log."""
    async with Consumer(endpoints, group="bench", topics=TOPIC, start="first") as consumer:
        first = await consumer.poll(_POLL_MESSAGES, timeout_s=10)
        began, found = time.perf_counter(), 0
        while len(first) + found < count:
            found += len(await consumer.poll(_POLL_MESSAGES))
        return found / (time.perf_counter() - began)
