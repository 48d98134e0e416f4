"""EndTransaction, EndTransactions, TransactionChecks, ListTransactions.

| request | reason | found in |
| --- | --- | --- |
| below the feature level of transactions | UNSUPPORTED | broker_core |
| no such open transaction: another offset, topic, producer group or id | NO_TRANSACTION | delivery.transactions |
| another end than it had | TRANSACTION_ENDED | delivery.transactions |
| commit, and the topic was deleted | UNKNOWN_TOPIC | delivery.transactions |
| node does not lead, or is not ready | NOT_LEADER, LEADER_NOT_READY | replica |
| too many ends, or producers with streams, wait | LEADER_PENDING_FULL, TOO_MANY_WAITERS | delivery.transactions |
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cluster.api.answers import DONE, refusal
from cluster.api.message_columns import check_lengths
from cluster.delivery.transactions.ends import EndRequest, read_half
from cluster.delivery.transactions.producers import AskedProducer
from cluster.state.effects import Ending
from cluster.state.features import WITH_TRANSACTIONS
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError
from store.errors import IllegalRequest, StoreError
from store.model.topics import check_group

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cluster.broker.core import BrokerCore
    from cluster.delivery.transactions.checks import TransactionChecks
    from cluster.delivery.transactions.ends import TransactionEnds

LIST_MAX: Final = 1_000
_ENDINGS: Final[dict[int, Ending]] = {
    pb.TRANSACTION_END_COMMIT: Ending.COMMITTED,
    pb.TRANSACTION_END_ROLLBACK: Ending.ROLLED_BACK,
}
# How often an idle stream examines whether this node still leads.
_IDLE_S: Final = 1.0


class TransactionCalls:
    """The calls about transactions.

    Args:
        core: rules of the broker.
        ends: ends transactions.
        checks: asks producers.
    """

    def __init__(self, core: BrokerCore, ends: TransactionEnds, checks: TransactionChecks) -> None:
        self._core = core
        self._ends = ends
        self._checks = checks

    async def end(self, request: pb.EndTransactionRequest) -> pb.EndTransactionResponse:
        """End a transaction.

        Raises:
            RequestFailed, StoreError, DLedgerError: see the table of the module.
        """
        self._check()
        place, names = (request.half_offset, request.physical_offset), (request.topic, request.producer_group)
        ending = self._begin(place, request.transaction_id, names, request.end)
        is_changed = False if ending is None else await ending
        return pb.EndTransactionResponse(answer=DONE, is_changed=is_changed)

    async def end_many(self, request: pb.EndTransactionsRequest) -> pb.EndTransactionsResponse:
        """End transactions, each for itself.

        Raises:
            RequestFailed, StoreError, DLedgerError: nothing was done.
        """
        self._check()
        columns = (request.half_offsets, request.physical_offsets, request.transaction_ids, request.ends)
        check_lengths("half_offsets, physical_offsets, transaction_ids and ends", *columns)
        names = (request.topic, request.producer_group)
        results: list[asyncio.Future[bool] | StoreError | DLedgerError | None] = []
        for half, offset, transaction_id, end in zip(*columns, strict=True):
            try:
                results.append(self._begin((half, offset), transaction_id, names, end))
            except (StoreError, DLedgerError) as error:
                results.append(error)
        pending = [each for each in results if isinstance(each, asyncio.Future)]
        try:
            if pending:
                await asyncio.wait(pending)
        finally:
            for future in pending:
                # The client has left: what is not put yet need not be.
                future.cancel()
        errors = [each.exception() if isinstance(each, asyncio.Future) else each for each in results]
        answers = [
            refusal(self._core, each) if isinstance(each, StoreError | DLedgerError) else DONE for each in errors
        ]
        return pb.EndTransactionsResponse(answer=DONE, answers=answers)

    def _check(self) -> None:
        self._core.check_leading()
        self._core.check_feature(WITH_TRANSACTIONS, "transactions")

    def _begin(
        self, place: tuple[int, int], transaction_id: str, names: tuple[str, str], end: int
    ) -> asyncio.Future[bool] | None:
        """Begin to end a transaction; None: the producer does not know its end yet.

        Raises:
            RequestFailed, IllegalRequest: nothing was done.
        """
        half, physical_offset = place
        if half < 0:
            raise IllegalRequest("half_offset", "0 or more", str(half))
        if end == pb.TRANSACTION_END_UNKNOWN:
            return None
        ending = _ENDINGS.get(end)
        if ending is None:
            raise IllegalRequest("end", "commit, rollback or unknown", str(end))
        return self._ends.begin(EndRequest(half, ending, physical_offset, *names, transaction_id))

    async def checks(self, request: pb.TransactionChecksRequest) -> AsyncIterator[pb.TransactionChecksResponse]:
        """Yield the questions to a producer, until this node no longer leads."""
        woken = asyncio.Event()
        producers = self._checks.producers
        producer = AskedProducer(request.producer_group, frozenset(request.topics), woken.set)
        try:
            await self._core.check_current()
            self._core.check_feature(WITH_TRANSACTIONS, "transactions")
            check_group(request.producer_group)
            if not request.topics:
                raise IllegalRequest("topics", "the topics of the producer's transactions", "none")
            producers.join(producer)
        except (StoreError, DLedgerError) as error:
            yield pb.TransactionChecksResponse(answer=refusal(self._core, error))
            return
        try:
            while True:
                woken.clear()
                self._core.check_leading()
                while producer.questions:
                    question = self._question(producer.questions.popleft())
                    if question is not None:
                        yield question
                with suppress(TimeoutError):
                    async with asyncio.timeout(_IDLE_S):
                        await woken.wait()
        except (StoreError, DLedgerError) as error:
            yield pb.TransactionChecksResponse(answer=refusal(self._core, error))
        finally:
            producers.leave(producer)

    def _question(self, half: int) -> pb.TransactionChecksResponse | None:
        """Return a question to a producer; None: the transaction has ended, or its half message is lost."""
        replica = self._core.replica
        row = replica.state.transactions.find(half)
        found = None if row is None else read_half(replica, half, row)
        if row is None or found is None:
            return None
        return pb.TransactionChecksResponse(
            answer=DONE,
            topic=found.topic,
            half_offset=half,
            physical_offset=row.physical_offset,
            transaction_id=found.transaction_id,
            check=row.checks,
            record=bytes(found.record.raw),
        )

    async def list_open(self, request: pb.ListTransactionsRequest) -> pb.ListTransactionsResponse:
        """Return open transactions; only the leader's are current.

        Raises:
            RequestFailed, StoreError, DLedgerError: this node does not lead, or cannot confirm it.
        """
        await self._core.check_current()
        replica, settings = self._core.replica, self._core.options.checks
        table = replica.state.transactions
        response = pb.ListTransactionsResponse(
            answer=DONE, feature_level=replica.state.feature_level, open_count=table.open_count
        )
        count = min(request.max_transactions or LIST_MAX, LIST_MAX)
        for position, (half, row) in enumerate(table.open_from(max(request.from_half_offset, 0), count)):
            found = read_half(replica, half, row)
            response.transactions.add(
                half_offset=half,
                physical_offset=row.physical_offset,
                store_timestamp=row.store_timestamp,
                checks=row.checks,
                next_check_ms=settings.due_ms(row),
                topic="" if found is None else found.topic,
                producer_group="" if found is None else found.group,
                transaction_id="" if found is None else found.transaction_id,
            )
            if position % 64 == 63:
                await asyncio.sleep(0)
        return response
