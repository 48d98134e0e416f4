"""Failures of requests: the table of causes, status codes, and whether the request may have been executed.

A server maps exceptions to a `Reason`. A client turns an answer, or a failed call, into `RequestFailed`
(`cluster.protocol.wire.answers`) with the same `Reason`.

*Certainty* refers to the requested change. A read changes nothing, so every failed read can be retried. A *retriable*
cause may end soon, or not exist at another node: a client retries automatically, but only if the request was certainly
not executed.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from cluster.protocol.route_table import (
    IllegalRegistration,
    StaleRegistration,
    TooManyBrokers,
    TooManyTopics,
    UnconfirmedRegistration,
    UnknownBroker,
)
from dledger.errors import (
    CallRefused,
    DLedgerError,
    OverQuota,
    RepeatLater,
    RequestRefused,
    ResponseCode,
    outcome_of,
    repeat_after_s,
)
from store.errors import (
    Certainty,
    CorruptData,
    DiskFull,
    IllegalMessage,
    IllegalRequest,
    NotCompactedYet,
    StorageFailed,
    StoreError,
    StoreStopped,
    TooManyWaiters,
)
from store.model.commit_log import PutStatus

_NOT_DONE: Final = Certainty.NOT_APPENDED
_UNKNOWN: Final = Certainty.UNKNOWN


class Status(IntEnum):
    """Kinds of failures, with the names and numbers of gRPC."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Cause(NamedTuple):
    """One row of the table.

    Attributes:
        status: the kind of failure.
        certainty: whether the request was executed.
        is_retriable: whether the same request may succeed later, or at another node.
    """

    status: Status
    certainty: Certainty
    is_retriable: bool = False


class Reason(StrEnum):
    """The reason of a failed request. The names are part of the protocol and never change."""

    # The request itself.
    ILLEGAL_MESSAGE = "ILLEGAL_MESSAGE"
    ILLEGAL_REQUEST = "ILLEGAL_REQUEST"
    ILLEGAL_REGISTRATION = "ILLEGAL_REGISTRATION"
    UNKNOWN_TOPIC = "UNKNOWN_TOPIC"
    NO_REPLY_TOPIC = "NO_REPLY_TOPIC"
    UNKNOWN_GROUP = "UNKNOWN_GROUP"
    UNKNOWN_BROKER = "UNKNOWN_BROKER"
    UNKNOWN_QUEUE = "UNKNOWN_QUEUE"
    NO_MESSAGE = "NO_MESSAGE"
    TOPIC_EXISTS = "TOPIC_EXISTS"
    GROUP_EXISTS = "GROUP_EXISTS"
    CLIENT_ID_IN_USE = "CLIENT_ID_IN_USE"
    NOT_IN_GROUP = "NOT_IN_GROUP"
    GROUP_IN_USE = "GROUP_IN_USE"
    MESSAGE_TYPE_CONFLICT = "MESSAGE_TYPE_CONFLICT"
    TOPIC_NOT_WRITABLE = "TOPIC_NOT_WRITABLE"
    TOPIC_NOT_READABLE = "TOPIC_NOT_READABLE"
    GROUP_NOT_ENABLED = "GROUP_NOT_ENABLED"
    OFFSET_BEYOND_END = "OFFSET_BEYOND_END"
    STALE_REGISTRATION = "STALE_REGISTRATION"
    UNSUPPORTED = "UNSUPPORTED"
    NO_TRANSACTION = "NO_TRANSACTION"
    TRANSACTION_ENDED = "TRANSACTION_ENDED"
    # Users and their rights.
    NOT_AUTHENTICATED = "NOT_AUTHENTICATED"
    ACCESS_DENIED = "ACCESS_DENIED"
    ACCESS_CONTROL_OFF = "ACCESS_CONTROL_OFF"
    OVER_QUOTA = "OVER_QUOTA"
    UNKNOWN_USER = "UNKNOWN_USER"
    UNKNOWN_ROLE = "UNKNOWN_ROLE"
    UNKNOWN_TOKEN = "UNKNOWN_TOKEN"  # noqa: S105  (a name)
    UNKNOWN_ACCESS_KEY = "UNKNOWN_ACCESS_KEY"
    USER_EXISTS = "USER_EXISTS"
    ROLE_EXISTS = "ROLE_EXISTS"
    TOKEN_EXISTS = "TOKEN_EXISTS"  # noqa: S105  (a name)
    ACCESS_KEY_EXISTS = "ACCESS_KEY_EXISTS"
    ROLE_IN_USE = "ROLE_IN_USE"
    LAST_ADMINISTRATOR = "LAST_ADMINISTRATOR"
    ACCESS_CHANGED = "ACCESS_CHANGED"
    # The node is not the leader, or not ready.
    NOT_LEADER = "NOT_LEADER"
    LEADER_NOT_READY = "LEADER_NOT_READY"
    LEADER_TRANSFERRING = "LEADER_TRANSFERRING"
    TERM_CHANGED = "TERM_CHANGED"
    # The node does not know all topics yet.
    ROUTES_INCOMPLETE = "ROUTES_INCOMPLETE"
    REGISTRATION_UNCONFIRMED = "REGISTRATION_UNCONFIRMED"
    # A limit is reached, or the node stops.
    LEADER_PENDING_FULL = "LEADER_PENDING_FULL"
    OVERLOADED = "OVERLOADED"
    TOO_MANY_WAITERS = "TOO_MANY_WAITERS"
    TOO_MANY_BROKERS = "TOO_MANY_BROKERS"
    TOO_MUCH_STATE = "TOO_MUCH_STATE"
    DISK_FULL = "DISK_FULL"
    STORE_STOPPED = "STORE_STOPPED"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    # No node was reached, or the request was not sent.
    NOT_REACHED = "NOT_REACHED"
    CLIENT_QUEUE_FULL = "CLIENT_QUEUE_FULL"
    CLIENT_CLOSED = "CLIENT_CLOSED"
    # The request may have been executed.
    ANSWER_LOST = "ANSWER_LOST"
    ANSWER_LATE = "ANSWER_LATE"
    REPLY_TIMED_OUT = "REPLY_TIMED_OUT"
    WAIT_QUORUM_ACK_TIMEOUT = "WAIT_QUORUM_ACK_TIMEOUT"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    DISK_ERROR = "DISK_ERROR"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    # The data is damaged.
    CORRUPT_DATA = "CORRUPT_DATA"


