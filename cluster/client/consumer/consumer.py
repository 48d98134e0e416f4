"""`Consumer`, with two interfaces: `async with` opens the asyncio one, `with` the blocking one."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Unpack

from cluster.client.consumer.async_consumer import AsyncConsumer, Topics, subscriptions_of
from cluster.client.consumer.options import ConsumerOptions, ConsumerSettings
from cluster.client.routing.interfaces import TwoInterfaces
from cluster.process.loop_thread import LoopThread
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cluster.client.consumer.received import ReceivedMessage
    from cluster.client.routing.connection import Endpoints
    from cluster.client.routing.queue_choice import BrokerQueue
    from dledger.security.settings import Security

logger = logging.getLogger(__name__)

# The blocking consumer fetches this many messages at once, and acknowledges the processed ones at least as often.
_CHUNK = 256
_REPORT_S = 1.0


class Consumer(TwoInterfaces[AsyncConsumer, "BlockingConsumer"]):
    """Reads messages of topics as a member of a consumer group, whose members share the queues.

        Every message is delivered at least once. It is delivered again if a consumer ends before committing its offset
        (each second, and on close), or processes it for longer than `handover_limit_s` while its queue is reassigned.

    Example:
        async with Consumer("127.0.0.1:20921", group="billing", topics=["orders"]) as consumer:
            async for message in consumer:
                print(message.queue_offset, message.body)

        with Consumer(name_servers="127.0.0.1:9876", group="billing", topics={"orders": "paid || sent"}) as consumer:
            for message in consumer:
                print(message.keys)

        async with Consumer("127.0.0.1:20921", group="billing", topics="orders", has_retries=True) as consumer:
            await consumer.run(process)  # what it fails to process comes again after 10 s, 30 s, …

        Consumer("127.0.0.1:20921", group="alerts", topics={"orders": Sql92("amount > 1000 AND region = 'eu'")})

    Args:
        endpoints: `host:port` of nodes of all brokers to use, comma separated or as an iterable; one running node of
            each broker is enough.
        name_servers: `host:port` of all name servers, instead of `endpoints`.
        group: name of the consumer group.
        topics: names, or a mapping from names to tags expressions: `*`, or `A || B`; or to an `Sql92`.
        security: of all connections, to name servers and brokers: plain, or TLS; and the token of the calls.
        client_id: the consumer's id, unique in the group; empty: a random one.
        options: fields of `ConsumerOptions`.

    Raises:
        ValueError: both or neither of endpoints and name servers are given, one is not `host:port`, there is no topic,
            or an option is out of range.
    """

    def __init__(
        self,
        endpoints: Endpoints = "",
        *,
        group: str,
        topics: Topics,
        name_servers: Endpoints = "",
        security: Security = PLAIN,
        client_id: str = "",
        **options: Unpack[ConsumerSettings],
    ) -> None:
        self._group = group
        self._subscriptions = subscriptions_of(topics)
        self._client_id = client_id
        self._security = security
        self._options = ConsumerOptions(**options)
        super().__init__(endpoints, name_servers)

    def _make(self) -> AsyncConsumer:
        return AsyncConsumer(
            self._endpoints,
            self._name_servers,
            self._group,
            self._subscriptions,
            self._client_id,
            self._options,
            self._security,
        )

    def _make_blocking(self) -> BlockingConsumer:
        return BlockingConsumer(self._opened, is_auto_acknowledged=self._options.is_auto_acknowledged)


class BlockingConsumer:
    """The blocking interface of the consumer. For use by one thread at a time.

    Args:
        opened: creates and opens the asyncio interface, on the loop that it will run on.
        is_auto_acknowledged: whether a request for the next messages acknowledges those before.
    """

    def __init__(self, opened: Any, *, is_auto_acknowledged: bool) -> None:
        self._thread = LoopThread("consumer")
        self._consumer: AsyncConsumer = self._thread.run(opened())
        self._is_auto_acknowledged = is_auto_acknowledged
        self._chunk: list[ReceivedMessage] = []
        self._taken = 0
        self._reported = 0
        self._reported_at = time.monotonic()
        self._is_closed = False

    @property
    def client_id(self) -> str:
        """Its id in the group."""
        return self._consumer.client_id

    @property
    def queues(self) -> list[BrokerQueue]:
        """The queues currently assigned to this consumer."""
        return self._consumer.queues

    def poll(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """Return the next messages; an empty list if none arrive within `timeout_s`. See `AsyncConsumer.poll`."""
        rest = self._chunk[self._taken : self._taken + max_messages]
        if rest:
            self._report_done()
            self._taken += len(rest)
            return rest
        self._chunk, self._taken, self._reported = [], 0, 0
        return self._thread.run(self._consumer.poll(max_messages, timeout_s))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Iterate endlessly over messages; each step acknowledges the message before, see `AsyncConsumer.poll`."""
        return self

    def __next__(self) -> ReceivedMessage:
        """Wait for the next message and return it."""
        while True:
            while self._taken < len(self._chunk):
                if self._reported_at + _REPORT_S <= time.monotonic():
                    self._report_done()
                message = self._chunk[self._taken]
                reader = message.reader
                if reader.is_active and (reader.is_held or self._thread.run(self._consumer.may_be_delivered(message))):
                    self._taken += 1
                    return message
                self._return_rest(message)
            self._chunk, self._taken, self._reported = [], 0, 0
            self._chunk = self._thread.run(self._consumer.poll(_CHUNK, _REPORT_S))

    def acknowledge(self, messages: ReceivedMessage | Iterable[ReceivedMessage]) -> None:
        """Mark messages as processed. See `AsyncConsumer.acknowledge`."""
        self._thread.run(_acknowledge(self._consumer, messages))

    def nack(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Return a message that could not be processed. See `AsyncConsumer.nack`."""
        self._thread.run(self._consumer.nack(message, delay_level))

    def run(self, handler: Callable[[ReceivedMessage], None]) -> None:
        """Process messages, one after the other: acknowledge each, or return it if the handler raises an exception.

        It ends only by an exception: of `poll` or `nack`, or one that is no `Exception`, as KeyboardInterrupt.
        """
        for message in self:
            try:
                handler(message)
            except Exception:
                logger.exception("message_failed message=%r attempts=%d", message, message.attempts)
                self.nack(message)
            else:
                if not self._is_auto_acknowledged:
                    self.acknowledge(message)

    def commit(self) -> None:
        """Commit the processed messages now."""
        self._report_done()
        self._thread.run(self._consumer.commit())

    def close(self) -> None:
        """Commit the processed messages and leave the group. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._taken = max(self._taken - 1, 0)  # the last one may still be in work
            self._report_done()
            self._thread.run(self._consumer.close())
        finally:
            self._thread.close()

    def _return_rest(self, first: ReceivedMessage) -> None:
        """Return the undelivered rest of a revoked queue; messages delivered before it count as processed."""
        self._report_done()
        self._thread.run(self._consumer.return_undelivered(first))
        while self._taken < len(self._chunk) and self._chunk[self._taken].reader is first.reader:
            self._taken += 1
        self._reported = self._taken

    def _report_done(self) -> None:
        """Acknowledge the messages of the last chunk that were processed."""
        self._reported_at = time.monotonic()
        done = self._chunk[self._reported : self._taken]
        if done and self._is_auto_acknowledged:
            self._thread.run(_acknowledge(self._consumer, done))
        self._reported = self._taken


async def _acknowledge(consumer: AsyncConsumer, messages: ReceivedMessage | Iterable[ReceivedMessage]) -> None:
    consumer.acknowledge(messages)
