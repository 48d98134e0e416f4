"""Members of a group follow an offset that an operator has set: their next pull is answered with it.

A reset raises the reset count of the offset, in the state of every node. A client knows nothing of that count; so this
node notes the one that was valid when a queue was pulled for the first time. Once it differs the client has missed a
reset: its pull is answered with 21 PULL_OFFSET_MOVED and the offset, and until then the offsets that it commits are
those of before the reset, and are dropped. A queue that is pulled at another node first, or after a start, has no note
yet: then a client continues with its own offsets, as without a reset.

Source: RocketMQ `AdminBrokerProcessor.resetOffsetInner`, `ConsumerOffsetManager.hasOffsetReset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore

# Queues of all groups; beyond it the one that was pulled the longest time ago is forgotten.
NOTES_MAX: Final = 100_000


class OffsetResets:
    """What the consumers of this node know of resets.

    Args:
        core: of this node.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._notes: dict[tuple[str, str, int], int] = {}

    def next_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset at which a client must continue, once after each reset; None: where it is."""
        key = (group, topic, queue_id)
        known = self._core.replica.state.offset(*key)
        noted, count = self._notes.pop(key, None), 0 if known is None else known.reset_count
        if noted is None and len(self._notes) >= NOTES_MAX:
            del self._notes[next(iter(self._notes))]
        self._notes[key] = count
        is_moved = noted is not None and noted != count
        return known.offset if is_moved and known is not None else None

    def is_pulled(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a client has pulled a queue from this node."""
        return (group, topic, queue_id) in self._notes

    def is_behind(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether what a client says of a queue is of before a reset."""
        known = self._core.replica.state.offset(group, topic, queue_id)
        noted = self._notes.get((group, topic, queue_id))
        return noted is not None and noted != (0 if known is None else known.reset_count)
