"""What a node's log goes on from, as far as this package has to know: bytes that must fit those of every peer.

A log may be the continuation of something that was there before (the replicated log of messages goes on from a plain
one). Then positions mean the same everywhere only if all nodes went on from the same. What that is belongs to the
owner of the node; here it is told in each Hello and judged by both sides, so that nodes whose origins differ never
exchange a message. `dledger.peer.inquiry` lets a node ask the others about theirs before it takes part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Speech:
    """A question, or the answer to one: a short body (at most 8 KiB), and bytes that may be many."""

    body: bytes
    payload: bytes = b""


class Answerer(Protocol):
    """Answers the questions of nodes that do not take part yet."""

    async def answer(self, peer_id: str, question: Speech) -> Speech:
        """Return the answer to a question of the node that calls itself `peer_id`.

        Raises:
            ValueError: it is no question; the connection ends.
            store.errors.StoreError: it cannot be answered; the connection ends, and the other side may try elsewhere.
        """
        ...


class Origin(Answerer, Protocol):
    """What the log of a node that takes part goes on from."""

    @property
    def told(self) -> bytes:
        """What stands in each Hello; at most `peer_frames.ORIGIN_SIZE_BYTES_MAX` bytes."""
        ...

    def difference(self, peer_id: str, theirs: bytes) -> str | None:
        """Return, for people, in what the origin that a peer told differs; None: they may be in one group."""
        ...


class RawOrigin:
    """`Origin` of a log that goes on from nothing and holds no messages."""

    told = b""

    def difference(self, peer_id: str, theirs: bytes) -> str | None:
        """See `Origin.difference`."""
        return f"{peer_id} keeps a log of messages, and this node one of plain bytes" if theirs else None

    async def answer(self, peer_id: str, question: Speech) -> Speech:
        """See `Answerer.answer`: there is nothing to ask a raw log."""
        raise ValueError(f"{peer_id} asks {question.body[:80]!r}, and this node keeps a log of plain bytes")
