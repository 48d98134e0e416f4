"""The asyncio interface of the pop consumer: each call asks brokers, and nothing runs in between.

Messages are requested only when the program wants them, because their invisible time begins at once. A receive whose
answer is lost may have taken messages. Each receive has an id (`ReceiveRequest.attempt_id`), which is used again until
there is an answer: so a group that consumes in order gets the same messages again, and its message groups are not
blocked; other groups get them again after that time.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, Self

from cluster.client.consumer.pop.message import PopMessage
from cluster.client.consumer.received import records_of
from cluster.client.routing.connection import BrokerConnection, Endpoints
from cluster.client.routing.queue_choice import readable_queues
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.handle_bounds import HANDLES_MAX
from cluster.protocol.wire.filters import filter_fields
from cluster.state.pop.ops import AckOutcome
from cluster.v1 import broker_pb2 as pb
from dledger.client.retry import Repetition
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    from opentelemetry.trace import TracerProvider

    from cluster.client.consumer.delivery_spans import DeliverySpans
    from cluster.client.routing.broker_nodes import Method, ResponseT
    from dledger.security.settings import Security

_TIMEOUT_S: Final = 10.0
# How much later than the end of its wait an answer may come.
_ANSWER_S: Final = 5.0
# The longest wait at one broker while others may have messages.
_TURN_S: Final = 0.5
_WAIT_S_MAX: Final = 30.0
_MS_PER_S: Final = 1_000
# By number; quicker than the class.
_OUTCOMES: Final = tuple(AckOutcome)
_ATTEMPT_ID_BYTES: Final = 16

logger = logging.getLogger(__name__)


class AsyncPopConsumer:
    """Takes messages of one topic for a group. Created by `async with PopConsumer(...)`; for use by one event loop.

    Several tasks may call it concurrently.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        name_servers: Endpoints,
        group: str,
        topic: str,
        expression: str,
        *,
        invisible_s: float,
        is_from_end: bool,
        security: Security = PLAIN,
        tracer_provider: TracerProvider | Literal["global"] | None = None,
    ) -> None:
        self._group = group
        self._topic = topic
        self._expression = expression
        self._invisible_ms = int(invisible_s * _MS_PER_S)
        self._is_from_end = is_from_end
        self._connection = BrokerConnection(endpoints, name_servers, security)
        # The first broker of the next receive.
        self._turn = 0
        self._spans: DeliverySpans | None = None
        if tracer_provider is not None:
            # Imported here, because only this needs the packages of OpenTelemetry.
            from cluster.client.consumer.delivery_spans import DeliverySpans  # noqa: PLC0415

            self._spans = DeliverySpans(tracer_provider, group)
        # Ids of receives that had no answer, by broker: each is in use by one task at most.
        self._unanswered: dict[str, list[str]] = defaultdict(list)

    async def __aenter__(self) -> Self:
        """Open; connections are made by the first call."""
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close; messages that were not acknowledged are given again after their invisible time."""
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.__aexit__()

    # -------------------------------------------------------------------------------------------------------- receive

    async def receive(self, max_messages: int = 32, wait_s: float = 20.0) -> list[PopMessage]:
        """Take messages; an empty list if there is none within `wait_s`.

        With several brokers each is asked in turn, for half a second; with one broker it wakes the consumer.

        Args:
            max_messages: 1 to 256.
            wait_s: how long to wait for the first one; the call may take some seconds more if a broker has no leader.

        Raises:
            RequestFailed: UNKNOWN_TOPIC and similar; TOO_MUCH_STATE: the group has too many unacknowledged messages;
                or no broker answers. Nothing was taken, or it is given again after its invisible time.
            store.errors.CorruptData: the answer is damaged; as before.
        """
        end_s = time.monotonic() + wait_s
        is_first = True
        while True:
            brokers = await self._brokers()
            left_s = end_s - time.monotonic()
            # Before any wait each broker is asked for what it has.
            turn_s = 0.0 if is_first and len(brokers) > 1 else left_s if len(brokers) == 1 else min(left_s, _TURN_S)
            found = await self._receive_of_any(brokers, max_messages, turn_s, is_waiting=not is_first)
            is_first = False
            if found or time.monotonic() >= end_s:
                return found

    async def _brokers(self) -> list[str]:
        routes = await self._connection.find(self._topic)
        brokers = list(dict.fromkeys(queue.broker for queue in readable_queues(routes)))
        if not brokers:
            raise RequestFailed(Reason.TOPIC_NOT_READABLE, f"topic {self._topic!r} has no readable queue")
        return brokers

    async def _receive_of_any(
        self, brokers: Sequence[str], max_messages: int, wait_s: float, *, is_waiting: bool
    ) -> list[PopMessage]:
        """Ask brokers in turn: all of them, or after the first round only one."""
        failure: RequestFailed | None = None
        is_answered = False
        for _ in range(1 if is_waiting else len(brokers)):
            broker = brokers[self._turn % len(brokers)]
            self._turn += 1
            try:
                found = await self._receive_of(broker, max_messages, max(min(wait_s, _WAIT_S_MAX), 0.0))
            except RequestFailed as error:
                if len(brokers) == 1 or not error.is_worth_repeating:
                    raise
                logger.info("not_received group=%s broker=%s: %s", self._group, broker, error)
                failure = error
                continue
            is_answered = True
            if found:
                return found
        if failure is not None and not is_answered and not is_waiting:
            raise failure
        return []

    async def _receive_of(self, broker: str, max_messages: int, wait_s: float) -> list[PopMessage]:
        unanswered = self._unanswered[broker]
        attempt_id = unanswered.pop() if unanswered else secrets.token_hex(_ATTEMPT_ID_BYTES)
        is_answered = False
        try:
            found = await self._receive_as(attempt_id, broker, max_messages, wait_s)
            is_answered = True
        finally:
            if not is_answered:
                unanswered.append(attempt_id)
        return found

    async def _receive_as(self, attempt_id: str, broker: str, max_messages: int, wait_s: float) -> list[PopMessage]:
        request = pb.ReceiveRequest(
            group=self._group,
            topic=self._topic,
            max_messages=max_messages,
            invisible_ms=self._invisible_ms,
            wait_ms=int(wait_s * _MS_PER_S),
            form=pb.MESSAGE_FORM_RECORDS,
            is_from_end=self._is_from_end,
            attempt_id=attempt_id,
            **filter_fields(self._expression),
        )
        response = await self._call(broker, lambda stub: stub.Receive, request, wait_s)
        for skipped in response.skipped:
            logger.warning(
                "skipped_messages group=%s broker=%s topic=%s queue_id=%d offsets=%d-%d cause=%s",
                self._group,
                broker,
                self._topic,
                skipped.queue_id,
                skipped.begin_offset,
                skipped.end_offset,
                pb.SkipCause.Name(skipped.cause),
            )
        records = records_of(response.records, f"{broker}: {self._topic}")
        found = [
            PopMessage(self._topic, broker, record, handle, attempt)
            for record, handle, attempt in zip(records, response.handles, response.attempts, strict=True)
        ]
        if self._spans is not None:
            self._spans.taken(found)
        return found

    async def _call(self, broker: str, method: Method[ResponseT], request: Any, wait_s: float = 0.0) -> ResponseT:
        """Call the leader of a broker, which may take `wait_s` to answer; try again while it has no leader.

        Raises:
            RequestFailed: the refusal of the leader, or why there was no answer.
        """
        nodes, end_s = self._connection.nodes, time.monotonic() + wait_s + _TIMEOUT_S
        repetition = Repetition()
        if not nodes.addresses(broker):
            # A message that another consumer took, before this one has asked for routes.
            await self._connection.find(self._topic)
        while True:
            address = nodes.leader(broker)
            try:
                await nodes.reach(address)
                return await nodes.call_node(address, method, request, wait_s + _ANSWER_S)
            except RequestFailed as failure:
                is_named = nodes.observe(broker, address, failure)
                pause_s = repetition.next_s(failure.repeat_after_s, is_named=is_named)
                if not failure.is_worth_repeating or time.monotonic() + pause_s >= end_s:
                    raise
            await asyncio.sleep(pause_s)

    # ----------------------------------------------------------------------------------------------------------- acks

    async def acknowledge(self, messages: PopMessage | Iterable[PopMessage]) -> list[AckOutcome]:
        """Acknowledge messages: they are done, and no consumer of the group gets them again.

        Returns:
            the outcome for each message. STALE: it was given to another consumer since, because its invisible time had
            passed: what was done with it may be done twice.

        Raises:
            RequestFailed: it is not certain that all are acknowledged; the call may be repeated.
        """
        every = [messages] if isinstance(messages, PopMessage) else list(messages)
        by_broker: dict[str, list[PopMessage]] = defaultdict(list)
        for each in every:
            by_broker[each.broker].append(each)
        outcomes: dict[str, AckOutcome] = {}
        for broker, of_broker in by_broker.items():
            for begin in range(0, len(of_broker), HANDLES_MAX):
                handles = [each.handle for each in of_broker[begin : begin + HANDLES_MAX]]
                request = pb.AcknowledgeRequest(group=self._group, topic=self._topic, handles=handles)
                response = await self._call(broker, lambda stub: stub.Acknowledge, request)
                outcomes.update(zip(handles, map(_OUTCOMES.__getitem__, response.outcomes), strict=True))
        if self._spans is not None:
            self._spans.processed(every)
        return [outcomes[each.handle] for each in every]

    async def change_invisible(self, message: PopMessage, invisible_s: float, *, is_counted: bool = True) -> AckOutcome:
        """Change the time until which other consumers do not get a message: `invisible_s` from now on.

        Args:
            message: gets the new handle.
            invisible_s: 0 (it is given again at once) to 12 hours.
            is_counted: False: the next time that it is given does not count as another attempt.

        Returns:
            ACKNOWLEDGED if the time was changed; else nothing was done, see `acknowledge`. STALE also if the answer to
            a first attempt was lost: then the message is given again after the new time.

        Raises:
            RequestFailed: it is not certain whether the time is changed.
        """
        request = pb.ChangeInvisibleRequest(
            group=self._group,
            topic=self._topic,
            handle=message.handle,
            invisible_ms=int(invisible_s * _MS_PER_S),
            is_uncounted=not is_counted,
        )
        response = await self._call(message.broker, lambda stub: stub.ChangeInvisible, request)
        message.handle = response.handle or message.handle
        return AckOutcome(response.outcome)
