"""The outcome of a put into the replicated log: DLedger's code, RocketMQ's status, and the certainty.

RocketMQ's status does not show whether a put happened: a timeout of the quorum gives "in sync replicas not enough"
although the message may be committed later, and most refusals are "page cache busy". So each code has both RocketMQ 5's
status and the certainty (`dledger.errors.outcome_of`).

Source: RocketMQ `DLedgerCommitLog.asyncPutMessage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.errors import ResponseCode, outcome_of
from store.model.commit_log import PutStatus

if TYPE_CHECKING:
    from store.errors import Certainty

STATUS_OF: Final = {
    ResponseCode.SUCCESS: PutStatus.PUT_OK,
    ResponseCode.NOT_LEADER: PutStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.DISK_FULL: PutStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.LEADER_NOT_READY: PutStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.LEADER_TRANSFERRING: PutStatus.SERVICE_NOT_AVAILABLE,
    # Another leader's entries replaced the message: a producer repeats it there.
    ResponseCode.TERM_CHANGED: PutStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.LEADER_PENDING_FULL: PutStatus.OS_PAGE_CACHE_BUSY,
    ResponseCode.WAIT_QUORUM_ACK_TIMEOUT: PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
    ResponseCode.UNEXPECTED_ARGUMENT: PutStatus.MESSAGE_ILLEGAL,
    ResponseCode.REQUEST_WITH_EMPTY_BODYS: PutStatus.MESSAGE_ILLEGAL,
}


def put_outcome(code: ResponseCode) -> tuple[PutStatus, Certainty]:
    """Return RocketMQ's status and the certainty; a code that is not in the table is UNKNOWN_ERROR."""
    return STATUS_OF.get(code, PutStatus.UNKNOWN_ERROR), outcome_of(code)
