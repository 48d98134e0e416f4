"""Responses to requests that failed: RocketMQ's codes, and which of them each of our reasons has.

Producers repeat 1, 14, 16 and 17 at once, three times in all, and show any other code to the application; before
version 5.3.0 they do not repeat 2, so a change of the leader never gets it.

Source: RocketMQ `DefaultMQProducerImpl`, `ResponseCode`; and what RocketMQ 5.3.3 was seen to answer.
"""

from __future__ import annotations

from typing import Final

from cluster.protocol.errors import Reason, RequestFailed
from cluster.remoting.command import Refused, Response, ResponseCode

_REMARK_LENGTH_MAX: Final = 1_000

_CODES: Final[dict[Reason, ResponseCode]] = {
    Reason.ILLEGAL_MESSAGE: ResponseCode.MESSAGE_ILLEGAL,
    Reason.ILLEGAL_REQUEST: ResponseCode.INVALID_PARAMETER,
    Reason.UNKNOWN_TOPIC: ResponseCode.TOPIC_NOT_EXIST,
    Reason.UNKNOWN_GROUP: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    Reason.UNKNOWN_QUEUE: ResponseCode.INVALID_PARAMETER,
    Reason.NO_MESSAGE: ResponseCode.QUERY_NOT_FOUND,
    Reason.MESSAGE_TYPE_CONFLICT: ResponseCode.MESSAGE_ILLEGAL,
    Reason.TOPIC_NOT_WRITABLE: ResponseCode.NO_PERMISSION,
    Reason.TOPIC_NOT_READABLE: ResponseCode.NO_PERMISSION,
    Reason.GROUP_NOT_ENABLED: ResponseCode.NO_PERMISSION,
    Reason.NOT_AUTHENTICATED: ResponseCode.NO_PERMISSION,
    Reason.ACCESS_DENIED: ResponseCode.NO_PERMISSION,
    Reason.OVER_QUOTA: ResponseCode.FLOW_CONTROL,
    Reason.TOO_MANY_WAITERS: ResponseCode.FLOW_CONTROL,
    Reason.NOT_LEADER: ResponseCode.SERVICE_NOT_AVAILABLE,
    Reason.LEADER_NOT_READY: ResponseCode.SERVICE_NOT_AVAILABLE,
    Reason.LEADER_TRANSFERRING: ResponseCode.SERVICE_NOT_AVAILABLE,
    Reason.TERM_CHANGED: ResponseCode.SERVICE_NOT_AVAILABLE,
    Reason.NOT_REACHED: ResponseCode.SERVICE_NOT_AVAILABLE,
}


def response_of(error: Refused | RequestFailed) -> Response:
    """Return the response to a request that failed."""
    if isinstance(error, Refused):
        return Response(error.code, error.fields, remark=error.remark[:_REMARK_LENGTH_MAX])
    # A reason that this version does not know, too.
    code = ResponseCode.SYSTEM_ERROR if error.reason is None else _CODES.get(error.reason, ResponseCode.SYSTEM_ERROR)
    return Response(code, remark=error.message[:_REMARK_LENGTH_MAX])
