"""`Producer`, with two interfaces: `async with` opens the asyncio one, `with` the blocking one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Unpack

from cluster.client.producer.async_producer import AsyncProducer
from cluster.client.producer.check_answers import BlockingCheckAnswers, TransactionQuestion
from cluster.client.producer.options import ProducerOptions, ProducerSettings
from cluster.client.producer.outgoing import OutgoingMessage
from cluster.client.producer.transactions import BlockingTransaction
from cluster.client.routing.interfaces import TwoInterfaces
from cluster.process.loop_thread import LoopThread
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from datetime import datetime

    from cluster.client.outcomes import MessageAppended, RecallOutcome
    from cluster.client.producer.replies import ReceivedRequest
    from cluster.client.producer.transactions import TransactionEnd
    from cluster.client.routing.connection import Endpoints
    from dledger.security.settings import Security


class Producer(TwoInterfaces[AsyncProducer, "BlockingProducer"]):
    """Sends messages to the queues of topics.

    Example:
        async with Producer("127.0.0.1:20921,127.0.0.1:20922,127.0.0.1:20923") as producer:
            sent = await producer.send("orders", b"...", tags="paid", keys=["o-17"])

        with Producer(name_servers="127.0.0.1:9876") as producer:
            sent = producer.send("orders", b"...")

    Args:
        endpoints: `host:port` of nodes of all brokers to use, comma separated or as an iterable; one running node of
            each broker is enough.
        name_servers: `host:port` of all name servers, instead of `endpoints`.
        security: of all connections, to name servers and brokers: plain, or TLS; and the token of the calls.
        options: see `ProducerOptions`; its fields are also accepted as keyword arguments.

    Raises:
        ValueError: both or neither of endpoints and name servers are given, one is not `host:port`, or an option is out
            of range.
    """

    def __init__(
        self,
        endpoints: Endpoints = "",
        *,
        name_servers: Endpoints = "",
        security: Security = PLAIN,
        **options: Unpack[ProducerSettings],
    ) -> None:
        self._security = security
        self._options = ProducerOptions(**options)
        super().__init__(endpoints, name_servers)

    def _make(self) -> AsyncProducer:
        return AsyncProducer(self._endpoints, self._name_servers, self._options, self._security)

    def _make_blocking(self) -> BlockingProducer:
        return BlockingProducer(self._opened)


class BlockingProducer:
    """The blocking interface of the producer. Safe to share between threads; concurrent sends share batches.

    Args:
        opened: makes and opens the asyncio interface, on the loop that it will run on.
    """

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, AsyncProducer]]) -> None:
        self._thread = LoopThread("producer")
        self._producer = self._thread.run(opened())
        self._is_closed = False

    def send(
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
        """Send one message; return its offsets once it is committed. See `AsyncProducer.send`."""
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
        return self.send_many((message,), queue_key=queue_key, queue_id=queue_id, deadline_s=deadline_s)[0]

    def send_many(
        self,
        messages: Iterable[OutgoingMessage],
        *,
        queue_key: str | None = None,
        queue_id: int | None = None,
        deadline_s: float | None = None,
    ) -> list[MessageAppended]:
        """Send messages of one topic to one queue, all or none. See `AsyncProducer.send_many`."""
        work = self._producer.send_many(messages, queue_key=queue_key, queue_id=queue_id, deadline_s=deadline_s)
        return self._thread.run(work)

    def reply(
        self, request: ReceivedRequest, body: bytes, *, properties: Mapping[str, str] | None = None
    ) -> MessageAppended:
        """Reply to a request that a consumer received. See `AsyncProducer.reply`."""
        return self._thread.run(self._producer.reply(request, body, properties=properties))

    def recall(self, recall_handle: str, *, deadline_s: float | None = None) -> RecallOutcome:
        """Recall a message that waits for its time. See `AsyncProducer.recall`."""
        return self._thread.run(self._producer.recall(recall_handle, deadline_s=deadline_s))

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
    ) -> BlockingTransaction:
        """Return a transaction of one message, for `with`. See `AsyncProducer.transaction`."""
        transaction = self._producer.transaction(
            topic,
            body,
            group=group,
            tags=tags,
            keys=keys,
            queue_key=queue_key,
            properties=properties,
            delay_level=delay_level,
            immunity_s=immunity_s,
        )
        return BlockingTransaction(self._thread, transaction)

    def answer_checks(
        self, group: str, topics: Sequence[str], decide: Callable[[TransactionQuestion], TransactionEnd | None]
    ) -> BlockingCheckAnswers:
        """Return the answers to brokers, for `with`; `decide` runs in threads. See `AsyncProducer.answer_checks`."""

        async def decided(question: TransactionQuestion) -> TransactionEnd | None:
            return await asyncio.to_thread(decide, question)

        return BlockingCheckAnswers(self._thread, lambda: self._producer.answer_checks(group, topics, decided))

    def flush(self) -> None:
        """Wait until every message that other threads have sent has its outcome."""
        self._thread.run(self._producer.flush())

    def close(self) -> None:
        """Flush, then close all connections. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.run(self._producer.close())
        finally:
            self._thread.close()
