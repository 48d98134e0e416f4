"""The trace of a producer: one record for each message whose send has ended, stored or not.

Source: RocketMQ `SendMessageTraceHookImpl`, which records no send that failed with an exception.
"""

from __future__ import annotations

import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from cluster.client.tracing.trace_records import DELAY_KIND, NORMAL_KIND, SentTrace
from cluster.client.tracing.trace_sender import TraceSender, now_ms
from store.model.topics import TRACE_TOPIC

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from cluster.client.outcomes import MessageAppended
    from cluster.client.producer.batch import SendItem
    from cluster.client.producer.outgoing import OutgoingMessage
    from cluster.client.routing.connection import BrokerConnection

# Producers here are in no group: RocketMQ's default.
PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
_MS_PER_S: Final = 1_000


class SendTraces:
    """The trace of one producer; must be created in its event loop."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._sender = TraceSender(connection, PRODUCER_GROUP)

    def follow(self, item: SendItem, messages: Sequence[OutgoingMessage]) -> None:
        """Record the outcome of each message of an item once it is known."""
        if item.topic == TRACE_TOPIC:
            return
        begin_ms, begin_s = now_ms(), time.monotonic()

        def ended(future: asyncio.Future[list[MessageAppended]]) -> None:
            is_stored = not future.cancelled() and future.exception() is None
            places = future.result() if is_stored else ()
            cost_ms = int((time.monotonic() - begin_s) * _MS_PER_S)
            self._sender.add(
                _record(message, key, places[row] if places else None, begin_ms, cost_ms)
                for row, (message, key) in enumerate(zip(messages, item.unique_keys, strict=True))
            )

        item.future.add_done_callback(ended)

    async def close(self) -> None:
        """Send what waits, for some seconds at most, and end."""
        await self._sender.close()


def _record(
    message: OutgoingMessage, key: str, place: MessageAppended | None, begin_ms: int, cost_ms: int
) -> SentTrace:
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    return SentTrace(
        begin_ms,
        PRODUCER_GROUP,
        message.topic,
        key,
        message.tags,
        keys,
        "" if place is None else f"{ip_address(place.store_host.address)}:{place.store_host.port}",
        len(message.body),
        cost_ms,
        DELAY_KIND if message.delay_level else NORMAL_KIND,
        "" if place is None else place.message_id,
        place is not None,
    )
