"""Transactions of a producer: a half message is sent, the caller does its own work, and then it commits or rolls back.

While the transaction is open no consumer gets the message. If the producer ends neither way (it crashed, or the broker
did not answer), the broker asks a producer of the same group: `cluster.client.producer.check_answers`.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final, Self

from cluster.client.producer.transaction_ends import EndedHalf
from cluster.protocol.errors import RequestFailed
from cluster.v1 import broker_pb2 as pb
from store.model.message import IMMUNITY, PRODUCER_GROUP, TRANSACTION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from cluster.client.outcomes import MessageAppended
    from cluster.client.producer.transaction_ends import EndSender
    from cluster.process.loop_thread import LoopThread

logger = logging.getLogger(__name__)


class TransactionEnd(Enum):
    """What a producer decides."""

    COMMIT = pb.TRANSACTION_END_COMMIT
    ROLLBACK = pb.TRANSACTION_END_ROLLBACK


_TRUE: Final = "true"


def half_properties(properties: Mapping[str, str], group: str, immunity_s: int) -> dict[str, str]:
    """Return the properties of a half message.

    Args:
        properties: of the message.
        group: producer group.
        immunity_s: seconds in which the broker does not ask; 0: the broker's setting.
    """
    found = {**properties, TRANSACTION: _TRUE, PRODUCER_GROUP: group}
    if immunity_s:
        found[IMMUNITY] = str(immunity_s)
    return found


class Transaction:
    """One transaction of the asyncio interface; `async with` begins it, commits it, and after an exception rolls back.

    Args:
        begin: sends the half message.
        ends: sends the end.
        topic: of the message.
        group: producer group.
        timeout_s: limit of `commit` and `rollback`.

    Attributes:
        end: what was decided; None: nothing yet.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[MessageAppended]],
        ends: EndSender,
        topic: str,
        group: str,
        timeout_s: float,
    ) -> None:
        self.end: TransactionEnd | None = None
        self._begin = begin
        self._ends = ends
        self._topic = topic
        self._group = group
        self._timeout_s = timeout_s
        self._half: MessageAppended | None = None

    async def __aenter__(self) -> Self:
        """Send the half message.

        Raises:
            NotAppended, AppendUnknown: see `AsyncProducer.send`; what may have been stored is asked about, or given up.
        """
        self._half = await self._begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        """Commit, or roll back after an exception, unless it was ended before.

        Raises:
            RequestFailed: see `commit`. After an exception of the body a failed rollback is only logged.
        """
        if self.end is not None:
            return
        if kind is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except RequestFailed as failure:
            logger.warning("transaction_not_rolled_back id=%s: %s", self.half.unique_key, failure)

    @property
    def half(self) -> MessageAppended:
        """The half message: its offsets are those in the half topic, and its `unique_key` is the transaction's id."""
        assert self._half is not None, "the transaction has not begun"
        return self._half

    async def commit(self) -> None:
        """Commit: consumers get the message.

        Raises:
            RequestFailed: TRANSACTION_ENDED: it was rolled back or given up. NO_TRANSACTION, UNKNOWN_TOPIC. For other
                reasons it may be committed or not: repeat it, or leave the decision to a check.
        """
        await self._decide(TransactionEnd.COMMIT)

    async def rollback(self) -> None:
        """Roll back: no consumer ever gets the message.

        Raises:
            RequestFailed: see `commit`.
        """
        await self._decide(TransactionEnd.ROLLBACK)

    async def _decide(self, end: TransactionEnd) -> None:
        self.end = end
        half = self.half
        place = (half.queue_offset, half.physical_offset)
        ended = EndedHalf(half.broker, self._topic, self._group, *place, half.unique_key, end.value)
        await self._ends.end(ended, self._timeout_s)


class BlockingTransaction:
    """One transaction of the blocking interface; see `Transaction`.

    Args:
        thread: runs the loop of the producer.
        transaction: on that loop.
    """

    def __init__(self, thread: LoopThread, transaction: Transaction) -> None:
        self._thread = thread
        self._transaction = transaction

    def __enter__(self) -> Self:
        """Send the half message; see `Transaction`."""
        self._thread.run(self._transaction.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Commit, or roll back after an exception, unless it was ended before."""
        self._thread.run(self._transaction.__aexit__(kind, *error))

    @property
    def half(self) -> MessageAppended:
        """The half message."""
        return self._transaction.half

    @property
    def end(self) -> TransactionEnd | None:
        """What was decided; None: nothing yet."""
        return self._transaction.end

    def commit(self) -> None:
        """Commit; see `Transaction.commit`."""
        self._thread.run(self._transaction.commit())

    def rollback(self) -> None:
        """Roll back; see `Transaction.rollback`."""
        self._thread.run(self._transaction.rollback())
