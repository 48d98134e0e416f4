"""The manifests of a lake: one file per committed batch, created once and never changed.

| file | content |
| ---- | ----- |
| `_lake.json` | format, kind, columns; created by the first commit |
| `_manifests/<id>.json` | data files that the batch added and removed, with description and checksums |
| `_manifests/<id>.done` | empty: the batch is completely published; without it that is checked again |

The files of a lake are those that manifests add, minus those that they remove. A manifest is created atomically, and
the first one of an id is permanent, so a batch is committed exactly once, whatever the number of drivers.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipeline.common.errors import NotWritable, PipelineError
from pipeline.lake.files import DataFile
from store.fs.sealed_json import seal, unseal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.fs.ports import Files

MANIFESTS: Final = "_manifests"
_FORMAT: Final = 1
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_SUFFIX: Final = ".json"
# Digits of a batch's number, which may be an offset of the log.
_DIGITS: Final = 19
_DONE: Final = ".done"


class DamagedLake(PipelineError):
    """A file of a lake is missing or damaged."""


class BatchId(NamedTuple):
    """Identifies a batch by its write (the id of a streaming query, or the name of a job) and its number."""

    write_id: str
    number: int

    @property
    def name(self) -> str:
        """The name of its manifest, without a suffix."""
        name = self.write_id
        if not _PLAIN.fullmatch(name):
            name = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
        return f"{name}-{self.number:0{_DIGITS}d}"


class LogRange(NamedTuple):
    """A range of a log that a batch contains completely.

    Attributes:
        log: its name.
        begin, end: physical offsets, half open.
        last_index: of the last entry in it; -1 in a log without entries.
        last_term: its term; -1 likewise.
    """

    log: str
    begin: int
    end: int
    last_index: int = -1
    last_term: int = -1


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of one manifest.

    Attributes:
        batch: its id.
        made_ms: creation time by the driver's clock; milliseconds since 1970.
        files: added by it.
        removed: paths of files of earlier batches that it replaced.
        covers: range of a log that it contains completely; None: a query may have filtered rows.
    """

    batch: BatchId
    made_ms: int
    files: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    covers: LogRange | None = None
    note: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows added."""
        return sum(each.rows for each in self.files)

    def encode(self) -> bytes:
        """Return the content of its file."""
        content = {
            "format": _FORMAT,
            "writeId": self.batch.write_id,
            "batch": self.batch.number,
            "madeMs": self.made_ms,
            "rows": self.rows,
            "covers": None if self.covers is None else self.covers._asdict(),
            "removed": list(self.removed),
            "note": self.note,
            "files": [each.as_json() for each in self.files],
        }
        return seal(content)

    @classmethod
    def decode(cls, path: str, raw: bytes) -> Manifest:
        """Return the manifest in a file's content.

        Raises:
            DamagedLake: the content is damaged.
        """
        content = read_sealed(path, raw)
        covers = content["covers"]
        return cls(
            BatchId(content["writeId"], content["batch"]),
            content["madeMs"],
            tuple(DataFile.from_json(each) for each in content["files"]),
            tuple(content["removed"]),
            None if covers is None else LogRange(**covers),
            content["note"],
        )


class Manifests:
    """All manifests of one lake.

    Args:
        root: of the lake.
        files: the file system.
    """

    def __init__(self, root: str, files: Files) -> None:
        self._folder = f"{root}/{MANIFESTS}"
        self._files = files

    def create(self, manifest: Manifest) -> Manifest:
        """Commit a batch, unless it is committed already; return the committed manifest."""
        path = f"{self._folder}/{manifest.batch.name}{_SUFFIX}"
        self._files.make_directory(self._folder)
        if not create_once(self._files, path, manifest.encode()):
            found = self.get(manifest.batch)
            assert found is not None, path
            return found
        return manifest

    def get(self, batch: BatchId) -> Manifest | None:
        """Return the manifest of a batch; None: it is not committed."""
        path = f"{self._folder}/{batch.name}{_SUFFIX}"
        raw = self._files.read_bytes(path)
        return None if raw is None else Manifest.decode(path, raw)

    def all(self) -> Iterator[Manifest]:
        """Yield all manifests, in the order of their names."""
        for name in self._names():
            if name.endswith(_SUFFIX):
                yield self._read(name)

    def unpublished(self) -> list[Manifest]:
        """Return the manifests whose batches may not be completely published; oldest first."""
        names = self._names()
        done = {name.removesuffix(_DONE) for name in names if name.endswith(_DONE)}
        waiting = [name for name in names if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX) not in done]
        return sorted(map(self._read, waiting), key=lambda each: (each.made_ms, each.batch))

    def last_number(self, write_id: str) -> int:
        """Return the highest batch number of a write; -1: none."""
        head = BatchId(write_id, 0).name[:-_DIGITS]
        names = (name.removesuffix(_SUFFIX) for name in self._names() if name.endswith(_SUFFIX))
        return max((int(name[-_DIGITS:]) for name in names if name[:-_DIGITS] == head), default=-1)

    def mark_published(self, batch: BatchId) -> None:
        """Record that a batch is completely published."""
        path = f"{self._folder}/{batch.name}{_DONE}"
        if not self._files.exists(path):
            create_once(self._files, path, b"")

    def _names(self) -> Sequence[str]:
        return sorted(self._files.list_directory(self._folder)) if self._files.is_directory(self._folder) else ()

    def _read(self, name: str) -> Manifest:
        path = f"{self._folder}/{name}"
        raw = self._files.read_bytes(path)
        if raw is None:
            raise DamagedLake(path, "a manifest", "no file", "Restore it from a backup")
        return Manifest.decode(path, raw)


def create_once(files: Files, path: str, content: bytes) -> bool:
    """Create a file with this content, durably; return False if it already exists."""
    folder = str(Path(path).parent)
    if files.exists(path):
        return False
    draft = f"{folder}/.draft-{uuid.uuid4().hex}"
    files.create_from(draft, [content])
    try:
        Path(path).hardlink_to(draft)
    except FileExistsError:
        return False
    except OSError as error:
        raise NotWritable(
            path, f"{error.strerror}, for a hard link: a lake needs a file system that supports them"
        ) from error
    finally:
        files.remove(draft)
    files.sync_directory(folder)
    return True


def read_sealed(path: str, raw: bytes) -> dict[str, Any]:
    """Return the value in a sealed file of a lake (`store.fs.sealed_json`).

    Raises:
        DamagedLake: the content is damaged.
    """
    try:
        content = unseal(raw)
    except ValueError as error:
        remedy = "Restore the file from a backup; nothing was changed"
        found = f"{len(raw)} bytes that differ"
        raise DamagedLake(path, "JSON with its checksum after it", found, remedy) from error
    if content.get("format") != _FORMAT:
        remedy = "Read it with the version that wrote it"
        raise DamagedLake(path, f"format {_FORMAT}", f"format {content.get('format')}", remedy)
    return content
