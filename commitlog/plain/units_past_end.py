"""Detects the loss of the end of a plain log by units of consume queues that point past it.

RocketMQ's checkpoint is older for the log than for the queues: `physicMsgTimestamp` is the last flush that its flush
service recorded, seconds before the last record even after a clean exit. `logicsMsgTimestamp` is the time of the last
message that was dispatched. So after a clean exit, which syncs log and queues, the end of the log is lost if both are
true:

1. messages later than the last record were dispatched or indexed;
2. units of queues point past the log's end: one to the start of the next record, or units to two offsets.

One changed bit, in the checkpoint or in a unit, makes only one of the conditions true.

Source: RocketMQ `StoreCheckpoint`, `DefaultMessageStore.shutdown`, `ConsumeQueue.putMessagePositionInfoWrapper`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store.fs.mapped.mapped_file import MappedFile
from store.queues.consume_queues import DIRECTORY
from store.queues.queue_units import used_count
from store.queues.unit import UNIT_SIZE, Units, decode_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from store.fs.ports import Files

# Units to this number of different offsets past the end are a proof, whatever the offsets are.
_PLACES_MIN: Final = 2
# The number of newest units read per queue file.
UNITS_LOOKED_AT_MAX: Final = 64
NAME_DIGITS: Final = 20


def are_past_end(newest: Iterable[Units], log_end: int) -> bool:
    """Return whether units prove that there were messages past the end of a log.

    Args:
        newest: units of queues, those of each file in queue order; consumed only as far as necessary.
        log_end: the end of the log.
    """
    places: set[int] = set()
    for units in newest:
        count = units.sound_count()
        is_real = ~units.is_blank[:count]
        offsets = units.physical_offsets[:count][is_real]
        places.update(offsets[offsets >= log_end][-_PLACES_MIN:].tolist())
        places.update(offsets[offsets == log_end].tolist())
        if log_end in places or len(places) >= _PLACES_MIN:
            return True
    return False


@dataclass(frozen=True, slots=True)
class StoredQueues:
    """The queues of a store before its opening.

    Attributes:
        files: the file system.
        root: the store's directory.
    """

    files: Files
    root: str

    def newest_units(self) -> Iterator[Units]:
        """Yield the newest units of each file of each queue, newest file first; read-only.

        Raises:
            store.errors.StorageFailed: a file cannot be opened.
        """
        root = f"{self.root}/{DIRECTORY}"
        for topic, is_directory in self.files.list_entries(root):
            if not is_directory:
                continue
            for queue_id, is_below_directory in self.files.list_entries(f"{root}/{topic}"):
                if is_below_directory:
                    yield from self._units_of(f"{root}/{topic}/{queue_id}")

    def _units_of(self, directory: str) -> Iterator[Units]:
        for name, is_directory in reversed(self.files.list_entries(directory)):
            if is_directory or len(name) != NAME_DIGITS or not name.isdecimal():
                continue
            file = self.files.open(f"{directory}/{name}")
            try:
                count = used_count(MappedFile(file, int(name), is_allocated=False))
                begin = max(count - UNITS_LOOKED_AT_MAX, 0)
                units = decode_units(file.view(), begin * UNIT_SIZE, count - begin) if count else None
            finally:
                file.close()
            if units is not None:
                yield units
