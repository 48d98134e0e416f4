"""Settings for all nodes that run within a test's process."""

from __future__ import annotations

import time

import pytest

from dledger.driver.disk_watch import DiskWatch

# More than the loop does at once, and less than the shortest election timeout of any test.
_STEP_S = 0.05
# A sync may take this long if many programs share a disk.
_SYNC_MS = 5_000


class SteadyClock:
    """A clock that pauses with the process: it takes no step longer than some milliseconds.

    Nodes of one process share its stalls, be it for the machine or for a sync. By the real clock each of them would
    take its own stall for the silence of all others, and a leader that nothing is wrong with would lose the lead.
    """

    def __init__(self) -> None:
        self._now_s = self._looked_at_s = time.monotonic()

    def __call__(self) -> int:
        """Return milliseconds."""
        now_s = time.monotonic()
        self._now_s += min(now_s - self._looked_at_s, _STEP_S)
        self._looked_at_s = now_s
        return int(self._now_s * 1000)


@pytest.fixture(autouse=True)
def steady_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make elections depend on the nodes' messages, not on other load of the machine."""
    clock = SteadyClock()
    for module in ("node.event_batches", "node.composition"):
        monkeypatch.setattr(f"dledger.{module}.core_ms", clock)


@pytest.fixture(autouse=True)
def patient_disk_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not treat a busy disk as stalled: election timeouts of tests are short."""
    monkeypatch.setattr("dledger.driver.driver.DiskWatch", lambda limit_ms: DiskWatch(max(limit_ms, _SYNC_MS)))
