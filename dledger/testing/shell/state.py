"""The state machine of simulated nodes, and the checks of its states.

| guarantee | how it is checked |
| --- | --- |
| each entry of a client is applied once, in order, on every node (I4) | after every step: the state at an applied |
| | index is what the committed log up to there makes |
| the applied index never goes back within a life, and is committed | after every step |
| a restart finds its state (I12) | after every step: the log begins at most one entry after the newest snapshot |
| the result of an append is what the state machine returned for it | at the answer; None: a snapshot contained it |
| the appender's own node has applied what it acknowledges | at the answer |
| a read of the state sees all that was acknowledged, or read, before it began (I6) | at its end |
| all acknowledged entries are in the state of every node | at the end, and again after the last power cut |
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from dledger.entries.format.entry import ENTRY_NORMAL
from dledger.testing.checks.state_machine import SimStateMachine
from dledger.testing.faults import Violation
from dledger.testing.shell.options import ShellFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dledger.entries.format.entry import Entry
    from dledger.testing.shell.history import Life
    from dledger.testing.shell.options import FaultTally

# Parts of the duration of a save: before the digest, and before each half of the values.
SAVE_PARTS = 3


class StateWork(StrEnum):
    """Events of runs with state machines; the value is the name in the line of a run."""

    SNAPSHOT_SAVED = "snapshots_saved"
    SNAPSHOT_INSTALLED = "snapshots_installed"
    SNAPSHOT_LOADED = "started_from_snapshots"
    HEAD_DELETED = "heads_deleted"
    STATE_READ = "states_read"
    RESULT_RETURNED = "results_returned"


class ShellStateMachine:
    """`dledger.node.state_machine.StateMachine` of one process of a node: that of the core's simulator, with delays.

    It also implements `LoadsInPieces`.

    Args:
        pieces_count: number of pieces of a loaded snapshot; 1: loaded at once.
        spend: blocks the loop of the node, in microseconds.
        delay_us: returns the present time for one entry.
        on_saving: called before a snapshot is saved.
        take_save_time: lets the time of one of the `SAVE_PARTS` parts of a save pass.
        on_loaded: called after a snapshot was loaded.

    Attributes:
        is_loaded: a snapshot was loaded since the last check.
    """

    def __init__(
        self,
        *,
        pieces_count: int,
        spend: Callable[[int], None],
        delay_us: Callable[[], int],
        on_saving: Callable[[], None],
        take_save_time: Callable[[], None],
        on_loaded: Callable[[], None],
    ) -> None:
        self.is_loaded = False
        self._pieces_count = pieces_count
        self._machine = SimStateMachine()
        self._spend = spend
        self._delay_us = delay_us
        self._on_saving = on_saving
        self._take_save_time = take_save_time
        self._on_loaded = on_loaded

    @property
    def digest(self) -> str:
        """A hash over all applied entries, in order."""
        return self._machine.digest

    @property
    def values(self) -> dict[str, str]:
        """The last body of each key."""
        return self._machine.values

    def apply(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Apply entries; the result of each is the digest after it."""
        self._spend(self._delay_us() * len(entries))
        return self._machine.apply(entries)

    def snapshot_save(self) -> Iterator[bytes]:
        """Return the state in pieces, between which the loop of the node continues; `SimStateMachine` loads it.

        An entry applied in between would be in a part of the state only, which the checks of a load detect.
        """
        self._on_saving()
        self._take_save_time()
        yield f'["{self.digest}", {{'.encode()
        separator = ""
        for part in range(SAVE_PARTS - 1):
            self._take_save_time()
            for key, body in list(self.values.items()):
                if int(key) % (SAVE_PARTS - 1) == part:
                    yield f'{separator}"{key}": "{body}"'.encode()
                    separator = ", "
        yield b"}]"

    def snapshot_load(self, content: bytes) -> None:
        """Replace the state by the one that `snapshot_save` returned."""
        self._machine.snapshot_load(content)
        self.is_loaded = True
        self._on_loaded()

    def snapshot_loading(self, content: bytes) -> Iterator[None]:
        """Load a snapshot in several pieces, of which only the last changes the state."""
        for _ in range(self._pieces_count - 1):
            yield
        self.snapshot_load(content)


