"""RecallMessage: takes a message back that waits for its time.

| message | outcome |
| --- | --- |
| waits | its recall record is put: RECALLED |
| was recalled before | RECALLED |
| does not wait any more | DELIVERED |
| is not in the log | UNKNOWN |
| handle of another topic or broker, or none | refused: ILLEGAL_REQUEST |

The key index finds the message, and whether it was recalled before; the task that delivers decides
(`cluster.delivery.timers`).

Source: RocketMQ `RecallMessageProcessor`, which answers OK in each of these cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.api.answers import DONE
from cluster.delivery.timer_records import Recalled
from cluster.process.cooperative import run_cooperatively
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.recall_handle import decode_recall_handle
from cluster.state.features import WITH_TIMERS
from cluster.v1 import broker_pb2 as pb
from commitlog.record.properties import decode_properties
from commitlog.record.timer_properties import DELETE_KEY, timer_time_ms
from store.errors import IllegalRequest
from store.model.topics import REAL_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.delivery.timers import TimerDelivery

_OUTCOME: Final = pb.RecallOutcome
# Records with one key: a message, its successors for the log's retention, and its recall.
_RECORDS_MAX: Final = 1_024
# A message may be put again between the search and the decision.
_TRIES: Final = 3


class RecallCalls:
    """The calls about recalls.

    Args:
        core: rules of the broker.
        timers: the delivery of this node.
    """

    def __init__(self, core: BrokerCore, timers: TimerDelivery) -> None:
        self._core = core
        self._timers = timers

    async def recall(self, request: pb.RecallMessageRequest) -> pb.RecallMessageResponse:
        """Recall a message.

        Raises:
            IllegalRequest: the handle is none, or one of another topic or broker.
            RequestFailed, StoreError, DLedgerError: this node does not lead, or it is not known whether it took effect.
        """
        core, handle = self._core, decode_recall_handle(request.recall_handle)
        for what, expected, found in (
            ("topic", handle.topic, request.topic),
            ("broker", handle.broker, core.options.broker),
        ):
            if expected != found:
                raise IllegalRequest(
                    f"{what} of the recall", f"that of its handle, {expected[:80]!r}", repr(found[:80])
                )
        core.check_leading()
        core.check_feature(WITH_TIMERS, "recalls")
        if core.replica.store.derived.index is None:
            raise RequestFailed(Reason.UNSUPPORTED, "recalls need the index of keys (the setting message_index_enable)")
        outcome = await self._outcome(Recalled(handle.topic, handle.unique_key, handle.deliver_ms))
        return pb.RecallMessageResponse(answer=DONE, outcome=outcome)

    async def _outcome(self, what: Recalled) -> pb.RecallOutcome.ValueType:
        known: list[int] = []
        for _ in range(_TRIES):
            # Also those whose put was just acknowledged are in the index then.
            await self._core.confirm()
            units, is_recalled = await self._find(what)
            if is_recalled:
                return _OUTCOME.RECALL_OUTCOME_RECALLED
            if not units:
                return _OUTCOME.RECALL_OUTCOME_UNKNOWN
            if units == known:
                break
            known = units
            if await self._timers.recall(what, units):
                return _OUTCOME.RECALL_OUTCOME_RECALLED
        return _OUTCOME.RECALL_OUTCOME_DELIVERED

    async def _find(self, what: Recalled) -> tuple[list[int], bool]:
        """Return the units of a message, those for the time of the handle first; and whether it was recalled."""
        store = self._core.replica.store
        result = await run_cooperatively(store.query_by_unique_key_steps(TIMER_TOPIC, what.key, _RECORDS_MAX))
        units: list[tuple[bool, int]] = []
        is_recalled = False
        for message in result.messages:
            properties = decode_properties(message.properties_raw)
            if properties.get(REAL_TOPIC) != what.topic:
                continue
            if DELETE_KEY in properties:
                is_recalled = True
            else:
                units.append((timer_time_ms(properties) != what.deliver_ms, message.queue_offset))
        return [unit for _, unit in sorted(units)], is_recalled
