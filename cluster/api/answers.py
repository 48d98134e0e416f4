"""Building blocks of `BrokerService` answers: refusals, reports of skipped messages, read modes.

Not here: the calls (`put_calls`, `read_calls`, `query_calls`, `group_calls`, `topic_calls`), and the rules
(`cluster.broker.core`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from cluster.protocol.errors import failure_of
from cluster.protocol.wire.answers import answer_of
from cluster.protocol.wire.skipped import damaged_to_wire, skipped_to_wire
from cluster.replica.port import ReadMode
from cluster.v1 import answer_pb2
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError
from dledger.v1 import log_pb2
from store.access.skipped_messages import Skip, SkipCause
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from cluster.broker.core import BrokerCore
    from store.model.dispatch_batch import Skipped

DONE: Final = answer_pb2.Answer(certainty=answer_pb2.CERTAINTY_DONE)
_READ_MODES: Final[dict[int, ReadMode]] = {
    log_pb2.READ_MODE_LOCAL: ReadMode.LOCAL,
    log_pb2.READ_MODE_LEASE: ReadMode.LEASE,
}


class _Answering(Protocol):
    def __init__(self, *, answer: answer_pb2.Answer) -> None: ...


Response = TypeVar("Response", bound=_Answering)


async def answered(
    core: BrokerCore, kind: Callable[..., Response], work: Awaitable[Response], *, is_read: bool = False
) -> Response:
    """Return the response of `work`, or a response with the refusal if it failed."""
    try:
        return await work
    except (StoreError, DLedgerError) as error:
        return kind(answer=refusal(core, error, is_read=is_read))


def refusal(core: BrokerCore, error: StoreError | DLedgerError, *, is_read: bool = False) -> answer_pb2.Answer:
    """Return the answer to a failed request, and count the refusal."""
    core.metrics.count_refusal(failure_of(error).name)
    return answer_of(error, leader_hint(core), is_read=is_read)


def leader_hint(core: BrokerCore) -> log_pb2.LeaderHint:
    """Return the leader hint for clients: the id and address of the leader."""
    status = core.replica.status()
    return log_pb2.LeaderHint(id=status.leader_id, address=status.leader_address)


def report_skipped(core: BrokerCore, topic: str, queue_id: int, skips: Sequence[Skip]) -> list[pb.SkippedMessages]:
    """Return the report of skipped messages of a queue; count them, and log damaged ones."""
    for each in skips:
        core.metrics.count_skipped(each.cause, each.end - each.begin)
        if each.record is not None:
            core.damage_log.note(topic, queue_id, each.record)
    return list(skipped_to_wire(queue_id, skips))


def report_damaged(core: BrokerCore, topic: str, records: Sequence[Skipped]) -> list[pb.SkippedMessages]:
    """Return the report of damaged records that may have matched a query; count and log them."""
    for each in records:
        core.metrics.count_skipped(SkipCause.DAMAGED, 1)
        core.damage_log.note(topic, -1, each)
    return list(damaged_to_wire(records))


def read_mode_of(mode: int) -> ReadMode:
    """Return the read mode; LINEARIZABLE for an unknown mode of a newer client."""
    return _READ_MODES.get(mode, ReadMode.LINEARIZABLE)
