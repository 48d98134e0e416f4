"""Sends the trace of one client to the trace topic, in the background.

A record waits `LINGER_S` for others. What cannot be sent is counted and dropped, after the attempts that
`BrokerNodes.call` makes in `CALL_LIMIT_S`; an attempt whose answer is lost may store records twice, which readers show
once. Tracing never delays the client, and never fails a call of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.client.routing.queue_choice import RoundRobin, writable_queues
from cluster.client.tracing.trace_batches import TraceQueue
from cluster.client.tracing.trace_records import DeliveredTrace, ProcessedTrace
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from commitlog.record.properties import encode_properties
from store.errors import StoreError
from store.model.message import KEYS
from store.model.topics import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.client.routing.connection import BrokerConnection
    from cluster.client.tracing.trace_batches import TraceBatch
    from cluster.client.tracing.trace_records import WrittenTrace

LINGER_S: Final = 0.2
CALL_LIMIT_S: Final = 5.0
# How long the end of a client waits for its trace.
CLOSE_LIMIT_S: Final = 3.0
# How often a loss is logged.
_LOG_INTERVAL_S: Final = 60.0

logger = logging.getLogger(__name__)


class DeliveryTrace(NamedTuple):
    """What a consumer keeps of a delivered message, for the record of its end."""

    request_id: str
    message_id: str
    keys: str
    begin_ms: int


class TraceSender:
    """The trace of one client; must be created in its event loop.

    Args:
        connection: of the client.
        group: its group, in the records.
    """

    def __init__(self, connection: BrokerConnection, group: str) -> None:
        self.group = group
        self._connection = connection
        self._queue = TraceQueue()
        self._round_robin = RoundRobin()
        self._has_records = asyncio.Event()
        self._is_closing = asyncio.Event()
        self._lost_count = 0
        self._logged_s = -_LOG_INTERVAL_S
        self._sending = asyncio.create_task(self._run())

    @property
    def dropped_count(self) -> int:
        """The number of records that were not sent: too many waited, or the trace topic could not be reached."""
        return self._queue.dropped_count + self._lost_count

    def add(self, records: Iterable[WrittenTrace]) -> None:
        """Send records later; those above the bound are dropped."""
        is_full = False
        for record in records:
            is_full = not self._queue.add(record) or is_full
        self._has_records.set()
        if is_full:
            self._log_loss("too many records wait")

    async def close(self) -> None:
        """Send what waits, for `CLOSE_LIMIT_S` at most, and end."""
        self._is_closing.set()
        self._has_records.set()
        await asyncio.wait([self._sending], timeout=CLOSE_LIMIT_S)
        await end_tasks([self._sending])
        self._lost_count += len(self._queue)

    async def _run(self) -> None:
        while not self._is_closing.is_set() or self._queue:
            await self._has_records.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await self._is_closing.wait()
            self._has_records.clear()
            while self._queue:
                batch = self._queue.take()
                try:
                    await self._put(batch)
                except (RequestFailed, StoreError) as failure:
                    self._lost_count += batch.records_count
                    self._log_loss(str(failure))

    async def _put(self, batch: TraceBatch) -> None:
        """Put one message of traces.

        Raises:
            RequestFailed: it may not have been stored.
        """
        queues = writable_queues(await self._connection.find(TRACE_TOPIC))
        if not queues:
            raise RequestFailed(Reason.UNKNOWN_TOPIC, f"no broker has topic {TRACE_TOPIC}: set trace_topic_enable")
        queue = self._round_robin.choose(queues)
        request = pb.PutRequest(
            topic=TRACE_TOPIC,
            queue_ids=[queue.queue_id],
            bodies=[batch.body],
            properties=[encode_properties({KEYS: batch.keys})],
            born_timestamps=[now_ms()],
        )
        await self._connection.nodes.call(queue.broker, lambda stub: stub.Put, request, CALL_LIMIT_S)

    def _log_loss(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._logged_s >= _LOG_INTERVAL_S:
            self._logged_s = now
            logger.warning("trace_lost group=%s records=%d: %s", self.group, self.dropped_count, reason)


def delivered_trace(group: str, delivery: DeliveryTrace, retry_times: int) -> DeliveredTrace:
    """Return the record of a delivery."""
    return DeliveredTrace(
        delivery.begin_ms, group, delivery.request_id, delivery.message_id, retry_times, delivery.keys
    )


def processed_trace(group: str, delivery: DeliveryTrace) -> ProcessedTrace:
    """Return the record of the end of a delivery, now."""
    end_ms = now_ms()
    cost_ms = max(end_ms - delivery.begin_ms, 0)
    return ProcessedTrace(
        delivery.request_id,
        delivery.message_id,
        cost_ms,
        is_success=True,
        keys=delivery.keys,
        time_ms=end_ms,
        group=group,
    )


def now_ms() -> int:
    """Return the time of day, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
