"""The checks after every command of a script find each violation, independent of the recorded trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dledger.core import leader, reads
from dledger.core.commits import advance_commit
from dledger.core.state import membership
from dledger.core.state.log_tail import LogTail
from dledger.testing.faults import Violation
from dledger.testing.script import script

if TYPE_CHECKING:
    from dledger.core.state.consensus import State

FOLDER = Path(__file__).resolve().parent


def _run(name: str) -> None:
    script.run((FOLDER / name).read_text(encoding="utf-8"))


def test_a_commit_of_an_old_term_by_counting_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(state: State) -> None:
        advance_commit(state, membership.agreed(state, state.persisted_index, lambda progress: progress.match_index))

    monkeypatch.setattr(leader, "_commit_by_majority", commit)

    with pytest.raises(Violation, match=r"leader completeness|state machine safety"):
        _run("raft-figure-8-d.txt")


def test_a_leader_that_lacks_committed_entries_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogTail, "is_up_to_date", lambda *_: True)

    with pytest.raises(Violation, match=r"leader completeness|state machine safety"):
        _run("r21-power-cut-and-pauses.txt")


def test_a_stale_read_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "has_lease", lambda _: True)
    text = (FOLDER / "lease-read.txt").read_text(encoding="utf-8")

    with pytest.raises(Violation, match="read"):
        script.run(text + "\nlease-read 1\n----\n")