class StateChecks:
    """Computes the expected states from the committed entries.

    Args:
        committed: the entries by index, as `History` collects them.
        tally: counts faults.

    Attributes:
        work: counts of events.
    """

    def __init__(self, committed: list[Entry], tally: FaultTally) -> None:
        self.work = dict.fromkeys(StateWork, 0)
        self._committed = committed
        self._tally = tally
        self._reference = SimStateMachine()
        self._digests: list[str] = []

    def add(self, work: StateWork) -> None:
        """Count an event."""
        self.work[work] += 1

    def check(self, life: Life, machine: ShellStateMachine) -> None:
        """Check the state of a node after one of its steps.

        Raises:
            Violation: a guarantee is violated.
        """
        node = life.node
        applied_index = node.applied_index
        if applied_index < life.applied_index:
            raise Violation("applied index", f"{life.node_id} went back from {life.applied_index} to {applied_index}")
        life.applied_index = applied_index
        self._check_digest(life.node_id, applied_index, machine.digest)
        if machine.is_loaded:
            machine.is_loaded = False
            self._check_values(life.node_id, applied_index, machine)
        deleted_files_count = node._retention.deleted_files_count  # noqa: SLF001 - a check looks inside
        if deleted_files_count != life.deleted_files_count:
            life.deleted_files_count = deleted_files_count
            self.add(StateWork.HEAD_DELETED)
        begin_index, snapshot_index = life.store.begin_index, -1 if node.snapshot is None else node.snapshot.index
        if snapshot_index < begin_index - 1:
            text = f"{life.node_id} has the snapshot {snapshot_index} and a log that begins at {begin_index}"
            raise Violation("a restart finds its state", text)
        self._look_at_install(life)

    def _look_at_install(self, life: Life) -> None:
        """Count installs whose leader changed before the snapshot was complete."""
        snapshots = life.node._files.snapshots  # noqa: SLF001 - as above
        assert snapshots is not None, "the node has a state machine"
        if snapshots.incoming() is None:
            life.install_term = None
        elif life.install_term is None:
            life.install_term = life.node.term
        elif life.install_term < life.node.term and life.node.leader().id:
            self._tally.add(ShellFault.INSTALL_CHANGED_LEADER)
            life.install_term = life.node.term

    def check_results(self, first_index: int, results: Sequence[Any]) -> None:
        """Check the results in the answer to an append: one per entry, or None if it is not known.

        Raises:
            Violation: a result is wrong.
        """
        for index, result in enumerate(results, first_index):
            if result is None:
                continue
            if result != self._digest_at(index):
                raise Violation("result", f"{index} was answered with {result}, expected {self._digest_at(index)}")
            self.add(StateWork.RESULT_RETURNED)

    def check_end(self, node_id: str, machine: ShellStateMachine) -> None:
        """Compare a whole state with the one computed from all committed entries.

        Raises:
            Violation: they differ.
        """
        last_index = len(self._committed) - 1
        self._check_digest(node_id, last_index, machine.digest)
        self._check_values(node_id, last_index, machine)

    def _check_values(self, node_id: str, index: int, machine: ShellStateMachine) -> None:
        expected = SimStateMachine()
        expected.apply([entry for entry in self._committed[: index + 1] if entry.magic == ENTRY_NORMAL])
        if machine.values != expected.values:
            raise Violation("state machine safety", f"{node_id} has other values at {index} than its log makes")

    def _check_digest(self, node_id: str, index: int, digest: str) -> None:
        if index >= len(self._committed):
            raise Violation("applied index", f"{node_id} applied {index}, committed are {len(self._committed)}")
        expected = self._digest_at(index)
        if digest != expected:
            raise Violation("state machine safety", f"{node_id} has state {digest} at {index}, expected {expected}")

    def _digest_at(self, index: int) -> str:
        for entry in self._committed[len(self._digests) : index + 1]:
            if entry.magic == ENTRY_NORMAL:
                self._reference.apply([entry])
            self._digests.append(self._reference.digest)
        return self._digests[index] if index >= 0 else ""
