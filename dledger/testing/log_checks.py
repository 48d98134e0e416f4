"""Checks of the replicated log, after every turn of a node and incrementally: only what is new is looked at.

Checked here (numbers of the project's list of invariants): log matching (I2, in `log_view`), leader completeness (I3),
state-machine safety (I4), a committed entry is durable on a majority (I5), positions equal on all nodes (I8), the
commit index never goes back nor beyond the log (I11), nothing committed is cut (I12); and what recovery gives back.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from dledger.entry import Entry
    from dledger.testing.log_view import LogView, Record


class LogChecks:
    """Everything that was ever committed, and what each node owes to it.

    Args:
        views: one for each node.
        is_flush_sync: committed means durable on a majority; else only written on a majority.

    Attributes:
        committed: the committed entries by index, remembered for ever.
    """

    def __init__(self, views: dict[str, LogView], *, is_flush_sync: bool) -> None:
        self.committed: list[Record] = []
        self._commit_terms: list[int] = []
        self._views = views
        self._is_flush_sync = is_flush_sync
        self._quorum = len(views) // 2 + 1
        self._commit_index = dict.fromkeys(views, -1)
        self._promised_index = dict.fromkeys(views, -1)

    def after_turn(self, node_id: str, *, term: int, commit_index: int, core_last_index: int, last_index: int) -> None:
        """Look at a node that has just executed all effects of what it was fed.

        Term, commit index and `core_last_index` are what its core believes, `last_index` is what its store says.
        """
        view = self._views[node_id]
        if view.last_index != last_index:
            if view.last_index > last_index:
                raise Violation("log", f"{node_id} lost {last_index + 1}..{view.last_index} without a truncation")
            view.refresh(last_index)
        if core_last_index != last_index:
            raise Violation("core and store", f"{node_id}: core ends at {core_last_index}, store at {last_index}")
        if commit_index != self._commit_index[node_id]:
            self.commit(node_id, term=term, commit_index=commit_index, last_index=last_index)

    def promise(self, node_id: str, durable_index: int) -> None:
        """Hear that a node tells its core that everything up to `durable_index` is durable."""
        view = self._views[node_id]
        if durable_index > view.durable_index and not view.is_durable(durable_index):
            raise Violation(
                "durable index", f"{node_id} calls {durable_index} durable, but its disk only {view.durable_index}"
            )
        self._promised_index[node_id] = durable_index

    def accept(self, node_id: str, *, match_index: int, last_index: int) -> None:
        """Hear that a node tells a leader that it holds everything up to `match_index`, ready to be counted."""
        view = self._views[node_id]
        view.refresh(last_index)
        if match_index > last_index:
            raise Violation("acknowledgement", f"{node_id} accepts up to {match_index}, its log ends at {last_index}")
        if self._is_flush_sync and not view.is_durable(match_index):
            raise Violation(
                "acknowledgement", f"{node_id} accepts up to {match_index}, durable are {view.durable_index}"
            )

    def commit(self, node_id: str, *, term: int, commit_index: int, last_index: int) -> None:
        """Hear that a node's commit index is `commit_index` now."""
        view = self._views[node_id]
        view.refresh(last_index)
        if commit_index < self._commit_index[node_id]:
            raise Violation("commit index", f"{node_id} went back from {self._commit_index[node_id]} to {commit_index}")
        if commit_index > view.last_index:
            raise Violation("commit index", f"{node_id} has {commit_index}, its log ends at {view.last_index}")
        self._commit_index[node_id] = commit_index
        known = len(self.committed) - 1
        common = min(known, commit_index)
        if common >= 0 and view.records[common] is not self.committed[common]:
            raise Violation("state machine safety", f"{node_id} committed another entry at or before {common}")
        if commit_index > known:
            self._check_majority(node_id, view.records[commit_index])
            self.committed.extend(view.records[known + 1 : commit_index + 1])
            self._commit_terms.extend([term] * (commit_index - known))

    def _check_majority(self, node_id: str, record: Record) -> None:
        index = record.index
        holders = [
            view.node_id
            for view in self._views.values()
            if view.last_index >= index
            and view.records[index] is record
            and (not self._is_flush_sync or view.is_durable(index))
        ]
        if len(holders) < self._quorum:
            raise Violation("durable commit", f"{node_id} committed {index} of term {record.term}, held by {holders}")

    def can_spare(self, node_id: str, others: list[str]) -> bool:
        """Say whether a majority without `node_id` holds, durably, all that it holds, and all of that is committed."""
        view = self._views[node_id]
        last_index = view.last_index
        if last_index >= len(self.committed) or self._promised_index[node_id] > last_index:
            return False
        if last_index < 0:
            return True
        record = view.records[last_index]
        holders = [
            other
            for other in (self._views[other] for other in others)
            if other.last_index >= last_index and other.records[last_index] is record and other.is_durable(last_index)
        ]
        return record is self.committed[last_index] and len(holders) >= self._quorum

    def served(self, node_id: str, entry: Entry) -> None:
        """Hear what a node's store gives for a committed index."""
        record = self.committed[entry.index]
        if (entry.term, entry.position) != (record.term, record.position) or record.body != entry.body:
            raise Violation("served entry", f"{node_id} serves another entry {entry.index} than was committed")

    def truncate(self, node_id: str, first_index: int) -> None:
        """Hear that a node cut off `first_index` and all behind it."""
        view = self._views[node_id]
        if first_index <= self._commit_index[node_id]:
            raise Violation("truncation", f"{node_id} cut {first_index}, commit index {self._commit_index[node_id]}")
        is_known = first_index < len(self.committed) and first_index <= view.last_index
        if is_known and view.records[first_index] is self.committed[first_index]:
            raise Violation("truncation", f"{node_id} cut {first_index}, which is committed")
        view.cut(first_index)
        self._promised_index[node_id] = min(self._promised_index[node_id], first_index - 1)

    def lead(self, node_id: str, *, term: int, last_index: int) -> None:
        """Hear that a node leads `term`: it must hold all that was committed in terms before (Raft §5.4)."""
        view = self._views[node_id]
        view.refresh(last_index)
        needed = bisect_left(self._commit_terms, term) - 1
        if needed >= 0 and (view.last_index < needed or view.records[needed] is not self.committed[needed]):
            raise Violation("leader completeness", f"{node_id} leads term {term} without committed entry {needed}")

    def recovered(
        self, node_id: str, *, last_index: int, is_in_step: bool, is_power_cut: bool, is_damaged: bool = False
    ) -> None:
        """Look at the log that a node found at its start.

        Args:
            node_id: which node.
            last_index: where its store says that the log ends.
            is_in_step: it had died inside an operation, so that the last change may be there or not.
            is_power_cut: unsynced writes may be gone; else everything must be there.
            is_damaged: bits of its disk are flipped; what it lost by that, enough others hold.
        """
        view = self._views[node_id]
        before = list(view.records)
        view.restart()
        view.refresh(last_index)
        found = view.records
        self._commit_index[node_id] = -1
        promised = self._promised_index[node_id]
        self._promised_index[node_id] = min(promised, last_index)
        owed = self._owed(before, promised, is_in_step=is_in_step, is_power_cut=is_power_cut)
        if owed is not None and not is_damaged and (last_index < owed.index or found[owed.index] is not owed):
            raise Violation("recovery", f"{node_id} came back with {last_index + 1} entries and without {owed.index}")
        if not is_in_step and last_index >= 0 and (len(before) <= last_index or before[last_index] is not found[-1]):
            raise Violation("recovery", f"{node_id} came back with entries that it did not hold: {last_index}")

    def _owed(self, before: list[Record], promised: int, *, is_in_step: bool, is_power_cut: bool) -> Record | None:
        """Return the last entry that recovery must give back; it stands for all before it.

        A node that died in a step may have been cutting a suffix: of what it promised only the committed part is
        owed for certain.
        """
        if is_in_step:
            last = min(promised if is_power_cut else len(before) - 1, len(self.committed) - 1)
            while last >= 0 and before[last] is not self.committed[last]:
                last -= 1
        else:
            last = promised if is_power_cut else len(before) - 1
        return before[last] if last >= 0 else None