CAUSES: Final[dict[Reason, Cause]] = {
    # The request itself.
    Reason.ILLEGAL_MESSAGE: Cause(Status.INVALID_ARGUMENT, _NOT_DONE),
    Reason.ILLEGAL_REQUEST: Cause(Status.INVALID_ARGUMENT, _NOT_DONE),
    Reason.ILLEGAL_REGISTRATION: Cause(Status.INVALID_ARGUMENT, _NOT_DONE),
    Reason.UNKNOWN_TOPIC: Cause(Status.NOT_FOUND, _NOT_DONE),
    Reason.NO_REPLY_TOPIC: Cause(Status.NOT_FOUND, _NOT_DONE),
    Reason.UNKNOWN_GROUP: Cause(Status.NOT_FOUND, _NOT_DONE),
    Reason.UNKNOWN_BROKER: Cause(Status.NOT_FOUND, _NOT_DONE),
    Reason.UNKNOWN_QUEUE: Cause(Status.OUT_OF_RANGE, _NOT_DONE),
    Reason.NO_MESSAGE: Cause(Status.NOT_FOUND, _NOT_DONE),
    Reason.TOPIC_EXISTS: Cause(Status.ALREADY_EXISTS, _NOT_DONE),
    Reason.GROUP_EXISTS: Cause(Status.ALREADY_EXISTS, _NOT_DONE),
    Reason.CLIENT_ID_IN_USE: Cause(Status.ALREADY_EXISTS, _NOT_DONE),
    Reason.NOT_IN_GROUP: Cause(Status.FAILED_PRECONDITION, _NOT_DONE),
    Reason.GROUP_IN_USE: Cause(Status.FAILED_PRECONDITION, _NOT_DONE),
    Reason.MESSAGE_TYPE_CONFLICT: Cause(Status.FAILED_PRECONDITION, _NOT_DONE),
    Reason.TOPIC_NOT_WRITABLE: Cause(Status.PERMISSION_DENIED, _NOT_DONE),
    Reason.TOPIC_NOT_READABLE: Cause(Status.PERMISSION_DENIED, _NOT_DONE),
    Reason.GROUP_NOT_ENABLED: Cause(Status.PERMISSION_DENIED, _NOT_DONE),
    Reason.OFFSET_BEYOND_END: Cause(Status.OUT_OF_RANGE, _NOT_DONE),
    Reason.STALE_REGISTRATION: Cause(Status.FAILED_PRECONDITION, _NOT_DONE),
    Reason.UNSUPPORTED: Cause(Status.UNIMPLEMENTED, _NOT_DONE),
    Reason.NO_TRANSACTION: Cause(Status.NOT_FOUND, _NOT_DONE),
    Reason.TRANSACTION_ENDED: Cause(Status.FAILED_PRECONDITION, _NOT_DONE),
    # Users and their rights.
    Reason.NOT_AUTHENTICATED: Cause(Status.UNAUTHENTICATED, _NOT_DONE),
    Reason.ACCESS_DENIED: Cause(Status.PERMISSION_DENIED, _NOT_DONE),
    Reason.ACCESS_CONTROL_OFF: Cause(Status.FAILED_PRECONDITION, _NOT_DONE),
    Reason.OVER_QUOTA: Cause(Status.RESOURCE_EXHAUSTED, _NOT_DONE, is_retriable=True),
    Reason.UNKNOWN_USER: Cause(Status.NOT_FOUND, _NOT_DONE),
    Reason.UNKNOWN_ROLE: Cause(Status.NOT_FOUND, _NOT_DONE),
    Reason.UNKNOWN_TOKEN: Cause(Status.NOT_FOUND, _NOT_DONE),
    Reason.UNKNOWN_ACCESS_KEY: Cause(Status.NOT_FOUND, _NOT_DONE),
    Reason.USER_EXISTS: Cause(Status.ALREADY_EXISTS, _NOT_DONE),
    Reason.ROLE_EXISTS: Cause(Status.ALREADY_EXISTS, _NOT_DONE),
    Reason.TOKEN_EXISTS: Cause(Status.ALREADY_EXISTS, _NOT_DONE),
    Reason.ACCESS_KEY_EXISTS: Cause(Status.ALREADY_EXISTS, _NOT_DONE),
    Reason.ROLE_IN_USE: Cause(Status.FAILED_PRECONDITION, _NOT_DONE),
    Reason.LAST_ADMINISTRATOR: Cause(Status.FAILED_PRECONDITION, _NOT_DONE),
    Reason.ACCESS_CHANGED: Cause(Status.ABORTED, _NOT_DONE),
    # The node is not the leader, or not ready.
    Reason.NOT_LEADER: Cause(Status.UNAVAILABLE, _NOT_DONE, is_retriable=True),
    Reason.LEADER_NOT_READY: Cause(Status.UNAVAILABLE, _NOT_DONE, is_retriable=True),
    Reason.LEADER_TRANSFERRING: Cause(Status.UNAVAILABLE, _NOT_DONE, is_retriable=True),
    Reason.TERM_CHANGED: Cause(Status.ABORTED, _NOT_DONE, is_retriable=True),
    # The node does not know all topics yet.
    Reason.ROUTES_INCOMPLETE: Cause(Status.UNAVAILABLE, _NOT_DONE, is_retriable=True),
    Reason.REGISTRATION_UNCONFIRMED: Cause(Status.UNAVAILABLE, _NOT_DONE, is_retriable=True),
    # A limit is reached, or the node stops.
    Reason.LEADER_PENDING_FULL: Cause(Status.RESOURCE_EXHAUSTED, _NOT_DONE, is_retriable=True),
    Reason.OVERLOADED: Cause(Status.RESOURCE_EXHAUSTED, _NOT_DONE, is_retriable=True),
    Reason.TOO_MANY_WAITERS: Cause(Status.RESOURCE_EXHAUSTED, _NOT_DONE, is_retriable=True),
    Reason.TOO_MANY_BROKERS: Cause(Status.RESOURCE_EXHAUSTED, _NOT_DONE),
    Reason.TOO_MUCH_STATE: Cause(Status.RESOURCE_EXHAUSTED, _NOT_DONE),
    Reason.DISK_FULL: Cause(Status.RESOURCE_EXHAUSTED, _NOT_DONE),
    Reason.STORE_STOPPED: Cause(Status.UNAVAILABLE, _NOT_DONE, is_retriable=True),
    Reason.SERVICE_NOT_AVAILABLE: Cause(Status.UNAVAILABLE, _NOT_DONE, is_retriable=True),
    # No node was reached, or the request was not sent.
    Reason.NOT_REACHED: Cause(Status.UNAVAILABLE, _NOT_DONE, is_retriable=True),
    Reason.CLIENT_QUEUE_FULL: Cause(Status.RESOURCE_EXHAUSTED, _NOT_DONE),
    Reason.CLIENT_CLOSED: Cause(Status.FAILED_PRECONDITION, _NOT_DONE),
    # The request may have been executed.
    Reason.ANSWER_LOST: Cause(Status.UNAVAILABLE, _UNKNOWN),
    Reason.ANSWER_LATE: Cause(Status.DEADLINE_EXCEEDED, _UNKNOWN),
    Reason.REPLY_TIMED_OUT: Cause(Status.DEADLINE_EXCEEDED, _UNKNOWN),
    Reason.WAIT_QUORUM_ACK_TIMEOUT: Cause(Status.DEADLINE_EXCEEDED, _UNKNOWN),
    Reason.FLUSH_DISK_TIMEOUT: Cause(Status.DEADLINE_EXCEEDED, _UNKNOWN),
    Reason.DISK_ERROR: Cause(Status.INTERNAL, _UNKNOWN),
    Reason.INTERNAL_ERROR: Cause(Status.INTERNAL, _UNKNOWN),
    # The data is damaged.
    Reason.CORRUPT_DATA: Cause(Status.DATA_LOSS, _UNKNOWN),
}


