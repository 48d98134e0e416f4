"""How far all queues of a store have come: told in one piece, and put into another store that cannot know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from store.message import QueueKey


class QueueEnds(NamedTuple):
    """How far queues have come.

    Attributes:
        offset: everything of the log below is taken into account, and nothing behind.
        next_offsets: of each queue, the offset of its next message.
    """

    offset: int
    next_offsets: Mapping[QueueKey, int]
