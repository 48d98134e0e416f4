"""The calls of a producer: to send one message or many, at once or later, to reply, and to begin transactions.

`AsyncProducer` adds how messages are sent: batches, queues, retries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from cluster.client.outcomes import not_appended
from cluster.client.producer.check_answers import CheckAnswers, TransactionQuestion
from cluster.client.producer.outgoing import OutgoingMessage
from cluster.client.producer.recalling import recall_message
from cluster.client.producer.replies import reply_to, wait_s
from cluster.client.producer.transaction_ends import EndSender
from cluster.client.producer.transactions import Transaction, half_properties
from cluster.protocol.errors import Reason
from store.errors import IllegalMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from cluster.client.outcomes import MessageAppended, RecallOutcome
    from cluster.client.producer.options import ProducerOptions
    from cluster.client.producer.replies import ReceivedRequest
    from cluster.client.producer.transactions import TransactionEnd
    from cluster.client.routing.connection import BrokerConnection


class ProducerCalls(ABC):
    """The calls of one producer.

    Args:
        options: of the producer.
        connection: to the brokers.
    """

    def __init__(self, options: ProducerOptions, connection: BrokerConnection) -> None:
        self._options = options
        self._connection = connection
        self._ends = EndSender(connection.nodes)
        self._is_closed = False

    @abstractmethod
    async def _send(
        self,
        messages: Sequence[OutgoingMessage],
        queue_key: str | None,
        queue_id: int | None,
        deadline_s: float | None,
    ) -> list[MessageAppended]:
        """Send messages of one topic to one queue, all or none; see `send`."""

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: str | Sequence[str] = (),
        queue_key: str | None = None,
        queue_id: int | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        delay_s: float = 0,
        deliver_at: float | datetime | None = None,
        message_group: str = "",
        deadline_s: float | None = None,
    ) -> MessageAppended:
        """Send one message; return its offsets once it is committed.

        Args:
            topic: its topic.
            body: the payload; may be empty.
            tags: its tag, by which consumers can filter.
            keys: search keys, by which queries find it.
            queue_key: messages with the same key go to the same queue, in order; None: round robin.
            queue_id: a certain queue, of any broker that has it; overrides `queue_key`.
            properties: further names and values.
            delay_level: consumers get it after the delay of this level, 1 (1 s) to 18 (2 h); 0: at once. Then the
                returned offset is that in the queue of the level.
            delay_s: consumers get it after this many seconds, counted by the broker; 0: at once.
            deliver_at: consumers get it at this time, seconds since 1970 or a datetime with a time zone; None: at once.
                Then, and after `delay_s`, the result has the handle for `recall`.
            message_group: of a FIFO message: messages with the same group go to the same queue, in order, whatever
                `queue_key` is; empty: none.
            deadline_s: time limit in seconds, retries included; None: the producer's option.

        Raises:
            MessageNotAppended: it was not stored and never will be; send it again once the cause is fixed.
            MessageAppendUnknown: it may have been stored.
        """
        message = OutgoingMessage(
            topic,
            body,
            tags,
            keys,
            properties or {},
            delay_level=delay_level,
            delay_s=delay_s,
            deliver_at=deliver_at,
            message_group=message_group,
        )
        places = await self._send((message,), queue_key, queue_id, deadline_s)
        return places[0]

    async def send_many(
        self,
        messages: Iterable[OutgoingMessage],
        *,
        queue_key: str | None = None,
        queue_id: int | None = None,
        deadline_s: float | None = None,
    ) -> list[MessageAppended]:
        """Send messages of one topic to consecutive offsets of one queue, all or none; see `send`.

        Args:
            messages: 1 to 4,096, together at most 8 MiB.
            queue_key: messages with the same key go to the same queue, in order; None: round robin.
            queue_id: a certain queue, of any broker that has it; overrides `queue_key`.
            deadline_s: time limit in seconds, retries included; None: the producer's option.
        """
        return await self._send(tuple(messages), queue_key, queue_id, deadline_s)

    async def reply(
        self, request: ReceivedRequest, body: bytes, *, properties: Mapping[str, str] | None = None
    ) -> MessageAppended:
        """Reply to a request that a consumer received; return the offsets of the reply once it is committed.

        Args:
            request: the received message.
            body: the payload of the reply; may be empty.
            properties: further names and values.

        Raises:
            MessageNotAppended: ILLEGAL_MESSAGE: the message is no request; or see `send`.
            MessageAppendUnknown: see `send`.
        """
        try:
            message = reply_to(request.properties, body, properties or {})
        except IllegalMessage as error:
            raise not_appended(Reason.ILLEGAL_MESSAGE, str(error)) from None
        deadline_s = wait_s(request.properties, self._options.deadline_s)
        return (await self._send((message,), None, None, deadline_s))[0]

    def transaction(
        self,
        topic: str,
        body: bytes,
        *,
        group: str,
        tags: str = "",
        keys: str | Sequence[str] = (),
        queue_key: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        immunity_s: int = 0,
    ) -> Transaction:
        """Return a transaction of one message; `async with` begins it, commits at the end, or rolls back.

        Example:
            async with producer.transaction("orders", b"...", group="payments") as transaction:
                await database.commit(...)  # an exception here rolls the message back

        Args:
            topic: its topic.
            body: the payload; may be empty.
            group: producer group: any of its producers may be asked what has become of the transaction
                (`answer_checks`).
            tags: its tag, by which consumers can filter.
            keys: search keys, by which queries find it.
            queue_key: messages with the same key go to the same queue; None: round robin.
            properties: further names and values.
            delay_level: counts from the commit; see `send`.
            immunity_s: seconds in which no producer is asked, at most 3,600; 0: the broker's setting.
        """
        named = half_properties(properties or {}, group, immunity_s)
        message = OutgoingMessage(topic, body, tags, keys, named, delay_level=delay_level)

        async def begin() -> MessageAppended:
            return (await self._send((message,), queue_key, None, None))[0]

        return Transaction(begin, self._ends, topic, group, self._options.deadline_s)

    def answer_checks(
        self,
        group: str,
        topics: Sequence[str],
        decide: Callable[[TransactionQuestion], Awaitable[TransactionEnd | None]],
    ) -> CheckAnswers:
        """Return the answers to brokers that ask about transactions; `async with` starts and ends them.

        Args:
            group: producer group.
            topics: of its transactions.
            decide: returns the decision; None: not known yet, so that the broker asks again.
        """
        return CheckAnswers(self._connection, self._ends, group, topics, decide)

    async def recall(self, recall_handle: str, *, deadline_s: float | None = None) -> RecallOutcome:
        """Recall a message that waits for its time; a second recall has the same outcome.

        Args:
            recall_handle: of the result of its send.
            deadline_s: time limit in seconds, retries included; None: the producer's option.

        Raises:
            RequestFailed: ILLEGAL_REQUEST, UNKNOWN_BROKER; or its certainty is whether the message may be recalled
                nevertheless: repeat the call.
        """
        if self._is_closed:
            raise not_appended(Reason.CLIENT_CLOSED, "the producer is closed")
        deadline_s = self._options.deadline_s if deadline_s is None else deadline_s
        return await recall_message(self._connection, recall_handle, deadline_s)