class RequestFailed(DLedgerError):
    """A request for messages failed, or its outcome is unknown.

    Attributes:
        reason: the cause; None for one that this client does not know, of a newer server.
        code: number of the gRPC status.
        name: name of the cause, as sent by the server.
        message: description of the cause.
        certainty: whether the request was executed.
        leader: `host:port` of the leader to try instead; empty if it is not known.
    """

    def __init__(
        self,
        reason: Reason | str,
        message: str,
        *,
        certainty: Certainty | None = None,
        code: int | None = None,
        leader: str = "",
    ) -> None:
        known = reason if isinstance(reason, Reason) else Reason.__members__.get(reason)
        self.reason = known
        self.name = known.name if known is not None else str(reason)
        # The certainty of an unknown cause is unknown.
        self.certainty = certainty or (_UNKNOWN if known is None else CAUSES[known].certainty)
        self.code = code if code is not None else int(CAUSES[known or Reason.INTERNAL_ERROR].status)
        self.message = message
        self.leader = leader
        # Not super(): subclasses also derive from outcomes of the log, whose constructors format their text
        # differently.
        DLedgerError.__init__(self, f"{self.name}: {message}")

    def copy(self, certainty: Certainty | None = None) -> RequestFailed:
        """Return an error of its own for one of several callers, because raising adds a traceback to it.

        Args:
            certainty: of that caller's request; None: as this.
        """
        return RequestFailed(
            self.reason or self.name,
            self.message,
            certainty=certainty or self.certainty,
            code=self.code,
            leader=self.leader,
        )

    @property
    def is_worth_trying(self) -> bool:
        """Whether the request was not executed, and may succeed later or at another node."""
        is_retriable = self.reason is not None and CAUSES[self.reason].is_retriable
        return is_retriable and self.certainty is Certainty.NOT_APPENDED

    @property
    def repeat_after_s(self) -> float:
        """Seconds after which the server asks for the next attempt; 0: it does not say so."""
        return repeat_after_s(self.message) if self.reason in (Reason.OVER_QUOTA, Reason.OVERLOADED) else 0.0

    @property
    def is_worth_repeating(self) -> bool:
        """Whether an idempotent request should be retried, at the same node or another one."""
        return self.is_worth_trying or self.reason in (Reason.ANSWER_LOST, Reason.ANSWER_LATE)


