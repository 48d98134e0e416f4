"""Determines the content of a directory: a store of messages, its mode, and the files of its log.

| mode | the log is in | its records |
| --- | --- | --- |
| plain | `commitlog/` | are stored back to back |
| dledger | `dledger-<id>/data/` | each is the body of an entry: 48 bytes of header precede it |
| mixed | both; the first data file's name is the offset that divides them | as above |
| raw | `dledger-<id>/data/` | none: the bodies are arbitrary bytes of clients |

Read-only, for files of any origin: all properties are checked, and inconsistencies are reported. The whole log is read,
as by RocketMQ's recovery; which of its last entries are committed may not be known (`commitlog.offline.committed_end`).
"""

from __future__ import annotations

import itertools
import posixpath
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from commitlog.record.record import MAGICS
from dledger.entries.format.entry import BLANK_MAGIC, BLANK_SIZE_MIN, ENTRY_NORMAL, HEADER, HEADER_SIZE
from store.errors import StoreError, WrongFileSize, how_to_cut
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.fs.read_only_files import ReadOnlyFiles

COMMIT_LOG_NAME = "commitlog"
QUEUES_NAME = "consumequeue"
INDEX_NAME = "index"
CHECKPOINT_NAME = "checkpoint"
ABORT_NAME = "abort"
LOCK_NAME = "lock"
NODE_PREFIX = "dledger-"
DATA_NAME = "data"
NAME_DIGITS = 20

_NAMES_SHOWN_MAX = 8
# No-ops and memberships may precede the first entry of a client; a longer sequence of them is not a log of messages.
_ENTRIES_LOOKED_AT_MAX = 1000


class StoreMode(StrEnum):
    """The kind of a store's log."""

    PLAIN = "plain"
    DLEDGER = "dledger"
    MIXED = "mixed"
    RAW = "raw"


class NotAStore(StoreError):
    """The directory contains no store, or more than one; the message has the expected and the actual content."""


@dataclass(frozen=True, slots=True)
class LogFileInfo:
    """One file of the log.

    Attributes:
        path: its path.
        begin_offset: of its first byte in the log.
        size: in bytes, as found.
        header_size: bytes before each record: 0, or 48 if the records are bodies of entries.
    """

    path: str
    begin_offset: int
    size: int
    header_size: int

    @property
    def end_offset(self) -> int:
        """Offset after its last byte."""
        return self.begin_offset + self.size


@dataclass(slots=True)
class StoreDirectory:
    """A store that was found.

    Attributes:
        root: directory of queues, index and checkpoint, if there are any.
        mode: of its log.
        log_files: in the order of the log.
        node_directory: `dledger-<id>`; None: there is none.
        divided_offset: of a mixed store: begin of the entries.
        findings: files that do not belong there, or have a wrong size.
    """

    root: str
    mode: StoreMode
    log_files: list[LogFileInfo]
    node_directory: str | None = None
    divided_offset: int | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def queues_path(self) -> str:
        """The directory of the consume queues."""
        return f"{self.root}/{QUEUES_NAME}"

    @property
    def index_path(self) -> str:
        """The directory of the key index."""
        return f"{self.root}/{INDEX_NAME}"

    @property
    def checkpoint_path(self) -> str:
        """The checkpoint of queues and index."""
        return f"{self.root}/{CHECKPOINT_NAME}"

    @property
    def abort_path(self) -> str:
        """The file that exists while the store is open, and after a crash."""
        return f"{self.root}/{ABORT_NAME}"

    @property
    def lock_paths(self) -> list[str]:
        """The files that a process locks while it has the store open."""
        nodes = [] if self.node_directory is None else [f"{self.node_directory}/{LOCK_NAME}"]
        return [f"{self.root}/{LOCK_NAME}", *nodes]

    @property
    def begin_offset(self) -> int:
        """The start of the log."""
        return self.log_files[0].begin_offset if self.log_files else 0

    @property
    def size(self) -> int:
        """The size of all files of the log."""
        return sum(file.size for file in self.log_files)


def find_store(files: ReadOnlyFiles, path: str) -> StoreDirectory:
    """Find the store at `path`: its root, or the folder of its log (`commitlog`, `dledger-<id>`, `data`).

    Raises:
        NotAStore: there is none.
        store.errors.StorageFailed: a directory or a file cannot be read.
    """
    path = posixpath.normpath(path)
    if not files.is_directory(path):
        raise NotAStore(f"{path} is " + ("not a directory" if files.exists(path) else "missing"))
    names = files.list_directory(path)
    if posixpath.basename(path) == DATA_NAME and any(map(is_queue_name, names)):
        return find_store(files, posixpath.dirname(path))
    if DATA_NAME in names:
        return _with_root(files, _root_of(files, path), path, None)
    if any(map(is_queue_name, names)):
        root = _root_of(files, path)
        return _with_root(files, root, _only_node(files, root) if root != path else None, path)
    node = _only_node(files, path)
    commit_log = f"{path}/{COMMIT_LOG_NAME}" if COMMIT_LOG_NAME in names else None
    if node is None and commit_log is None:
        raise NotAStore(_what_was_found(path, names))
    return _with_root(files, path, node, commit_log)


