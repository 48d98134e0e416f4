"""One request to change a group, with its retries; shared by the blocking and the asyncio admin client.

It does no I/O: it returns the requests to send, and receives the answers.

All requests are idempotent. A request that was lost or not answered in time is sent again to the current leader until
the deadline.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dledger.client.failures import code_of_failure, describe, never_left
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

# Longer than the time after which a node itself reports that a change timed out.
_ANSWER_TIMEOUT_S = 4.0
# Retriable in addition to the codes of all requests: another change is in progress, a learner catches up, a node stops.
_RETRIABLE_CODES = frozenset(
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
        code: a `ResponseCode` (302 for a failed call), or a code that this client does not know.
        message: the cause, for people.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"not done ({name_of(code)}): {message}")
        self.code = code
        self.message = message


def add_request(group: str, member_id: str, address: str) -> AddMemberRequest:
    """Return the request to add a learner; ValueError when `address` is not host:port or the id is not valid."""
    return AddMemberRequest(group=group, id=check_id(member_id), address=str(Address.parse(address)))


class AdminSession:
    """A request and the time left for its retries.

    Args:
        request: the request to send.
        patience_s: total time for all attempts.
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
        # An attempt without an answer may have made the change.
        self._is_in_doubt = False
        # The last answer of a node.
        self._answer: Refused | None = None

    @property
    def method(self) -> str:
        """Name of the gRPC method."""
        return type(self.request).__name__.removesuffix("Request")

    def timeout_s(self) -> float:
        """Return the time limit for one node's answer."""
        return max(min(self._give_up_at - self._now_s(), _ANSWER_TIMEOUT_S), 0.0)

    def take(self, response: AdminResponse, address: str) -> None:
        """Return if the node reports success.

        Raises:
            Refused: the change was not made; `pause_after` decides whether to retry.
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
        """Convert a failed call to a refusal."""
        outcome = code_of_failure(code, details)
        self._is_in_doubt |= outcome is ResponseCode.NETWORK_ERROR and not never_left(code, details)
        return Refused(outcome, describe(address, code, details, "AdminService"))

    def pause_after(self, refusal: Refused) -> float:
        """Return the pause before the next attempt, in seconds.

        Raises:
            AdminFailed: a retry cannot succeed, or the deadline has passed.
        """
        if not (refusal.is_retriable or refusal.code in _RETRIABLE_CODES):
            raise AdminFailed(refusal.code, refusal.message) from refusal
        pause_s = self._backoff.next_s()
        if self._now_s() + pause_s >= self._give_up_at - LAST_TRY_S:
            raise AdminFailed(
                refusal.code, f"{self._explained(refusal)} (tried for {self._patience_s:g} s)"
            ) from refusal
        return pause_s

    def _explained(self, refusal: Refused) -> str:
        """Return the last refusal as a text; if no node answered the last attempt, also the last answer."""
        if self._answer is None or self._answer is refusal:
            return refusal.message
        return f"{refusal.message}; before that {self._answer.message}"
