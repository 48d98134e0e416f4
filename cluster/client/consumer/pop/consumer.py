"""`PopConsumer`, with two interfaces: `async with` opens the asyncio one, `with` the blocking one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cluster.client.consumer.pop.async_consumer import AsyncPopConsumer
from cluster.client.routing.interfaces import TwoInterfaces
from cluster.process.loop_thread import LoopThread
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Literal

    from opentelemetry.trace import TracerProvider

    from cluster.client.consumer.pop.message import PopMessage
    from cluster.client.routing.connection import Endpoints
    from cluster.state.pop.ops import AckOutcome
    from dledger.security.settings import Security

_INVISIBLE_S_MIN: Final = 1.0
_INVISIBLE_S_MAX: Final = 12 * 3_600.0


class PopConsumer(TwoInterfaces[AsyncPopConsumer, "BlockingPopConsumer"]):
    """Takes messages of a topic for a group, one by one, whatever their queue.

        Any number of consumers may share a group, more than there are queues. A message that is not acknowledged within
        its invisible time is given to another consumer, with one attempt more. Use it, or `Consumer`, for a group: not
        both.

    Example:
        async with PopConsumer("127.0.0.1:20921", group="billing", topic="orders", invisible_s=30) as consumer:
            for message in await consumer.receive():
                print(message.attempt, message.body)
                await consumer.acknowledge(message)

        with PopConsumer(name_servers="127.0.0.1:9876", group="billing", topic="orders", tags="paid") as consumer:
            messages = consumer.receive(max_messages=10, wait_s=5)
            consumer.acknowledge(messages)

    Args:
        endpoints: `host:port` of nodes of all brokers to use, comma separated or as an iterable; one running node of
            each broker is enough.
        name_servers: `host:port` of all name servers, instead of `endpoints`.
        group: name of the consumer group.
        topic: name of the topic.
        tags: tags expression, `*` or `A || B`, or an `Sql92`; the same one in all consumers of the group: messages that
            it rejects are done.
        invisible_s: for how long a received message is invisible to other consumers, 1 s to 12 h.
        is_from_end: a group without offsets in the topic begins after the last message instead of at the first one.
        security: of all connections: plain, or TLS; and the token of the calls.
        tracer_provider: makes a span of OpenTelemetry for each message, from its receipt until it is acknowledged: a
            provider, or `global`: that of the program. None: no spans. Needs the package opentelemetry-api.

    Raises:
        ValueError: both or neither of endpoints and name servers are given, one is not `host:port`, or the invisible
            time is out of its range.
    """

    def __init__(
        self,
        endpoints: Endpoints = "",
        *,
        group: str,
        topic: str,
        tags: str = "*",
        name_servers: Endpoints = "",
        invisible_s: float = 60.0,
        is_from_end: bool = False,
        security: Security = PLAIN,
        tracer_provider: TracerProvider | Literal["global"] | None = None,
    ) -> None:
        if not _INVISIBLE_S_MIN <= invisible_s <= _INVISIBLE_S_MAX:
            raise ValueError(f"invisible_s: expected {_INVISIBLE_S_MIN} to {_INVISIBLE_S_MAX}, found {invisible_s}")
        super().__init__(endpoints, name_servers)
        self._new = partial(
            AsyncPopConsumer,
            self._endpoints,
            self._name_servers,
            group,
            topic,
            tags,
            invisible_s=invisible_s,
            is_from_end=is_from_end,
            security=security,
            tracer_provider=tracer_provider,
        )

    def _make(self) -> AsyncPopConsumer:
        return self._new()

    def _make_blocking(self) -> BlockingPopConsumer:
        return BlockingPopConsumer(self._opened)


class BlockingPopConsumer:
    """The blocking interface of the pop consumer; several threads may use it.

    Args:
        opened: makes and opens the asyncio interface, on the loop that it will run on.
    """

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, AsyncPopConsumer]]) -> None:
        self._thread = LoopThread("pop-consumer")
        self._consumer = self._thread.run(opened())

    def receive(self, max_messages: int = 32, wait_s: float = 20.0) -> list[PopMessage]:
        """Take messages; an empty list if there is none within `wait_s`. See `AsyncPopConsumer.receive`."""
        return self._thread.run(self._consumer.receive(max_messages, wait_s))

    def acknowledge(self, messages: PopMessage | Iterable[PopMessage]) -> list[AckOutcome]:
        """Acknowledge messages; return the outcome for each. See `AsyncPopConsumer.acknowledge`."""
        return self._thread.run(self._consumer.acknowledge(messages))

    def change_invisible(self, message: PopMessage, invisible_s: float, *, is_counted: bool = True) -> AckOutcome:
        """Change the time until which a message is invisible. See `AsyncPopConsumer.change_invisible`."""
        return self._thread.run(self._consumer.change_invisible(message, invisible_s, is_counted=is_counted))

    def close(self) -> None:
        """Close all connections."""
        try:
            self._thread.run(self._consumer.close())
        finally:
            self._thread.close()
