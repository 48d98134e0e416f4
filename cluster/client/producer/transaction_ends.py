"""Sends the ends of transactions: those that are decided while a request is under way form the next one."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import check_answer
from cluster.v1 import broker_pb2 as pb
from dledger.client.retry import Backoff

if TYPE_CHECKING:
    from cluster.client.routing.broker_nodes import BrokerNodes

# Transactions of one request: the bound of brokers.
REQUEST_ENDS_MAX: Final = 256
# Of one request, which is repeated within it at other nodes; the caller's own limit may be longer.
_REQUEST_S: Final = 10.0


class EndedHalf(NamedTuple):
    """A half message whose transaction is decided.

    Attributes:
        broker: its broker.
        topic: topic of the message.
        group: producer group.
        half_offset: its offset in the half topic.
        physical_offset: its offset in the log.
        transaction_id: its UNIQ_KEY.
        end: number of `pb.TransactionEnd`.
    """

    broker: str
    topic: str
    group: str
    half_offset: int
    physical_offset: int
    transaction_id: str
    end: int


_Waiting = tuple[EndedHalf, "asyncio.Future[None]"]


class EndSender:
    """Sends ends to their brokers, with one request under way for each broker, topic and group.

    Args:
        nodes: the connections.
    """

    def __init__(self, nodes: BrokerNodes) -> None:
        self._nodes = nodes
        self._is_closed = False
        self._lines: dict[tuple[str, str, str], deque[_Waiting]] = defaultdict(deque)
        self._tasks: dict[tuple[str, str, str], asyncio.Task[None]] = {}

    async def end(self, half: EndedHalf, timeout_s: float) -> None:
        """End a transaction; the request is repeated until it is answered, or the time has passed.

        Raises:
            RequestFailed: see `Transaction.commit`.
        """
        deadline, backoff = time.monotonic() + timeout_s, None
        while True:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._send(half)
            except TimeoutError:
                raise RequestFailed(Reason.ANSWER_LATE, "the broker did not answer in time") from None
            except RequestFailed as failure:
                # Only now: its random numbers take longer than all the rest of a call.
                backoff = backoff or Backoff()
                pause_s = backoff.next_s(failure.repeat_after_s)
                if not failure.is_worth_repeating or time.monotonic() + pause_s >= deadline:
                    raise
                await asyncio.sleep(pause_s)
            else:
                return

    async def _send(self, half: EndedHalf) -> None:
        if self._is_closed:
            raise RequestFailed(Reason.CLIENT_CLOSED, "the producer is closed")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = half[:3]
        self._lines[key].append((half, future))
        if key not in self._tasks:
            self._tasks[key] = asyncio.get_running_loop().create_task(self._run(key))
        await future

    async def _run(self, key: tuple[str, str, str]) -> None:
        """Send what waits, until nothing does."""
        line, batch = self._lines[key], list[_Waiting]()
        try:
            while line:
                batch = [line.popleft() for _ in range(min(len(line), REQUEST_ENDS_MAX))]
                batch = [each for each in batch if not each[1].done()]
                if batch:
                    await self._send_batch(key, batch)
        finally:
            # No await before: a caller that finds a task here must be able to rely on it.
            del self._lines[key], self._tasks[key]
            for _, future in (*batch, *line):
                _fail(future, RequestFailed(Reason.ANSWER_LOST, "the producer was closed"))

    async def _send_batch(self, key: tuple[str, str, str], batch: list[_Waiting]) -> None:
        broker, topic, group = key
        request = pb.EndTransactionsRequest(topic=topic, producer_group=group)
        for half, _ in batch:
            request.half_offsets.append(half.half_offset)
            request.physical_offsets.append(half.physical_offset)
            request.transaction_ids.append(half.transaction_id)
            request.ends.append(half.end)  # type: ignore[arg-type]  # a number
        try:
            response = await self._nodes.call(broker, lambda stub: stub.EndTransactions, request, _REQUEST_S)
        except RequestFailed as failure:
            for _, future in batch:
                _fail(future, failure)
            return
        for (_, future), answer in zip(batch, response.answers, strict=True):
            try:
                check_answer(answer, broker)
            except RequestFailed as failure:
                _fail(future, failure)
            else:
                if not future.done():
                    future.set_result(None)

    async def close(self) -> None:
        """End; what is not answered is unknown."""
        self._is_closed = True
        await end_tasks([*self._tasks.values()])


def _fail(future: asyncio.Future[None], failure: RequestFailed) -> None:
    if not future.done():
        future.set_exception(failure.copy())
