"""Checks of the replicated log, after every event batch of a node; only new entries are checked.

Checked here (numbers of the project's list of invariants): log matching (I2, in `log_view`), leader completeness (I3),
state-machine safety (I4), a committed entry is durable on a majority (I5), positions equal on all nodes (I8), the
commit index never decreases nor exceeds the log (I11), nothing committed is truncated (I12); and the result of
recovery.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.core.state.quorum import quorum_of
from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.core.raft import Raft
    from dledger.entries.format.entry import Entry
    from dledger.entries.store import EntryStore
    from dledger.testing.checks.log_view import LogEntry, LogView


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a node's last process ended.

    Attributes:
        is_in_step: inside an operation, so that the last change may have happened or not.
        is_lossy: unsynced writes may be lost; else no write may be lost.
        is_damaged: bits of its disk are flipped; other nodes have the entries that it lost by that.
    """

    is_in_step: bool = False
    is_lossy: bool = False
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """The durable log of a node before its disk lost data; others count it until the node is readmitted.

    A majority that acknowledged an entry intersects every later majority as long as nodes that lost it do not vote.
    """

    begin_index: int
    records: list[LogEntry]

    def holds(self, record: LogEntry) -> bool:
        """Return whether it had this entry, or had deleted it as old."""
        offset = record.index - self.begin_index
        return offset < 0 or (offset < len(self.records) and self.records[offset] is record)


