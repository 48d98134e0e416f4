"""Ends of transactions, and the leader's questions about them, pushed to producers of their groups.

Each node asks the leader for the questions about the groups whose producers are connected to it: one stream for each
group and topic with open transactions, which it finds in its own replica every `ROUND_S`. A producer answers with the
end. A question that no producer gets is not lost: the leader asks again, and it may come to another node.

While the broker has users, a question goes only to producers that may send to its topic, and the stream is asked for in
the name of one of them.

Source: RocketMQ `EndTransactionProcessor`, `AbstractTransactionalMessageCheckListener`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from cluster.access.model import Action
from cluster.api.rights import topic_need
from cluster.client.consumer.received import records_of
from cluster.delivery.transactions.ends import read_half
from cluster.fronts.callers import act_for
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import RequestFailed
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.fields import int_of, text_of
from cluster.remoting.producers.restored import restored
from cluster.state.transactions import name_hash
from cluster.v1 import broker_pb2 as pb
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.broker.core import BrokerCore
    from cluster.fronts.callers import Callers
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.front import RemotingClient

CHECK_TRANSACTION_STATE: Final = 39
ROUND_S: Final = 2.0
# Groups and topics with a stream; more are asked about at other nodes, or after others have ended.
STREAMS_MAX: Final = 200
# Open transactions whose half messages are read in one round; those that have waited longest come first.
_READ_MAX: Final = 256
# Open transactions that are looked at between two pauses, which take about a millisecond.
_LOOKED_AT: Final = 1_024
_LIMIT_S: Final = 2.5
_NAME_LENGTH_MAX: Final = 255
_LONG_MAX: Final = (1 << 63) - 1
_ENDS: Final = {8: pb.TRANSACTION_END_COMMIT, 12: pb.TRANSACTION_END_ROLLBACK}

logger = logging.getLogger(__name__)


class ProducerMember(Protocol):
    """A registered producer."""

    @property
    def connection(self) -> RemotingClient:
        """Its newest connection."""


class RegisteredProducers(Protocol):
    """The producers that are connected to this node."""

    def producer_groups(self) -> Sequence[str]:
        """Return the names of all groups."""

    def producers_of(self, group: str) -> Sequence[ProducerMember]:
        """Return those of a group."""

    def client(self, client_id: str) -> RemotingClient | None:
        """Return the connection of a client; None: it is not connected to this node."""


class Transactions:
    """The request 37, and the pushes 39.

    Args:
        core: of this node.
        link: to the leader.
        producers: of this node.
        callers: of the front.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink, producers: RegisteredProducers, callers: Callers) -> None:
        self._core = core
        self._link = link
        self._producers = producers
        self._callers = callers
        self._streams: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._turn = 0

    async def end(self, request: Request, _: RemotingClient) -> Response | None:
        """End a transaction; clients send it one-way.

        Raises:
            Rejected, RequestFailed: it was not ended, unless the certainty is unknown.
        """
        fields = request.fields
        end = _ENDS.get(int_of(fields, "commitOrRollback", 0, 12))
        if end is not None:
            half_offset = int_of(fields, "tranStateTableOffset", 0, _LONG_MAX)
            ended = pb.EndTransactionRequest(
                topic=fields.get("topic") or self._topic_of(half_offset),
                producer_group=text_of(fields, "producerGroup", _NAME_LENGTH_MAX),
                half_offset=half_offset,
                physical_offset=int_of(fields, "commitLogOffset", 0, _LONG_MAX),
                transaction_id=fields.get("transactionId") or fields.get("msgId", ""),
                end=end,
            )
            await self._link.call(lambda stub: stub.EndTransaction, ended, _LIMIT_S)
        return None if request.is_oneway else Response()

    def _topic_of(self, half_offset: int) -> str:
        """Return the topic of an open transaction; clients before version 5 do not send it.

        Raises:
            Rejected: ILLEGAL_OPERATION: this node knows no such open transaction. The leader asks about it later.
        """
        row = self._core.replica.state.transactions.find(half_offset)
        half = None if row is None else read_half(self._core.replica, half_offset, row)
        if half is None:
            raise Rejected(RemotingCode.ILLEGAL_OPERATION, f"no transaction is open at half offset {half_offset}")
        return half.topic

    async def run(self) -> None:
        """Ask the producers of this node until cancelled."""
        try:
            while True:
                await self._follow()
                await asyncio.sleep(ROUND_S)
        finally:
            await end_tasks(self._streams.values())

    async def _follow(self) -> None:
        """Begin the streams that are needed, and end the others."""
        wanted = await self._wanted()
        for pair in self._streams.keys() - wanted.keys():
            self._streams.pop(pair).cancel()
        for pair in wanted:
            known = self._streams.get(pair)
            if known is None or known.done():
                self._streams[pair] = asyncio.create_task(self._ask(*pair))

    async def _wanted(self) -> dict[tuple[str, str], None]:
        """Return the groups and topics of open transactions whose producers are connected to this node."""
        hashes = {name_hash(group) for group in self._producers.producer_groups()}
        wanted: dict[tuple[str, str], None] = {}
        table, begin, reads = self._core.replica.state.transactions, 0, 0
        while hashes and reads < _READ_MAX and len(wanted) < STREAMS_MAX:
            rows = table.open_from(begin, _LOOKED_AT)
            for half, row in rows:
                begin = half + 1
                if row.group_hash not in hashes or reads >= _READ_MAX:
                    continue
                reads += 1
                found = read_half(self._core.replica, half, row)
                if found is not None and self._members(found.group, found.topic):
                    wanted[found.group, found.topic] = None
            if len(rows) < _LOOKED_AT:
                break
            await asyncio.sleep(0)
        return wanted

    def _members(self, group: str, topic: str) -> list[ProducerMember]:
        """Return the producers of a group that may send to a topic."""
        need = topic_need(topic, int(Action.PUB))
        return [each for each in self._producers.producers_of(group) if self._callers.may(each.connection.caller, need)]

    async def _ask(self, group: str, topic: str) -> None:
        """Pass on the questions about one group and topic, until the stream fails; the next round begins it again."""
        members = self._members(group, topic)
        # This is a task of its own.
        act_for(members[0].connection.caller if members else None)
        try:
            async for question in self._link.checks(group, topic):
                self._pass_on(group, question)
        except (RequestFailed, StoreError) as error:
            logger.debug("transaction_checks_interrupted group=%s topic=%s: %s", group, topic, error)

    def _pass_on(self, group: str, question: pb.TransactionChecksResponse) -> None:
        members = self._members(group, question.topic)
        if not members:
            return
        self._turn += 1
        members[self._turn % len(members)].connection.push(check_request(question, self._core.options.broker))


def check_request(question: pb.TransactionChecksResponse, broker: str) -> Request:
    """Return the request that asks a producer about a transaction.

    Raises:
        StoreError: the record of the question is damaged.
    """
    (record,) = records_of(question.record, question.topic)
    fields = {
        "tranStateTableOffset": str(question.half_offset),
        "commitLogOffset": str(question.physical_offset),
        "msgId": question.transaction_id,
        "transactionId": question.transaction_id,
        "offsetMsgId": record.message_id,
        "topic": question.topic,
        "bname": broker,
    }
    return Request(CHECK_TRANSACTION_STATE, fields, restored(record, question.topic), is_oneway=True)
