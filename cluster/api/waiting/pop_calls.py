"""Receive, Acknowledge, ChangeInvisible: pop consumption (`cluster.pop`).

Answers to invalid input (`cluster.protocol.errors` has the codes; nothing was done):

| request | answer |
| --- | --- |
| a group's feature level below that of pop consumption | UNSUPPORTED |
| a negative count or wait, an invisible time out of its range | ILLEGAL_REQUEST |
| an invalid tags or SQL92 expression, or both | ILLEGAL_REQUEST |
| an invalid handle, or one of another broker; none, or too many | ILLEGAL_REQUEST |
| an unknown topic, or one that is not readable | UNKNOWN_TOPIC, TOPIC_NOT_READABLE |
| a queue that the topic lacks, also in a handle | UNKNOWN_QUEUE |
| an unknown group that is not created automatically; a disabled one | UNKNOWN_GROUP, GROUP_NOT_ENABLED |
| messages, but too many in flight | TOO_MUCH_STATE |
| user or address has its share of waiting readers | OVERLOADED |
| a handle whose lease does not exist | outcome STALE |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, cast

from cluster.api.answers import DONE, report_skipped
from cluster.api.message_columns import fill_columns, records_of
from cluster.pop.handles import decode_handles
from cluster.pop.ordered_choosing import key_of
from cluster.pop.receiving import COUNT_MAX, PopAnswer, PopReceiver, Wanted
from cluster.process.cooperative import run_cooperatively
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.handle_bounds import HANDLES_MAX
from cluster.protocol.request_bounds import SUBSCRIBE_QUEUES_MAX
from cluster.protocol.wire.filters import expression_of
from cluster.state.features import WITH_POP
from cluster.state.pop.ops import INVISIBLE_MS_MAX
from cluster.state.pop.state import IN_FLIGHT_OF_QUEUE_MAX
from cluster.v1 import broker_pb2 as pb
from dledger.errors import Overloaded
from dledger.service.call_gate import holder
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.retry_times import RetryTimes
from store.errors import IllegalRequest
from store.model.read_filter import parse_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cluster.broker.core import BrokerCore
    from cluster.pop.handles import Handle
    from cluster.protocol.topic_config import TopicConfig
    from store.steps import Steps

INVISIBLE_MS_MIN: Final = 1_000
_COUNT_DEFAULT: Final = 32
_WAIT_MS_MAX: Final = 30_000
# The wait for messages of some queues of a topic with very many, of which others may have some.
_WAIT_MS_OF_PART: Final = 1_000
_MS_PER_S: Final = 1_000
_WHAT: Final = "pop consumers"


class PopCalls:
    """The calls of pop consumers.

    Args:
        core: rules of the broker.
        clock_ms: the wall clock, milliseconds since 1970.
    """

    def __init__(self, core: BrokerCore, clock_ms: Callable[[], int]) -> None:
        self._core = core
        self._receiver = PopReceiver(core.replica, core.options.broker, clock_ms, core.metrics.counts)
        self._readers = FairShares(core.options.waiters_max)
        self._retries = RetryTimes(time.monotonic)
        # The first queue of the next request without queues.
        self._turn = 0

    async def stop(self) -> None:
        """Cancel what is being proposed."""
        await self._receiver.stop()

    async def receive(self, request: pb.ReceiveRequest) -> pb.ReceiveResponse:
        """Take messages for a group; wait for one if there is none.

        Raises:
            StoreError, DLedgerError: see the module's table; nothing was taken, unless the certainty is unknown.
        """
        await self._core.confirm_leading()
        self._core.check_feature(WITH_POP, _WHAT)
        topic = self._core.readable_topic(request.topic)
        wanted = self._wanted(request, topic)
        await self._core.ensure_group(request.group)
        self._core.check_consumer(request.group)
        if request.is_from_end and not await run_cooperatively(self._has_offsets(request.group, topic)):
            await self._receiver.begin_at_end(request.group, topic.name, range(topic.read_queues))
        name, share = holder(), len(wanted.queue_ids) if wanted.wait_s else 0
        if share and not self._readers.take(name, share):
            raise Overloaded(name, f"the {self._readers.size} waiting readers", self._retries.next_s())
        try:
            received = await self._receiver.receive(wanted, lambda: self._check(wanted))
        finally:
            if share:
                self._readers.give_back(name, share)
        return self._response(request, received)

    def _wanted(self, request: pb.ReceiveRequest, topic: TopicConfig) -> Wanted:
        for name, value in (("max_messages", request.max_messages), ("wait_ms", request.wait_ms)):
            if value < 0:
                raise IllegalRequest(name, "at least 0", str(value))
        if not INVISIBLE_MS_MIN <= request.invisible_ms <= INVISIBLE_MS_MAX:
            raise IllegalRequest("invisible_ms", f"{INVISIBLE_MS_MIN} to {INVISIBLE_MS_MAX}", str(request.invisible_ms))
        expression = expression_of(request)
        parse_filter(expression)
        if request.queue_ids:
            queue_ids: Sequence[int] = list(dict.fromkeys(request.queue_ids))
            for queue_id in queue_ids:
                self._core.check_queue(topic, queue_id, topic.read_queues)
        else:
            queue_ids = self._next_queues(topic.read_queues)
        count_max = min(request.max_messages or _COUNT_DEFAULT, COUNT_MAX)
        is_partial = len(queue_ids) < topic.read_queues and not request.queue_ids
        wait_s = min(request.wait_ms, _WAIT_MS_OF_PART if is_partial else _WAIT_MS_MAX) / _MS_PER_S
        return Wanted(
            request.group,
            topic.name,
            queue_ids,
            expression,
            count_max,
            request.invisible_ms,
            wait_s,
            key_of(request.attempt_id),
            is_peek=request.is_peek,
        )

    def _next_queues(self, count: int) -> list[int]:
        """Return the queues of one request: all, beginning at another one each time; or the next ones of very many."""
        first = self._turn % max(count, 1)
        self._turn = first + (1 if count <= SUBSCRIBE_QUEUES_MAX else SUBSCRIBE_QUEUES_MAX)
        return [*range(first, count), *range(first)][:SUBSCRIBE_QUEUES_MAX]

    def _check(self, wanted: Wanted) -> None:
        """Raise once group or topic may no longer be consumed.

        Raises:
            RequestFailed: UNKNOWN_TOPIC, TOPIC_NOT_READABLE, UNKNOWN_GROUP, GROUP_NOT_ENABLED.
        """
        self._core.readable_topic(wanted.topic)
        self._core.check_consumer(wanted.group)
        if wanted.group not in self._core.replica.state.groups:
            raise RequestFailed(Reason.UNKNOWN_GROUP, f"group {wanted.group!r} was deleted")

    def _has_offsets(self, group: str, topic: TopicConfig) -> Steps[bool]:
        state = self._core.replica.state
        for queue_id in range(topic.read_queues):
            yield
            if state.offset(group, topic.name, queue_id) is not None:
                return True
        return False

    def _response(self, request: pb.ReceiveRequest, received: PopAnswer) -> pb.ReceiveResponse:
        if not received.given and received.full_queue is not None and not received.skipped:
            raise RequestFailed(
                Reason.TOO_MUCH_STATE,
                f"group {request.group!r} has {IN_FLIGHT_OF_QUEUE_MAX} unacknowledged messages of queue "
                f"{received.full_queue} of topic {request.topic!r}, or all groups have too many: acknowledge some",
            )
        response = pb.ReceiveResponse(
            answer=DONE,
            handles=[each.handle for each in received.given if not request.is_peek],
            attempts=[each.attempt for each in received.given if not request.is_peek],
        )
        for key, skip in received.skipped:
            response.skipped.extend(report_skipped(self._core, key.topic, key.queue_id, (skip,)))
        messages = [each.message for each in received.given]
        if request.form == pb.MESSAGE_FORM_RECORDS:
            response.records = records_of(messages)
        else:
            fill_columns(response.columns, messages)
            del response.columns.reconsume_times[:]
            response.columns.reconsume_times.extend([max(each.attempt - 1, 0) for each in received.given])
        return response

    async def acknowledge(self, request: pb.AcknowledgeRequest) -> pb.AcknowledgeResponse:
        """Acknowledge received messages.

        Raises:
            StoreError, DLedgerError: see the module's table; nothing was done, unless the certainty is unknown.
        """
        if not 1 <= len(request.handles) <= HANDLES_MAX:
            raise IllegalRequest("handles", f"1 to {HANDLES_MAX}", str(len(request.handles)))
        await self._core.check_current()
        handles = self._handles(request.topic, request.handles)
        outcomes = await self._receiver.acknowledge(request.group, request.topic, handles)
        return pb.AcknowledgeResponse(answer=DONE, outcomes=cast("list[pb.AckOutcome.ValueType]", outcomes))

    async def change_invisible(self, request: pb.ChangeInvisibleRequest) -> pb.ChangeInvisibleResponse:
        """Change the time for which a received message is invisible.

        Raises:
            StoreError, DLedgerError: see the module's table; nothing was done, unless the certainty is unknown.
        """
        if not 0 <= request.invisible_ms <= INVISIBLE_MS_MAX:
            raise IllegalRequest("invisible_ms", f"0 to {INVISIBLE_MS_MAX}", str(request.invisible_ms))
        await self._core.check_current()
        (handle,) = self._handles(request.topic, [request.handle])
        outcome, changed = await self._receiver.change_invisible(
            request.group, request.topic, handle, request.invisible_ms, is_counted=not request.is_uncounted
        )
        return pb.ChangeInvisibleResponse(answer=DONE, outcome=cast("pb.AckOutcome.ValueType", outcome), handle=changed)

    def _handles(self, topic: str, texts: Iterable[str]) -> list[Handle]:
        """Return the handles of texts, all of this broker.

        Raises:
            IllegalRequest: one is none.
            RequestFailed: UNKNOWN_TOPIC, UNKNOWN_QUEUE, UNSUPPORTED.
        """
        self._core.check_feature(WITH_POP, _WHAT)
        handles = decode_handles(texts)
        broker = self._core.options.broker
        others = {each.broker for each in handles} - {broker}
        if others:
            raise IllegalRequest("handle", f"one of broker {broker}", repr(min(others)[:80]))
        known = self._core.known_topic(topic)
        for queue_id in {each.queue_id for each in handles}:
            self._core.check_queue(known, queue_id, max(known.read_queues, known.write_queues))
        return handles
