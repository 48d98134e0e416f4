"""The port of a program's state machine, and the applier that passes committed entries to it.

A program implements `StateMachine`; `Applier` passes every committed client entry to it, in order. Each entry is
applied to the state exactly once: applied index and state are saved as one snapshot, and the log after it is replayed.

Place on the path of an append: after the commit. It uses neither clock nor thread, so the simulator runs it, too.

Source: Raft §7; DLedger `StateMachineCaller`. Unlike there, no-ops do not reach the program, results reach the waiting
proposals, applied index and state are in one file, and a snapshot is not deleted because it cannot be loaded, and is
not used if the log no longer has the entries after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from dledger.entries.format.codec import is_applied
from dledger.errors import DLedgerError
from dledger.storage.snapshot_store import SnapshotDamaged, SnapshotGone, SnapshotStore
from dledger.types import NO_INDEX, NO_TERM, SnapshotInfo
from store.errors import DiskFull, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dledger.entries.format.entry import Entry
    from dledger.entries.store import EntryStore

# Entries that are read and applied in one step; no other work of the node runs during it.
_STEP_SIZE_BYTES = 1 << 20
# The same bound if most entries are only skipped.
_SPARSE_STEP_SIZE_BYTES = 16 << 20
# Marks the end of an iterator of pieces.
_WHOLE = object()


class Applier:
    """Feeds one state machine from one log.

    Args:
        machine: in its initial state, before the first entry.
        log: the recovered log.
        snapshots: of this machine.
        snapshot_threshold: entries applied since the last snapshot until the next one is saved (>= 1).

    Raises:
        StateLost, StateMachineFailed: the node must not start.
    """

    def __init__(
        self, machine: StateMachine, log: EntryStore, snapshots: SnapshotStore, snapshot_threshold: int
    ) -> None:
        assert snapshot_threshold >= 1, snapshot_threshold
        self._machine = machine
        self._log = log
        self._snapshots = snapshots
        self._threshold = snapshot_threshold
        # `_applied_index <= _commit_index`, and neither decreases. The term is that of entry `_applied_index`;
        # snapshots carry both.
        self._applied_index = NO_INDEX
        self._applied_term = NO_TERM
        self._commit_index = NO_INDEX
        # Its index is at most `_applied_index`; the log after it must be kept.
        self._snapshot: SnapshotInfo | None = None
        # The applied index at which a snapshot is due; above the applied index after each attempt, successful or not.
        self._next_snapshot_at = snapshot_threshold - 1
        # No snapshot is due until this index is applied.
        self._catch_up_index = NO_INDEX
        self._is_forced = False
        # One result per entry that was passed to `expect` and not yet to `take` or `forget`; None until it is applied.
        self._results: dict[int, Any] = {}
        # Neither `apply` nor `snapshot_save` is called before it is loaded.
        self._loading: _Loading | None = None
        self._load_newest(log.begin_index)
        while self._loading is not None:
            # Loaded at once: no other part of the node runs yet.
            self._load_piece(self._loading)

    @property
    def applied_index(self) -> int:
        """The last index applied to the state; -1: none."""
        return self._applied_index

    @property
    def snapshot(self) -> SnapshotInfo | None:
        """The newest snapshot that is known to be valid; the log after it must be kept."""
        return self._snapshot

    @property
    def is_behind(self) -> bool:
        """Whether committed entries wait to be applied, or a snapshot is being loaded."""
        return self._loading is not None or self._applied_index < self._commit_index

    @property
    def is_loading(self) -> bool:
        """Whether a snapshot is being loaded: until it is complete, nothing is applied and no snapshot is saved."""
        return self._loading is not None

    # --------------------------------------------------------------------------------------------------- applying

    def expect(self, first_index: int, last_index: int) -> None:
        """Keep the results of these entries, which were just appended here; the caller must `take` or `forget` them."""
        self._results.update(dict.fromkeys(range(first_index, last_index + 1)))

    def take(self, first_index: int, last_index: int) -> list[Any]:
        """Return and remove the results of expected entries, all of which are applied.

        None: the result is not known here, because a snapshot already contained the entry's effect.
        """
        assert last_index <= self._applied_index, (last_index, self._applied_index)
        return [self._results.pop(index, None) for index in range(first_index, last_index + 1)]

    def forget(self, first_index: int, last_index: int) -> None:
        """Remove the results of these entries: none is awaited any more, or they were truncated."""
        for index in range(first_index, last_index + 1):
            self._results.pop(index, None)

    def committed(self, commit_index: int) -> None:
        """Record that all entries up to `commit_index` are committed; `step` applies them."""
        self._commit_index = max(self._commit_index, commit_index)

    def step(self) -> None:
        """Apply at most about 1 MiB of committed entries, or load a piece of a snapshot. Call it while `is_behind`.

        Raises:
            StateMachineFailed, store.errors.CorruptData, store.errors.StorageFailed: the node must stop.
        """
        if self._loading is not None:
            self._load_piece(self._loading)
        elif self.is_behind:
            first_index = self._applied_index + 1
            size = _SPARSE_STEP_SIZE_BYTES if self._log.codec.applied_channel else _STEP_SIZE_BYTES
            span = self._log.fit(first_index, self._commit_index, size)
            self._apply(self._read(first_index, span.last_index))
            self._applied_index, self._applied_term = span.last_index, span.term

    def _read(self, first_index: int, last_index: int) -> list[Entry]:
        """Return the entries for the machine; if it receives only some kinds, the others are not read."""
        if self._log.codec.applied_channel:
            return self._log.read_applied(first_index, last_index)
        entries = self._log.read_entries(first_index, last_index)
        return [entry for entry in entries if is_applied(self._log.codec, entry)]

    def _apply(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        try:
            results = self._machine.apply(entries)
        except Exception as error:
            raise StateMachineFailed("apply", entries[0].index, repr(error)) from error
        if len(results) != len(entries):
            found = f"{len(results)} results of {len(entries)} entries"
            raise StateMachineFailed("apply", entries[0].index, found)
        if self._results:
            for entry, result in zip(entries, results, strict=True):
                if entry.index in self._results:
                    self._results[entry.index] = result

    # -------------------------------------------------------------------------------------------------- snapshots

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the snapshot threshold is reached, or the last snapshot is lost.

        False while a snapshot is being loaded, until the entries of `catch_up` are applied, and before the first entry.
        """
        if self.is_loading or self._applied_index < self._catch_up_index or self._applied_index == NO_INDEX:
            return False
        return self._applied_index >= self._next_snapshot_at or self._is_snapshot_lost()

    def catch_up(self) -> None:
        """Defer the next snapshot until all entries are applied that were committed during the last save.

        Otherwise only one step would be applied between two saves. If more is committed during each save, the state
        would lag further and further, until each append times out.
        """
        self._catch_up_index = self._commit_index

    def request_snapshot(self, *, is_forced: bool = False) -> None:
        """Make a snapshot due now, if anything was applied since the last one, or (`is_forced`) in any case.

        Before anything was applied, there is no state: then it is due after the first step that applies an entry.
        """
        self._next_snapshot_at = min(self._next_snapshot_at, self._applied_index)
        self._is_forced |= is_forced

    def save_snapshot(self) -> SnapshotInfo | None:
        """Save the current state durably; None: nothing was applied since the last snapshot, or the disk is full.

        A requested snapshot, or the replacement of a lost one, is always saved. After a full disk the next attempt is
        made `snapshot_threshold` entries later.

        Raises:
            StateMachineFailed, store.errors.StorageFailed: the node must stop.
        """
        assert not self.is_loading
        index, is_forced = self._applied_index, self._is_forced
        if index == NO_INDEX:
            # A request waits for the first entry.
            return None
        self._next_snapshot_at, self._is_forced = index + self._threshold, False
        if self._snapshot is not None:
            is_news = index != self._snapshot.index or is_forced or self._is_snapshot_lost()
            if not is_news:
                return None
        try:
            self._snapshot = self._snapshots.save(index, self._applied_term, self._chunks(index))
        except DiskFull:
            return None
        return self._snapshot

    def _is_snapshot_lost(self) -> bool:
        """Return whether the newest snapshot was found damaged while it was sent, and must be replaced."""
        latest = self._snapshots.latest()
        return self._snapshot is not None and (latest is None or latest.index < self._snapshot.index)

    def _chunks(self, index: int) -> Iterable[bytes]:
        try:
            yield from self._machine.snapshot_save()
        except Exception as error:
            raise StateMachineFailed("snapshot_save", index, repr(error)) from error

    def on_reset(self, begin_index: int, snapshot_index: int) -> None:
        """Continue from the received snapshot up to `snapshot_index`, because the log was reset.

        A machine that `LoadsInPieces` loads the first piece now and the others in `step`. If another snapshot is
        already being loaded, that continues if it is new enough, else the new one replaces it.

        Args:
            begin_index: the new start of the log.
            snapshot_index: -1 when there is none.

        Raises:
            StateLost: this node does not have the entries after its state.
            StateMachineFailed, store.errors.StorageFailed: the node must stop.
        """
        if snapshot_index > self._reached_index:
            self._load_newest(begin_index)
        elif self._reached_index < begin_index - 1:
            raise StateLost(self._reached_index, begin_index, self._snapshots.damaged)
        self._commit_index = max(self._commit_index, begin_index - 1)

    @property
    def _reached_index(self) -> int:
        """The last entry in the state, or in the snapshot that is being loaded."""
        return self._applied_index if self._loading is None else self._loading.info.index

    def _load_newest(self, begin_index: int) -> None:
        """Begin to load the newest valid snapshot; an older one only if the log has all entries after it."""
        for info in self._snapshots.snapshots:
            if info.index < max(self._reached_index, begin_index - 1):
                break
            try:
                content = self._snapshots.load(info)
            except (SnapshotDamaged, SnapshotGone):
                continue
            # The first piece, loaded before any other work of the node, disables all readers of the state.
            self._loading = _Loading(info, _pieces_of(self._machine, content))
            self._load_piece(self._loading)
            break
        if self._reached_index < begin_index - 1:
            raise StateLost(self._reached_index, begin_index, self._snapshots.damaged)

    def _load_piece(self, loading: _Loading) -> None:
        """Load a piece; after the last one, applying continues after the snapshot's index."""
        info, pieces = loading
        try:
            is_whole = next(pieces, _WHOLE) is _WHOLE
        except Exception as error:
            raise StateMachineFailed("snapshot_load", info.index, repr(error)) from error
        if not is_whole:
            return
        self._loading, self._snapshot = None, info
        self._applied_index, self._applied_term = info.index, info.term
        self._commit_index = max(self._commit_index, info.index)
        # A request during the load is one for this state, too.
        self._next_snapshot_at = info.index + (0 if self._is_forced else self._threshold)


