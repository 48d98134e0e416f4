"""The outcomes of an append, and the errors of a read.

An append ends in exactly one of three ways. `Appended` is returned; the other two are raised, so that a caller cannot
overlook them:

| outcome | did it happen? | what to do |
| --- | --- | --- |
| `Appended` | yes, durably | nothing |
| `NotAppended` | no, and it will not | append again when the cause is gone |
| `AppendUnknown` | perhaps | read the log's end before appending again, or accept a duplicate |
"""

from __future__ import annotations

from itertools import count, repeat
from typing import TYPE_CHECKING, NamedTuple

from dledger.errors import DLedgerError, ResponseCode, outcome_of
from store.errors import Certainty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.v1.log_pb2 import AppendResponse, StatusResponse

# Temporary refusals: another node leads, or the leader is busy. All others need an operator.
_RETRIABLE_CODES = frozenset(
    {
        ResponseCode.NETWORK_ERROR,
        ResponseCode.NOT_LEADER,
        ResponseCode.LEADER_NOT_READY,
        ResponseCode.LEADER_TRANSFERRING,
        ResponseCode.LEADER_PENDING_FULL,
        ResponseCode.TERM_CHANGED,
        ResponseCode.OVER_QUOTA,
    }
)


class Appended(NamedTuple):
    """The entry is committed: durable on a majority, and permanently at this place.

    Attributes:
        index: its place in the log, counted from 0.
        term: the leader's term when it was written.
        position: byte position of the entry in the log's files.
    """

    index: int  # type: ignore[assignment]  # hides `tuple.index`, which is not needed here
    term: int
    position: int


class NotAppended(DLedgerError):
    """The append did not happen and never will; appending again is safe.

    Attributes:
        code: a `ResponseCode` (302 for a failed call), or a code that this client does not know.
        message: the cause, for people.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"not appended ({name_of(code)}): {message}; nothing was written, appending again is safe")
        self.code = code
        self.message = message


class AppendUnknown(DLedgerError):
    """The append may or may not have happened, and may still happen.

    Before appending the same body again, read the end of the log to check whether it was appended, or accept a
    duplicate. The client stays usable: the next append searches for the leader again.

    Attributes:
        code: a `ResponseCode` (302 for a failed call), or a code that this client does not know.
        message: the cause, for people.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(
            f"outcome unknown ({name_of(code)}): {message}; it may be in the log: read its end before appending again"
        )
        self.code = code
        self.message = message


class ReadFailed(DLedgerError):
    """A read could not begin or continue; the entries delivered before the failure are valid.

    Attributes:
        code: a `ResponseCode` (302 for a failed call), or a code that this client does not know.
        message: the cause, for people.
        next_index: where to resume reading; None when nothing had been delivered.
    """

    def __init__(self, code: int, message: str, next_index: int | None = None) -> None:
        where = "" if next_index is None else f"; resume with begin={next_index}"
        super().__init__(f"read ended ({name_of(code)}): {message}{where}")
        self.code = code
        self.message = message
        self.next_index = next_index


class Refused(Exception):
    """One attempt provably changed nothing. Internal to the client, which retries it or converts it to an outcome.

    Attributes:
        code: a `ResponseCode`, 302 when no node answered.
        message: the cause, for people.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def is_retriable(self) -> bool:
        """Whether a retry, later or at another node, may succeed."""
        return self.code in _RETRIABLE_CODES


def name_of(code: int) -> str:
    """Return `404 NOT_LEADER` for 404; just the number for a code of a newer server."""
    return f"{code} {ResponseCode(code).name}" if code in ResponseCode._value2member_map_ else str(code)


def raise_outcome(response: AppendResponse, address: str) -> None:
    """Return when the response reports success; raise the failure that it reports otherwise.

    Raises:
        Refused: nothing was written.
        AppendUnknown: something may have been written.
    """
    outcome = outcome_of(response.code)
    if outcome is Certainty.APPENDED:
        return
    message = f"{address} answered: {response.message or name_of(response.code)}"
    if outcome is Certainty.NOT_APPENDED:
        raise Refused(response.code, message)
    raise AppendUnknown(response.code, message)


def checked_status(address: str, answer: StatusResponse | str) -> StatusResponse:
    """Return a node's status.

    Raises:
        ReadFailed: the node did not answer (`answer` says why), or refused.
    """
    if isinstance(answer, str):
        raise ReadFailed(ResponseCode.NETWORK_ERROR, answer)
    if answer.code != ResponseCode.SUCCESS:
        raise ReadFailed(answer.code, f"{address} answered: {answer.message or name_of(answer.code)}")
    return answer


def places_of(first_index: int, term: int, positions: Sequence[int]) -> list[Appended]:
    """Return the places of the consecutive entries of one answer."""
    # A batch has thousands: no call of Python code for each.
    return list(map(Appended._make, zip(count(first_index), repeat(term), positions)))
