"""The sender of one broker's messages: they are joined into batches and sent to the broker's leader.

With a linger, a batch that is not full waits up to that time for more messages; without, a lone message leaves at once.
`dledger.client.aio.batching_sender` has the loop.

Every item ends in exactly one way: places, `NotAppended`, or `AppendUnknown`. An item that provably was not stored is
tried again, here or at another broker. One whose outcome is open is tried again only when that was allowed, here, with
the same UNIQ_KEY; if no broker ever reports what became of it, its outcome stays open.

After a refusal nothing new leaves before all that is under way is answered, and what comes back goes to its old place.
So with one batch under way at a time, messages of one queue are stored in the order in which they were sent; with
several, a batch that was taken may overtake the one before it that was refused.
"""

from __future__ import annotations

import math
import time
from bisect import insort
from collections import OrderedDict, deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from cluster.client.outcomes import outcome_of_failure
from cluster.client.producer.batch import REQUEST_MESSAGES_MAX, PutBatch, SendItem
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import check_answer, failure_of_call
from dledger.client.aio.batching_sender import BatchingSender, SendVerdict
from dledger.client.retry import Backoff
from store.errors import Certainty

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc.aio

    from cluster.client.routing.broker_nodes import BrokerNodes
    from cluster.v1.broker_pb2 import PutResponse

# Refusals that may be one message's fault: then the others of its batch are tried without it.
_FAULT_OF_ONE = frozenset({Reason.ILLEGAL_MESSAGE, Reason.ILLEGAL_REQUEST, Reason.UNKNOWN_QUEUE})
# Refusals that another broker may not share.
_FAULT_OF_BROKER = frozenset({Reason.DISK_FULL, Reason.UNKNOWN_QUEUE, Reason.UNKNOWN_TOPIC, Reason.TOPIC_NOT_WRITABLE})
_TAKEN: SendVerdict[RequestFailed] = SendVerdict(is_taken=True)


class SenderHooks(NamedTuple):
    """The callbacks of a sender to its producer.

    Attributes:
        moved: takes over an item that was refused; returns whether it found another broker for it.
        observed: called with the duration of each request in ms; None: it failed.
        ended: called for every item that has its outcome.
    """

    moved: Callable[[SendItem, str], bool]
    observed: Callable[[str, float | None], None]
    ended: Callable[[SendItem], None]


class SendRules(NamedTuple):
    """How a sender sends.

    Attributes:
        linger_s: how long a batch that is not full waits for company.
        batch_messages_max: messages in one batch.
        batch_size_bytes_max: of bodies and properties; what one caller sends together may be larger.
        batches_under_way_max: twice as many while they are full; 1 is 1.
        answer_timeout_s: a stream whose oldest batch has no answer for this long is cancelled.
        is_unknown_retried: an open outcome is tried again, for the broker recognises the UNIQ_KEY.
    """

    linger_s: float
    batch_messages_max: int
    batch_size_bytes_max: int
    batches_under_way_max: int
    answer_timeout_s: float
    is_unknown_retried: bool


class PutSender:
    """What goes to one broker. For use by one event loop."""

    def __init__(self, broker: str, nodes: BrokerNodes, rules: SendRules, hooks: SenderHooks) -> None:
        self._queue = queue = PutQueue(broker, nodes, rules, hooks)
        self._sender = BatchingSender(
            queue, rules.batches_under_way_max, rules.answer_timeout_s, time.monotonic, Backoff()
        )

    def put(self, item: SendItem) -> None:
        """Queue an item."""
        self._queue.put(item)
        self._sender.queued()

    def hasten(self, is_hasty: bool) -> None:
        """Send batches without their linger, for a flush; or again with it."""
        self._queue.is_hasty = is_hasty
        self._sender.wake()

    async def close(self) -> None:
        """End all streams. What is queued was not stored; of what is under way the outcome is unknown."""
        await self._sender.close()


