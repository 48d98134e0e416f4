"""One request to change a group, with all its attempts; the blocking and the asyncio admin client use it.

It does no I/O: it returns the requests to send, and is given the answers.

All requests may be repeated: what is so already is answered with 200. So one that was lost on the way, or not answered
in time, is simply sent again, to the current leader, until the deadline.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dledger.client.failures import describe, never_left
from dledger.client.outcomes import Refused, name_of
from dledger.client.retry import LAST_TRY_S, Backoff
from dledger.config import Address, check_id
from dledger.errors import DLedgerError, ResponseCode
from dledger.v1.admin_pb2 import (
    AddMemberRequest,
    AdminResponse,
    PromoteMemberRequest,
    RemoveMemberRequest,
    TransferLeadershipRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    import grpc

Request = AddMemberRequest | PromoteMemberRequest | RemoveMemberRequest | TransferLeadershipRequest

# Above the time after which a node says by itself that a change was not done in time.
_ANSWER_TIMEOUT_S = 4.0
# Beside what passes for every request: another change is under way, a learner catches up, a node stops.
_PASSING_CODES = frozenset(
    {
        ResponseCode.REPEATED_REQUEST,
        ResponseCode.FALL_BEHIND_TOO_MUCH,
        ResponseCode.WAIT_QUORUM_ACK_TIMEOUT,
        ResponseCode.INTERNAL_ERROR,
    }
)


class AdminFailed(DLedgerError):
    """The group was not changed as requested, or the outcome is unknown; repeating the request is safe.

    Attributes:
        code: a `ResponseCode` (302 for what went wrong on the way), or a code that this client does not know.
        message: the cause, for people.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"not done ({name_of(code)}): {message}")
        self.code = code
        self.message = message


def add_request(group: str, member_id: str, address: str) -> AddMemberRequest:
    """Return the request to add a learner; ValueError when `address` is not host:port, or the id is none."""
    return AddMemberRequest(group=group, id=check_id(member_id), address=str(Address.parse(address)))


class AdminSession:
    """What is asked for, and how much patience is left.

    Args:
        request: what is asked for.
        patience_s: how long to try.
        now_s: a monotonic clock.
        random: draws the jitter of pauses.
    """

    def __init__(
        self,
        request: Request,
        *,
        patience_s: float,
        now_s: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        self.request = request
        self._patience_s = patience_s
        self._now_s = now_s
        self._give_up_at = now_s() + patience_s
        self._backoff = Backoff(random)
        # An attempt without an answer may have done it.
        self._is_in_doubt = False
        # What a node answered last.
        self._answer: Refused | None = None

    @property
    def method(self) -> str:
        """Name of the gRPC method."""
        return type(self.request).__name__.removesuffix("Request")

    def timeout_s(self) -> float:
        """Return the time limit for one node's answer."""
        return max(min(self._give_up_at - self._now_s(), _ANSWER_TIMEOUT_S), 0.0)

    def take(self, response: AdminResponse, address: str) -> None:
        """Return if the node says that it is done.

        Raises:
            Refused: it is not; `pause_after` decides whether to ask again.
        """
        if response.code == ResponseCode.SUCCESS:
            return
        is_removed = response.code == ResponseCode.UNKNOWN_MEMBER and isinstance(self.request, RemoveMemberRequest)
        if is_removed and self._is_in_doubt:
            return
        self._is_in_doubt |= response.code in (ResponseCode.WAIT_QUORUM_ACK_TIMEOUT, ResponseCode.INTERNAL_ERROR)
        self._answer = Refused(response.code, f"{address} answered: {response.message or name_of(response.code)}")
        raise self._answer

    def broke(self, address: str, code: grpc.StatusCode, details: str) -> Refused:
        """Return the refusal that a failed call amounts to."""
        self._is_in_doubt |= not never_left(code, details)
        return Refused(ResponseCode.NETWORK_ERROR, describe(address, code, details, "AdminService"))

    def pause_after(self, refusal: Refused) -> float:
        """Return the pause before the next attempt, in seconds.

        Raises:
            AdminFailed: waiting will not help, or has not for too long.
        """
        if not (refusal.is_passing or refusal.code in _PASSING_CODES):
            raise AdminFailed(refusal.code, refusal.message) from refusal
        pause_s = self._backoff.next_s()
        if self._now_s() + pause_s >= self._give_up_at - LAST_TRY_S:
            raise AdminFailed(
                refusal.code, f"{self._explained(refusal)} (tried for {self._patience_s:g} s)"
            ) from refusal
        return pause_s

    def _explained(self, refusal: Refused) -> str:
        """Return the last refusal as a text; where no node answered at last, also the answer before."""
        if self._answer is None or self._answer is refusal:
            return refusal.message
        return f"{refusal.message}; before that {self._answer.message}"
