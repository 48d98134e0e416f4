"""DelayLevels: what waits in the queues of the delay levels, and for times; SetDelayLevels: the delays of levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.api.answers import DONE
from cluster.delivery.delay_levels import first_waiting
from cluster.state.features import WITH_DELAY_TABLE
from cluster.state.old.commands import SetDelayLevels
from cluster.state.old.delay_table import check_levels
from cluster.state.verdicts import CommandVerdict
from cluster.v1 import broker_pb2 as pb
from store.model.message import QueueKey
from store.model.topics import DELAY_LEVELS_MS, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.delivery.timers import TimerDelivery


class DelayCalls:
    """The calls about delayed messages."""

    def __init__(self, core: BrokerCore, timers: TimerDelivery) -> None:
        self._core = core
        self._timers = timers

    async def levels(self, _request: pb.DelayLevelsRequest) -> pb.DelayLevelsResponse:
        """Return all levels with every message acknowledged before; only the leader has the numbers.

        Raises:
            RequestFailed, StoreError, DLedgerError: this node does not lead, or cannot confirm it.
        """
        await self._core.confirm_leading()
        replica = self._core.replica
        # Messages may wait in the queue of a level that the table has no longer.
        count = max(len(replica.state.delay_levels_ms), len(DELAY_LEVELS_MS))
        levels = [self._level(number) for number in range(1, count + 1)]
        next_due_ms = self._timers.next_due_ms()
        return pb.DelayLevelsResponse(
            answer=DONE,
            feature_level=replica.state.feature_level,
            levels=levels,
            timers_waiting=self._timers.waiting_count,
            timers_next_due_ms=-1 if next_due_ms is None else next_due_ms,
        )

    async def set_levels(self, request: pb.SetDelayLevelsRequest) -> pb.ChangeResponse:
        """Set the delays of the levels.

        Raises:
            RequestFailed: UNSUPPORTED: a node of the group runs an older program.
            IllegalMessage: there are too many, or one is out of its range.
            StoreError, DLedgerError: they are not set, or it is not known.
        """
        levels_ms = tuple(request.delay_ms)
        check_levels(levels_ms)
        self._core.check_leading()
        self._core.check_feature(WITH_DELAY_TABLE, "delay levels with other delays")
        applied = await self._core.change(SetDelayLevels(levels_ms))
        return pb.ChangeResponse(answer=DONE, is_changed=applied.verdict is CommandVerdict.CHANGED)

    def _level(self, number: int) -> pb.DelayLevel:
        replica = self._core.replica
        levels_ms = replica.state.delay_levels_ms
        delay_ms = levels_ms[number - 1] if number <= len(levels_ms) else 0
        found = pb.DelayLevel(level=number, delay_ms=delay_ms, next_due_ms=-1)
        queue = replica.store.derived.queues.get(QueueKey(SCHEDULE_TOPIC, number - 1))
        if queue is not None:
            found.delivered_offset = first_waiting(replica, number)
            found.max_offset = queue.max_offset
            for _, _, time_ms in queue.unit_tuples(found.delivered_offset, 1):
                found.next_due_ms = time_ms
        return found
