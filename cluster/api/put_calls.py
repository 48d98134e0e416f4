"""Put and PutStream: from a client's columns to the store, and back to the offsets of the messages.

Answers to invalid input (`cluster.protocol.errors` has the code and the certainty of each):

| request                                                  | reason               | found in       |
| -------------------------------------------------------- | -------------------- | -------------- |
| no bodies, too many, too large; lists that do not fit    | ILLEGAL_MESSAGE      | message_columns |
| a body, properties or a field beyond what a record holds | ILLEGAL_MESSAGE      | record encoder |
| an invalid topic name | ILLEGAL_MESSAGE      | store.model.topics   |
| sys_flag of a prepared message; a TIMER_… of brokers | UNSUPPORTED | delivery.put_options |
| a time that is no number, or too far away | ILLEGAL_MESSAGE | delivery.put_options |
| DELAY, a time or TRAN_MSG, below the feature level that has them | UNSUPPORTED | broker_core |
| of another kind than the type of its topic                | MESSAGE_TYPE_CONFLICT | delivery.message_kinds |
| without keys, for a compacted topic                       | ILLEGAL_MESSAGE | delivery.compacted_messages |
| too many messages wait for a time | OVERLOADED | found here |
| TRAN_MSG with 1,000,000 open transactions | TOO_MUCH_STATE | found here |
| node does not lead, or is not ready (checked first) | NOT_LEADER, LEADER_NOT_READY | replica |
| unknown topic                                            | UNKNOWN_TOPIC        | broker_core    |
| a topic without permission to write, or of the system    | TOPIC_NOT_WRITABLE   | broker_core    |
| a queue that the topic lacks | UNKNOWN_QUEUE        | broker_core    |
| the topic has used its quota | OVER_QUOTA | flow_quotas |
| user or address has its share of pending puts            | OVERLOADED           | found here     |
| too many puts wait for the disk                          | LEADER_PENDING_FULL  | store service  |
| disk full                                                | DISK_FULL, of a group SERVICE_NOT_AVAILABLE | store, node |
| not durable in time                                      | FLUSH_DISK_TIMEOUT   | store service  |
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

from cluster.api.answers import DONE, refusal
from cluster.api.message_columns import encode_host, messages_of
from cluster.broker.core import BrokerCore, wall_clock_ms
from cluster.delivery.compacted_messages import check_keys
from cluster.delivery.diversion import DeliverAt, Delivery, diverted, in_table
from cluster.delivery.message_kinds import check_kinds
from cluster.delivery.put_options import TimeLimits, requested_deliveries
from cluster.delivery.timer_records import TIMER_QUEUE
from cluster.delivery.transactions.half_messages import half_rows, with_halves
from cluster.protocol.compacted_topics import is_compacted
from cluster.protocol.errors import Reason, RequestFailed, failure_of, reason_of_put
from cluster.protocol.recall_handle import RecallHandle, encode_recall_handle
from cluster.protocol.request_bounds import BROKER_BOUNDS
from cluster.state.features import WITH_EFFECTS, WITH_TIMERS, WITH_TRANSACTIONS
from cluster.state.transactions import OPEN_MAX
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError, Overloaded, RepeatLater
from dledger.service.call_gate import holder
from dledger.service.guarded_method import BadRequest
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.retry_times import RetryTimes
from dledger.service.pipelined_call import PipelinedCall
from dledger.service.request_guard import BoundsCheck
from store.errors import Certainty, IllegalMessage, IllegalRequest, StoreError
from store.model.commit_log import Places, PutOutcome, PutStatus
from store.model.message import UNIQUE_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from cluster.protocol.topic_config import TopicConfig
    from store.model.commit_log import Place
    from store.model.message import Host, Message

_STATUS_TO_WIRE: Final = {status: pb.PutStatus.Value(f"PUT_STATUS_{status.name}") for status in PutStatus}
_OK: Final = _STATUS_TO_WIRE[PutStatus.PUT_OK]


class _Put(NamedTuple):
    """The result of one request: an outcome, or an error."""

    outcome: PutOutcome | None
    error: StoreError | DLedgerError | None = None
    recall_handles: Sequence[str] = ()


class _Prepared(NamedTuple):
    """The messages of one request, as they are put.

    Attributes:
        messages: delayed and half messages are diverted.
        size_bytes: of bodies and properties.
        handles: for recalls; empty: of none.
        halves_count: number of half messages.
        is_delayed: whether one of them is delayed.
    """

    messages: Sequence[Message]
    size_bytes: int
    handles: Sequence[str]
    halves_count: int
    is_delayed: bool


class PutCalls:
    """The calls that put messages."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._creating: dict[str, asyncio.Task[None]] = {}
        # Of bytes of puts that are not decided yet. Messages have a bound of their own, so each counts as at least its
        # part of all bytes.
        options = core.options
        self._pending = FairShares(options.pending_size_bytes_max)
        self._message_bytes_min = -(-options.pending_size_bytes_max // options.pending_messages_max)
        self._retries = RetryTimes(time.monotonic)
        # Half messages in puts that are not decided yet.
        self._preparing = 0
        method = pb.DESCRIPTOR.services_by_name["BrokerService"].methods_by_name["PutStream"]
        self._check_bounds = BoundsCheck(method, BROKER_BOUNDS)

    async def put(
        self, request: pb.PutRequest, born_host: Host, metadata: Iterable[tuple[str, str | bytes]] = ()
    ) -> pb.PutResponse:
        """Put all messages of the request; answer when the outcome is known. `metadata`: of the call."""
        return self._response(request.request_id, await self._begin(born_host, request, metadata))

    async def put_stream(
        self, requests: AsyncIterator[pb.PutRequest], born_host: Host
    ) -> AsyncIterator[pb.PutResponse]:
        """Put the messages of each request; answer each when its outcome is known."""
        begin: Callable[[pb.PutRequest], asyncio.Future[_Put]] = partial(self._begin, born_host)
        traffic = self._core.traffic
        if traffic is not None:
            traffic.streams += 1
        try:
            async for response in PipelinedCall(begin, self._response).run(requests):
                yield response
        finally:
            if traffic is not None:
                traffic.streams -= 1

    def refused(self, error: IllegalRequest, request: pb.PutRequest | None) -> pb.PutResponse:
        """Return the answer to a request that exceeds a bound; None: it was too large to be decoded."""
        return self._response(0 if request is None else request.request_id, _Put(None, _illegal(error)))

    def _begin(
        self, born_host: Host, request: pb.PutRequest, metadata: Iterable[tuple[str, str | bytes]] = ()
    ) -> asyncio.Future[_Put]:
        """Begin one put, with its spans if puts are traced."""
        spans = self._core.put_spans
        if spans is None:
            return self._begin_put(born_host, request)
        followed = spans.begin(request.topic, request.properties, request.queue_ids, metadata)
        ended = self._begin_put(born_host, request)
        if followed:
            ended.add_done_callback(lambda done: spans.end(followed, _cause_of(done)))
        return ended

    def _begin_put(self, born_host: Host, request: pb.PutRequest) -> asyncio.Future[_Put]:
        """Begin one put, in this iteration of the loop unless its topic must be created first."""
        core = self._core
        ended: asyncio.Future[_Put] = asyncio.get_running_loop().create_future()
        begin_s = time.monotonic()
        name = holder()
        try:
            if not self._pending.has_space(name):
                raise self._overloaded(name)
            self._check_bounds(request)
            # Checked before the topic: a node that does not lead may not know a new or changed topic yet.
            puts = core.replica.serving_puts()
            topic = core.replica.state.topics.get(request.topic)
            new_topic = core.topic_to_create(request.topic) if topic is None else None
            if new_topic is not None:
                return asyncio.ensure_future(self._create_and_put(new_topic, born_host, request))
            topic = topic or core.known_topic(request.topic)
            self._check(topic, request)
            core.flow.check_put(topic)
            prepared = self._prepared(topic, born_host, request)
            messages, halves_count = prepared.messages, prepared.halves_count
            amount = max(prepared.size_bytes, len(messages) * self._message_bytes_min)
            if not self._pending.take(name, amount):
                raise self._overloaded(name)
            try:
                pending = puts.begin_prepared_put(messages) if halves_count else puts.begin_put(messages)
            except BaseException:
                self._pending.give_back(name, amount)
                raise
            self._preparing += halves_count
            core.flow.charge_put(topic, len(messages), request.ByteSize)
        except BadRequest as error:
            ended.set_result(_Put(None, _illegal(error)))
            return ended
        except (StoreError, DLedgerError) as error:
            ended.set_result(_Put(None, error))
            return ended

        def end(done: asyncio.Future[PutOutcome]) -> None:
            # Not when the call ends: a client that leaves does not take its puts back.
            self._pending.give_back(name, amount)
            self._preparing -= halves_count
            outcome = done.result()
            self._count(request.topic, prepared, outcome, time.monotonic() - begin_s)
            if not ended.done():
                ended.set_result(_Put(outcome, recall_handles=prepared.handles))

        if pending.done():
            end(pending)
        else:
            pending.add_done_callback(end)
        return ended

    def _prepared(self, topic: TopicConfig, born_host: Host, request: pb.PutRequest) -> _Prepared:
        """Return the messages of a request as they are put.

        Raises:
            RequestFailed: MESSAGE_TYPE_CONFLICT, UNSUPPORTED, OVERLOADED, TOO_MUCH_STATE.
            IllegalMessage: one of them may not be put.
        """
        core, properties = self._core, list(request.properties)
        if topic.attributes:
            check_kinds(topic, properties, request.sys_flags)
            if is_compacted(topic.attributes):
                check_keys(topic.name, properties)
        limits = TimeLimits(core.clock_ms(), core.options.timer_max_delay_sec)
        deliveries = requested_deliveries(properties, request.sys_flags, limits)
        halves = half_rows(properties)
        columns, size_bytes = messages_of(request, properties, born_host, wall_clock_ms())
        messages: Sequence[Message] = columns
        handles: Sequence[str] = ()
        if deliveries is not None:
            levels_ms, now_ms = core.replica.state.delay_levels_ms, core.clock_ms()
            deliveries = [in_table(each, levels_ms, now_ms) for each in deliveries]
            messages, handles = self._diverted(columns, deliveries)
        if halves:
            self._check_halves(len(halves))
            messages = with_halves(messages, halves)
        return _Prepared(messages, size_bytes, handles, len(halves), is_delayed=deliveries is not None)

    def _diverted(
        self, messages: Sequence[Message], deliveries: Sequence[Delivery]
    ) -> tuple[Sequence[Message], Sequence[str]]:
        """Return the messages of a put, the delayed ones diverted; and their recall handles, if there are any.

        Raises:
            RequestFailed: UNSUPPORTED, OVERLOADED.
            IllegalMessage: the properties of one are too large.
        """
        core = self._core
        core.check_feature(WITH_EFFECTS, "delayed messages")
        found = diverted(messages, deliveries)
        if not any(isinstance(each, DeliverAt) for each in deliveries):
            return found, ()
        core.check_feature(WITH_TIMERS, "messages for a time of their own")
        queue = core.replica.store.derived.queues.get(TIMER_QUEUE)
        if queue is not None and core.replica.state.timers.waiting_count(queue.max_offset) >= core.options.timers_max:
            raise RequestFailed(Reason.OVERLOADED, f"{core.options.timers_max} messages wait for their time already")
        handles = [
            _recall_handle(core.options.broker, message.topic, stored, delivery)
            for message, stored, delivery in zip(messages, found, deliveries, strict=True)
        ]
        return found, handles if any(handles) else ()

    def _count(self, topic: str, put: _Prepared, outcome: PutOutcome, latency_s: float) -> None:
        count, size_bytes, is_delayed = len(put.messages), put.size_bytes, put.is_delayed
        metrics, traffic = self._core.metrics, self._core.traffic
        metrics.count_put(outcome.status, count, latency_s)
        is_stored = outcome.certainty is Certainty.APPENDED
        if is_stored:
            counts = metrics.counts
            counts.put_messages += count
            counts.put_bytes += size_bytes
            counts.put_repeated += outcome.repeated_count
        if traffic is not None:
            traffic.called("send_batch_message", "success" if is_stored else outcome.status.name.lower(), latency_s)
            if is_stored:
                traffic.put(topic, "delay" if is_delayed else "normal", count, size_bytes)

    def _check_halves(self, count: int) -> None:
        """Raise unless a put may begin transactions.

        Raises:
            RequestFailed: UNSUPPORTED, TOO_MUCH_STATE.
        """
        self._core.check_feature(WITH_TRANSACTIONS, "transactions")
        if self._core.replica.state.transactions.open_count + self._preparing + count > OPEN_MAX:
            text = f"there are {OPEN_MAX} open transactions, which is the limit: end some (`dledger transaction list`)"
            raise RequestFailed(Reason.TOO_MUCH_STATE, text)

    def _overloaded(self, name: str) -> Overloaded:
        share = f"the {self._pending.size} bytes of pending puts"
        return Overloaded(name, share, self._retries.next_s())

    async def _create_and_put(self, topic: TopicConfig, born_host: Host, request: pb.PutRequest) -> _Put:
        """Create the topic, once for all concurrent callers, then put."""
        name = topic.name
        try:
            if name not in self._creating:
                self._creating[name] = asyncio.create_task(self._core.create_topic(topic))
                self._creating[name].add_done_callback(lambda _: self._creating.pop(name))
            await asyncio.shield(self._creating[name])
            # Deleted in between: a retry creates it again.
            self._core.known_topic(name)
        except (StoreError, DLedgerError) as error:
            # It may be unknown whether the topic exists, but certainly none of the messages was stored.
            return _Put(None, failure_of(error).copy(certainty=Certainty.NOT_APPENDED))
        return await self._begin_put(born_host, request)

    def _check(self, topic: TopicConfig, request: pb.PutRequest) -> None:
        self._core.check_writable(topic)
        queue_ids = request.queue_ids
        if queue_ids:
            self._core.check_queue(topic, min(queue_ids), topic.write_queues)
            self._core.check_queue(topic, max(queue_ids), topic.write_queues)
        else:
            self._core.check_queue(topic, 0, topic.write_queues)

    def _response(self, request_id: int, put: _Put) -> pb.PutResponse:
        outcome, error, recall_handles = put
        if outcome is not None and outcome.certainty is Certainty.APPENDED:
            places = outcome.places
            own_host = encode_host(self._core.replica.store_host)
            return pb.PutResponse(
                request_id=request_id,
                answer=DONE,
                status=_OK,
                **_columns_of(places),
                store_host=own_host,
                repeated_count=outcome.repeated_count,
                queue_ids=outcome.queue_ids,
                store_hosts=[own_host if host is None else encode_host(host) for host in outcome.store_hosts],
                recall_handles=recall_handles,
            )
        if outcome is not None:
            reason = reason_of_put(outcome.status)
            error = RequestFailed(reason, outcome.detail, certainty=outcome.certainty)
            status = outcome.status
        else:
            status = _status_of(error)
        assert error is not None
        answer = refusal(self._core, error)
        return pb.PutResponse(request_id=request_id, answer=answer, status=_STATUS_TO_WIRE[status])


def _cause_of(done: asyncio.Future[_Put]) -> str:
    """Return why a put failed, or its outcome is unknown; empty: it is stored."""
    if done.cancelled():
        return "cancelled"
    outcome, error, _ = done.result()
    if error is not None:
        return failure_of(error).name
    assert outcome is not None
    return "" if outcome.certainty is Certainty.APPENDED else outcome.status.name


def _recall_handle(broker: str, topic: str, stored: Message, delivery: Delivery) -> str:
    """Return the handle of a diverted message; empty for one that waits for no time, or has no unique key."""
    key = stored.properties.get(UNIQUE_KEY)
    if not key or not isinstance(delivery, DeliverAt):
        return ""
    return encode_recall_handle(RecallHandle(topic, broker, delivery.time_ms, key))


class _PlaceColumns(TypedDict):
    """Fields of a response."""

    physical_offsets: Sequence[int]
    queue_offsets: Sequence[int]
    store_timestamps: Sequence[int]


def _columns_of(places: Sequence[Place]) -> _PlaceColumns:
    """Return places as columns of a response: one store timestamp if all messages have it."""
    if isinstance(places, Places):
        offsets, queue_offsets, stamps = places.physical_offsets, places.queue_offsets, [places.store_timestamp]
    else:
        offsets = [place.physical_offset for place in places]
        queue_offsets = [place.queue_offset for place in places]
        stamps = [place.store_timestamp for place in places]
        stamps = stamps[:1] if min(stamps) == max(stamps) else stamps
    return _PlaceColumns(physical_offsets=offsets, queue_offsets=queue_offsets, store_timestamps=stamps)


def _illegal(error: IllegalRequest) -> IllegalMessage:
    return IllegalMessage(error.field, error.expected, error.found)


def _status_of(error: StoreError | DLedgerError | None) -> PutStatus:
    """Return RocketMQ's status for a failed put."""
    if isinstance(error, IllegalMessage):
        return PutStatus.PROPERTIES_SIZE_EXCEEDED if error.field == "properties size" else PutStatus.MESSAGE_ILLEGAL
    if isinstance(error, RepeatLater):
        return PutStatus.OS_PAGE_CACHE_BUSY
    if isinstance(error, RequestFailed):
        if error.reason in (Reason.UNSUPPORTED, Reason.MESSAGE_TYPE_CONFLICT):
            return PutStatus.MESSAGE_ILLEGAL
        return PutStatus.SERVICE_NOT_AVAILABLE
    return PutStatus.UNKNOWN_ERROR
