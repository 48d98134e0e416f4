"""The topic of message traces: the leader creates it, if the settings want it. Clients may then put to it and read it.

Source: RocketMQ `TopicConfigManager`, `traceTopicEnable`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from cluster.protocol.topic_config import TopicConfig
from dledger.errors import DLedgerError
from store.errors import StoreError
from store.model.topics import TRACE_TOPIC

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore

_RETRY_S: Final = 0.5
# One queue, so that traces are in order.
_QUEUES: Final = 1

logger = logging.getLogger(__name__)


async def create_trace_topic(core: BrokerCore) -> None:
    """Wait until the broker has the topic; create it if this node becomes leader and there is none."""
    replica = core.replica
    while TRACE_TOPIC not in replica.state.topics:
        if replica.status().is_serving_puts:
            try:
                await core.create_topic(TopicConfig(TRACE_TOPIC, _QUEUES, _QUEUES))
            except (StoreError, DLedgerError) as error:
                logger.warning("trace_topic_not_created error=%r", str(error))
            else:
                return
        await asyncio.sleep(_RETRY_S)
