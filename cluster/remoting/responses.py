"""Responses to requests that failed: RocketMQ's codes, and which of them each of our reasons has.

Producers repeat 1, 14, 16 and 17 at once, three times in all, and show any other code to the application; before
version 5.3.0 they do not repeat 2, so a change of the leader never gets it.

Source: RocketMQ `DefaultMQProducerImpl`, `RemotingCode`; and what RocketMQ 5.3.3 was seen to answer.
"""

from __future__ import annotations

from typing import Final

from cluster.fronts.callers import CallerRefused, RightLacking
from cluster.protocol.errors import Reason, RequestFailed
from cluster.remoting.command import Rejected, RemotingCode, Response
from dledger.errors import AccessUnknown

_REMARK_LENGTH_MAX: Final = 1_000

_CODES: Final[dict[Reason, RemotingCode]] = {
    Reason.ILLEGAL_MESSAGE: RemotingCode.MESSAGE_ILLEGAL,
    Reason.ILLEGAL_REQUEST: RemotingCode.INVALID_PARAMETER,
    Reason.UNKNOWN_TOPIC: RemotingCode.TOPIC_NOT_EXIST,
    Reason.UNKNOWN_GROUP: RemotingCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    Reason.UNKNOWN_QUEUE: RemotingCode.INVALID_PARAMETER,
    Reason.OFFSET_BEYOND_END: RemotingCode.INVALID_PARAMETER,
    Reason.TRANSACTION_ENDED: RemotingCode.ILLEGAL_OPERATION,
    Reason.NO_MESSAGE: RemotingCode.QUERY_NOT_FOUND,
    Reason.MESSAGE_TYPE_CONFLICT: RemotingCode.MESSAGE_ILLEGAL,
    Reason.TOPIC_NOT_WRITABLE: RemotingCode.NO_PERMISSION,
    Reason.TOPIC_NOT_READABLE: RemotingCode.NO_PERMISSION,
    Reason.GROUP_NOT_ENABLED: RemotingCode.NO_PERMISSION,
    Reason.NOT_AUTHENTICATED: RemotingCode.NO_PERMISSION,
    Reason.ACCESS_DENIED: RemotingCode.NO_PERMISSION,
    Reason.OVER_QUOTA: RemotingCode.FLOW_CONTROL,
    Reason.TOO_MANY_WAITERS: RemotingCode.FLOW_CONTROL,
    Reason.OVERLOADED: RemotingCode.SYSTEM_BUSY,
    Reason.LEADER_PENDING_FULL: RemotingCode.SYSTEM_BUSY,
    Reason.NOT_LEADER: RemotingCode.SERVICE_NOT_AVAILABLE,
    Reason.LEADER_NOT_READY: RemotingCode.SERVICE_NOT_AVAILABLE,
    Reason.LEADER_TRANSFERRING: RemotingCode.SERVICE_NOT_AVAILABLE,
    Reason.TERM_CHANGED: RemotingCode.SERVICE_NOT_AVAILABLE,
    Reason.NOT_REACHED: RemotingCode.SERVICE_NOT_AVAILABLE,
}


# For `except`, which takes no union.
FAILURES: Final = (Rejected, CallerRefused, RightLacking, RequestFailed, AccessUnknown)


def response_of(error: Rejected | CallerRefused | RightLacking | RequestFailed | AccessUnknown) -> Response:
    """Return the response to a request that failed."""
    if isinstance(error, (CallerRefused, RightLacking)):
        return Response(RemotingCode.NO_PERMISSION, remark=str(error)[:_REMARK_LENGTH_MAX])
    if isinstance(error, AccessUnknown):
        return Response(RemotingCode.SERVICE_NOT_AVAILABLE, remark=str(error)[:_REMARK_LENGTH_MAX])
    if isinstance(error, Rejected):
        return Response(error.code, error.fields, remark=error.remark[:_REMARK_LENGTH_MAX])
    # A reason that this version does not know, too.
    code = RemotingCode.SYSTEM_ERROR if error.reason is None else _CODES.get(error.reason, RemotingCode.SYSTEM_ERROR)
    return Response(code, remark=error.message[:_REMARK_LENGTH_MAX])
