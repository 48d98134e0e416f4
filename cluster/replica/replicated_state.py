"""The state machine of a broker's node: the broker state, and in its snapshots also the end of each queue.

A node that restarted its log, or lost its queues, cannot find in the log the ends of queues whose messages have
expired: as a leader it would assign their offsets again. So a snapshot also records the next offset of every queue as
of one log offset; entries after that offset are kept as long as the snapshot may be needed (`retention_offset`).

| field | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| magic | 4 bytes, `DLBQ` |
| version | a number: 1 |
| log offset for which the queue ends are valid | a number |
| queues | their number; topic, number and next offset of each |
| broker state | the rest (`cluster.state.snapshot`) |

A snapshot is saved in another thread while dispatch continues; `DerivedData.queue_ends` may be called from there.
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
        state: the broker state.
        queue_ends: returns the current ends of queues; called in the thread that saves a snapshot.
        applied_index: returns the applied index; called in the same thread.

    Attributes:
        loaded: queue ends of the last loaded snapshot; its consumer sets it to None.
    """

    def __init__(
        self, state: BrokerState, *, queue_ends: Callable[[], QueueEnds], applied_index: Callable[[], int]
    ) -> None:
        self.loaded: QueueEnds | None = None
        # The log offset of the queue ends that are being loaded; None: no snapshot is being loaded.
        self._loading_offset: int | None = None
        self._state = state
        self._queue_ends = queue_ends
        self._applied_index = applied_index
        # Smallest log offset by index of the snapshot, for snapshots whose save is not confirmed yet.
        self._tried: dict[int, int] = {}
        # The snapshot of the last `note_snapshot`, compared by identity.
        self._noted: SnapshotInfo | None = None
        # (Index, log offset) of the last two saved snapshots, the older one first.
        self._good: list[tuple[int, int]] = []

    @property
    def is_loading(self) -> bool:
        """Whether a snapshot is being loaded; until it has set `loaded`, nothing may be dispatched."""
        return self._loading_offset is not None

    def trusted_offset(self, dispatched_offset: int) -> int:
        """Return the log offset up to which the queues' next offsets are reliable.

        While `loaded` is not applied, or a snapshot is being loaded, they are not reliable after the snapshot's log
        offset, even if dispatch has passed it.
        """
        offset, loaded = dispatched_offset, self.loaded
        if loaded is not None:
            offset = min(offset, loaded.offset)
        return offset if self._loading_offset is None else min(offset, self._loading_offset)

    def apply(self, entries: Sequence[Entry]) -> list[Applied]:
        """Apply committed commands in order; return the result of each."""
        return self._state.apply(entries)

    def snapshot_save(self) -> Iterator[bytes]:
        """Return queue ends and broker state, in chunks; must not be called while a snapshot is being loaded."""
        # In this order: ends that are applied in between are then included in the queues' own ends.
        loaded, queues = self.loaded, self._queue_ends()
        if loaded is not None:
            queues = queues.joined(loaded)
        # A snapshot of this index may be durable, but not noted yet: it has the smaller offset.
        index = self._applied_index()
        self._tried[index] = min(self._tried.get(index, queues.offset), queues.offset)
        yield encode_queue_ends(queues)
        yield from self._state.snapshot_save()

    def snapshot_load(self, content: bytes) -> None:
        """Load a snapshot; its queue ends are put into `loaded`.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is not a snapshot, or one of a newer version; the state is
                unchanged.
        """
        for _ in self.snapshot_loading(content):
            continue

    def snapshot_loading(self, content: bytes) -> Iterator[None]:
        """Load a snapshot in steps of a few milliseconds, as `BrokerState.snapshot_loading`.

        From the first step on `is_loading` suspends dispatch; the last step sets `loaded`.

        Raises:
            see `snapshot_load`.
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
        """Record the newest saved snapshot; must be called often enough not to miss one.

        Args:
            snapshot: the snapshot; a separate object for each save, even of the same entries with the same bytes.
        """
        if snapshot is None or snapshot is self._noted:
            # Another snapshot of the same entries may be in progress: it counts once it is saved.
            return
        self._noted = snapshot
        # Copied first: another thread may save a snapshot concurrently.
        tried = sorted(index for index in list(self._tried) if index <= snapshot.index)
        if snapshot.index in tried:
            # If several were saved since, any of them may have been the first successful one.
            first = [] if self._good else [(tried[0], self._tried[tried[0]])]
            self._good = [*self._good, *first, (snapshot.index, self._tried[snapshot.index])][-2:]
            for index in tried:
                del self._tried[index]

    def retention_offset(self, snapshot: SnapshotInfo | None) -> int:
        """Return the log offset after which all entries must be kept for snapshots.

        It is that of the second newest snapshot, which a follower may be receiving.

        Args:
            snapshot: see `note_snapshot`.
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
    """Return the log offset for which the queue ends are valid."""
    if not content.startswith(_MAGIC):
        raise reader.fault(repr(_MAGIC), repr(content[: len(_MAGIC)]), 0)
    if (version := reader.number()) != _VERSION:
        raise reader.fault(f"version {_VERSION}", str(version), len(_MAGIC))
    return reader.number()


def _read_next_offsets(reader: Reader) -> Generator[None, None, dict[QueueKey, int]]:
    """Return the next offset of each queue, after the last step."""
    next_offsets: dict[QueueKey, int] = {}
    for _ in range(reader.count()):
        key = QueueKey(reader.text(), reader.number())
        next_offsets[key] = reader.number()
        if reader.ends_piece():
            yield
    return next_offsets