# An exception is looked up by its class, then by its base classes.
_REASONS: Final[dict[type[BaseException], Reason]] = {
    IllegalMessage: Reason.ILLEGAL_MESSAGE,
    IllegalRequest: Reason.ILLEGAL_REQUEST,
    IllegalRegistration: Reason.ILLEGAL_REGISTRATION,
    StaleRegistration: Reason.STALE_REGISTRATION,
    UnconfirmedRegistration: Reason.REGISTRATION_UNCONFIRMED,
    TooManyBrokers: Reason.TOO_MANY_BROKERS,
    TooManyTopics: Reason.TOO_MUCH_STATE,
    UnknownBroker: Reason.UNKNOWN_BROKER,
    TooManyWaiters: Reason.TOO_MANY_WAITERS,
    NotCompactedYet: Reason.LEADER_NOT_READY,
    StoreStopped: Reason.STORE_STOPPED,
    DiskFull: Reason.DISK_FULL,
    StorageFailed: Reason.DISK_ERROR,
    CorruptData: Reason.CORRUPT_DATA,
    StoreError: Reason.INTERNAL_ERROR,
    DLedgerError: Reason.INTERNAL_ERROR,
}

# Codes of the Raft log that have another name here; all others have the same name.
_OF_LOG_CODE: Final[dict[int, Reason]] = {
    ResponseCode.UNEXPECTED_ARGUMENT: Reason.ILLEGAL_REQUEST,
    ResponseCode.REQUEST_WITH_EMPTY_BODYS: Reason.ILLEGAL_REQUEST,
    ResponseCode.INDEX_OUT_OF_RANGE: Reason.ILLEGAL_REQUEST,
    ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN: Reason.ILLEGAL_REQUEST,
    # In that code the group is the Raft group.
    ResponseCode.UNKNOWN_GROUP: Reason.UNKNOWN_BROKER,
}

