"""The manifest: the current files of all compacted queues, and the offset of the log up to which they are complete.

It is replaced atomically and durably after its files were written and synced, so after a crash either the old or the
new state is complete. Files that it does not name are remains, and are removed when the store is opened. A missing or
damaged manifest means that everything is built again from the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from store.fs.sealed_json import seal, unseal
from store.model.message import QueueKey

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = "compacted"
MANIFEST: Final = "manifest"
_FORMAT: Final = 1
_NAME_DIGITS: Final = 20
# Without a manifest.
NO_POSITION: Final = -1


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """The content of the manifest.

    Attributes:
        serial: grows with each manifest; the names of new files are made of it.
        position: the part of the log before this offset is in the files; NO_POSITION: nothing is.
        topics: that were compacted when it was written, ascending.
        is_complete: False: the files were being built from nothing, and the log has more that belongs to them.
        files: name of each queue's file.
    """

    serial: int = 0
    position: int = NO_POSITION
    topics: tuple[str, ...] = ()
    is_complete: bool = False
    files: Mapping[QueueKey, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the content of the file."""
        return seal(
            {
                "format": _FORMAT,
                "serial": self.serial,
                "position": self.position,
                "topics": self.topics,
                "is_complete": self.is_complete,
                "files": [[*key, name] for key, name in self.files.items()],
            }
        )


def decode_manifest(raw: bytes) -> IndexManifest:
    """Return the manifest in a file.

    Raises:
        ValueError: it is damaged, or of another format.
    """
    content = unseal(raw)
    if content.get("format") != _FORMAT:
        raise ValueError(f"expected format {_FORMAT}, found {content.get('format')!r}")
    files: list[Any] = content["files"]
    return IndexManifest(
        content["serial"],
        content["position"],
        tuple(content["topics"]),
        content["is_complete"],
        {QueueKey(topic, queue_id): name for topic, queue_id, name in files},
    )


def file_name(serial: int) -> str:
    """Return the name of the files that are written for a manifest."""
    return f"{serial:0{_NAME_DIGITS}d}"


def folder_of(root: str) -> str:
    """Return the directory of all compacted queues of a store."""
    return f"{root}/{FOLDER}"


def file_path(root: str, key: QueueKey, name: str) -> str:
    """Return the path of a queue's file."""
    return f"{folder_of(root)}/{key.topic}/{key.queue_id}/{name}"
