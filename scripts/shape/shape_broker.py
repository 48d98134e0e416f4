"""What the axes of a broker share: a client that is patient, and a load on its queues."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cluster.bench.group_queues import PATIENT
from cluster.client.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shape_group import Group

    from cluster.client.producer.async_producer import AsyncProducer


@asynccontextmanager
async def patient_producer(group: Group) -> AsyncIterator[AsyncProducer]:
    """Open a producer with long timeouts and without compression."""
    async with Producer(group.cluster.endpoints, **PATIENT) as producer:
        yield producer
