"""Logs damaged messages that readers asked for: each once, so that a client cannot fill the log with requests.

Not here: the counters (`cluster.broker.metrics`) and the answers, which name a damaged message each time.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from store.model.skipped import Skipped

# Records that are remembered; beyond that the one that was read longest ago is logged again.
_KNOWN_MAX: Final = 1024

logger = logging.getLogger(__name__)


class DamageLog:
    """The damaged messages of one broker that are in the log of the process."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        # (file, position), least recently read first.
        self._known: OrderedDict[tuple[str, int], None] = OrderedDict()

    def note(self, topic: str, queue_id: int, record: Skipped) -> None:
        """Log a damaged record, unless it is known.

        Args:
            topic: of the request.
            queue_id: of the request; -1: it was a query.
            record: the damaged record.
        """
        place = (record.path, record.position)
        if place in self._known:
            self._known.move_to_end(place)
            return
        self._known[place] = None
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        logger.error(
            "damaged_message_skipped topic=%s queue_id=%d file=%s position=%d expected=%r found=%r",
            topic,
            queue_id,
            record.path,
            record.position,
            record.expected,
            record.found,
        )
