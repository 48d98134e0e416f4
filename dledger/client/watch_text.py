"""The events of `AdminService.Watch` as text for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dledger.v1.watch_pb2 import WatchEvent, WatchEventKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

_PREFIX: Final = "WATCH_EVENT_KIND_"


def kind_name(event: WatchEvent) -> str:
    """Return the kind in lower case, such as `pre_vote_begun`; `kind_99` for one that this client does not know."""
    if event.kind in WatchEventKind.values():
        return WatchEventKind.Name(event.kind).removeprefix(_PREFIX).lower()
    return f"kind_{event.kind}"


def event_text(event: WatchEvent) -> str:
    """Return one line: what happened at the node, without time and name of the node."""
    make = _TEXTS.get(event.kind)
    return kind_name(event).replace("_", " ") if make is None else make(event)


def plain_fields(message: Message) -> dict[str, Any]:
    """Return the fields in JSON's types, by name; a field that is absent is left out, whatever its default is."""
    plain: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        is_message = field.message_type is not None
        if field.is_repeated:
            plain[field.name] = [plain_fields(each) if is_message else each for each in value]
        elif not field.has_presence or message.HasField(field.name):
            plain[field.name] = plain_fields(value) if is_message else value
    return plain


def _vote(event: WatchEvent) -> str:
    what = "pre-vote" if event.is_pre_vote else "vote"
    return f"{what} for term {event.vote_term}"


def _answered(event: WatchEvent) -> str:
    return f"{'gives' if event.is_granted else 'refuses'} {event.peer_id} its {_vote(event)}"


def _received(event: WatchEvent) -> str:
    return f"{'gets' if event.is_granted else 'does not get'} the {_vote(event)} of {event.peer_id}"


def _members(event: WatchEvent) -> str:
    shown = " ".join(member.id if member.is_voter else f"({member.id})" for member in event.members)
    since = f"entry {event.index}" if event.HasField("index") else "the settings"
    return f"has members {shown} by {since}{'' if event.is_committed else ', not committed yet'}"


def _because(text: str) -> Callable[[WatchEvent], str]:
    return lambda event: f"{text}: {event.cause}" if event.HasField("cause") else text


_K = WatchEventKind
_TEXTS: Final[dict[int, Callable[[WatchEvent], str]]] = {
    _K.WATCH_EVENT_KIND_GAP: lambda event: f"{event.lost_count} events are lost",
    _K.WATCH_EVENT_KIND_PRE_VOTE_BEGUN: lambda event: f"asks for pre-votes for term {event.term + 1}",
    _K.WATCH_EVENT_KIND_ELECTION_BEGUN: lambda event: f"is candidate in term {event.term}",
    _K.WATCH_EVENT_KIND_ELECTED: lambda event: f"leads term {event.term}",
    _K.WATCH_EVENT_KIND_ELECTION_LOST: _because("is no longer candidate"),
    _K.WATCH_EVENT_KIND_STEPPED_DOWN: _because("is no longer leader"),
    _K.WATCH_EVENT_KIND_LEADER_SEEN: lambda event: f"follows {event.leader_id} in term {event.term}",
    _K.WATCH_EVENT_KIND_LEADER_LOST: lambda event: f"gets no messages of {event.peer_id or 'a leader'}",
    _K.WATCH_EVENT_KIND_TERM_RAISED: lambda event: f"is in term {event.term}",
    _K.WATCH_EVENT_KIND_VOTE_ANSWERED: _answered,
    _K.WATCH_EVENT_KIND_VOTE_RECEIVED: _received,
    _K.WATCH_EVENT_KIND_TRANSFER_BEGUN: lambda event: f"transfers its leadership to {event.peer_id}",
    _K.WATCH_EVENT_KIND_TRANSFER_ENDED: lambda event: (
        f"transferred its leadership to {event.peer_id}"
        if event.is_granted
        else f"did not transfer its leadership to {event.peer_id}"
    ),
    _K.WATCH_EVENT_KIND_MEMBERSHIP_CHANGED: _members,
    _K.WATCH_EVENT_KIND_PUSH_STALLED: lambda event: f"{event.peer_id} receives no entries: {event.cause}",
    _K.WATCH_EVENT_KIND_PUSH_RESUMED: lambda event: f"{event.peer_id} receives entries again",
    _K.WATCH_EVENT_KIND_PEER_LOST: lambda event: f"{event.peer_id} does not answer",
    _K.WATCH_EVENT_KIND_PEER_BACK: lambda event: f"{event.peer_id} answers again",
    _K.WATCH_EVENT_KIND_LOG_TRUNCATED: lambda event: f"truncated its log from {event.index} on",
    _K.WATCH_EVENT_KIND_LOG_RESET: lambda event: f"set its log aside and begins at {event.index}",
}