class PutQueue:
    """The items for one broker that are not under way, in order within each topic; the `SenderPolicy` of puts."""

    refusal = RequestFailed

    def __init__(self, broker: str, nodes: BrokerNodes, rules: SendRules, hooks: SenderHooks) -> None:
        self._broker = broker
        self._nodes = nodes
        self._rules = rules
        self._hooks = hooks
        # Topics are served in turn; no queue is empty.
        self._queues: OrderedDict[str, deque[SendItem]] = OrderedDict()
        self.queued_bytes = 0
        # No deadline in the queues is before this.
        self._earliest = math.inf
        # Batches are sent without their linger.
        self.is_hasty = False
        # Why nothing was sent last; a part of the message of items that are late.
        self._last_failure = RequestFailed(Reason.NOT_REACHED, f"broker {broker} took nothing")

    @property
    def is_empty(self) -> bool:
        """Whether no message is queued."""
        return not self._queues

    def put(self, item: SendItem) -> None:
        """Queue an item in the place that its sequence gives it."""
        queue = self._queues.get(item.topic)
        if queue is None:
            queue = self._queues[item.topic] = deque()
        if queue and queue[-1].sequence > item.sequence:
            # In place: thousands may come back to a queue of thousands.
            insort(queue, item, key=attrgetter("sequence"))
        else:
            queue.append(item)
        self.queued_bytes += item.size_bytes
        self._earliest = min(self._earliest, item.deadline)

    def linger_left_s(self) -> float:
        """Return the seconds that the batch of the next topic waits for more messages; at most 0: it is sent now."""
        rules = self._rules
        if not rules.linger_s or self.is_hasty or self.queued_bytes >= rules.batch_size_bytes_max:
            return 0.0
        queue = next(iter(self._queues.values()))
        if len(queue) >= rules.batch_messages_max:
            return 0.0
        return queue[0].queued_at + rules.linger_s - time.monotonic()

    async def open(self) -> tuple[str, grpc.aio.StreamStreamCall[Any, PutResponse]]:
        """Open a stream to the broker's leader, after its node has answered; a failure counts against the broker."""
        address = self._nodes.leader(self._broker)
        try:
            await self._nodes.reach(address)
        except RequestFailed as failure:
            self._nodes.judge(self._broker, address, failure)
            self._hooks.observed(self._broker, None)
            raise
        return address, self._nodes.stub(address).PutStream()

    def take(self) -> PutBatch | None:
        """Take the head of the next topic's queue, up to the size of a batch; leave out those whose caller has gone."""
        if not self._queues:
            return None
        rules = self._rules
        topic, queue = next(iter(self._queues.items()))
        items: list[SendItem] = []
        messages = size_bytes = 0
        while queue:
            item = queue[0]
            messages += len(item.messages)
            size_bytes += item.size_bytes
            is_full = messages > min(rules.batch_messages_max, REQUEST_MESSAGES_MAX)
            if items and (item.is_alone or is_full or size_bytes > rules.batch_size_bytes_max):
                break
            queue.popleft()
            self.queued_bytes -= item.size_bytes
            if item.future.done():
                messages -= len(item.messages)
                size_bytes -= item.size_bytes
                self._hooks.ended(item)
                continue
            items.append(item)
            if item.is_alone:
                break
        if queue:
            self._queues.move_to_end(topic)
        else:
            del self._queues[topic]
        return PutBatch(items) if items else None

    def paused(self, refusal: RequestFailed) -> bool:
        """Give to other brokers what may go there: this one takes nothing just now."""
        self._last_failure = refusal
        self._take_out(lambda item: item.is_movable and self._hooks.moved(item, self._broker))
        return True

    def _take_out(self, is_taken: Callable[[SendItem], bool]) -> None:
        """Remove the queued items that a function takes, and keep the others in their order."""
        self._earliest = math.inf
        for topic, queue in list(self._queues.items()):
            staying = deque[SendItem]()
            for item in queue:
                if is_taken(item):
                    self.queued_bytes -= item.size_bytes
                else:
                    staying.append(item)
                    self._earliest = min(self._earliest, item.deadline)
            if staying:
                self._queues[topic] = staying
            else:
                del self._queues[topic]

    # ----------------------------------------------------------------------------------------------------- outcomes

    def answered(
        self, address: str, batch: PutBatch, response: PutResponse, *, may_retry: bool
    ) -> SendVerdict[RequestFailed]:
        """Resolve the messages of a stored batch; of a failed one, fail each or queue it where it may be retried."""
        try:
            check_answer(response.answer, address)
        except RequestFailed as failure:
            is_named = self._nodes.judge(self._broker, address, failure)
            is_left = self._nodes.leader(self._broker) != address
            self._failed(batch, failure, may_retry=may_retry)
            return self._verdict([batch], failure, is_named=is_named, is_left=is_left)
        self._hooks.observed(self._broker, (time.monotonic() - batch.sent_at) * 1000)
        batch.resolve(self._broker, response)
        for item in batch.items:
            self._hooks.ended(item)
        return _TAKEN

    def lost(
        self, address: str, batches: list[PutBatch], code: grpc.StatusCode, details: str, *, may_retry: bool
    ) -> SendVerdict[RequestFailed]:
        """Fail the messages of batches without an answer, or queue those again that may be sent twice."""
        failure = failure_of_call(address, code, details, "BrokerService")
        self._nodes.judge(self._broker, address, failure)
        for batch in batches:
            self._failed(batch, failure, may_retry=may_retry)
        return self._verdict(batches, failure, is_named=False, is_left=True)

    def _verdict(
        self, batches: list[PutBatch], failure: RequestFailed, *, is_named: bool, is_left: bool
    ) -> SendVerdict[RequestFailed]:
        is_broker_at_fault = failure.is_worth_trying or failure.certainty is Certainty.UNKNOWN
        return SendVerdict(
            is_stream_left=is_left,
            refusals=len(batches) if is_broker_at_fault else 0,
            cause=failure,
            is_leader_named=is_named,
            is_drained_first=bool(batches),
        )

    def _failed(self, batch: PutBatch, failure: RequestFailed, *, may_retry: bool) -> None:
        self._last_failure = failure
        if failure.is_worth_trying or failure.certainty is Certainty.UNKNOWN:
            self._hooks.observed(self._broker, None)
        for item in batch.items:
            if not (may_retry and self._is_tried_again(item, batch, failure)):
                self._fail(item, failure)

    def _is_tried_again(self, item: SendItem, batch: PutBatch, failure: RequestFailed) -> bool:
        """Put an item back where it may be tried again; return whether that is so."""
        if item.future.done():
            return False
        if failure.certainty is Certainty.UNKNOWN:
            if not self._rules.is_unknown_retried:
                return False
            item.is_open = True
            item.is_movable = False
        elif item.is_movable and (failure.is_worth_trying or failure.reason in _FAULT_OF_BROKER):
            if self._hooks.moved(item, self._broker):
                return True
            if not failure.is_worth_trying:
                return False
        elif failure.reason in _FAULT_OF_ONE and len(batch.items) > 1:
            item.is_alone = True
        elif not failure.is_worth_trying:
            return False
        self.put(item)
        return True

    def _fail(self, item: SendItem, failure: RequestFailed) -> None:
        if not item.future.done():
            # An exception object belongs to the one caller that it is raised to.
            item.future.set_exception(outcome_of_failure(failure, item.unique_keys, is_open=item.is_open))
        self._hooks.ended(item)

    # ---------------------------------------------------------------------------------------------------- deadlines

    def expire_queued(self, now_s: float) -> None:
        """End late items wherever they are: each caller sets how long its messages may take."""
        if self._earliest > now_s:
            return

        def is_late(item: SendItem) -> bool:
            if item.deadline > now_s:
                return False
            self._fail(item, self._too_late("before the message could be sent"))
            return True

        self._take_out(is_late)

    def expire_sent(self, batch: PutBatch, now_s: float) -> None:
        """End messages under way whose deadline passed as unknown: they may be stored later."""
        for item in batch.items:
            if item.deadline <= now_s and not item.future.done():
                late = RequestFailed(Reason.ANSWER_LATE, "the deadline passed while the message was under way")
                item.future.set_exception(outcome_of_failure(late, item.unique_keys, is_open=True))

    def fail_queued(self) -> None:
        """Fail all queued messages: the producer was closed."""
        closed = RequestFailed(Reason.CLIENT_CLOSED, "the producer was closed")
        for queue in self._queues.values():
            for item in queue:
                self._fail(item, closed)
        self._queues.clear()

    def _too_late(self, when: str) -> RequestFailed:
        failure = self._last_failure
        text = f"the deadline passed {when}; {failure.message}"
        reason = failure.reason or failure.name
        return RequestFailed(reason, text, certainty=Certainty.NOT_APPENDED, code=failure.code)
