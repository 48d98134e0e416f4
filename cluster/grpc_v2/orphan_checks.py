"""The questions of the leader about transactions, pushed to producers by telemetry.

For each topic that a producer here may send transactions to, one stream asks the leader; of the producers with that
topic one after the other is asked. A producer answers with EndTransaction. A question that no producer gets is not
lost: the leader asks again.

Source: RocketMQ `GrpcClientChannel`, `ProducerManager`; any producer that listed the topic may be asked there, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from cluster.access.model import Action
from cluster.api.rights import topic_need
from cluster.client.consumer.received import records_of
from cluster.fronts.callers import act_for
from cluster.grpc_v2.delivered import delivered
from cluster.grpc_v2.sends import TransactionPlace, encode_transaction_id
from cluster.grpc_v2.status_codes import ok
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import RequestFailed
from cluster.rocketmq_v2 import messaging_pb2 as mq
from store.errors import StoreError

if TYPE_CHECKING:
    from cluster.fronts.callers import Callers
    from cluster.fronts.leader_link import LeaderLink
    from cluster.grpc_v2.telemetry import ClientStream
    from cluster.grpc_v2.topics import KnownTopics
    from cluster.v1 import broker_pb2 as pb

# Topics with a stream; the producers of more are asked at other nodes, or not at all.
TOPICS_MAX: Final = 200
ROUND_S: Final = 1.0
_PAUSE_S: Final = 0.5

logger = logging.getLogger(__name__)


class OrphanChecks:
    """Asks the producers of this front.

    Args:
        link: to the leader.
        topics: of the broker.
        callers: knows the rights of producers.
    """

    def __init__(self, link: LeaderLink, topics: KnownTopics, callers: Callers) -> None:
        self._callers = callers
        self._link = link
        self._topics = topics
        # In the order in which they are asked.
        self._sessions: dict[ClientStream, None] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        # Producers of each topic.
        self._counts: Counter[str] = Counter()
        self._following: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """End all streams."""
        await end_tasks(self._asking.values() if self._following is None else [self._following, *self._asking.values()])

    def join(self, session: ClientStream, topics: frozenset[str]) -> None:
        """Ask a producer from now on, about these topics."""
        self._sessions[session] = None
        before, session.topics = session.topics, topics
        self._counts.update(topics)
        self._forget(before)
        self._begin()
        if self._following is None:
            self._following = asyncio.create_task(self._follow())

    def leave(self, session: ClientStream) -> None:
        """Ask a producer no longer."""
        self._sessions.pop(session, None)
        self._forget(session.topics)

    def _forget(self, topics: frozenset[str]) -> None:
        """End the streams of topics that no producer has any longer."""
        self._counts.subtract(topics)
        for topic in topics:
            if self._counts[topic] <= 0:
                del self._counts[topic]
                if topic in self._asking:
                    self._asking.pop(topic).cancel()

    async def _follow(self) -> None:
        """Begin the streams of topics that were created since, or find a place now."""
        while True:
            await asyncio.sleep(ROUND_S)
            self._begin()

    def _begin(self) -> None:
        """Begin the streams that are missing; topics that cannot have questions take no place of others."""
        for topic in self._counts:
            if len(self._asking) >= TOPICS_MAX:
                return
            if topic not in self._asking and self._topics.takes_transactions(topic):
                self._asking[topic] = asyncio.create_task(self._ask(topic))

    async def _ask(self, topic: str) -> None:
        """Pass on the questions about one topic, as long as it takes transactions."""
        while self._topics.takes_transactions(topic):
            try:
                # In the name of a producer; while none may send, the leader refuses.
                act_for(next((session.client for session in self._asked(topic)), None))
                async for question in self._link.checks(topic, topic):
                    self._pass_on(topic, question)
            except RequestFailed as error:
                logger.debug("orphan_checks_interrupted topic=%s: %s", topic, error)
            await asyncio.sleep(_PAUSE_S)
        del self._asking[topic]

    def _asked(self, topic: str) -> list[ClientStream]:
        """Return the producers of a topic that may send to it now, in the order in which they are asked."""
        need = topic_need(topic, Action.PUB)
        return [each for each in self._sessions if topic in each.topics and self._callers.may(each.client, need)]

    def _pass_on(self, topic: str, question: pb.TransactionChecksResponse) -> None:
        try:
            (record,) = records_of(question.record, topic)
            message = delivered(record, mq.Resource(name=topic))
        except StoreError as error:
            # A producer can compress a body wrongly; the next question is about another message.
            logger.debug("orphan_check_unreadable topic=%s: %s", topic, error)
            return
        place = TransactionPlace(question.transaction_id, question.half_offset, question.physical_offset)
        recover = mq.RecoverOrphanedTransactionCommand(message=message, transaction_id=encode_transaction_id(place))
        command = mq.TelemetryCommand(status=ok(), recover_orphaned_transaction_command=recover)
        for session in self._asked(topic):
            # The next question is for another one.
            del self._sessions[session]
            self._sessions[session] = None
            if session.push(command):
                return
