"""Logs the connections that a peer port refuses, and those that fail.

Any process can cause any number of refusals: they are counted, and a log line is written at most once in some seconds.
"""

from __future__ import annotations

import logging
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG_INTERVAL_S: Final = 5.0
_REASON_LENGTH_MAX: Final = 300
# Different log lines that are kept in memory, so that they are not repeated.
_FAILURES_MAX: Final = 256

logger = logging.getLogger(__name__)


class Refusal(StrEnum):
    """Why a connection was refused; labels of the metric `dledger_refused_peer_connections`."""

    INSECURE = "insecure"
    HANDSHAKE = "handshake"
    SILENT = "silent"
    CROWDED = "crowded"
    IDENTITY = "identity"


class Refusals:
    """The refusals of one port.

    Args:
        now_s: seconds of a monotonic clock.

    Attributes:
        counts: by reason.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.counts = dict.fromkeys(Refusal, 0)
        self._now_s = now_s
        self._logged_at: float | None = None
        # Refusals since the last line.
        self._silent_count = 0

    def note(self, refusal: Refusal, host: str, reason: str) -> None:
        """Count a refusal of `host`; log it unless another one was logged just now."""
        self.counts[refusal] += 1
        now_s = self._now_s()
        if self._logged_at is not None and now_s - self._logged_at < _LOG_INTERVAL_S:
            self._silent_count += 1
            return
        logger.warning(
            "peer_refused host=%s kind=%s reason=%r not_logged=%d",
            host,
            refusal.value,
            reason[:_REASON_LENGTH_MAX],
            self._silent_count,
        )
        self._logged_at, self._silent_count = now_s, 0


class Failures:
    """The failures of connections with peers, each logged once until its peer connects.

    So a node that is down for a day does not fill the disk with log lines.

    Attributes:
        noted: peer and text of what was logged since the peer connected last; at most 256.
    """

    def __init__(self) -> None:
        self.noted: set[tuple[str, str]] = set()

    def note(self, peer_id: str, text: str) -> None:
        """Log a failure, unless it was logged since the peer connected last."""
        failure = (peer_id, text)
        if failure in self.noted or len(self.noted) >= _FAILURES_MAX:
            return
        self.noted.add(failure)
        logger.warning("peer_not_connected peer=%r reason=%r", peer_id, text)

    def forget(self, peer_id: str) -> None:
        """Log later failures of a peer again: it has connected."""
        self.noted = {each for each in self.noted if each[0] != peer_id}
