"""The topics of which a consumer can read nothing; reported to the program when that lasts too long."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from cluster.protocol.errors import RequestFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.client.consumer.queue_reader import QueueReader
    from cluster.client.routing.queue_choice import BrokerQueue

logger = logging.getLogger(__name__)


class _Unread(NamedTuple):
    """A topic of which nothing is read: the start of the outage on the monotonic clock, and its cause."""

    since_s: float
    failure: RequestFailed


class UnreadTopics:
    """Records for each topic since when nothing could be read, and why.

    Args:
        limit_s: the failure is reported after this time, and again after each further such period.
        on_failure: called with the report.
    """

    def __init__(self, limit_s: float, on_failure: Callable[[RequestFailed], None]) -> None:
        self._limit_s = limit_s
        self._on_failure = on_failure
        self._topics: dict[str, _Unread] = {}

    def failed(self, topic: str, failure: RequestFailed, *, is_logged: bool = True) -> None:
        """Record that a topic cannot be read now; the first failure is logged."""
        known = self._topics.get(topic)
        if known is None and is_logged:
            logger.warning("no_route topic=%s: %s", topic, failure)
        self._topics[topic] = _Unread(time.monotonic() if known is None else known.since_s, failure)

    def read(self, topic: str) -> None:
        """Record that a topic can be read."""
        self._topics.pop(topic, None)

    def report(self, readers: Mapping[BrokerQueue, QueueReader]) -> None:
        """Report the topics of which nothing has been read for too long; `readers` are those of the consumer."""
        refused: dict[str, _Unread | None] = {}
        for queue, reader in readers.items():
            if reader.refused is None or refused.get(queue.topic, reader) is None:
                refused[queue.topic] = None
            else:
                refused[queue.topic] = _Unread(*reader.refused)
        for topic, refusal in refused.items():
            known = self._topics.pop(topic, None)
            if refusal is not None:
                self._topics[topic] = refusal if known is None else known._replace(failure=refusal.failure)
        now = time.monotonic()
        for topic, unread in self._topics.items():
            if now - unread.since_s >= self._limit_s:
                self._topics[topic] = unread._replace(since_s=now)
                cause = unread.failure
                text = f"nothing of topic {topic!r} could be read for {now - unread.since_s:.0f} s: {cause.message}"
                self._on_failure(RequestFailed(cause.reason or cause.name, text))