class StateMachine(Protocol):
    """A program's state, changed only by committed entries.

    It must be deterministic: equal entries lead to equal states, on every node and after every restart. No method may
    block. An exception stops the node.
    """

    def apply(self, entries: Sequence[Entry]) -> Sequence[Any]:
        """Change the state by `entries`, in order; return a result for each, for its proposer on this node."""
        ...

    def snapshot_save(self) -> Iterable[bytes]:
        """Return the whole state, in chunks of any size; all of them are read before the next `apply`."""
        ...

    def snapshot_load(self, content: bytes) -> None:
        """Replace the state by the one that `snapshot_save` returned, here as one piece."""
        ...


@runtime_checkable
class LoadsInPieces(Protocol):
    """A state machine that loads snapshots in pieces: otherwise a large state would block the event loop."""

    def snapshot_loading(self, content: bytes) -> Iterator[None]:
        """Load like `StateMachine.snapshot_load`, in pieces of a few milliseconds, one for each `next`.

        Between two pieces other work of the node runs, but neither `apply` nor `snapshot_save`; readers must see the
        old state or the complete new one. An iterator that is dropped before its end must have no effect: then another
        snapshot is loaded, or the node stops.
        """
        ...


class _Loading(NamedTuple):
    """A snapshot that is being loaded."""

    info: SnapshotInfo
    pieces: Iterator[None]


