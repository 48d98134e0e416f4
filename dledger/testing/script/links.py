"""The links of a script: messages wait until the script delivers, drops or cuts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.testing.script.transcript import Arrow, Transcript
from dledger.testing.script.words import describe, is_heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.core.messages import Message

WAITING_MAX = 2_000
Link = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message in flight."""

    source: str
    target: str
    message: Message


class Links:
    """All messages in flight, oldest first; a link is one direction between two nodes.

    Args:
        transcript: records the outcome of each message.

    Attributes:
        cut: links on which messages are lost when they are sent.
    """

    def __init__(self, transcript: Transcript) -> None:
        self.cut: dict[Link, None] = {}
        self._transcript = transcript
        self._waiting: list[Envelope] = []

    def send(self, source: str, target: str, message: Message) -> None:
        """Send a message of a node."""
        envelope = Envelope(source, target, message)
        if (source, target) in self.cut:
            self._record(Arrow.IS_LOST, envelope)
            return
        assert len(self._waiting) < WAITING_MAX, "no command delivers messages"
        self._waiting.append(envelope)
        self._record(Arrow.LEAVES, envelope)

    def take(self, is_wanted: Callable[[Envelope], bool]) -> Envelope | None:
        """Remove the oldest selected message from its link and return it for delivery."""
        for place, envelope in enumerate(self._waiting):
            if is_wanted(envelope):
                del self._waiting[place]
                self._record(Arrow.ARRIVES, envelope)
                return envelope
        return None

    def drop(self, is_wanted: Callable[[Envelope], bool]) -> None:
        """Drop all selected messages."""
        for envelope in self._waiting:
            if is_wanted(envelope):
                self._record(Arrow.IS_LOST, envelope)
        self._waiting = [envelope for envelope in self._waiting if not is_wanted(envelope)]

    def forget(self, node_id: str) -> None:
        """Drop the messages in flight to a node that is down, without recording it; its own messages still arrive."""
        self._waiting = [envelope for envelope in self._waiting if envelope.target != node_id]

    def waiting(self) -> list[Envelope]:
        """Return the messages in flight, oldest first."""
        return list(self._waiting)

    def _record(self, arrow: Arrow, envelope: Envelope) -> None:
        if self._transcript.are_heartbeats_shown or not is_heartbeat(envelope.message):
            self._transcript.message(arrow, envelope.source, envelope.target, describe(envelope.message))
