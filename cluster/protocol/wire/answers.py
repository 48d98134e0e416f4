"""Conversion of failures: `cluster.v1.Answer`, and failed gRPC calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc

from cluster.protocol.errors import CAUSES, Reason, RequestFailed, failure_of
from cluster.v1 import answer_pb2
from dledger.client.failures import describe, never_left
from dledger.errors import Overloaded, OverQuota
from store.errors import Certainty, StoreError

if TYPE_CHECKING:
    from dledger.errors import DLedgerError
    from dledger.v1.log_pb2 import LeaderHint

_CERTAINTY_TO_WIRE: Final = {
    Certainty.APPENDED: answer_pb2.CERTAINTY_DONE,
    Certainty.NOT_APPENDED: answer_pb2.CERTAINTY_NOT_DONE,
    Certainty.UNKNOWN: answer_pb2.CERTAINTY_UNKNOWN,
}
# With which the text of a refusal begins that ends a call.
_OF_PREFIX: Final = {OverQuota.PREFIX: Reason.OVER_QUOTA, Overloaded.PREFIX: Reason.OVERLOADED}
_CERTAINTY_FROM_WIRE: Final = {number: certainty for certainty, number in _CERTAINTY_TO_WIRE.items()}


def answer_of(
    error: DLedgerError | StoreError, leader: LeaderHint | None = None, *, is_read: bool = False
) -> answer_pb2.Answer:
    """Return the answer to a failed request.

    Args:
        error: the exception in the server.
        leader: the leader to try instead; included only if that may help.
        is_read: whether the request changes nothing.
    """
    failure = failure_of(error)
    certainty = answer_pb2.CERTAINTY_NONE if is_read else _CERTAINTY_TO_WIRE[failure.certainty]
    answer = answer_pb2.Answer(code=failure.code, reason=failure.name, message=failure.message, certainty=certainty)
    if leader is not None and failure.reason is not None and CAUSES[failure.reason].is_retriable:
        answer.leader.CopyFrom(leader)
    return answer


def check_answer(answer: answer_pb2.Answer, address: str = "") -> None:
    """Raise unless the answer is a success.

    Args:
        answer: the answer in a response.
        address: address of the node, for the message.

    Raises:
        RequestFailed: the refusal in the answer.
    """
    if not answer.code:
        return
    origin = f"{address} answered: " if address else ""
    raise RequestFailed(
        answer.reason,
        f"{origin}{answer.message or answer.reason}",
        # Absent if the request changes nothing; then the certainty of the table is used.
        certainty=_CERTAINTY_FROM_WIRE.get(answer.certainty),
        code=answer.code,
        leader=answer.leader.address,
    )


def failure_of_call(address: str, code: grpc.StatusCode, details: str, service: str) -> RequestFailed:
    """Return the error for a call that failed in gRPC: no node was reached, or the answer was lost."""
    message = describe(address, code, details, service)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return RequestFailed(Reason.UNSUPPORTED, message)
    # A server uses these codes only before it has executed anything.
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return RequestFailed(Reason.NOT_AUTHENTICATED, message)
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return RequestFailed(Reason.ACCESS_DENIED, message)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        for prefix, reason in _OF_PREFIX.items():
            if details.startswith(prefix):
                return RequestFailed(reason, message)
    if never_left(code, details):
        return RequestFailed(Reason.NOT_REACHED, message)
    is_late = code is grpc.StatusCode.DEADLINE_EXCEEDED
    return RequestFailed(Reason.ANSWER_LATE if is_late else Reason.ANSWER_LOST, message)