_OF_PUT_STATUS: Final[dict[PutStatus, Reason]] = {
    PutStatus.FLUSH_DISK_TIMEOUT: Reason.FLUSH_DISK_TIMEOUT,
    PutStatus.SERVICE_NOT_AVAILABLE: Reason.SERVICE_NOT_AVAILABLE,
    PutStatus.CREATE_MAPPED_FILE_FAILED: Reason.DISK_FULL,
    PutStatus.MESSAGE_ILLEGAL: Reason.ILLEGAL_MESSAGE,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: Reason.ILLEGAL_MESSAGE,
    PutStatus.OS_PAGE_CACHE_BUSY: Reason.LEADER_PENDING_FULL,
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: Reason.WAIT_QUORUM_ACK_TIMEOUT,
    PutStatus.UNKNOWN_ERROR: Reason.INTERNAL_ERROR,
}


def reason_of_code(code: int) -> Reason:
    """Return the reason for a code of the Raft log."""
    if code in _OF_LOG_CODE:
        return _OF_LOG_CODE[code]
    try:
        name = ResponseCode(code).name
    except ValueError:  # of a newer server
        name = ""
    return Reason.__members__.get(name, Reason.INTERNAL_ERROR)


def reason_of_put(status: PutStatus) -> Reason:
    """Return the reason for the status of a failed put."""
    return _OF_PUT_STATUS[status]


def failure_of_code(code: int, message: str) -> RequestFailed:
    """Return the error for a refusal by the Raft log, with the certainty of `dledger.errors.outcome_of`."""
    return RequestFailed(reason_of_code(code), message, certainty=outcome_of(code))


def failure_of(error: DLedgerError | StoreError) -> RequestFailed:
    """Return the error for a caller after an exception in a server."""
    if isinstance(error, RequestFailed):
        return error
    if isinstance(error, RequestRefused):
        return failure_of_code(error.code, error.message)
    if isinstance(error, RepeatLater):
        return RequestFailed(Reason.OVER_QUOTA if isinstance(error, OverQuota) else Reason.OVERLOADED, str(error))
    if isinstance(error, CallRefused):
        return RequestFailed(reason_of_code(error.code), str(error))
    reason = next(_REASONS[kind] for kind in type(error).__mro__ if kind in _REASONS)
    return RequestFailed(reason, str(error))
