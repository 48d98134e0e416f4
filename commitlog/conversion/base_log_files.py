"""The base log of a group: its manifest, the comparison of two nodes' manifests, and the fetch by a node without it.

A group that began with a plain log must have the same base log and the same divide on every node, because physical
offsets below the divide must have the same meaning on all of them. Each node knows its *manifest*: the divide, and
name, size and CRC-32C of each file. Two manifests agree if the divides are equal, and every file in both is equal; a
node may lack older files that have expired there.

A node that has neither a base log nor entries fetches the base log before it votes: file by file, newest first (the
newest expire last), in chunks, each with a checksum. The state of the fetch is in the file `oldfiles.incoming` in the
node's directory, which is saved before the first file is created and removed when all are complete, verified and
synced: while it exists, a start continues the fetch and does not open the log. The network is elsewhere: `BaseLogFetch`
returns the requests, `read_chunk` the answers.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from dledger.storage.properties import format_checked, parse_checked
from store.errors import CorruptData, StoreError
from store.fs.foreign_json import foreign_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.fs.ports import File, Files

INCOMING_NAME: Final = "oldfiles.incoming"
# The divide is no longer known: the first entries and the whole base log are deleted.
UNKNOWN_DIVIDE: Final = -1
# Size of one answer, and of the data between two syncs.
CHUNK_SIZE_BYTES: Final = 1 << 20
_SYNC_SIZE_BYTES: Final = 16 << 20
_FILES_MAX: Final = 100_000
# A complete file with a wrong checksum is fetched again; after this number of attempts the source is considered
# damaged.
_ATTEMPTS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class BaseLogFile:
    """One file of the plain log; `name` is the offset of its first byte in 20 digits."""

    name: str
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class BaseLogManifest:
    """The files of one node's base log, oldest first, without gaps; they end at the divide, or there are none."""

    divide: int
    files: tuple[BaseLogFile, ...] = ()

    def from_offset(self, offset: int) -> BaseLogManifest:
        """Return the manifest restricted to the files from `offset` on."""
        return BaseLogManifest(self.divide, tuple(file for file in self.files if int(file.name) >= offset))


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """A request for bytes of one file of the base log."""

    name: str
    position: int
    size: int


class BaseLogsDiffer(StoreError):
    """Two nodes have different base logs, so they must not be in one group."""

    def __init__(self, peer: str, difference: str) -> None:
        super().__init__(
            f"the base log differs from that of {peer}: {difference}. The nodes cannot form a group, because "
            "physical offsets would refer to different messages. Give one of them an empty directory: it fetches the "
            "files of the other"
        )
        self.peer = peer
        self.difference = difference


class BaseLogIncomplete(StoreError):
    """The base log is being fetched: the log cannot be opened yet."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: the base log of the group is being fetched; start the node with its group reachable")
        self.path = path


class BaseLogDamaged(StoreError):
    """A file is damaged in every attempt to fetch it."""

    def __init__(self, path: str, expected: int, found: int) -> None:
        super().__init__(
            f"{path}: expected CRC-32C {expected:#010x}, found {found:#010x}, {_ATTEMPTS_MAX} times. The files of the "
            "source node do not match its manifest; run `dledger verify` there"
        )
        self.path = path


def make_manifest(
    files: Files, directory: str, divide: int, on_file: Callable[[BaseLogFile], None] = lambda _: None
) -> BaseLogManifest:
    """Return the manifest of the base log in `directory`; all files are read, at about 2 GiB/s.

    Args:
        files: the file system.
        directory: of the base log's files, without others.
        divide: the end of the files.
        on_file: called after each file that is read.

    Raises:
        store.errors.StorageFailed: a file cannot be opened.
    """
    if not files.is_directory(directory):
        return BaseLogManifest(divide)
    found = []
    for name in sorted(files.list_directory(directory)):
        file = files.open(f"{directory}/{name}")
        found.append(BaseLogFile(name, file.size, _checksum(file)))
        file.close()
        on_file(found[-1])
    return BaseLogManifest(divide, tuple(found))


def first_difference(ours: BaseLogManifest, theirs: BaseLogManifest) -> str | None:
    """Return a description of the first difference of two manifests; None if the nodes may be in one group."""
    if ours.divide != theirs.divide and UNKNOWN_DIVIDE not in (ours.divide, theirs.divide):
        return f"they end at {ours.divide} here and at {theirs.divide} there"
    known = {file.name: file for file in theirs.files}
    for file in ours.files:
        other = known.get(file.name)
        if other is not None and other != file:
            here, there = f"{file.size} bytes, CRC-32C {file.checksum:#010x}", f"{other.size}, {other.checksum:#010x}"
            return f"file {file.name} has {here} here, and {there} there"
    if ours.files and theirs.files and ours.files[-1].name != theirs.files[-1].name:
        return f"the last one is {ours.files[-1].name} here and {theirs.files[-1].name} there"
    return None


def read_chunk(files: Files, directory: str, manifest: BaseLogManifest, request: ChunkRequest) -> bytes:
    """Return the requested bytes, or fewer at the file's end; none if the file is not in the manifest."""
    file = next((file for file in manifest.files if file.name == request.name), None)
    path = f"{directory}/{request.name}"
    if file is None or not 0 <= request.position < file.size or not files.exists(path):
        return b""
    opened = files.open(path)
    try:
        return opened.read(request.position, min(request.size, CHUNK_SIZE_BYTES, file.size - request.position))
    finally:
        opened.close()


