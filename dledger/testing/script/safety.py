"""Safety checks of a script, after every command, on all logs, entry by entry.

The logs of a script are short, so everything is checked each time, and only committed entries are remembered. (The
simulator checks much longer runs, incrementally: `dledger.testing.checks.logs`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.testing.faults import Violation
from dledger.types import NO_INDEX, Role
from store.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dledger.entries.format.entry import Entry
    from dledger.entries.store import EntryStore
    from dledger.testing.script.machine import ScriptMachine
    from dledger.testing.script.node import ScriptNode


class Safety:
    """Election safety, log matching, leader completeness, state-machine safety, linearizable reads.

    Attributes:
        acknowledged_index: the last entry acknowledged to a client.
        is_loss_expected: a majority lost entries without detecting it, so committed entries may be replaced.
    """

    def __init__(self) -> None:
        self.is_loss_expected = False
        self.acknowledged_index = NO_INDEX
        self._leaders: dict[int, str] = {}
        self._entries: dict[tuple[int, int], Entry] = {}
        self._before: dict[tuple[int, int], int] = {}
        self._committed: dict[int, tuple[Entry, int]] = {}

    def lead(self, node_id: str, term: int) -> None:
        """Check a new leader: no other node ever led this term (Raft figure 3, election safety)."""
        other = self._leaders.setdefault(term, node_id)
        if other != node_id:
            raise Violation("election safety", f"{node_id} and {other} both lead term {term}")

    def acknowledge(self, index: int) -> None:
        """Record that an entry was acknowledged to a client."""
        self.acknowledged_index = max(self.acknowledged_index, index)

    def serve(self, node_id: str, index: int, floor: int, commit_index: int) -> None:
        """Check a read that a node serves up to `index`; `floor` was acknowledged before the read began."""
        if not floor <= index <= commit_index:
            raise Violation("read", f"{node_id} serves up to {index}; acknowledged {floor}, committed {commit_index}")

    def check(self, machines: list[ScriptMachine]) -> None:
        """Check all running nodes.

        Raises:
            Violation: the text names the rule and the node.
        """
        running = [(machine.id, machine.node) for machine in machines if machine.node is not None]
        logs = {node_id: _log_of(node.store) for node_id, node in running}
        for node_id, log in logs.items():
            self._match(node_id, log)
        if self.is_loss_expected:
            return
        for node_id, node in running:
            self._commit(node_id, node, logs[node_id])
        for node_id, node in running:
            if node.raft.role is Role.LEADER:
                self._complete(node_id, node, logs[node_id])

    def _match(self, node_id: str, log: dict[int, Entry | None]) -> None:
        """Check that entries with the same index and term are equal, with equal prefixes (log matching)."""
        before = None
        for index, entry in log.items():
            if entry is None:
                before = None
                continue
            key = (index, entry.term)
            if self._entries.setdefault(key, entry) != entry:
                raise Violation("log matching", f"{node_id} holds {index} of term {entry.term} with other bytes")
            if before is not None and self._before.setdefault(key, before) != before:
                raise Violation("log matching", f"{node_id} holds {index} of term {entry.term} after another prefix")
            before = entry.term

    def _commit(self, node_id: str, node: ScriptNode, log: dict[int, Entry | None]) -> None:
        """Check that all nodes commit the same entries (state machine safety)."""
        commit_index = node.raft.commit_index
        if commit_index > node.store.last_index:
            raise Violation("commit index", f"{node_id} has {commit_index}, its log ends at {node.store.last_index}")
        for index, entry in log.items():
            if entry is None or index > commit_index:
                continue
            if self._committed.setdefault(index, (entry, node.raft.term))[0] != entry:
                raise Violation("state machine safety", f"{node_id} committed another entry {index}")

    def _complete(self, node_id: str, node: ScriptNode, log: dict[int, Entry | None]) -> None:
        """Check that a leader has all entries of earlier terms' commits, or begins after them (leader completeness)."""
        for index, (entry, term) in self._committed.items():
            is_needed = term < node.raft.term and index >= node.store.begin_index
            if is_needed and (index not in log or log[index] not in (None, entry)):
                raise Violation("leader completeness", f"{node_id} leads term {node.raft.term} without entry {index}")


def _log_of(store: EntryStore) -> dict[int, Entry | None]:
    """Return the entries of a log by index; None for an entry that the disk damaged."""
    try:
        return {entry.index: entry for entry in _entries(store)}
    except CorruptData:
        return {index: _entry(store, index) for index in range(store.begin_index, store.last_index + 1)}


def _entries(store: EntryStore) -> Iterator[Entry]:
    """Yield all entries of a log, span by span: entry by entry, each would be verified from its index unit on."""
    index = store.begin_index
    while index <= store.last_index:
        span = store.fit(index, store.last_index, store.data_file_size)
        yield from store.read_entries(index, span.last_index)
        index = span.last_index + 1


def _entry(store: EntryStore, index: int) -> Entry | None:
    try:
        return store.get(index)
    except CorruptData:
        return None
