"""Opens the files of queues and index; damaged ones are removed with a note and rebuilt from the log.

Their checkpoint time is withdrawn first, because a crash may happen before they are rebuilt.

Not here: the trusted part of the opened files (`store.dispatch.recovery`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import CorruptData, StoreError
from store.index.key_index import DIRECTORY as INDEX_DIRECTORY
from store.index.key_index import KeyIndex
from store.index.layout import IndexLayout
from store.queues.consume_queues import ConsumeQueues

if TYPE_CHECKING:
    from store.dispatch.recovery import LastState
    from store.fs.ports import Files
    from store.model.config import MessageStoreConfig
    from store.model.message import QueueKey


def load_queues(
    files: Files, root: str, config: MessageStoreConfig, last: LastState
) -> tuple[ConsumeQueues, set[QueueKey], list[str]]:
    """Load the queues; invalid files of a queue are removed, and the queue is rebuilt."""
    lost: set[QueueKey] = set()

    def on_damage(key: QueueKey) -> None:
        last.withdraw()
        lost.add(key)

    queues = ConsumeQueues(files, root, config.mapped_file_size_consume_queue)
    return queues, lost, queues.load(on_damage, is_truncated_next=not last.is_clean)


def load_index(
    files: Files, root: str, config: MessageStoreConfig, last: LastState
) -> tuple[KeyIndex | None, list[str]]:
    """Load the index; if one of its files is invalid, the index is rebuilt."""
    if not config.message_index_enable:
        return None, []
    notes: list[str] = []
    while True:
        index = KeyIndex(files, root, IndexLayout(config.max_hash_slot_num, config.max_index_num))
        try:
            return index, [*notes, *index.load()]
        except CorruptData as error:
            index.close()
            last.withdraw()
            _remove_files(files, f"{root}/{INDEX_DIRECTORY}")
            notes.append(f"{str(error).partition('. ')[0]}; the index is rebuilt from the log")
        except StoreError:
            index.close()
            raise


def _remove_files(files: Files, directory: str) -> None:
    """Remove all files of a directory, durably, last first."""
    for name in reversed(files.list_directory(directory)):
        files.remove(f"{directory}/{name}")
    files.sync_directory(directory)
