"""The origin of a node's log: for this package, bytes that must match those of every peer.

A log may continue an older store (the replicated log of messages may continue a plain one). Then positions mean the
same on all nodes only if all continue the same store. Its content is interpreted by the owner of the node; here its
bytes are sent in each Hello and compared by both sides, so that nodes whose origins differ never exchange a message.
With `dledger.peer.bootstrap` a node asks the others about theirs before it joins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BootstrapMessage:
    """A question, or the answer to one: a short body (at most 8 KiB), and a payload that may be large."""

    body: bytes
    payload: bytes = b""


class BootstrapHandler(Protocol):
    """Answers the questions of nodes that have not joined yet."""

    async def answer(self, peer_id: str, question: BootstrapMessage) -> BootstrapMessage:
        """Return the answer to a question of the node that calls itself `peer_id`.

        Raises:
            ValueError: it is no question; the connection ends.
            store.errors.StoreError: it cannot be answered; the connection ends, and the other side may try elsewhere.
        """
        ...


class Origin(BootstrapHandler, Protocol):
    """The store that the log of a node continues."""

    @property
    def hello_bytes(self) -> bytes:
        """The bytes in each Hello; at most `peer_frames.ORIGIN_SIZE_BYTES_MAX` bytes."""
        ...

    def difference(self, peer_id: str, theirs: bytes) -> str | None:
        """Return a text on the difference to the peer's origin; None: the nodes may be in one group."""
        ...


class RawOrigin:
    """`Origin` of a log that continues no older store and holds no messages."""

    hello_bytes = b""

    def difference(self, peer_id: str, theirs: bytes) -> str | None:
        """Return a text if the peer's log holds messages; None: it holds plain bytes, too."""
        return f"{peer_id} keeps a log of messages, and this node one of plain bytes" if theirs else None

    async def answer(self, peer_id: str, question: BootstrapMessage) -> BootstrapMessage:
        """Refuse every question: a raw log has no state to ask for."""
        raise ValueError(f"{peer_id} asks {question.body[:80]!r}, and this node keeps a log of plain bytes")
