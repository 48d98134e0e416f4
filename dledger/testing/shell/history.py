"""Records the answers to the simulated clients and the committed entries, and checks the guarantees for both.

| guarantee | how it is checked |
| --- | --- |
| one leader per term; terms and commit indexes never decrease | after every step of a node |
| all nodes commit the same entries | each committed entry is read from the node's store and compared with the others' |
| an `Appended` entry is at the index of its answer | at the answer, and again at the end |
| a `NotAppended` one is not in the log; none is duplicated, altered, or without a client that sent it | at the end |
| a linearizable read sees all entries acknowledged, or seen by another such read, before it began | at its end |
| a read delivers committed entries, in order, without gaps | at each entry |
| committed entries are durable | at the end, after a power cut of all machines |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.entries.format.entry import ENTRY_NORMAL
from dledger.testing.checks.clients import ID_SIZE_BYTES, OperationOutcome
from dledger.testing.faults import Violation
from dledger.types import NO_GROUP, Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dledger.client.outcomes import Appended
    from dledger.entries.format.entry import Entry
    from dledger.entries.store import EntryStore
    from dledger.node.node import Node
    from dledger.storage.peer_directories import PeerDirectories

_READ_SIZE_BYTES = 64 * 1024


@dataclass(eq=False, slots=True)
class Append:
    """One call of a client: `bodies[i]` begins with `first_id + i`."""

    first_id: int
    bodies: tuple[bytes, ...]
    answer: OperationOutcome = OperationOutcome.OPEN
    places: tuple[Appended, ...] = ()


@dataclass(eq=False, slots=True)
class Life:
    """The recorded state of one process of a node."""

    node_id: str
    node: Node
    store: EntryStore
    commit_index: int = -1
    term: int = 0
    applied_index: int = -1
    deleted_files_count: int = 0
    # The term in which a running install was last seen; None: there is none.
    install_term: int | None = None

    @property
    def is_counted(self) -> bool:
        """Whether the node is founded, knows its group id, and is a voter that counts, by its own state."""
        if not self.node.is_running:
            return False
        raft = self.node._raft  # noqa: SLF001 - a check looks inside
        member = raft.membership.get(self.node_id)
        return (
            not raft.state.is_founding
            and self.peer_directories.group_id != NO_GROUP
            and member is not None
            and member.is_voter
            and member.incarnation == raft.state.incarnation
        )

    @property
    def peer_directories(self) -> PeerDirectories:
        """The node's record of the group and its members."""
        return self.node._files.peer_directories  # noqa: SLF001 - as above

    def has_met(self, node_id: str) -> bool:
        """Return whether it has an accepted connection to that node."""
        return self.node.is_running and self.node._transport.is_connected_to(node_id)  # noqa: SLF001 - as above


