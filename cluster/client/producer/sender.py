"""The sender of one broker: it combines messages into batches and sends them to the broker's leader.

With a linger, a batch that is not full waits up to that time for more messages; without, a single message is sent at
once. The loop is in `dledger.client.aio.batching_sender`.

Every item ends in exactly one way: offsets, `NotAppended`, or `AppendUnknown`. An item that was certainly not stored is
retried, here or at another broker. One whose outcome is unknown is retried only if the options allow it, at the same
broker and with the same UNIQ_KEY; without an answer from that broker its outcome stays unknown.

After a refusal nothing is sent until all batches in flight are answered, and refused items return to their old
positions in the queue. So with one batch in flight at a time, messages of one queue are stored in the order in which
they were sent; with several, an accepted batch may overtake a refused one before it. A topic that has used its quota
waits by itself, and the others are sent meanwhile.
"""

from __future__ import annotations

import math
import time
from bisect import insort
from collections import OrderedDict, deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc

from cluster.client.outcomes import outcome_of_failure
from cluster.client.producer.batch import REQUEST_MESSAGES_MAX, PutBatch, SendItem
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.flow_attributes import owner_text
from cluster.protocol.wire.answers import check_answer, failure_of_call
from cluster.v1.broker_pb2 import PutResponse
from dledger.client.aio.batching_sender import BatchingSender, SendVerdict
from dledger.client.retry import Backoff
from store.errors import Certainty

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc.aio

    from cluster.client.routing.broker_nodes import BrokerNodes
    from dledger.client.aio.framed_stream import FramedCalls

# Refusals that a single message may cause: each message of the batch is then retried alone.
_FAULT_OF_ONE = frozenset(
    {Reason.ILLEGAL_MESSAGE, Reason.ILLEGAL_REQUEST, Reason.MESSAGE_TYPE_CONFLICT, Reason.UNKNOWN_QUEUE}
)
# Refusals that another broker may not return.
_FAULT_OF_BROKER = frozenset({Reason.DISK_FULL, Reason.UNKNOWN_QUEUE, Reason.UNKNOWN_TOPIC, Reason.TOPIC_NOT_WRITABLE})
_PUT: Final = "/cluster.v1.BrokerService/Put"
_TAKEN: SendVerdict[RequestFailed] = SendVerdict(is_taken=True)
# The topic waits; the broker serves others.
_HELD: SendVerdict[RequestFailed] = SendVerdict(is_drained_first=True)


class SenderHooks(NamedTuple):
    """The callbacks of a sender to its producer.

    Attributes:
        moved: called with a refused item; returns whether it was passed to another broker.
        observed: called with the latency of each request in ms; None: it failed.
        ended: called once for every item, when it has its outcome.
    """

    moved: Callable[[SendItem, str], bool]
    observed: Callable[[str, float | None], None]
    ended: Callable[[SendItem], None]


class SendRules(NamedTuple):
    """The settings of a sender.

    Attributes:
        linger_s: how long a batch that is not full waits for more messages.
        batch_messages_max: messages in one batch.
        batch_size_bytes_max: bytes of bodies and properties in one batch; a single item may be larger.
        batches_in_flight_max: batches in flight; doubled while they are full, unless it is 1.
        answer_timeout_s: a stream whose oldest batch has no answer for this long is cancelled.
        is_unknown_retried: whether unknown outcomes are retried, because the broker deduplicates by UNIQ_KEY.
    """

    linger_s: float
    batch_messages_max: int
    batch_size_bytes_max: int
    batches_in_flight_max: int
    answer_timeout_s: float
    is_unknown_retried: bool


class PutSender:
    """Sends the messages of one broker. For use by one event loop."""

    def __init__(self, broker: str, nodes: BrokerNodes, rules: SendRules, hooks: SenderHooks) -> None:
        self._queue = queue = PutQueue(broker, nodes, rules, hooks)
        self._sender = BatchingSender(
            queue, rules.batches_in_flight_max, rules.answer_timeout_s, time.monotonic, Backoff()
        )

    def put(self, item: SendItem) -> None:
        """Queue an item."""
        self._queue.put(item)
        self._sender.queued()

    def skip_linger(self, is_linger_skipped: bool) -> None:
        """Switch the linger off for a flush (True), or on again (False)."""
        self._queue.is_linger_skipped = is_linger_skipped
        self._sender.wake()

    async def close(self) -> None:
        """End all streams. Queued messages were not stored; the outcome of those in flight is unknown."""
        await self._sender.close()


