"""The outcomes of sending a message.

| outcome | was it stored? | what to do |
| --- | --- | --- |
| `MessageAppended` | yes, permanently | nothing |
| `NotAppended` | no, and it never will be | send it again once the cause is fixed |
| `AppendUnknown` | unknown | send it again with the same UNIQ_KEY if the broker deduplicates, or query the broker by
that key |

`MessageAppended` is returned, the other two are raised, so that no failure is ignored by accident. `NotAppended` and
`AppendUnknown` are the classes of `dledger`: one `except` catches the outcomes of both clients, whichever package they
are imported from. A producer raises the subclasses `MessageNotAppended` and `MessageAppendUnknown`, which are also
`RequestFailed`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from cluster.protocol.errors import Reason, RequestFailed
from dledger.client.outcomes import AppendUnknown, NotAppended
from dledger.errors import DLedgerError
from store.errors import Certainty
from store.model.message_id import encode_message_id

if TYPE_CHECKING:
    from store.model.message import Host

__all__ = [
    "AppendUnknown",
    "Appended",
    "MessageAppendUnknown",
    "MessageAppended",
    "MessageNotAppended",
    "NotAppended",
    "RecallOutcome",
    "SendsFailed",
    "not_appended",
    "outcome_of_failure",
]


class MessageAppended(NamedTuple):
    """The message is committed; its offsets never change.

    Attributes:
        topic: its topic.
        broker: the broker (Raft group) that stores it.
        queue_id: its queue there; of a duplicate, the queue of the first copy.
        queue_offset: its offset in that queue.
        physical_offset: the offset of its record in the broker's log, in bytes.
        store_timestamp: when it was stored, by the broker's clock: milliseconds since 1970.
        unique_key: its UNIQ_KEY.
        store_host: address of the node that appended it; part of the message id.
        is_repeated: whether any message of the same request is a duplicate of one stored earlier.
        recall_handle: for the recall of a message that waits for its time; empty for other ones.
    """

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    unique_key: str
    store_host: Host
    is_repeated: bool = False
    recall_handle: str = ""

    @property
    def message_id(self) -> str:
        """The offset message id, which `dledger query id` takes."""
        return encode_message_id(self.store_host, self.physical_offset)


# The name of this class until 0.1.0; `dledger.Appended` is the outcome of a raw entry.
Appended = MessageAppended


class RecallOutcome(StrEnum):
    """What became of the recall of a message.

    Attributes:
        RECALLED: it was waiting, and will not be delivered.
        DELIVERED: it was delivered before; or could not be, because its topic was deleted.
        UNKNOWN: the broker has no such message.
    """

    RECALLED = "recalled"
    DELIVERED = "delivered"
    UNKNOWN = "unknown"


class MessageNotAppended(RequestFailed, NotAppended):
    """The message was not stored and never will be; sending it again is safe. Attributes: see `RequestFailed`."""


class MessageAppendUnknown(RequestFailed, AppendUnknown):
    """The message may have been stored, or may still be. Attributes: see `RequestFailed`.

    Attributes:
        unique_keys: UNIQ_KEYs of the messages, to query for them, or to send them again if brokers deduplicate.
    """

    unique_keys: tuple[str, ...] = ()


class SendsFailed(DLedgerError):
    """Some messages submitted since the last flush were not stored, or their outcome is unknown.

    Attributes:
        count: number of those messages.
        outcomes: the first of their outcomes.
    """

    def __init__(self, count: int, outcomes: list[MessageNotAppended | MessageAppendUnknown]) -> None:
        self.count = count
        self.outcomes = outcomes
        text = f"{count} submitted messages were not stored, or their outcome is unknown"
        super().__init__(f"{text}; the first: {outcomes[0]}")


def not_appended(reason: Reason | str, message: str) -> MessageNotAppended:
    """Return the outcome of a message that was certainly not stored."""
    return MessageNotAppended(reason, message, certainty=Certainty.NOT_APPENDED)


def outcome_of_failure(
    failure: RequestFailed, unique_keys: tuple[str, ...], *, is_open: bool
) -> MessageNotAppended | MessageAppendUnknown:
    """Return the outcome of the messages of a failed request, as an exception.

    Args:
        failure: the failure of the last attempt.
        unique_keys: UNIQ_KEYs of the messages.
        is_open: whether an earlier attempt may have stored them.
    """
    is_unknown = is_open or failure.certainty is not Certainty.NOT_APPENDED
    kind = MessageAppendUnknown if is_unknown else MessageNotAppended
    certainty = Certainty.UNKNOWN if is_unknown else Certainty.NOT_APPENDED
    outcome = kind(failure.reason or failure.name, failure.message, certainty=certainty, code=failure.code)
    if isinstance(outcome, MessageAppendUnknown):
        outcome.unique_keys = unique_keys
    return outcome