class History:
    """The history of a run.

    Attributes:
        committed: entries by index, from the first node that committed them.
        floor: index that a linearizable read that begins now must reach.
        appended_count, refused_count, unknown_count, read_count, election_count: numbers of these events.
    """

    def __init__(self) -> None:
        self.committed: list[Entry] = []
        self.floor = -1
        self.appended_count = self.refused_count = self.unknown_count = self.read_count = 0
        self._appends: dict[int, tuple[Append, int]] = {}
        self._next_id = 1
        self._leaders: dict[int, str] = {}
        # Commit index of a node whose damaged disk cannot provide the entries; other disks will.
        self._unread_index = -1
        # Delivered entries that are not known yet; compared at the end.
        self._delivered_unread: list[Entry] = []

    @property
    def election_count(self) -> int:
        """The number of terms with a leader."""
        return len(self._leaders)

    # ---------------------------------------------------------------------------------------------- nodes

    def check(self, life: Life) -> None:
        """Check a node after one of its steps.

        Raises:
            Violation: a guarantee is violated.
        """
        node, node_id = life.node, life.node_id
        term = node.term
        if term < life.term:
            raise Violation("term", f"{node_id} went back from {life.term} to {term}")
        life.term = term
        if node.role is Role.LEADER:
            other = self._leaders.setdefault(term, node_id)
            if other != node_id:
                raise Violation("election safety", f"{node_id} and {other} both lead term {term}")
        commit_index = node.commit_index
        if commit_index != life.commit_index:
            self._committed(life, life.store.begin_index, commit_index)

    def look_at_failed(self, life: Life) -> None:
        """Check the committed entries of a node that failed within a step, as far as its store has them.

        The core has the state after that step, and the store perhaps not: a reset that failed has removed files of the
        old log, and a push that failed has not truncated entries of another term, or was not written. This node has
        reported no entry as committed that its store does not have.

        Raises:
            Violation: a guarantee is violated.
        """
        store, raft = life.store, life.node._raft  # noqa: SLF001 - as above
        begin_index = max(store.begin_index, raft.begin_index)
        commit_index = min(life.node.commit_index, store.last_index)
        for entry in _entries(store, max(life.commit_index + 1, begin_index), commit_index):
            if entry.term != raft.state.log.term_at(entry.index):
                commit_index = entry.index - 1
                break
        if commit_index > life.commit_index:
            self._committed(life, begin_index, commit_index)

    def _committed(self, life: Life, begin_index: int, commit_index: int) -> None:
        if commit_index < life.commit_index:
            raise Violation("commit index", f"{life.node_id} went back from {life.commit_index} to {commit_index}")
        for entry in _entries(life.store, max(life.commit_index + 1, begin_index), commit_index):
            index = entry.index
            if index < len(self.committed):
                if self.committed[index] != entry:
                    raise Violation("state machine safety", f"{life.node_id} committed another entry {index}")
            elif index == len(self.committed):
                self.committed.append(entry)
            else:
                raise Violation("commit index", f"{life.node_id} committed {index}, no node {len(self.committed)}")
        life.commit_index = commit_index

    def commits_unread(self, commit_index: int) -> None:
        """Record the commit index of a node with a damaged disk; other nodes will provide the entries."""
        self._unread_index = max(self._unread_index, commit_index)

    def check_store(self, node_id: str, store: EntryStore) -> None:
        """Compare a node's log with the committed entries, all of which must be present."""
        if store.last_index < len(self.committed) - 1:
            raise Violation("durable", f"{node_id} ends at {store.last_index}, committed {len(self.committed) - 1}")
        for entry in _entries(store, store.begin_index, len(self.committed) - 1):
            if entry != self.committed[entry.index]:
                raise Violation("equal logs", f"{node_id} holds another entry {entry.index} than was committed")

    # ---------------------------------------------------------------------------------------------- appends

    def begin(self, sizes: Sequence[int]) -> Append:
        """Return an append of unique bodies of these sizes."""
        first_id = self._next_id
        self._next_id += len(sizes)
        bodies = []
        for body_id, size in enumerate(sizes, first_id):
            pattern = body_id.to_bytes(ID_SIZE_BYTES, "big")
            bodies.append((pattern * (size // ID_SIZE_BYTES + 1))[: max(size, ID_SIZE_BYTES)])
        append = Append(first_id, tuple(bodies))
        for offset in range(len(bodies)):
            self._appends[first_id + offset] = append, offset
        return append

    def appended(self, append: Append, places: Sequence[Appended]) -> None:
        """Check an answer `Appended` to a client.

        Raises:
            Violation: it is wrong.
        """
        self._end(append, OperationOutcome.APPENDED)
        append.places = tuple(places)
        if places[-1].index < len(self.committed) or places[-1].index > self._unread_index:
            # Otherwise checked at the end.
            self._check_places(append)
        self.floor = max(self.floor, places[-1].index)
        self.appended_count += len(places)

    def refused(self, append: Append) -> None:
        """Record an answer `NotAppended` to a client."""
        self._end(append, OperationOutcome.NOT_APPENDED)
        self.refused_count += 1

    def unknown(self, append: Append) -> None:
        """Record an unknown outcome, also of a cancelled call."""
        self._end(append, OperationOutcome.UNKNOWN)
        self.unknown_count += 1

    def _end(self, append: Append, answer: OperationOutcome) -> None:
        if append.answer is not OperationOutcome.OPEN:
            raise Violation("outcome", f"append {append.first_id} was {append.answer.value}, and is {answer.value} now")
        append.answer = answer

    def _check_places(self, append: Append) -> None:
        if len(append.places) != len(append.bodies):
            raise Violation("outcome", f"append {append.first_id}: {len(append.places)} places for {append.bodies}")
        for body, place in zip(append.bodies, append.places, strict=True):
            entry = self.committed[place.index] if place.index < len(self.committed) else None
            if entry is None:
                raise Violation("acknowledged is committed", f"{place} is acknowledged, but not committed")
            if (entry.term, entry.position, entry.body) != (place.term, place.position, body):
                raise Violation("acknowledged is committed", f"{place} is acknowledged, but {entry} is there")

    def check_appends(self) -> None:
        """Check the whole log at the end of a run."""
        seen: dict[int, int] = {}
        for entry in self.committed:
            if entry.magic != ENTRY_NORMAL:
                continue
            body_id = int.from_bytes(entry.body[:ID_SIZE_BYTES], "big")
            append, offset = self._appends.get(body_id, (None, 0))
            if append is None or append.bodies[offset] != entry.body:
                raise Violation("log content", f"{entry.index} holds what no client sent: id {body_id}")
            if append.answer is OperationOutcome.NOT_APPENDED:
                raise Violation("outcome", f"append {append.first_id} was refused, but is committed at {entry.index}")
            if append.answer is OperationOutcome.OPEN:
                raise Violation("outcome", f"append {append.first_id} was never answered")
            if body_id in seen:
                raise Violation("log content", f"id {body_id} is at {seen[body_id]} and at {entry.index}")
            seen[body_id] = entry.index
        for entry in self._delivered_unread:
            self._check_delivered(entry)
        for append, _ in self._appends.values():
            if append.answer is OperationOutcome.APPENDED:
                self._check_places(append)

    # ---------------------------------------------------------------------------------------------- reads

    def delivered(self, entry: Entry, expected_index: int) -> None:
        """Check an `entry` delivered to a client that expected `expected_index`.

        Raises:
            Violation: it is another entry, or not committed.
        """
        if entry.index != expected_index:
            raise Violation("read", f"expected entry {expected_index}, was given {entry.index}")
        if len(self.committed) <= entry.index <= self._unread_index:
            self._delivered_unread.append(entry)
            return
        if entry.index >= len(self.committed):
            raise Violation("read", f"{entry.index} was delivered, committed are {len(self.committed)}")
        self._check_delivered(entry)

    def _check_delivered(self, entry: Entry) -> None:
        known = self.committed[entry.index]
        if (entry.term, entry.position, entry.body) != (known.term, known.position, known.body):
            raise Violation("read", f"{entry.index}: another entry was delivered than was committed")

    def read(self, next_index: int, floor: int) -> None:
        """Check a linearizable read that ended before `next_index`; `floor` was in force when it began."""
        if next_index <= floor:
            raise Violation("linearizable read", f"a read ends before {next_index}, {floor} was known when it began")
        self.floor = max(self.floor, next_index - 1)
        self.read_count += 1

    def state_read(self, node_id: str, applied_index: int, floor: int) -> None:
        """Check a linearizable read of a state; `floor` was in force when it began.

        Raises:
            Violation: the state lacks entries that were acknowledged or read before.
        """
        if applied_index < floor:
            text = f"the state of {node_id} was read at {applied_index}, {floor} was known when the read began"
            raise Violation("linearizable read", text)
        self.floor = max(self.floor, applied_index)


def _entries(store: EntryStore, index: int, last_index: int) -> Iterator[Entry]:
    """Yield a store's entries from `index` to `last_index`, each with its own index."""
    while index <= last_index:
        span = store.fit(index, last_index, _READ_SIZE_BYTES)
        for entry in store.read_entries(index, span.last_index):
            if entry.index != index:
                raise Violation("log", f"entry {index} was asked for, {entry.index} came")
            yield entry
            index += 1
