"""Upper bounds of the client: the size of a request, and the size of the queue.

A request is checked before it is sent, so that an invalid one costs no round trip and cannot fail other callers' bodies
in the same batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.client.outcomes import NotAppended
from dledger.entries.format.entry import MAX_BODY_BYTES
from dledger.errors import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

# Bodies of several callers are joined up to here: about the size that one write, one sync and one push handle best.
BATCH_SIZE_BYTES_MAX = 1 << 20
BATCH_ENTRIES_MAX = 1_000
# One call of `append_many`; the node's own bound on a message is above it.
REQUEST_SIZE_BYTES_MAX = 8 << 20
REQUEST_ENTRIES_MAX = 8_000
# Queued appends of a client, and the size of their bodies: above it a caller waits (asyncio) or is refused (threads).
QUEUE_ENTRIES_MAX = 10_000
QUEUE_SIZE_BYTES_MAX = 64 << 20


def check_bodies(bodies: Sequence[bytes]) -> int:
    """Check one caller's bodies; return their size in bytes.

    Raises:
        TypeError: a body is not bytes.
        NotAppended: no body (420), too many, or too large (411); split them up.
    """
    if not bodies:
        raise NotAppended(ResponseCode.REQUEST_WITH_EMPTY_BODYS, "no bodies given")
    if len(bodies) > REQUEST_ENTRIES_MAX:
        raise NotAppended(
            ResponseCode.UNEXPECTED_ARGUMENT,
            f"{len(bodies)} bodies in one call, at most {REQUEST_ENTRIES_MAX} are allowed: split them up",
        )
    size_bytes = 0
    for number, body in enumerate(bodies):
        if not isinstance(body, bytes):
            raise TypeError(f"body {number} is {type(body).__name__}, expected bytes")
        if len(body) > MAX_BODY_BYTES:
            raise NotAppended(
                ResponseCode.UNEXPECTED_ARGUMENT,
                f"body {number} has {len(body)} bytes, at most {MAX_BODY_BYTES} are allowed",
            )
        size_bytes += len(body)
    if size_bytes > REQUEST_SIZE_BYTES_MAX:
        raise NotAppended(
            ResponseCode.UNEXPECTED_ARGUMENT,
            f"{size_bytes} bytes in one call, at most {REQUEST_SIZE_BYTES_MAX} are allowed: split them up",
        )
    return size_bytes
