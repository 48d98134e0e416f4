"""Loads the queues of a store at its opening: from the metadata of their files, or by opening unusual ones.

Source: RocketMQ `ConsumeQueueStore.load`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from store.errors import CorruptData, MissingFile, StoreError, WrongFileSize
from store.model.message import QUEUE_ID_MAX, QueueKey
from store.model.topics import is_storable_topic
from store.queues.scanned_queue import scanned_queue
from store.queues.unit import UNIT_SIZE

if TYPE_CHECKING:
    from store.fs.mapped.file_pool import FilePool
    from store.fs.ports import Files, FileSummary
    from store.queues.consume_queue import ConsumeQueue

# Called with a queue whose files are damaged.
OnDamage = Callable[[QueueKey], None]


class QueueLoading:
    """Opens the queues of one directory.

    Args:
        files: the file system.
        pool: opens files of queues.
        directory: of all queues.
        file_size: bytes of each file.
        add: creates the queue of a key, without files yet, and replaces an existing one.
        on_damage: see `ConsumeQueues.load`.
        is_truncated_next: `truncate` follows; the page cache of the files may not be on the disk.
    """

    def __init__(
        self,
        files: Files,
        pool: FilePool,
        directory: str,
        file_size: int,
        add: Callable[[QueueKey], ConsumeQueue],
        on_damage: OnDamage | None,
        *,
        is_truncated_next: bool,
    ) -> None:
        self._files = files
        self._pool = pool
        self._directory = directory
        self._file_size = file_size
        self._add = add
        self._on_damage = on_damage
        self._is_truncated_next = is_truncated_next
        self._damaged: list[tuple[QueueKey, str, StoreError]] = []

    def run(self) -> list[str]:
        """Open all; return repairs, and files that belong to no queue, one sentence each."""
        keys, notes = self._keys()
        directories = [f"{self._directory}/{key.topic}/{key.queue_id}" for key in keys]
        scanned = self._files.scan_directories(directories, is_cache_trusted=not self._is_truncated_next)
        for key, directory, files in zip(keys, directories, scanned, strict=True):
            notes += self._load(key, directory, files)
        # Last, so that damaged queues are unchanged if another queue is refused.
        notes += [self._give_up(*damaged) for damaged in self._damaged]
        return notes

    def _keys(self) -> tuple[list[QueueKey], list[str]]:
        """Return the queues that have a directory, and notes about other names."""
        keys: list[QueueKey] = []
        notes: list[str] = []
        for topic, is_directory in self._files.list_entries(self._directory):
            path = f"{self._directory}/{topic}"
            if not is_directory or not is_storable_topic(topic):
                notes.append(f"{path}: not the directory of a topic; it is left alone")
                continue
            for name, is_below_directory in self._files.list_entries(path):
                queue_id = _queue_id(name)
                if queue_id is None or not is_below_directory:
                    notes.append(f"{path}/{name}: not the directory of a queue; it is left alone")
                    continue
                keys.append(QueueKey(topic, queue_id))
        return keys, notes

    def _load(self, key: QueueKey, directory: str, files: Sequence[FileSummary]) -> list[str]:
        """Open one queue; if its files are damaged, it is empty, and recorded in `_damaged`."""
        queue = self._add(key)
        seen = scanned_queue(files, self._file_size)
        if seen is not None:
            found = [self._pool.resting(f"{directory}/{file.name}", file.size) for file in files]
            queue.load_scanned(found, seen, is_kept=self._is_truncated_next)
            return []
        try:
            return queue.load()
        except (MissingFile, CorruptData, WrongFileSize) as error:
            if self._on_damage is None or (isinstance(error, WrongFileSize) and not self._is_damage(error)):
                raise
            queue.files.close()
            self._damaged.append((key, directory, error))
            return []

    def _give_up(self, key: QueueKey, directory: str, error: StoreError) -> str:
        """Remove the damaged files of a queue, so that it is rebuilt from the log; return a note."""
        assert self._on_damage is not None, error
        self._on_damage(key)
        for name in reversed(self._files.list_directory(directory)):
            self._files.remove(f"{directory}/{name}")
        self._files.sync_directory(directory)
        self._add(key)
        return f"{_fault_of(error)}; the queue is rebuilt from the log"

    def _is_damage(self, error: WrongFileSize) -> bool:
        """Return whether only this file has a wrong size, so that the store was not written with another file size."""
        if error.found_bytes % UNIT_SIZE or not error.found_bytes:
            return True
        paths = (
            f"{self._directory}/{topic}/{queue_id}/{name}"
            for topic in self._files.list_directory(self._directory)
            for queue_id in self._files.list_directory(f"{self._directory}/{topic}")
            for name in self._files.list_directory(f"{self._directory}/{topic}/{queue_id}")
        )
        return any(self._size_of(path) == self._file_size for path in paths)

    def _size_of(self, path: str) -> int:
        file = self._files.open(path)
        file.close()
        return file.size


def _fault_of(error: StoreError) -> str:
    """Return the fault in an error, without its advice, which does not apply because the log is intact."""
    return str(error).partition(". ")[0]


def _queue_id(name: str) -> int | None:
    """Return the number in a directory's name."""
    if not (name.isascii() and name.isdigit() and len(name) <= len(str(QUEUE_ID_MAX))):
        return None
    queue_id = int(name)
    return queue_id if str(queue_id) == name and queue_id <= QUEUE_ID_MAX else None
