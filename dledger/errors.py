"""Errors of the Raft log, and DLedger's response codes with the certainty of each about the append.

Three families: a *bug* is an `InvariantBroken` (the node stops), a *refusal* is a
`ResponseCode` carried as data, and the *world* (files, peers) raises a typed exception with file, position,
expected and found. File errors of any store are in `store.errors`, with `Certainty`.
"""

from __future__ import annotations

import math
import re
from enum import IntEnum
from typing import Final

from store.errors import Certainty


class ResponseCode(IntEnum):
    """DLedger's response codes (`DLedgerResponseCode`) that this service uses in answers."""

    SUCCESS = 200
    NETWORK_ERROR = 302
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    INCONSISTENT_STATE = 406
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_REQUEST = 412
    DISK_ERROR = 414
    DISK_FULL = 415
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    REQUEST_WITH_EMPTY_BODYS = 420
    # Ours: between nodes only.
    OLD_DIRECTORY = 430
    COMMITTED_OTHERWISE = 431
    # Ours: of calls that the gate in front of the services refuses; on the wire mostly a status of gRPC.
    ACCESS_DENIED = 440
    NOT_AUTHENTICATED = 441
    OVER_QUOTA = 442
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    LEADER_PENDING_FULL = 503
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506


# The name of this class until 0.1.0.
Outcome = Certainty

# A code that is not listed means an unknown outcome: the server may be newer than the client.
_CERTAINTIES: dict[int, Certainty] = {
    ResponseCode.SUCCESS: Certainty.APPENDED,
    ResponseCode.UNKNOWN_GROUP: Certainty.NOT_APPENDED,
    ResponseCode.UNKNOWN_MEMBER: Certainty.NOT_APPENDED,
    ResponseCode.NOT_LEADER: Certainty.NOT_APPENDED,
    ResponseCode.UNEXPECTED_ARGUMENT: Certainty.NOT_APPENDED,
    ResponseCode.DISK_FULL: Certainty.NOT_APPENDED,
    ResponseCode.REQUEST_WITH_EMPTY_BODYS: Certainty.NOT_APPENDED,
    ResponseCode.ACCESS_DENIED: Certainty.NOT_APPENDED,
    ResponseCode.NOT_AUTHENTICATED: Certainty.NOT_APPENDED,
    ResponseCode.OVER_QUOTA: Certainty.NOT_APPENDED,
    ResponseCode.LEADER_PENDING_FULL: Certainty.NOT_APPENDED,
    ResponseCode.LEADER_NOT_READY: Certainty.NOT_APPENDED,
    ResponseCode.LEADER_TRANSFERRING: Certainty.NOT_APPENDED,
    # The entries were overwritten by another leader's: other entries are committed at their indexes.
    ResponseCode.TERM_CHANGED: Certainty.NOT_APPENDED,
    ResponseCode.WAIT_QUORUM_ACK_TIMEOUT: Certainty.UNKNOWN,
    ResponseCode.DISK_ERROR: Certainty.UNKNOWN,
    ResponseCode.INTERNAL_ERROR: Certainty.UNKNOWN,
}


def outcome_of(code: int) -> Certainty:
    """Return whether an append that was answered with `code` was executed, was not, or may have been."""
    return _CERTAINTIES.get(code, Certainty.UNKNOWN)


class DLedgerError(Exception):
    """Base of all errors of this package."""


class CallRefused(DLedgerError):
    """The caller is not authenticated, or may not do this. Nothing was done; log in, or ask an administrator.

    Attributes:
        is_authenticated: the user is known and lacks a right; otherwise no valid credentials were sent.
    """

    def __init__(self, text: str, *, is_authenticated: bool) -> None:
        super().__init__(text)
        self.is_authenticated = is_authenticated

    @property
    def code(self) -> ResponseCode:
        """The code in answers that have one."""
        return ResponseCode.ACCESS_DENIED if self.is_authenticated else ResponseCode.NOT_AUTHENTICATED


class AccessUnknown(CallRefused):
    """This node may not know the caller or its rights yet. Nothing was done; ask the leader, or repeat the request.

    Users and rights are replicated: a follower, or a node that has just started, learns of a change later.
    """

    # By it a client knows this refusal from others with the same status of gRPC.
    PREFIX: Final = "access not known yet: "

    def __init__(self, text: str) -> None:
        super().__init__(f"{self.PREFIX}{text}", is_authenticated=False)

    @property
    def code(self) -> ResponseCode:
        """The code in answers that have one: retriable, and nothing was done."""
        return ResponseCode.LEADER_NOT_READY


class RepeatLater(CallRefused):
    """The caller has taken as much as it may. Nothing was done; repeat the request after `wait_s`.

    Attributes:
        wait_s: seconds until the request may succeed.
    """

    def __init__(self, text: str, wait_s: float) -> None:
        shown_s = math.ceil(wait_s * 100) / 100
        super().__init__(f"{text}; repeat the request in {shown_s:.2f} s. Nothing was done", is_authenticated=True)
        self.wait_s = wait_s


class OverQuota(RepeatLater):
    """The caller has used its quota of requests or bytes a second."""

    # By it a client knows this refusal from others with the same status of gRPC.
    PREFIX: Final = "over quota: "

    def __init__(self, whose: str, wait_s: float) -> None:
        super().__init__(f"{self.PREFIX}{whose} has used its quota", wait_s)

    @property
    def code(self) -> ResponseCode:
        """The code in answers that have one."""
        return ResponseCode.OVER_QUOTA


class Overloaded(RepeatLater):
    """The caller has its share of what the node can serve at a time (`dledger.service.limits.fair_shares`)."""

    PREFIX: Final = "overloaded: "

    def __init__(self, whose: str, share: str, wait_s: float) -> None:
        super().__init__(f"{self.PREFIX}{whose} has its share of {share} of this node", wait_s)

    @property
    def code(self) -> ResponseCode:
        """The code in answers that have one: retriable, and nothing was done."""
        return ResponseCode.LEADER_PENDING_FULL


_REPEAT_AFTER: Final = re.compile(r"; repeat the request in (\d{1,6}\.\d\d) s\. ")


def repeat_after_s(text: str) -> float:
    """Return after how many seconds the request may be repeated that was refused with this text; 0: it has no hint."""
    found = _REPEAT_AFTER.search(text)
    return 0.0 if found is None else float(found[1])


class InvariantBroken(DLedgerError):
    """The node is in a state that Raft excludes; it must stop, and its files should be kept for analysis."""


class RequestRefused(DLedgerError):
    """A request cannot be served here or now, and had no effect; the code shows what to change before a retry.

    Attributes:
        code: of the reason.
        message: the fault, for people.
    """

    def __init__(self, code: ResponseCode, message: str) -> None:
        super().__init__(f"{code.value} {code.name}: {message}")
        self.code = code
        self.message = message
