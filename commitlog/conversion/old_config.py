"""Files with topics and groups of an old store, and their transfer to nodes that lack them.

They are RocketMQ's `config/*.json` with their `.bak`, and snapshots and journal of a standalone broker. They no longer
change. A node without them fetches those of the first node of the group that has some, before its base log is agreed
on, so that any first leader can import them (`cluster.replica.state_import`). A node that has some keeps them.

Received files are kept in memory until all are complete and verified. While they are written, the file
`config.incoming` marks the node's directory: files left by a crash are then incomplete and are fetched again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from commitlog.conversion.base_log_files import CHUNK_SIZE_BYTES, ChunkRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store.fs.ports import Files

CONFIG_DIRECTORY: Final = "config"
LOCAL_STATE_DIRECTORY: Final = f"{CONFIG_DIRECTORY}/broker"
INCOMING_CONFIG_NAME: Final = "config.incoming"
# Total size of all files. A snapshot of a hundred thousand topics and as many offsets takes 6 MiB, a journal 24.
CONFIG_SIZE_BYTES_MAX: Final = 96 << 20
_FILES_MAX: Final = 64
_STATE_FOLDERS: Final = ("broker/snapshot", "broker/journal")
_NAME: Final = re.compile(
    rf"(topics|subscriptionGroup|consumerOffset|delayOffset)\.json(\.bak)?|({'|'.join(_STATE_FOLDERS)})/[0-9]{{20}}",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One file; `name` is its path below `config`."""

    name: str
    size: int
    checksum: int

    def requests(self) -> list[ChunkRequest]:
        """Return the requests that fetch the whole file."""
        positions = range(0, self.size, CHUNK_SIZE_BYTES)
        return [ChunkRequest(self.name, at, min(CHUNK_SIZE_BYTES, self.size - at)) for at in positions]

    def is_content(self, content: bytes) -> bool:
        """Return whether `content` has the size and the checksum of the file."""
        return len(content) == self.size and crc32c(content) == self.checksum


def find_config(files: Files, root: str) -> tuple[ConfigFile, ...]:
    """Return the configuration files of the store in `root`.

    Raises:
        store.errors.StorageFailed: a file cannot be read.
    """
    found = []
    for name in _names(files, f"{root}/{CONFIG_DIRECTORY}"):
        content = files.read_bytes(f"{root}/{CONFIG_DIRECTORY}/{name}")
        if content:
            found.append(ConfigFile(name, len(content), crc32c(content)))
    return tuple(found)


def read_config(files: Files, root: str, request: ChunkRequest) -> bytes:
    """Return the requested bytes; empty if there are none, or the name is not one of these files."""
    if not _NAME.fullmatch(request.name):
        return b""
    content = files.read_bytes(f"{root}/{CONFIG_DIRECTORY}/{request.name}") or b""
    return content[request.position : request.position + min(request.size, CHUNK_SIZE_BYTES)]


def own_config_size(files: Files, root: str, node_directory: str) -> int:
    """Return the size of the files in bytes; 0 for files of an interrupted fetch.

    Raises:
        store.errors.StorageFailed: a file cannot be read.
    """
    if files.exists(f"{node_directory}/{INCOMING_CONFIG_NAME}"):
        return 0
    return sum(file.size for file in find_config(files, root))


def save_config(files: Files, root: str, node_directory: str, contents: Mapping[str, bytes]) -> None:
    """Replace the configuration by these files, durably.

    Raises:
        store.errors.DiskFull: some files may be written; repeat the call.
        store.errors.StorageFailed: the node must stop.
    """
    directory, marker = f"{root}/{CONFIG_DIRECTORY}", f"{node_directory}/{INCOMING_CONFIG_NAME}"
    files.make_directory(node_directory)
    if not files.exists(marker):
        files.create_from(marker, [])
        files.sync_directory(node_directory)
    files.make_directory(directory)
    for path in (f"{directory}/{name}" for name in _names(files, directory) if name not in contents):
        files.remove(path)
        files.sync_directory(_folder_of(path))
    for name, content in contents.items():
        files.make_directory(_folder_of(f"{directory}/{name}"))
        files.replace(f"{directory}/{name}", content)
    files.remove(marker)
    files.sync_directory(node_directory)


def config_to_json(found: tuple[ConfigFile, ...]) -> list[list[Any]]:
    """Return the list of files in the form that nodes exchange."""
    return [[file.name, file.size, file.checksum] for file in found]


def config_from_json(value: object) -> tuple[ConfigFile, ...]:
    """Parse the list of files that another node sent.

    Raises:
        ValueError: it is not such a list.
    """
    if not isinstance(value, list) or len(value) > _FILES_MAX:
        raise ValueError(f"expected a list of at most {_FILES_MAX} files, found {value!r:.80}")
    return tuple(_file_from(each) for each in value)


def _file_from(value: Any) -> ConfigFile:
    if not isinstance(value, list) or [type(field) for field in value] != [str, int, int]:
        raise ValueError(f"expected name, size and checksum, found {value!r:.80}")
    name, size, checksum = value
    if not _NAME.fullmatch(name) or size <= 0 or not 0 <= checksum < 1 << 32:
        raise ValueError(f"expected the name of a file of configuration, a size and a CRC-32C, found {value!r:.80}")
    return ConfigFile(name, size, checksum)


def _names(files: Files, directory: str) -> list[str]:
    state = [f"{folder}/{name}" for folder in _STATE_FOLDERS for name in _listed(files, f"{directory}/{folder}")]
    return [name for name in (*_listed(files, directory), *state) if _NAME.fullmatch(name)]


def _listed(files: Files, directory: str) -> list[str]:
    return files.list_directory(directory) if files.is_directory(directory) else []


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]
