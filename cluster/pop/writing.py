"""Proposes operations: all that arrive while an entry is being committed are in the next one.

So a group has one round trip for all operations of all its consumers together, whatever their number. The first entry
of a new leader gives leases the time without one (`cluster.state.pop.grace`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.protocol.errors import Reason, RequestFailed
from cluster.state.pop.grace import LeaseGrace
from cluster.state.pop.ops import OFFSETS_MAX, OPS_MAX, PopOp, PopOps, PopResult, weight_of
from dledger.errors import DLedgerError
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.pop.clock import LogClock
    from cluster.pop.outage import Outage
    from cluster.replica.port import Replica

    _Failure = RequestFailed | StoreError | DLedgerError

# Operations that wait for an entry: some 20 entries.
PENDING_OPS_MAX: Final = 20 * OPS_MAX

logger = logging.getLogger(__name__)


class _Submitted(NamedTuple):
    ops: Sequence[PopOp]
    weight: int
    results: asyncio.Future[Sequence[PopResult]]
    ended: Callable[[Sequence[PopResult] | None], None]


class PopWriter:
    """Proposes operations on one node.

    Args:
        replica: the node's.
        clock: log time.
        outage: how long there was no leader.
    """

    def __init__(self, replica: Replica, clock: LogClock, outage: Outage) -> None:
        self._replica = replica
        self._clock = clock
        self._outage = outage
        # The term in which leases were given the time before it.
        self._graced_term = -1
        self._waiting: deque[_Submitted] = deque()
        self._waiting_ops = 0
        self._task: asyncio.Task[None] | None = None

    async def submit(
        self, ops: Sequence[PopOp], ended: Callable[[Sequence[PopResult] | None], None]
    ) -> Sequence[PopResult]:
        """Propose operations in one entry; return the result of each when the entry is applied.

        Args:
            ops: at most `OPS_MAX` operations with at most `OFFSETS_MAX` offsets, valid ones.
            ended: called with the results before anything else is proposed; with None if there are none. Also if the
                caller is cancelled, which does not take the operations back.

        Raises:
            RequestFailed, StoreError, DLedgerError: see `Replica.change`.
        """
        if self._waiting_ops + len(ops) > PENDING_OPS_MAX:
            ended(None)
            raise RequestFailed(Reason.LEADER_PENDING_FULL, f"{self._waiting_ops} operations wait to be replicated")
        results: asyncio.Future[Sequence[PopResult]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Submitted(ops, sum(map(weight_of, ops)), results, ended))
        self._waiting_ops += len(ops)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return await results

    async def _run(self) -> None:
        try:
            while self._waiting:
                # Other calls of the same iteration of the loop are in the same entry.
                await asyncio.sleep(0)
                batch = self._next_batch()
                error: _Failure | None = None
                results: Sequence[PopResult] = ()
                try:
                    results = await self._propose([op for each in batch for op in each.ops])
                except (RequestFailed, StoreError, DLedgerError) as failure:
                    error = failure
                except Exception as failure:
                    logger.exception("pop_entry_failed calls=%d", len(batch))
                    error = _unexpected(failure)
                _end(batch, results, error)
        finally:
            self._task = None

    def _next_batch(self) -> list[_Submitted]:
        batch: list[_Submitted] = []
        count = weight = 0
        while self._waiting:
            each = self._waiting[0]
            count, weight = count + len(each.ops), weight + each.weight
            if batch and (count > OPS_MAX or weight > OFFSETS_MAX):
                break
            batch.append(self._waiting.popleft())
            self._waiting_ops -= len(each.ops)
        return batch

    async def _give_grace(self) -> None:
        term = self._replica.status().term
        if term == self._graced_term:
            return
        grace_ms = self._outage.grace_ms(term)
        if grace_ms is None:
            return
        if grace_ms and self._replica.state.pop.count:
            await self._replica.change(LeaseGrace(self._clock.now_ms(), grace_ms))
        self._graced_term = term

    async def _propose(self, ops: Sequence[PopOp]) -> Sequence[PopResult]:
        await self._give_grace()
        applied = await self._replica.change(PopOps(self._clock.now_ms(), tuple(ops)))
        if not applied.is_done:
            raise RequestFailed(Reason[applied.verdict.name], applied.detail)
        return applied.pops

    async def stop(self) -> None:
        """Cancel what is being proposed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _unexpected(failure: Exception) -> RequestFailed:
    return RequestFailed(Reason.INTERNAL_ERROR, f"unexpected {type(failure).__name__}, see the node's log")


def _end(batch: Sequence[_Submitted], results: Sequence[PopResult], error: _Failure | None) -> None:
    """End the calls of an entry: each gets its result, whatever the others do with theirs."""
    begin = 0
    for each in batch:
        end = begin + len(each.ops)
        of_each = results[begin:end] if error is None else None
        begin = end
        own_error = error
        try:
            each.ended(of_each)
        except Exception as failure:
            logger.exception("pop_call_failed ops=%d", len(each.ops))
            own_error = _unexpected(failure)
        if each.results.done():
            continue
        if own_error is not None:
            each.results.set_exception(own_error)
        else:
            assert of_each is not None
            each.results.set_result(of_each)