class LogChecks:
    """All committed entries, and the checks of each node against them.

    Args:
        views: one per node.
        is_flush_sync: committed means durable on a majority, else written on a majority.

    Attributes:
        committed: the committed entries by index; none is ever removed.
    """

    def __init__(self, views: dict[str, LogView], *, is_flush_sync: bool) -> None:
        self.committed: list[LogEntry] = []
        self._commit_terms: list[int] = []
        self._views = views
        self._is_flush_sync = is_flush_sync
        self._commit_index = dict.fromkeys(views, -1)
        self._acknowledged_index = dict.fromkeys(views, -1)
        self._lost: dict[str, Copy] = {}

    def after_turn(self, node_id: str, raft: Raft, last_index: int) -> None:
        """Check a node that has executed all effects of an event batch; its store ends at `last_index`."""
        view = self._views[node_id]
        seen_index = view.last_index
        if seen_index != last_index:
            if seen_index > last_index:
                raise Violation("log", f"{node_id} lost {last_index + 1}..{seen_index} without a truncation")
            view.refresh(last_index)
        if raft.last_index != last_index:
            raise Violation("core and store", f"{node_id}: core ends at {raft.last_index}, store at {last_index}")
        # `commit` rejects a decreased one.
        if raft.commit_index != self._commit_index[node_id]:
            self.commit(node_id, raft, raft.commit_index, last_index)

    def died_in_step(self, node_id: str, raft: Raft) -> None:
        """Check the commit index of a core that died in a step.

        The file of memberships may already contain it, and the next process of the node trusts the file. If the step
        ended before the committed entries were written, this node has acknowledged nothing new.
        """
        index = raft.commit_index
        # The store is not read: it may have died in a truncation.
        record = self._views[node_id].get(index)
        is_news = index > self._commit_index[node_id]
        if is_news and record is not None and record.term == raft.state.log.term_at(index):
            self.commit(node_id, raft, index, index)

    def written(self, node_id: str, index: int) -> LogEntry | None:
        """Return an entry of a node as written, without flipped bits; None: it has none."""
        return self._views[node_id].get(index)

    def acknowledge(self, node_id: str, durable_index: int) -> None:
        """Check that entries up to `durable_index`, reported as durable to the core, are durable."""
        view = self._views[node_id]
        if durable_index > view.durable_index and not view.is_durable(durable_index):
            raise Violation(
                "durable index", f"{node_id} calls {durable_index} durable, but its disk only {view.durable_index}"
            )
        self._acknowledged_index[node_id] = durable_index

    def accept(self, node_id: str, *, match_index: int, last_index: int) -> None:
        """Check an acknowledgement to a leader: the node must have all entries up to `match_index`, durably."""
        view = self._views[node_id]
        view.refresh(last_index)
        if match_index > last_index:
            raise Violation("acknowledgement", f"{node_id} accepts up to {match_index}, its log ends at {last_index}")
        if self._is_flush_sync and not view.is_durable(match_index):
            raise Violation(
                "acknowledgement", f"{node_id} accepts up to {match_index}, durable are {view.durable_index}"
            )

    def commit(self, node_id: str, raft: Raft, commit_index: int, last_index: int) -> None:
        """Check the new commit index of a node."""
        view = self._views[node_id]
        view.refresh(last_index)
        if commit_index < self._commit_index[node_id]:
            raise Violation("commit index", f"{node_id} went back from {self._commit_index[node_id]} to {commit_index}")
        if commit_index > view.last_index:
            raise Violation("commit index", f"{node_id} has {commit_index}, its log ends at {view.last_index}")
        self._commit_index[node_id] = commit_index
        known = len(self.committed) - 1
        common = min(known, commit_index)
        if common >= view.begin_index and not view.holds(self.committed[common]):
            raise Violation("state machine safety", f"{node_id} committed another entry at or before {common}")
        if commit_index > known:
            record = view.get(commit_index)
            if record is None or known + 1 < view.begin_index:
                raise Violation("commit index", f"{node_id} has {commit_index}, which no node committed before")
            self._check_majority(node_id, record, raft.membership.voters)
            self.committed.extend(view.records[known + 1 - view.begin_index : commit_index + 1 - view.begin_index])
            self._commit_terms.extend([raft.term] * (commit_index - known))

    def _check_majority(self, node_id: str, record: LogEntry, voters: tuple[str, ...]) -> None:
        holders = self._holders(record, voters)
        if len(holders) < quorum_of(len(voters)):
            raise Violation(
                "durable commit", f"{node_id} committed {record.index} of term {record.term}, held by {holders}"
            )

    def _holders(self, record: LogEntry, node_ids: Sequence[str]) -> list[str]:
        """Return the nodes that have an entry, durably if `is_flush_sync`."""
        if unknown := [node_id for node_id in node_ids if node_id not in self._views]:
            raise Violation("foreign group", f"entries are counted on {unknown}, which are not of this group")
        return [node_id for node_id in node_ids if self._is_held(self._views[node_id], record)]

    def _is_held(self, view: LogView, record: LogEntry) -> bool:
        index = record.index
        if (index < view.begin_index or view.holds(record)) and (not self._is_flush_sync or view.is_durable(index)):
            return True
        copy = self._lost.get(view.node_id)
        return copy is not None and copy.holds(record)

    def served(self, node_id: str, entry: Entry) -> None:
        """Check the entry that a node's store returns for a committed index."""
        record = self.committed[entry.index]
        if (entry.term, entry.position) != (record.term, record.position) or record.body != entry.body:
            raise Violation("served entry", f"{node_id} serves another entry {entry.index} than was committed")

    def truncate(self, node_id: str, first_index: int) -> None:
        """Check that a node may truncate its log from `first_index` on."""
        view = self._views[node_id]
        if first_index <= self._commit_index[node_id]:
            raise Violation("truncation", f"{node_id} cut {first_index}, commit index {self._commit_index[node_id]}")
        if first_index < len(self.committed) and view.holds(self.committed[first_index]):
            raise Violation("truncation", f"{node_id} cut {first_index}, which is committed")
        view.cut(first_index)
        self._acknowledged_index[node_id] = min(self._acknowledged_index[node_id], first_index - 1)

    def holds_entries(self, node_id: str) -> bool:
        """Return whether a node's log had any entry at the last check."""
        return bool(self._views[node_id].records)

    def reset(self, node_id: str, begin_index: int, begin_position: int) -> None:
        """Check that a node may replace its whole log by one that begins at `begin_index`."""
        view = self._views[node_id]
        if begin_index > len(self.committed):
            raise Violation(
                "reset", f"{node_id} restarts its log at {begin_index}; committed are {len(self.committed)}"
            )
        if self._commit_index[node_id] >= begin_index - 1 and begin_index > 0:
            raise Violation(
                "reset", f"{node_id} restarts its log at {begin_index}, commit {self._commit_index[node_id]}"
            )
        view.begin(begin_index, begin_position)
        self._acknowledged_index[node_id] = begin_index - 1

    def drop_head(self, node_id: str, begin_index: int, begin_position: int) -> None:
        """Check that a node may delete the entries before `begin_index`."""
        if begin_index > self._commit_index[node_id] + 1:
            raise Violation("retention", f"{node_id} begins at {begin_index}, commit {self._commit_index[node_id]}")
        self._views[node_id].drop_head(begin_index, begin_position)

    def second_file(self, node_id: str) -> LogEntry | None:
        """Return the first entry of a node's second data file; None: it has only one file."""
        return self._views[node_id].second_file()

    def wiped(self, node_id: str) -> None:
        """Record that a node's directory is lost; no entry is required to be present any more."""
        view = self._views[node_id]
        self._lost[node_id] = self._copy(view.begin_index, list(view.records), self._acknowledged_index[node_id])
        view.begin(0, 0)
        self._acknowledged_index[node_id] = self._commit_index[node_id] = -1

    def _copy(self, begin_index: int, records: list[LogEntry], acknowledged: int) -> Copy:
        count = acknowledged + 1 - begin_index if self._is_flush_sync else len(records)
        return Copy(begin_index, records[: max(0, count)])

    def forget_loss(self, node_id: str) -> None:
        """Record that a node lost nothing or was readmitted: only its present log counts."""
        self._lost.pop(node_id, None)

    def lead(self, node_id: str, *, term: int, last_index: int) -> None:
        """Check that the leader of `term` has all entries committed in earlier terms (Raft §5.4)."""
        view = self._views[node_id]
        view.refresh(last_index)
        needed = bisect_left(self._commit_terms, term) - 1
        if needed >= view.begin_index and not view.holds(self.committed[needed]):
            raise Violation("leader completeness", f"{node_id} leads term {term} without committed entry {needed}")

    def recovered(self, node_id: str, store: EntryStore, process_end: ProcessEnd) -> bool:
        """Check the log that a node recovered at its start; `process_end` describes how its last process ended.

        Returns:
            Whether damage to the disk lost entries that the node had acknowledged as durable.
        """
        view = self._views[node_id]
        before, before_begin = list(view.records), view.begin_index
        last_index = store.last_index
        view.begin(store.begin_index, store.begin_position)
        view.refresh(last_index)
        self._commit_index[node_id] = -1
        acknowledged = self._acknowledged_index[node_id]
        self._acknowledged_index[node_id] = min(acknowledged, last_index)
        if store.begin_index > len(self.committed):
            raise Violation("recovery", f"{node_id} begins at {store.begin_index}, committed {len(self.committed)}")
        if store.begin_index != before_begin and not process_end.is_in_step:
            raise Violation("recovery", f"{node_id} begins at {store.begin_index}, began at {before_begin}")
        owed = self._owed(before, acknowledged, process_end)
        is_held = owed is None or owed.index < store.begin_index or view.holds(owed)
        if process_end.is_damaged:
            # Kept until it is certain that nothing was lost, or until the node is readmitted.
            self._lost.setdefault(node_id, self._copy(before_begin, before, acknowledged))
        elif not is_held:
            raise Violation("recovery", f"{node_id} came back with entries up to {last_index} and without {owed}")
        self._check_floor(node_id, view, store.recovered_checkpoint.commit_floor)
        found = view.get(last_index)
        if not process_end.is_in_step and found is not None and found not in before:
            raise Violation("recovery", f"{node_id} came back with entries that it did not hold: {last_index}")
        return not is_held and owed is not None and owed.index <= acknowledged

    def _check_floor(self, node_id: str, view: LogView, floor: int) -> None:
        """Entries up to a checkpoint's commit floor must be committed and present."""
        if floor >= len(self.committed):
            raise Violation("commit floor", f"{node_id} keeps up to {floor}; committed are {len(self.committed)}")
        if floor >= view.begin_index and not view.holds(self.committed[floor]):
            raise Violation("commit floor", f"{node_id} keeps another entry {floor} than was committed")

    def _owed(self, before: list[LogEntry], acknowledged: int, process_end: ProcessEnd) -> LogEntry | None:
        """Return the last entry that recovery must find, with all entries before it.

        A node that died in a step may have been truncating a suffix: only its committed entries are certainly required.
        """
        owed = [record for record in before if record.index <= acknowledged or not process_end.is_lossy]
        if process_end.is_in_step:
            committed = self.committed
            while owed and (owed[-1].index >= len(committed) or owed[-1] is not committed[owed[-1].index]):
                owed.pop()
        return owed[-1] if owed else None