def is_queue_name(name: str) -> bool:
    """Return whether a name is that of a file of a mapped-file queue: an offset in 20 digits."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()


def _what_was_found(path: str, names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN_MAX]) + (", ..." if len(names) > _NAMES_SHOWN_MAX else "")
    return (
        f"{path} contains no store: expected {COMMIT_LOG_NAME}/ (RocketMQ), {NODE_PREFIX}<id>/{DATA_NAME}/ (DLedger), "
        f"or files named by 20 digits; found {shown or 'nothing'}. Use the directory that contains one of these"
    )


def _root_of(files: ReadOnlyFiles, path: str) -> str:
    """Return the store directory of a log's folder; the folder itself if there is none."""
    parent, name = posixpath.split(path)
    parent = parent or "."
    is_part = name == COMMIT_LOG_NAME or name.startswith(NODE_PREFIX)
    return parent if is_part and files.is_directory(parent) else path


def _only_node(files: ReadOnlyFiles, root: str) -> str | None:
    nodes = [
        name
        for name in files.list_directory(root)
        if name.startswith(NODE_PREFIX) and files.is_directory(f"{root}/{name}/{DATA_NAME}")
    ]
    if len(nodes) > 1:
        raise NotAStore(f"{root} contains several nodes: choose one of {', '.join(nodes)}")
    return f"{root}/{nodes[0]}" if nodes else None


def _with_root(files: ReadOnlyFiles, root: str, node: str | None, commit_log: str | None) -> StoreDirectory:
    if commit_log is None and node is not None and root != node and files.is_directory(f"{root}/{COMMIT_LOG_NAME}"):
        commit_log = f"{root}/{COMMIT_LOG_NAME}"
    findings: list[Finding] = []
    old = _log_files(files, commit_log, 0, findings) if commit_log is not None else []
    data = _log_files(files, f"{node}/{DATA_NAME}", HEADER_SIZE, findings) if node is not None else []
    if not data:
        mode = StoreMode.PLAIN if commit_log is not None else StoreMode.RAW
        return StoreDirectory(root, mode, old, node, None, findings)
    divided_offset = data[0].begin_offset if old else None
    if divided_offset is not None:
        old = [file for file in old if file.begin_offset < divided_offset]
    if not old and not _holds_messages(files, data):
        return StoreDirectory(root, StoreMode.RAW, data, node, None, findings)
    mode = StoreMode.MIXED if old else StoreMode.DLEDGER
    return StoreDirectory(root, mode, [*old, *data], node, divided_offset, findings)


def _log_files(files: ReadOnlyFiles, directory: str, header_size: int, findings: list[Finding]) -> list[LogFileInfo]:
    found: list[LogFileInfo] = []
    for name in files.list_directory(directory):
        path = f"{directory}/{name}"
        if not is_queue_name(name):
            remedy = "Move what does not belong to the store out of its directory"
            findings.append(
                Finding(Area.FILES, path, 0, "a name of 20 digits", "this name", "it is not a file of the log", remedy)
            )
            continue
        if files.is_directory(path):
            meaning, remedy = "this part of the log is missing", "Restore it from a backup or from another replica"
            findings.append(Finding(Area.FILES, path, 0, "a file of the log", "a directory", meaning, remedy))
            continue
        found.append(LogFileInfo(path, int(name), files.size_of(path), header_size))
    size = _file_size_of(found)
    findings += [_wrong_size(file, size, is_last=file is found[-1]) for file in found if file.size != size]
    return found


def _file_size_of(found: Sequence[LogFileInfo]) -> int:
    """Return the configured file size: the distance of two names, else the most frequent size."""
    sizes = [file.size for file in found]
    sizes += [after.begin_offset - file.begin_offset for file, after in itertools.pairwise(found)]
    return max(sorted(set(sizes), reverse=True), key=sizes.count, default=0)


def refuse_too_long(log_files: Sequence[LogFileInfo]) -> None:
    """Check that no file of a log is too long: neither this program nor RocketMQ would open it.

    Raises:
        store.errors.WrongFileSize: one is; the message has the command that shortens it.
    """
    # All files of a mixed store also have one size.
    size = _file_size_of(log_files)
    for file in log_files:
        if file.size > size:
            raise WrongFileSize(file.path, size, file.size)


def _wrong_size(file: LogFileInfo, expected: int, *, is_last: bool) -> Finding:
    is_created = is_last and not file.size
    remedy = (
        "The next start of the store removes it" if is_created else "Restore it from a backup or from another replica"
    )
    if file.size > expected:
        remedy = f"{remedy}. Or {how_to_cut(file.path, expected)}"
    return Finding(
        Area.FILES,
        file.path,
        0,
        f"{expected} bytes",
        f"{file.size}",
        "a crash cut its creation short" if is_created else "RocketMQ does not load a store with such a file",
        remedy,
        is_created,
    )


def _holds_messages(files: ReadOnlyFiles, data: list[LogFileInfo]) -> bool:
    """Return whether the first client entry is a message record; for an empty log, whether there are queues."""
    looks = 0
    for log_file in data:
        if not log_file.size:
            continue
        file = files.open(log_file.path)
        view, position = file.view(), 0
        while position + HEADER_SIZE <= len(view) and looks < _ENTRIES_LOOKED_AT_MAX:
            looks += 1
            magic, size, *_, body_size = HEADER.unpack_from(view, position)
            if magic == BLANK_MAGIC and size >= BLANK_SIZE_MIN:
                position += size
                continue
            if size != HEADER_SIZE + body_size or body_size < 0:
                break
            if magic == ENTRY_NORMAL:
                at = position + HEADER_SIZE + 4
                return body_size > 8 and int.from_bytes(view[at : at + 4], "big", signed=True) in MAGICS
            position += size
    root = posixpath.dirname(posixpath.dirname(posixpath.dirname(data[0].path)))
    return files.is_directory(f"{root}/{QUEUES_NAME}")
