"""The status of an answer: RocketMQ's codes, and which of them each of our reasons has.

Official clients decide by the hundreds of a code: 5xxxx is retried at once, 42900 after a pause, and the others are
raised to the application.

Source: RocketMQ `ResponseBuilder`, `GrpcConverter`; and what RocketMQ 5.3.3 was seen to answer.
"""

from __future__ import annotations

from typing import Final

from cluster.fronts.callers import CallerRefused, RightLacking
from cluster.protocol.errors import Reason, RequestFailed
from cluster.rocketmq_v2 import messaging_pb2 as mq
from dledger.errors import AccessUnknown, DLedgerError

_TEXT_LENGTH_MAX: Final = 1_000

_CODES: Final[dict[Reason, mq.Code.ValueType]] = {
    Reason.ILLEGAL_MESSAGE: mq.BAD_REQUEST,
    Reason.ILLEGAL_REQUEST: mq.BAD_REQUEST,
    Reason.UNKNOWN_TOPIC: mq.TOPIC_NOT_FOUND,
    Reason.UNKNOWN_GROUP: mq.CONSUMER_GROUP_NOT_FOUND,
    Reason.UNKNOWN_QUEUE: mq.BAD_REQUEST,
    Reason.NO_MESSAGE: mq.MESSAGE_NOT_FOUND,
    Reason.MESSAGE_TYPE_CONFLICT: mq.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    Reason.TOPIC_NOT_WRITABLE: mq.FORBIDDEN,
    Reason.TOPIC_NOT_READABLE: mq.FORBIDDEN,
    Reason.GROUP_NOT_ENABLED: mq.FORBIDDEN,
    Reason.UNSUPPORTED: mq.UNSUPPORTED,
    Reason.NOT_AUTHENTICATED: mq.UNAUTHORIZED,
    Reason.ACCESS_DENIED: mq.FORBIDDEN,
    Reason.OVER_QUOTA: mq.TOO_MANY_REQUESTS,
    Reason.OVERLOADED: mq.TOO_MANY_REQUESTS,
    Reason.LEADER_PENDING_FULL: mq.TOO_MANY_REQUESTS,
    Reason.TOO_MANY_WAITERS: mq.TOO_MANY_REQUESTS,
    Reason.TOO_MUCH_STATE: mq.TOO_MANY_REQUESTS,
    Reason.NOT_LEADER: mq.HA_NOT_AVAILABLE,
    Reason.LEADER_NOT_READY: mq.HA_NOT_AVAILABLE,
    Reason.LEADER_TRANSFERRING: mq.HA_NOT_AVAILABLE,
    Reason.TERM_CHANGED: mq.HA_NOT_AVAILABLE,
    Reason.NOT_REACHED: mq.HA_NOT_AVAILABLE,
    Reason.ANSWER_LATE: mq.PROXY_TIMEOUT,
    Reason.WAIT_QUORUM_ACK_TIMEOUT: mq.MASTER_PERSISTENCE_TIMEOUT,
    Reason.FLUSH_DISK_TIMEOUT: mq.MASTER_PERSISTENCE_TIMEOUT,
}


class CodedRefusal(DLedgerError):
    """A request that the front refuses with a code of RocketMQ; nothing was done. Correct the request.

    Attributes:
        code: of the answer.
        text: for people.
    """

    def __init__(self, code: mq.Code.ValueType, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


Failure = CodedRefusal | CallerRefused | RightLacking | RequestFailed | AccessUnknown
# For `except`, which takes no union.
FAILURES: Final = (CodedRefusal, CallerRefused, RightLacking, RequestFailed, AccessUnknown)


def ok() -> mq.Status:
    """Return the status of a success."""
    return mq.Status(code=mq.OK, message="OK")


def status_of(error: Failure) -> mq.Status:
    """Return the status of a failed request."""
    if isinstance(error, CallerRefused):
        return mq.Status(code=mq.UNAUTHORIZED, message=str(error))
    if isinstance(error, RightLacking):
        return mq.Status(code=mq.FORBIDDEN, message=str(error))
    if isinstance(error, AccessUnknown):
        return mq.Status(code=mq.HA_NOT_AVAILABLE, message=str(error))
    if isinstance(error, CodedRefusal):
        return mq.Status(code=error.code, message=error.text[:_TEXT_LENGTH_MAX])
    # A reason that this version does not know, too.
    code = mq.INTERNAL_SERVER_ERROR if error.reason is None else _CODES.get(error.reason, mq.INTERNAL_SERVER_ERROR)
    return mq.Status(code=code, message=error.message[:_TEXT_LENGTH_MAX])


def unknown_topic(name: str) -> CodedRefusal:
    """Return the refusal of a topic that does not exist, with the text by which clients recognise it."""
    text = f"CODE: 17  DESC: No topic route info in name server for the topic: {name}"
    return CodedRefusal(mq.TOPIC_NOT_FOUND, text)
