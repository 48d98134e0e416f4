"""The state machine of a node of a broker: broker state, and in its snapshots the end of each queue.

A node that starts a new log, or lost its queues, no longer finds in the log the ends of queues whose messages
have expired: as a leader it would assign their offsets again. So a snapshot also records for every queue which
offset comes next, as of a place in the log; and entries after that place are kept as long as the snapshot may be
needed (`retention_offset`).

| what | form (`cluster.state.compact_bytes`) |
| --- | --- |
| magic | 4 bytes, `DLBQ` |
| version | a number: 1 |
| place in the log for which the queue ends hold | a number |
| queues | how many; topic, number and next offset of each |
| broker state | the rest (`cluster.state.snapshot`) |

A snapshot is saved in another thread, while queues are dispatched; `DerivedData.queue_ends` may be called there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.state.compact_bytes import Reader, Unreadable, Writer
from dledger.types import NO_INDEX, SnapshotInfo
from store.model.message import QueueKey
from store.model.queue_ends import QueueEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from cluster.state.broker_state import BrokerState
    from cluster.state.verdicts import Applied
    from dledger.entries.format.entry import Entry

_MAGIC: Final = b"DLBQ"
_VERSION: Final = 1


class ReplicatedState:
    """A `dledger.node.state_machine.StateMachine` around broker state.

    Args:
        state: of the broker.
        queue_ends: returns the current ends of queues; called in the thread that saves a snapshot.
        applied_index: returns up to which entry the state goes; likewise.

    Attributes:
        loaded: what the snapshot that was loaded last says of queues, until its taker has set it to None.
    """

    def __init__(
        self, state: BrokerState, *, queue_ends: Callable[[], QueueEnds], applied_index: Callable[[], int]
    ) -> None:
        self.loaded: QueueEnds | None = None
        # The place in the log for which the queue ends hold that are being loaded; None: none are.
        self._loading_offset: int | None = None
        self._state = state
        self._queue_ends = queue_ends
        self._applied_index = applied_index
        # Place in the log by index of the snapshot, for snapshots that are not known to be good.
        self._tried: dict[int, int] = {}
        # The snapshot of the last `note_snapshot`, compared by identity.
        self._noted: SnapshotInfo | None = None
        # (Index, place) of the last two good snapshots, the older one first.
        self._good: list[tuple[int, int]] = []

    @property
    def is_loading(self) -> bool:
        """Whether a snapshot is being loaded that will set `loaded`: until then nothing may be dispatched."""
        return self._loading_offset is not None

    def trusted_offset(self, dispatched_offset: int) -> int:
        """Return up to which place in the log queues say which offset comes next.

        While `loaded` waits, or a snapshot is being loaded, that does not hold after the place that it names, however
        far they are dispatched.
        """
        offset, loaded = dispatched_offset, self.loaded
        if loaded is not None:
            offset = min(offset, loaded.offset)
        return offset if self._loading_offset is None else min(offset, self._loading_offset)

    def apply(self, entries: Sequence[Entry]) -> list[Applied]:
        """Apply committed commands in order; return what became of each."""
        return self._state.apply(entries)

    def snapshot_save(self) -> Iterator[bytes]:
        """Return state and queues, in chunks; not while a snapshot is being loaded."""
        # In this order: ends that are restored in between are then among the queues' own ends.
        loaded, queues = self.loaded, self._queue_ends()
        if loaded is not None:
            queues = queues.joined(loaded)
        self._tried[self._applied_index()] = queues.offset
        yield encode_queue_ends(queues)
        yield from self._state.snapshot_save()

    def snapshot_load(self, content: bytes) -> None:
        """Take over a snapshot; the queues wait in `loaded`.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is none, or one of a newer version; the state is as before.
        """
        for _ in self.snapshot_loading(content):
            continue

    def snapshot_loading(self, content: bytes) -> Iterator[None]:
        """Load a snapshot in pieces of a few milliseconds, as `BrokerState.snapshot_loading`.

        From the first piece on `is_loading` holds back what is dispatched; `loaded` is set by the last one.

        Raises:
            as `snapshot_load`.
        """
        reader = Reader(content, "a snapshot of a broker", len(_MAGIC))
        offset = self._loading_offset = _read_queue_ends_offset(reader, content)
        try:
            yield
            queues = QueueEnds(offset, (yield from _read_next_offsets(reader)))
            yield from self._state.snapshot_loading(content[reader.position :])
        except Unreadable:
            self._loading_offset = None
            raise
        self.loaded, self._loading_offset = queues, None
        self._tried.clear()
        self._good = [(NO_INDEX, offset)]

    def note_snapshot(self, snapshot: SnapshotInfo | None) -> None:
        """Take note which snapshot is the newest good one; asked often, none is missed, nor one that failed counted.

        Args:
            snapshot: it; another object for each that was saved, also of the same entries, also with the same bytes.
        """
        if snapshot is None or snapshot is self._noted:
            # One of the same entries may be about to be saved again: it counts once it is saved.
            return
        self._noted = snapshot
        # Copied at once: another thread may be about to save a snapshot.
        tried = sorted(index for index in list(self._tried) if index <= snapshot.index)
        if snapshot.index in tried:
            # Of several that came since, any may have been the first good one.
            first = [] if self._good else [(tried[0], self._tried[tried[0]])]
            self._good = [*self._good, *first, (snapshot.index, self._tried[snapshot.index])][-2:]
            for index in tried:
                del self._tried[index]

    def retention_offset(self, snapshot: SnapshotInfo | None) -> int:
        """Return the place in the log after which everything must be kept, for the sake of snapshots.

        It is that of the last but one: a follower may be getting that one just now.

        Args:
            snapshot: as for `note_snapshot`.
        """
        self.note_snapshot(snapshot)
        return self._good[0][1] if self._good else 0


def encode_queue_ends(queues: QueueEnds) -> bytes:
    """Return the head of a snapshot."""
    writer = Writer(_MAGIC)
    writer.number(_VERSION)
    writer.number(queues.offset)
    writer.number(len(queues.next_offsets))
    for key, next_offset in sorted(queues.next_offsets.items()):
        writer.text(key.topic)
        writer.number(key.queue_id)
        writer.number(next_offset)
    return bytes(writer.data)


def _read_queue_ends_offset(reader: Reader, content: bytes) -> int:
    """Return the place in the log for which the queue ends hold."""
    if not content.startswith(_MAGIC):
        raise reader.fault(repr(_MAGIC), repr(content[: len(_MAGIC)]), 0)
    if (version := reader.number()) != _VERSION:
        raise reader.fault(f"version {_VERSION}", str(version), len(_MAGIC))
    return reader.number()


def _read_next_offsets(reader: Reader) -> Generator[None, None, dict[QueueKey, int]]:
    """Return the next offset of each queue, after the last piece."""
    next_offsets: dict[QueueKey, int] = {}
    for _ in range(reader.count()):
        key = QueueKey(reader.text(), reader.number())
        next_offsets[key] = reader.number()
        if reader.ends_piece():
            yield
    return next_offsets
