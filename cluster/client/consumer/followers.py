"""What follows the messages of a consumer: its message trace, its spans, both, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cluster.client.consumer.delivery_traces import DeliveryTraces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.client.consumer.delivery_spans import DeliverySpans
    from cluster.client.consumer.options import ConsumerOptions
    from cluster.client.consumer.received import ReceivedMessage
    from cluster.client.routing.connection import BrokerConnection


class Followers(Protocol):
    """Is given each delivery and acknowledgement."""

    def delivered(self, messages: Sequence[ReceivedMessage]) -> None:
        """Note messages that the application gets together."""
        ...

    def processed(self, messages: Sequence[ReceivedMessage]) -> None:
        """Note messages that are acknowledged; some may have been before."""
        ...

    async def close(self) -> None:
        """End, after some seconds at most."""
        ...


class _Both:
    """Two followers."""

    def __init__(self, traces: DeliveryTraces, spans: DeliverySpans) -> None:
        self._each: tuple[Followers, ...] = (traces, spans)

    def delivered(self, messages: Iterable[ReceivedMessage]) -> None:
        found = tuple(messages)
        for each in self._each:
            each.delivered(found)

    def processed(self, messages: Iterable[ReceivedMessage]) -> None:
        found = tuple(messages)
        for each in self._each:
            each.processed(found)

    async def close(self) -> None:
        for each in self._each:
            await each.close()


def followers_of(
    options: ConsumerOptions, connection: BrokerConnection, group: str, spans: DeliverySpans | None
) -> Followers | None:
    """Return the followers of a consumer's messages; None: there are none. Must be called in its event loop."""
    if not options.trace:
        return spans
    traces = DeliveryTraces(connection, group)
    return traces if spans is None else _Both(traces, spans)