class PutQueue:
    """The queued items of one broker, in order within each topic; the `SenderPolicy` of puts."""

    refusal = RequestFailed

    def __init__(self, broker: str, nodes: BrokerNodes, rules: SendRules, hooks: SenderHooks) -> None:
        self._broker = broker
        self._nodes = nodes
        self._rules = rules
        self._hooks = hooks
        # Topics take turns; topics without queued items are removed.
        self._queues: OrderedDict[str, deque[SendItem]] = OrderedDict()
        self.queued_bytes = 0
        # Until when topics wait that have used their quota, on the monotonic clock.
        self._held: dict[str, float] = {}
        # A lower bound of all deadlines in the queues.
        self._earliest = math.inf
        # Whether batches are sent without linger.
        self.is_linger_skipped = False
        # The last failure to send; part of the error of items whose deadline passes.
        self._last_failure = RequestFailed(Reason.NOT_REACHED, f"broker {broker} accepted no message")

    @property
    def is_empty(self) -> bool:
        """Whether no message is queued."""
        return not self._queues

    def put(self, item: SendItem) -> None:
        """Queue an item at the position of its sequence."""
        queue = self._queues.get(item.topic)
        if queue is None:
            queue = self._queues[item.topic] = deque()
        if queue and queue[-1].sequence > item.sequence:
            # Inserted in place: thousands of items may return to a queue of thousands.
            insort(queue, item, key=attrgetter("sequence"))
        else:
            queue.append(item)
        self.queued_bytes += item.size_bytes
        self._earliest = min(self._earliest, item.deadline)

    def linger_left_s(self) -> float:
        """Return the seconds that the batch of the next topic still waits for messages; 0 or less: it is sent now."""
        topic, rules = self._next_topic(), self._rules
        if topic is None:
            return min(self._held[each] for each in self._queues) - time.monotonic()
        if not rules.linger_s or self.is_linger_skipped or self.queued_bytes >= rules.batch_size_bytes_max:
            return 0.0
        queue = self._queues[topic]
        if len(queue) >= rules.batch_messages_max:
            return 0.0
        return queue[0].queued_at + rules.linger_s - time.monotonic()

    def _next_topic(self) -> str | None:
        """Return the topic whose turn it is; None: all that are queued wait for their quotas, or nothing is queued."""
        if not self._held:
            return next(iter(self._queues), None)
        now_s = time.monotonic()
        return next((topic for topic in self._queues if self._held.get(topic, now_s) <= now_s), None)

    def _hold(self, topic: str, failure: RequestFailed) -> bool:
        """Let a topic wait if its quota is the cause of a refusal; return whether it is."""
        if failure.reason is not Reason.OVER_QUOTA or owner_text("topic", topic) not in failure.message:
            return False
        now_s = time.monotonic()
        self._held = {name: end_s for name, end_s in self._held.items() if end_s > now_s}
        self._held[topic] = now_s + Backoff().next_s(failure.repeat_after_s)
        return True

    async def open(self) -> tuple[str, grpc.aio.StreamStreamCall[Any, PutResponse] | FramedCalls]:
        """Open a stream to the broker's leader once it accepts connections; report a failure for fault avoidance."""
        address = self._nodes.leader(self._broker)
        try:
            await self._nodes.reach(address)
        except RequestFailed as failure:
            self._nodes.observe(self._broker, address, failure)
            self._hooks.observed(self._broker, None)
            raise
        if self._queues:
            topic = next(iter(self._queues))
            calls = await self._nodes.framed(address, topic, _PUT, PutResponse.FromString)
            if calls is not None:
                return address, calls
        return address, self._nodes.stub(address).PutStream()

    def take(self) -> PutBatch | None:
        """Take the head of the next topic's queue, up to the size of a batch; drop items whose caller was cancelled."""
        topic, rules = self._next_topic(), self._rules
        if topic is None:
            return None
        queue = self._queues[topic]
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

    def paused(self, refusal: RequestFailed) -> float:
        """Pass movable items to other brokers, because this one accepts none now; return the pause that it asks for."""
        self._last_failure = refusal
        self._take_out(lambda item: item.is_movable and self._hooks.moved(item, self._broker))
        return refusal.repeat_after_s

    def _take_out(self, is_taken: Callable[[SendItem], bool]) -> None:
        """Remove the queued items for which `is_taken` returns True; keep the others in order."""
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
        """Resolve the messages of a stored batch; of a refused one, retry what may be retried and fail the rest."""
        try:
            check_answer(response.answer, address)
        except RequestFailed as failure:
            if self._hold(batch.items[0].topic, failure):
                self._failed(batch, failure, may_retry=may_retry, is_observed=False)
                return _HELD
            is_named = self._nodes.observe(self._broker, address, failure)
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
        """Queue the messages of unanswered batches again if they may be sent twice; fail the others."""
        failure = failure_of_call(address, code, details, "BrokerService")
        self._nodes.observe(self._broker, address, failure)
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

    def _failed(self, batch: PutBatch, failure: RequestFailed, *, may_retry: bool, is_observed: bool = True) -> None:
        self._last_failure = failure
        if is_observed and (failure.is_worth_trying or failure.certainty is Certainty.UNKNOWN):
            self._hooks.observed(self._broker, None)
        for item in batch.items:
            if not (may_retry and self._is_tried_again(item, batch, failure)):
                self._fail(item, failure)

    def _is_tried_again(self, item: SendItem, batch: PutBatch, failure: RequestFailed) -> bool:
        """Queue an item again if it may be retried; return whether it was."""
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
            # Each caller gets an exception object of its own, because raising adds a traceback to it.
            item.future.set_exception(outcome_of_failure(failure, item.unique_keys, is_open=item.is_open))
        self._hooks.ended(item)

    # ---------------------------------------------------------------------------------------------------- deadlines

    def expire_queued(self, now_s: float) -> None:
        """Fail queued items whose deadline has passed; every caller sets its own."""
        if self._earliest > now_s:
            return

        def is_late(item: SendItem) -> bool:
            if item.deadline > now_s:
                return False
            self._fail(item, self._too_late("before the message could be sent"))
            return True

        self._take_out(is_late)

    def expire_sent(self, batch: PutBatch, now_s: float) -> None:
        """Report messages in flight whose deadline passed as unknown: they may still be stored."""
        for item in batch.items:
            if item.deadline <= now_s and not item.future.done():
                late = RequestFailed(Reason.ANSWER_LATE, "the deadline passed while the message was in flight")
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