class StateMachineFailed(DLedgerError):
    """The program's state machine raised an exception, or broke its contract. The node must stop."""

    def __init__(self, operation: str, index: int, found: str) -> None:
        super().__init__(
            f"the state machine failed in {operation} at entry {index}: {found}. The node must stop, because its state "
            "is unknown; correct the program and start it again: the log is replayed from the last snapshot"
        )
        self.operation = operation
        self.index = index


class StateLost(StoreError):
    """The log no longer holds entries that the state lacks. The node must stop."""

    def __init__(self, applied_index: int, begin_index: int, damaged: Sequence[SnapshotDamaged]) -> None:
        why = "; ".join(str(fault) for fault in damaged) or "no newer snapshot was found"
        super().__init__(
            f"the state goes up to entry {applied_index}, the log begins at {begin_index}: {why}. The node must stop; "
            "keep a copy of its directory and give it an empty one: it is re-synced"
        )
        self.applied_index = applied_index
        self.begin_index = begin_index


def _pieces_of(machine: StateMachine, content: bytes) -> Iterator[None]:
    """Load a snapshot in pieces, or in a single one if the machine does not support pieces."""
    if isinstance(machine, LoadsInPieces):
        yield from machine.snapshot_loading(content)
    else:
        machine.snapshot_load(content)
