"""The outcomes of a sent message.

| outcome | was it stored? | what to do |
| --- | --- | --- |
| `MessageAppended` | yes, and it stays | nothing |
| `NotAppended` | no, and it never will be | send it again when the cause is gone |
| `AppendUnknown` | perhaps | send it again with the same UNIQ_KEY where it is recognised, or look for it by that key |

`MessageAppended` is returned, the other two are raised, so that none of them can be overlooked. `NotAppended` and
`AppendUnknown` are the classes of `dledger`: an `except` catches the outcomes of both clients, from whichever package
they were imported. What a producer raises is a `MessageNotAppended` or a `MessageAppendUnknown`, and a `RequestFailed`.
"""

from __future__ import annotations

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
    "SendsFailed",
    "not_appended",
    "outcome_of_failure",
]


class MessageAppended(NamedTuple):
    """The message is committed; its place never changes.

    Attributes:
        topic: its topic.
        broker: which broker (Raft group) holds it.
        queue_id: its queue there; of a message that was recognised as sent before, the one that holds it.
        queue_offset: its place in that queue.
        physical_offset: where its record begins in the broker's log.
        store_timestamp: when it was stored, by the broker's clock: milliseconds since 1970.
        unique_key: its UNIQ_KEY.
        store_host: of the node that stored it; part of the message id.
        is_repeated: whether some message of the same request had been stored by an earlier one.
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

    @property
    def message_id(self) -> str:
        """The offset message id, by which `dledger query id` finds it."""
        return encode_message_id(self.store_host, self.physical_offset)


# The name of this class until 0.1.0; `dledger.Appended` is an entry's.
Appended = MessageAppended


class MessageNotAppended(RequestFailed, NotAppended):
    """The message was not stored and never will be; sending it again is safe. Attributes: see `RequestFailed`."""


class MessageAppendUnknown(RequestFailed, AppendUnknown):
    """The message may have been stored, or may still be. Attributes: see `RequestFailed`.

    Attributes:
        unique_keys: of the messages, by which they can be looked for, or sent again where brokers recognise them.
    """

    unique_keys: tuple[str, ...] = ()


class SendsFailed(DLedgerError):
    """Messages that were submitted since the last flush were not all stored.

    Attributes:
        count: how many.
        outcomes: of the first ones.
    """

    def __init__(self, count: int, outcomes: list[MessageNotAppended | MessageAppendUnknown]) -> None:
        self.count = count
        self.outcomes = outcomes
        super().__init__(f"{count} submitted messages were not stored, or perhaps not; the first: {outcomes[0]}")


def not_appended(reason: Reason | str, message: str) -> MessageNotAppended:
    """Return the outcome of a message that provably was not stored."""
    return MessageNotAppended(reason, message, certainty=Certainty.NOT_APPENDED)


def outcome_of_failure(
    failure: RequestFailed, unique_keys: tuple[str, ...], *, is_open: bool
) -> MessageNotAppended | MessageAppendUnknown:
    """Return the outcome of the messages of a failed request, as an exception.

    Args:
        failure: of the last attempt.
        unique_keys: of the messages.
        is_open: an earlier attempt may have stored them.
    """
    is_unknown = is_open or failure.certainty is not Certainty.NOT_APPENDED
    kind = MessageAppendUnknown if is_unknown else MessageNotAppended
    certainty = Certainty.UNKNOWN if is_unknown else Certainty.NOT_APPENDED
    outcome = kind(failure.reason or failure.name, failure.message, certainty=certainty, code=failure.code)
    if isinstance(outcome, MessageAppendUnknown):
        outcome.unique_keys = unique_keys
    return outcome
