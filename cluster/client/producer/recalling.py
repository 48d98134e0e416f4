"""Recalls a message at the broker where it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.client.outcomes import RecallOutcome
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.recall_handle import decode_recall_handle
from cluster.v1 import broker_pb2 as pb
from store.errors import IllegalRequest

if TYPE_CHECKING:
    from cluster.client.routing.connection import BrokerConnection

_OUTCOMES: Final = {
    pb.RECALL_OUTCOME_RECALLED: RecallOutcome.RECALLED,
    pb.RECALL_OUTCOME_DELIVERED: RecallOutcome.DELIVERED,
    pb.RECALL_OUTCOME_UNKNOWN: RecallOutcome.UNKNOWN,
}


async def recall_message(connection: BrokerConnection, recall_handle: str, timeout_s: float) -> RecallOutcome:
    """Recall a message; retry while its broker has no leader that answers.

    Raises:
        RequestFailed: see `AsyncProducer.recall`.
    """
    try:
        handle = decode_recall_handle(recall_handle)
    except IllegalRequest as error:
        raise RequestFailed(Reason.ILLEGAL_REQUEST, str(error)) from None
    routes = await connection.find(handle.topic)
    if handle.broker not in {route.registration.broker for route in routes}:
        text = f"topic {handle.topic!r} has no broker {handle.broker!r}, which the recall handle names"
        raise RequestFailed(Reason.UNKNOWN_BROKER, text)
    request = pb.RecallMessageRequest(topic=handle.topic, recall_handle=recall_handle)
    answer = await connection.nodes.call(handle.broker, lambda stub: stub.RecallMessage, request, timeout_s)
    return outcome_of(answer)


def outcome_of(answer: pb.RecallMessageResponse) -> RecallOutcome:
    """Return the outcome in an answer."""
    return _OUTCOMES[answer.outcome]
