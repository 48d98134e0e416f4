"""An entry that a node may have dispatched is never truncated: not by a new leader, by a crash, or after a restart.

In each simulated process a `DLedgerCommitLog` uses the entry store, as in a broker. The end up to which messages are
dispatched is recorded after every event batch; no truncation may reach below it.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from commitlog.replicated.commit_log import DLedgerCommitLog, DLedgerCommitLogConfig
from dledger.driver.driver import Driver
from dledger.testing.options import draw_options
from dledger.testing.runner import run_options
from dledger.testing.work import SimWork
from dledger.testing.world import Parts

SEEDS = range(70_000, 70_040)


class DispatchedWasCut(AssertionError):
    pass


class WatchedDriver(Driver):
    """A driver whose entry store is used by a message store's log.

    Attributes:
        cuts: number of truncations in all runs.
    """

    cuts = 0
    is_uncommitted_dispatched = False

    def __init__(self, raft, *, store, **parts):
        super().__init__(raft, store=store, **parts)
        node = SimpleNamespace(append=None)
        self._log = DLedgerCommitLog(node, store, store.begin_position, None, DLedgerCommitLogConfig(), lambda: 0)
        self._node = node
        self._dispatched_index, self._dispatched_offset = -1, 0
        self._note()
        original = store.truncate

        def truncate(first_index):
            WatchedDriver.cuts += 1
            if first_index <= self._dispatched_index or store.position_of(first_index) < self._dispatched_offset:
                raise DispatchedWasCut(f"cut from {first_index}, dispatched up to {self._dispatched_index}")
            original(first_index)

        store.truncate = truncate

    def process(self, events, now_ms=None):
        super().process(events, now_ms)
        self._note()

    def _note(self):
        is_wrong = WatchedDriver.is_uncommitted_dispatched
        self._node.commit_index = self.raft.last_index if is_wrong else self.raft.commit_index
        self._dispatched_index = max(self._dispatched_index, self._log.commit_index)
        self._dispatched_offset = max(self._dispatched_offset, self._log.end_offset)


def run(seed):
    return run_options(replace(draw_options(seed), is_message_log=True), Parts(make_driver=WatchedDriver))


@pytest.mark.slow
def test_no_truncation_reaches_what_was_dispatched():
    WatchedDriver.cuts = committed = 0
    for seed in SEEDS:
        summary, failure = run(seed)
        assert failure == "", f"seed {seed}: {failure}"
        committed += summary.work[SimWork.COMMITTED]

    print(f"seeds {SEEDS.start}..{SEEDS.stop - 1}: {WatchedDriver.cuts} cuts, {committed} committed")
    assert WatchedDriver.cuts > 20


def test_dispatch_of_uncommitted_entries_is_detected(monkeypatch):
    monkeypatch.setattr(WatchedDriver, "is_uncommitted_dispatched", True)

    assert any("DispatchedWasCut" in run(seed)[1] for seed in SEEDS)