def is_fetching(files: Files, node_directory: str) -> bool:
    """Return whether a fetch of the base log was begun, which `BaseLogFetch` must complete before the log is opened."""
    return files.exists(f"{node_directory}/{INCOMING_NAME}")


def end_fetch(files: Files, node_directory: str) -> None:
    """Record the end of a fetch durably, if one was begun; then the log can be opened."""
    if is_fetching(files, node_directory):
        files.remove(f"{node_directory}/{INCOMING_NAME}")
        files.sync_directory(node_directory)


class BaseLogFetch:
    """Fetches the base log of another node; after an interruption a new object continues.

    Send `next_request` to the other node and pass the answer to `take`, until there is no request; then call
    `end_fetch`.

    Args:
        files: the file system.
        directory: of the base log's files, without others.
        node_directory: contains the state of the fetch.
        manifest: the other node's current one.

    Raises:
        store.errors.CorruptData: the state of the fetch cannot be read.
        store.errors.StorageFailed: a file cannot be created, written or synced.
    """

    def __init__(self, files: Files, directory: str, node_directory: str, manifest: BaseLogManifest) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{node_directory}/{INCOMING_NAME}"
        self._wanted = list(reversed(manifest.files))
        self._attempts = 0
        self._file: File | None = None
        files.make_directory(directory)
        files.make_directory(node_directory)
        files.sync_directory(node_directory)
        before, position = self._load()
        self._done = [file for file in before[:-1] if file in manifest.files]
        current = before[-1] if before else None
        self._wanted = [file for file in self._wanted if file not in self._done]
        is_same = bool(self._wanted) and current == self._wanted[0]
        self._position = self._synced = position if is_same else 0
        kept = {file.name for file in (*self._done, *(self._wanted[:1] if is_same else ()))}
        self._save()
        for name in files.list_directory(directory):
            if name not in kept:
                files.remove(f"{directory}/{name}")
        files.sync_directory(directory)

    @property
    def missing_bytes(self) -> int:
        """The number of bytes still to be fetched."""
        return sum(file.size for file in self._wanted) - self._position

    def upcoming(self, after: ChunkRequest | None) -> ChunkRequest | None:
        """Return the request after `after` (None: the next one) for the same file; None: wait for the file's end."""
        if after is None or not self._wanted:
            return self.next_request()
        file, position = self._wanted[0], after.position + after.size
        if after.name != file.name or position >= file.size:
            return None
        return ChunkRequest(file.name, position, min(CHUNK_SIZE_BYTES, file.size - position))

    def next_request(self) -> ChunkRequest | None:
        """Return the next request; None when all files are complete."""
        if not self._wanted:
            return None
        file = self._wanted[0]
        return ChunkRequest(file.name, self._position, min(CHUNK_SIZE_BYTES, file.size - self._position))

    def take(self, request: ChunkRequest, payload: bytes, checksum: int) -> bool:
        """Process an answer; False: it is not the expected one or damaged; repeat the request.

        Args:
            request: the request of the answer.
            payload: the bytes.
            checksum: their CRC-32C, by the sender.

        Raises:
            BaseLogDamaged: a file was damaged in every attempt.
            store.errors.DiskFull: no space for the next file; try again later.
            store.errors.StorageFailed: the node must stop.
        """
        if request != self.next_request() or not payload or len(payload) > request.size or crc32c(payload) != checksum:
            return False
        wanted = self._wanted[0]
        file = self._open(wanted)
        if request.position != self._position:
            return False
        file.write(payload, self._position)
        self._position += len(payload)
        if self._position == wanted.size:
            self._end_file(file, wanted)
        elif self._position - self._synced >= _SYNC_SIZE_BYTES:
            file.sync()
            self._synced = self._position
            self._save()
        return True

    def close(self) -> None:
        """Close the files; a new object continues the fetch."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, wanted: BaseLogFile) -> File:
        path = f"{self._directory}/{wanted.name}"
        if self._file is None and self._files.exists(path):
            self._file = self._files.open(path)
            if self._file.size != wanted.size:
                # A crash cut its creation short.
                self._file.close()
                self._file = None
                self._files.remove(path)
        if self._file is None:
            self._file = self._files.create(path, wanted.size)
            self._files.sync_directory(self._directory)
            self._position = self._synced = 0
        return self._file

    def _end_file(self, file: File, wanted: BaseLogFile) -> None:
        file.sync()
        found = _checksum(file)
        self.close()
        self._position = self._synced = 0
        if found != wanted.checksum:
            self._attempts += 1
            if self._attempts == _ATTEMPTS_MAX:
                raise BaseLogDamaged(f"{self._directory}/{wanted.name}", wanted.checksum, found)
        else:
            self._attempts = 0
            self._done.append(self._wanted.pop(0))
        self._save()

    def _load(self) -> tuple[list[BaseLogFile], int]:
        """Return the complete files, the one in transfer (or an empty one), and the number of its received bytes."""
        content = self._files.read_bytes(self._path)
        if content is None:
            return [], 0
        try:
            properties = parse_checked(content)
            files = [BaseLogFile(*file) for file in foreign_json(properties["files"])]
            return files, int(properties["position"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(self._path, 0, "the list of files that are fetched", repr(error)) from error

    def _save(self) -> None:
        current = self._wanted[0] if self._wanted else BaseLogFile("", 0, 0)
        values: list[list[Any]] = [list(asdict(file).values()) for file in (*self._done, current)]
        lines = {"files": json.dumps(values, separators=(",", ":")), "position": str(self._synced)}
        self._files.replace(self._path, format_checked(lines))


def check_same(peer: str, ours: BaseLogManifest, theirs: BaseLogManifest) -> None:
    """Refuse a peer whose base log differs.

    Raises:
        BaseLogsDiffer: it names the first difference.
    """
    difference = first_difference(ours, theirs)
    if difference is not None:
        raise BaseLogsDiffer(peer, difference)


def manifest_to_json(manifest: BaseLogManifest) -> str:
    """Return a manifest as the text that nodes exchange."""
    files = [list(asdict(file).values()) for file in manifest.files]
    return json.dumps({"divide": manifest.divide, "files": files}, separators=(",", ":"))


def manifest_from_json(text: str) -> BaseLogManifest:
    """Return the manifest in `text`, which another node sent.

    Raises:
        ValueError: it is not a manifest.
    """
    value = foreign_json(text)
    if not isinstance(value, dict) or value.keys() != {"divide", "files"} or not isinstance(value["files"], list):
        raise ValueError("expected an object with divide and files")
    if type(value["divide"]) is not int or value["divide"] < UNKNOWN_DIVIDE or len(value["files"]) > _FILES_MAX:
        raise ValueError(f"expected a divide and at most {_FILES_MAX} files")
    files = tuple(_file_from(file) for file in value["files"])
    begins = [int(file.name) for file in files] + [value["divide"]]
    if any(begin + file.size != end for file, begin, end in zip(files, begins, begins[1:], strict=False)):
        raise ValueError(f"expected contiguous files up to {value['divide']}")
    return BaseLogManifest(value["divide"], files)


def _file_from(value: Sequence[Any]) -> BaseLogFile:
    if not isinstance(value, list) or [type(field) for field in value] != [str, int, int]:
        raise ValueError(f"expected name, size and checksum, found {value!r}")
    name, size, checksum = value
    if len(name) != 20 or not (name.isascii() and name.isdigit()) or size <= 0 or not 0 <= checksum < 1 << 32:
        raise ValueError(f"expected a name of 20 digits, a size and a CRC-32C, found {value!r}")
    return BaseLogFile(name, size, checksum)


def _checksum(file: File) -> int:
    view, checksum = file.view(), 0
    for position in range(0, len(view), _SYNC_SIZE_BYTES):
        checksum = crc32c(view[position : position + _SYNC_SIZE_BYTES], checksum)
    return checksum
