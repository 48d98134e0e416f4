"""Get and Subscribe: read queues from an offset on, once or endlessly.

Answers to invalid input (`cluster.protocol.errors` has the codes; a read changes nothing):

| request                                       | answer                                            |
| --------------------------------------------- | ------------------------------------------------- |
| a negative offset, count or size              | ILLEGAL_REQUEST                                   |
| an invalid tags or SQL92 expression, or both  | ILLEGAL_REQUEST                                   |
| an unknown topic, or one that is not readable | UNKNOWN_TOPIC, TOPIC_NOT_READABLE                 |
| a queue that the topic lacks                  | UNKNOWN_QUEUE                                     |
| a disabled group                              | GROUP_NOT_ENABLED                                 |
| an offset before the first message            | status OFFSET_TOO_SMALL; `next_offset`: the first |
| an offset beyond the end by more than one     | status OFFSET_OVERFLOW_BADLY, at once             |
| a count, size or wait above the maximum       | the maximum is used                               |
| user or address has its share of them         | OVERLOADED                                        |
| topic or group has used its quota             | OVER_QUOTA; responses of a stream wait instead    |
| too many waiting readers, or of its topic or group | TOO_MANY_WAITERS                             |
| Subscribe, not LOCAL, on a follower           | NOT_LEADER                                        |

A read never moves to another offset than the requested one: the status describes where messages are, and the reader
decides. Messages that are skipped because they are damaged or deleted are reported in the same answer (`skipped`).

A stream has one response in memory, created after the previous one was written to the connection's buffers. So a reader
that does not read costs a few hundred kilobytes, and delays no other call.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.api.answers import read_mode_of, refusal, report_skipped
from cluster.api.message_columns import check_lengths, fill_columns, records_of
from cluster.broker.queue_watch import QueueWatch
from cluster.broker.reader_bounds import ReaderBounds
from cluster.process.cooperative import Pace
from cluster.protocol.wire.filters import expression_of
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError, Overloaded
from dledger.service.call_gate import holder
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.retry_times import RetryTimes
from dledger.v1.log_pb2 import ReadMode
from store.access.get_message import GetResult, GetStatus
from store.errors import IllegalRequest, StoreError
from store.model.read_filter import parse_filter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from cluster.broker.core import BrokerCore
    from cluster.broker.reader_bounds import Readers

# One response is read and encoded in one iteration of the loop, which takes 8 microseconds a message.
# A message takes some 5 us: no response may block the event loop for long.
COUNT_MAX: Final = 1_024
SIZE_BYTES_MAX: Final = 4 << 20
WAIT_MS_MAX: Final = 30_000
STREAMS_MAX: Final = 1_024
_COUNT_DEFAULT: Final = 32
_STREAM_SIZE_BYTES_DEFAULT: Final = 1 << 20
_MS_PER_S: Final = 1000
_READERS: Final = "waiting readers"
# How often an idle stream checks whether it may still be served.
_STREAM_WAIT_S: Final = 30.0

_STATUS_TO_WIRE: Final = {status: pb.GetStatus.Value(f"GET_STATUS_{status.name}") for status in GetStatus}
# Results after which a message may arrive at the offset.
_MAY_COME: Final = frozenset(
    {GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE}
)
# Results without a message after which reading continues.
_CONTINUES: Final = frozenset({GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})
# Results after which the messages before `next_offset` are read.
_READ_ON: Final = _CONTINUES | {GetStatus.FOUND}


class _Want(NamedTuple):
    """The parameters of a reader, equal for all of its reads."""

    topic: str
    group: str
    tags: str
    count_max: int
    size_bytes_max: int


class ReadCalls:
    """The calls that read queues."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._streams = FairShares(STREAMS_MAX)
        # A stream counts with each of its queues.
        self._readers = FairShares(core.options.waiters_max)
        self._bounds = ReaderBounds(core.options.limits, core.metrics.count_limited)
        self._retries = RetryTimes(time.monotonic)

    def _take(self, shares: FairShares, name: str, amount: int, what: str) -> None:
        """Take a share of a resource.

        Raises:
            Overloaded: the caller has its share.
        """
        if not shares.take(name, amount):
            raise Overloaded(name, f"the {shares.size} {what}", self._retries.next_s())

    # ------------------------------------------------------------------------------------------------------- Get

    async def get(self, request: pb.GetRequest) -> pb.GetResponse:
        """Read a queue; wait for a message if there is none.

        Raises:
            StoreError, DLedgerError: see the module's table.
        """
        core, begin_s = self._core, time.monotonic()
        await core.confirm(read_mode_of(request.mode))
        topic = core.readable_topic(request.topic)
        core.check_queue(topic, request.queue_id, topic.read_queues)
        core.check_consumer(request.group)
        want = _Want(
            request.topic,
            request.group,
            expression_of(request),
            _bounded("max_messages", request.max_messages, _COUNT_DEFAULT, COUNT_MAX),
            _bounded("max_bytes", request.max_bytes, SIZE_BYTES_MAX, SIZE_BYTES_MAX),
        )
        wait_ms = _bounded("wait_ms", request.wait_ms, 0, WAIT_MS_MAX)
        result = await self._get_waiting(want, request.queue_id, request.offset, wait_ms)
        if result.messages:
            self._charge(want, result)
        core.metrics.count_get(result.status)
        if core.traffic is not None:
            latency_s = time.monotonic() - begin_s
            core.traffic.called("pull_message", _response_code(result), latency_s, is_long_polling=wait_ms > 0)
        response = pb.GetResponse(
            status=_STATUS_TO_WIRE[result.status],
            next_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            skipped=self._skipped(want.topic, request.queue_id, result),
        )
        self._fill(response, result, request.form)
        self._count(request.group, request.topic, request.queue_id, result)
        return response

    async def _get_waiting(self, want: _Want, queue_id: int, offset: int, wait_ms: int) -> GetResult:
        """Read until there is a result for the reader, or the wait is over.

        Raises:
            RequestFailed: NOT_LEADER: this node is no longer the leader, so new messages go to another node.
        """
        was_leading = self._core.replica.status().is_leading
        deadline_s = time.monotonic() + wait_ms / _MS_PER_S
        while True:
            self._check_flow(want)
            result = self._read(want, queue_id, offset)
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or result.skipped:
                return result
            if result.status in _CONTINUES:
                # Long ranges without a matching message are read in bounded parts.
                offset = result.next_begin_offset
                await asyncio.sleep(0)
            elif result.status not in _MAY_COME:
                return result
            elif not await self._wait(want, queue_id, offset, left_s):
                return self._read(want, queue_id, offset)
            if was_leading:
                self._core.check_leading()

    async def _wait(self, want: _Want, queue_id: int, offset: int, time_limit_s: float) -> bool:
        """Wait for a message; return whether there may be one."""
        name = holder()
        readers = self._bounds.take_waits(want.topic, want.group, 1)
        try:
            self._take(self._readers, name, 1, _READERS)
            try:
                return await self._core.replica.wait(want.topic, queue_id, offset, time_limit_s, want.tags)
            finally:
                self._readers.give_back(name, 1)
        finally:
            self._bounds.give_back(readers)

    def _read(self, want: _Want, queue_id: int, offset: int) -> GetResult:
        """Read once; an unused queue begins and ends at 0."""
        result = self._core.replica.store.get(
            want.topic, queue_id, offset, want.count_max, want.size_bytes_max, want.tags
        )
        if offset > 0 and result.status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, 0)
        return result

    def _check_flow(self, want: _Want) -> None:
        state = self._core.replica.state
        self._core.flow.check_get(state.topics.get(want.topic), state.groups.get(want.group))

    def _charge(self, want: _Want, result: GetResult) -> float:
        """Charge what is to be sent to the topic and the group; return after how many seconds it may be sent."""
        state, size_bytes = self._core.replica.state, sum(message.size for message in result.messages)
        topic, group = state.topics.get(want.topic), state.groups.get(want.group)
        return self._core.flow.charge_get(topic, group, len(result.messages), size_bytes)

    def _skipped(self, topic: str, queue_id: int, result: GetResult) -> Iterable[pb.SkippedMessages]:
        """Return the report of skipped messages."""
        return report_skipped(self._core, topic, queue_id, result.skipped) if result.skipped else ()

    def _fill(self, response: pb.GetResponse | pb.SubscribeResponse, result: GetResult, form: int) -> None:
        messages = result.messages
        if not messages:
            return
        counts = self._core.metrics.counts
        counts.get_messages += len(messages)
        counts.get_bytes += sum(message.size for message in messages)
        if form == pb.MESSAGE_FORM_RECORDS:
            response.records = records_of(messages)
        else:
            fill_columns(response.columns, messages)

    def _count(self, group: str, topic: str, queue_id: int, result: GetResult) -> None:
        """Count what a group reads, for metrics under RocketMQ's names."""
        traffic = self._core.traffic
        if traffic is None:
            return
        if result.messages:
            traffic.read(topic, group, len(result.messages), sum(message.size for message in result.messages))
        if group and result.status in _READ_ON:
            traffic.moved(group, topic, queue_id, result.next_begin_offset)

    # ------------------------------------------------------------------------------------------------- Subscribe

    async def subscribe(self, request: pb.SubscribeRequest) -> AsyncIterator[pb.SubscribeResponse]:
        """Stream the messages of queues; if the broker ends the stream, the last response has the reason."""
        core, counts, name = self._core, self._core.metrics.counts, holder()
        taken: list[tuple[FairShares, int]] = []
        readers: list[Readers] = []
        counts.subscribe_streams += 1
        try:
            readers.append(self._bounds.take_stream(request.group))
            readers.append(self._bounds.take_waits(request.topic, request.group, max(len(request.queue_ids), 1)))
            for shares, amount, what in (
                (self._streams, 1, "streams of readers"),
                (self._readers, max(len(request.queue_ids), 1), _READERS),
            ):
                self._take(shares, name, amount, what)
                taken.append((shares, amount))
            async for response in self._subscribe(request):
                yield response
        except (StoreError, DLedgerError) as error:
            yield pb.SubscribeResponse(answer=refusal(core, error, is_read=True))
        finally:
            counts.subscribe_streams -= 1
            for shares, amount in taken:
                shares.give_back(name, amount)
            for each in readers:
                self._bounds.give_back(each)

    async def _subscribe(self, request: pb.SubscribeRequest) -> AsyncIterator[pb.SubscribeResponse]:
        await self._core.confirm(read_mode_of(request.mode))
        self._check_serving(request.mode)
        want, offsets = self._wanted(request)
        # Sent although it has no message: it confirms the subscription to the reader.
        yield pb.SubscribeResponse(queue_id=request.queue_ids[0], next_offset=request.offsets[0])
        # Queues with messages skipped since their last response.
        silent: dict[int, GetResult] = {}
        watch = QueueWatch(self._core.replica.store, want.topic, want.tags, offsets)
        pace = Pace()
        try:
            while offsets:
                for queue_id in watch.take_ready():
                    # Most of a thousand queues may have no message.
                    await pace.yield_if_due()
                    result = await self._read_in_turn(want, queue_id, offsets[queue_id], request)
                    if result.status in _MAY_COME:
                        if queue_id in silent:
                            yield self._subscribe_response(request, queue_id, silent.pop(queue_id))
                        watch.wait_for(queue_id, offsets[queue_id])
                        continue
                    offsets[queue_id] = result.next_begin_offset
                    if result.status in _CONTINUES and not result.skipped:
                        silent[queue_id] = result
                        watch.put_ready(queue_id)
                    else:
                        silent.pop(queue_id, None)
                        yield self._subscribe_response(request, queue_id, result)
                        if not result.messages and result.status not in _CONTINUES:
                            del offsets[queue_id]
                        elif result.next_begin_offset == result.max_offset:
                            watch.wait_for(queue_id, result.next_begin_offset)
                        else:
                            watch.put_ready(queue_id)
                    # Yield to other calls, even if flow control never holds this reader back.
                    await asyncio.sleep(0)
                if offsets:
                    await watch.wait(_STREAM_WAIT_S)
                self._check_still(request)
        finally:
            watch.end()

    async def _read_in_turn(self, want: _Want, queue_id: int, offset: int, request: pb.SubscribeRequest) -> GetResult:
        """Read once; messages above a quota of the topic or group are returned when they may be sent.

        Raises:
            OverQuota: that would be too late.
            RequestFailed: see `_check_still`.
        """
        result = self._read(want, queue_id, offset)
        wait_s = self._charge(want, result) if result.messages else 0.0
        if not wait_s:
            return result
        # Nothing is held while it waits: a thousand streams may. What was charged is read again.
        charged = want._replace(count_max=len(result.messages))
        del result
        await asyncio.sleep(wait_s)
        self._check_still(request)
        return self._read(charged, queue_id, offset)

    def _check_still(self, request: pb.SubscribeRequest) -> None:
        """Raise if a stream may not continue after a wait.

        Raises:
            RequestFailed: UNKNOWN_TOPIC: a reader must not wait for messages of a deleted topic endlessly;
                GROUP_NOT_ENABLED; NOT_LEADER.
        """
        self._core.known_topic(request.topic)
        self._core.check_consumer(request.group)
        self._check_serving(request.mode)

    def _check_serving(self, mode: int) -> None:
        """Raise NOT_LEADER on a follower: it may lag, and a stream without end would not notice."""
        if mode != ReadMode.READ_MODE_LOCAL:
            self._core.check_leading()

    def _wanted(self, request: pb.SubscribeRequest) -> tuple[_Want, dict[int, int]]:
        """Check a subscription; return its parameters, and the first offset in each queue.

        Raises:
            IllegalRequest, RequestFailed: see the module's table.
        """
        self._check(request)
        size_bytes_max = _bounded("max_bytes", request.max_bytes, _STREAM_SIZE_BYTES_DEFAULT, SIZE_BYTES_MAX)
        want = _Want(request.topic, request.group, expression_of(request), COUNT_MAX, size_bytes_max)
        offsets = dict(zip(request.queue_ids, request.offsets, strict=True))
        # Invalid requests are refused before the subscription is confirmed.
        parse_filter(want.tags)
        if min(request.offsets) < 0:
            raise IllegalRequest("offsets", "at least 0", str(min(request.offsets)))
        return want, offsets

    def _check(self, request: pb.SubscribeRequest) -> None:
        core = self._core
        check_lengths("queue_ids and offsets", request.queue_ids, request.offsets)
        if len(set(request.queue_ids)) < len(request.queue_ids):
            raise IllegalRequest("queue_ids", "each once", "a queue twice")
        topic = core.readable_topic(request.topic)
        core.check_consumer(request.group)
        for queue_id in request.queue_ids:
            core.check_queue(topic, queue_id, topic.read_queues)

    def _subscribe_response(
        self, request: pb.SubscribeRequest, queue_id: int, result: GetResult
    ) -> pb.SubscribeResponse:
        response = pb.SubscribeResponse(
            queue_id=queue_id,
            status=_STATUS_TO_WIRE[result.status],
            next_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            skipped=self._skipped(request.topic, queue_id, result),
        )
        self._fill(response, result, request.form)
        self._count(request.group, request.topic, queue_id, result)
        return response


def _response_code(result: GetResult) -> str:
    """Return the name of RocketMQ's answer to a pull, in lower case."""
    if result.status is GetStatus.FOUND:
        return "success"
    if result.status in _CONTINUES:
        return "pull_retry_immediately"
    return "pull_not_found" if result.status in _MAY_COME else "pull_offset_moved"


def _bounded(name: str, value: int, default: int, maximum: int) -> int:
    """Return a number of a request: the default for 0, and at most the maximum.

    Raises:
        IllegalRequest: it is negative.
    """
    if value < 0:
        raise IllegalRequest(name, "at least 0", str(value))
    return min(value or default, maximum)
