"""The trace of a consumer: a record when a message is delivered, and one when it is acknowledged.

Source: RocketMQ `ConsumeMessageTraceHookImpl`.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from cluster.client.tracing.trace_sender import DeliveryTrace, TraceSender, delivered_trace, now_ms, processed_trace
from store.model.message import KEYS
from store.model.topics import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.client.consumer.received import ReceivedMessage
    from cluster.client.routing.connection import BrokerConnection

# A producer of RocketMQ that does not want a trace of a message sets this property to `false`.
_TRACE_SWITCH: Final = "TRACE_ON"


class DeliveryTraces:
    """The trace of one consumer; must be created in its event loop."""

    def __init__(self, connection: BrokerConnection, group: str) -> None:
        self._group = group
        self._sender = TraceSender(connection, group)

    def delivered(self, messages: Iterable[ReceivedMessage]) -> None:
        """Record the delivery of messages that the application gets together."""
        request_id, begin_ms, records = secrets.token_hex(16), now_ms(), []
        for message in messages:
            properties = message.properties
            if message.topic == TRACE_TOPIC or properties.get(_TRACE_SWITCH) == "false":
                continue
            message_id = message.unique_key or message.message_id
            delivery = message.delivery = DeliveryTrace(request_id, message_id, properties.get(KEYS, ""), begin_ms)
            records.append(delivered_trace(self._group, delivery, message.reconsume_times))
        self._sender.add(records)

    def processed(self, messages: Iterable[ReceivedMessage]) -> None:
        """Record that messages are acknowledged; those that were before, or have no trace, are left out."""
        records = []
        for message in messages:
            delivery = message.delivery
            if delivery is not None:
                message.delivery = None
                records.append(processed_trace(self._group, delivery))
        self._sender.add(records)

    async def close(self) -> None:
        """Send what waits, for some seconds at most, and end."""
        await self._sender.close()
