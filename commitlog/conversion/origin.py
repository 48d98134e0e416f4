"""The base log as the origin of a node's log: sent in each Hello, compared, and served to nodes without it.

`load_origin` is for a node that has joined; `BaseLogAnswers` also serves a node that has not joined yet. A Hello
contains a summary: for files older than the newest two thousand only their number and one checksum over their
checksums, which is compared if both nodes have the same number.

| question (JSON)                                | payload      | answer (JSON)            | payload      |
| ---------------------------------------------- | ------------ | ------------------------ | ------------ |
| `{"ask": "state", "statement": …}`             | own manifest | `{"statement": …}`       | its manifest |
| `{"ask": "chunk", "name", "position", "size"}` |              | `{"checksum": CRC-32C}`  | the bytes    |
| `{"ask": "config"}`                            |              | `{"config": [[name, size, CRC-32C], …]}` | |
| `{"ask": "config chunk", …}` as a chunk        |              | `{"checksum": CRC-32C}`  | the bytes    |

An empty chunk means that the file has expired. Config: see `commitlog.conversion.old_config`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from commitlog.conversion.base_log_files import BaseLogFile, BaseLogManifest, ChunkRequest, first_difference, read_chunk
from commitlog.conversion.bootstrap_rule import Claim, Statement, statement_from
from commitlog.conversion.old_config import config_to_json, find_config, own_config_size, read_config
from commitlog.conversion.saved_manifest import FILE_NAME, BaseLogNotAgreed, load_manifest
from dledger.peer.origin import BootstrapMessage
from store.fs.foreign_json import foreign_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from commitlog.conversion.divide import LogDirectories
    from store.fs.ports import Files

logger = logging.getLogger(__name__)

# Divide, size of a file, number of files, checksum over those whose own checksums are not sent.
_HEAD: Final = struct.Struct(">4sqqII")
_MAGIC: Final = b"OLD1"
# The number of newest files whose checksums are sent: 8 KiB of a Hello.
_SENT_MAX: Final = 2048
_CHECKSUM: Final = struct.Struct(">I")


def abridge(manifest: BaseLogManifest) -> bytes:
    """Return the summary of a manifest for a Hello."""
    checksums = b"".join(_CHECKSUM.pack(file.checksum) for file in manifest.files)
    sent = checksums[-_SENT_MAX * _CHECKSUM.size :]
    older = crc32c(checksums[: len(checksums) - len(sent)])
    size = manifest.files[-1].size if manifest.files else 0
    return _HEAD.pack(_MAGIC, manifest.divide, size, len(manifest.files), older) + sent


def difference_of(ours: BaseLogManifest, abridged: bytes) -> str | None:
    """Describe the first difference of an abridged manifest from ours; None: the sent parts are equal."""
    if not abridged:
        return "the other node has a log of raw entries, and this one a log of messages"
    try:
        magic, divide, size, count, older = _HEAD.unpack_from(abridged)
        checksums = [checksum for (checksum,) in _CHECKSUM.iter_unpack(abridged[_HEAD.size :])]
    except struct.error:
        magic, divide, size, count, older, checksums = b"", 0, 0, 0, 0, []
    begin = divide - len(checksums) * size
    if magic != _MAGIC or len(checksums) != min(count, _SENT_MAX) or min(begin, size) < min(0, divide):
        return "the other node's statement of its base log cannot be read; it may be of another version"
    names = [f"{begin + number * size:020d}" for number in range(len(checksums))]
    theirs = BaseLogManifest(
        divide, tuple(BaseLogFile(name, size, checksum) for name, checksum in zip(names, checksums, strict=True))
    )
    difference = first_difference(ours, theirs)
    if difference is None and count == len(ours.files) and older != _HEAD.unpack_from(abridge(ours))[4]:
        return f"some of the files before {names[0]} have other bytes here than there"
    return difference


class BaseLogAnswers:
    """Answers bootstrap requests about the base log (`dledger.peer.origin.BootstrapHandler`).

    Args:
        files: the file system.
        directory: of the base log; the root of the store is above it.
        statement: returns the current statement of this node.
        on_statement: called with the statements of other nodes.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        statement: Callable[[], Statement],
        on_statement: Callable[[str, Statement], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._root = directory.rpartition("/")[0]
        self._statement = statement
        self._on_statement = on_statement

    async def answer(self, peer_id: str, question: BootstrapMessage) -> BootstrapMessage:
        """Answer a starting node with our statement, or a chunk of a file or of the configuration."""
        value = foreign_json(question.body)
        kind = value.get("ask") if isinstance(value, dict) else None
        if kind == "state":
            self._on_statement(peer_id, statement_from(value.get("statement"), question.payload))
            return state_message(self._statement())
        if kind == "config":
            found = await asyncio.to_thread(find_config, self._files, self._root)
            return BootstrapMessage(json.dumps({"config": config_to_json(found)}).encode())
        if kind in ("chunk", "config chunk"):
            return await self._chunk(value, is_config=kind == "config chunk")
        raise ValueError(f"expected a request for the base log, found {question.body[:80]!r}")

    async def _chunk(self, value: dict[str, Any], *, is_config: bool) -> BootstrapMessage:
        name, position, size = value.get("name"), value.get("position"), value.get("size")
        if not isinstance(name, str) or type(position) is not int or type(size) is not int or size <= 0:
            raise ValueError(f"expected a name, a position and a size, found {value!r:.200}")
        if position < 0:
            raise ValueError(f"expected a position of at least 0, found {position}")
        manifest, request = self._statement().manifest, ChunkRequest(name, position, size)
        # In a thread: a cold disk must not delay the heartbeats of a leader.
        if is_config:
            payload = await asyncio.to_thread(read_config, self._files, self._root, request)
        else:
            payload = await asyncio.to_thread(read_chunk, self._files, self._directory, manifest, request)
        return BootstrapMessage(json.dumps({"checksum": crc32c(payload)}).encode(), payload)


def state_message(statement: Statement, *, is_question: bool = False) -> BootstrapMessage:
    """Return a message with a statement, as a request or as its answer."""
    text, payload = statement.encoded()
    value = {"statement": text} | ({"ask": "state"} if is_question else {})
    return BootstrapMessage(json.dumps(value).encode(), payload)


class BaseLogOrigin(BaseLogAnswers):
    """`dledger.peer.origin.Origin` of a node that has agreed on its base log. Create it by `load_origin`."""

    def __init__(self, files: Files, directory: str, node_directory: str, manifest: BaseLogManifest) -> None:
        super().__init__(files, directory, self.statement, self._on_statement)
        self.manifest = manifest
        self.hello_bytes = abridge(manifest)
        self._config_size_bytes = own_config_size(files, self._root, node_directory)

    def statement(self) -> Statement:
        """Return this node's current statement, computed at each call because files expire."""
        begin = begin_of(self._files, self._directory, self.manifest)
        return Statement(Claim.AGREED, self.manifest, begin, self._config_size_bytes)

    def difference(self, peer_id: str, theirs: bytes) -> str | None:
        """Describe the difference of the peer's base log from ours; None: the nodes may be in one group."""
        difference = difference_of(self.manifest, theirs)
        return None if difference is None else f"the base log of {peer_id}: {difference}"

    def _on_statement(self, peer_id: str, statement: Statement) -> None:
        difference = first_difference(self.manifest, statement.manifest)
        if statement.claim is not Claim.NOTHING and difference is not None:
            logger.error("base_logs_differ peer=%r difference=%r", peer_id, difference)


def begin_of(files: Files, directory: str, manifest: BaseLogManifest) -> int:
    """Return the offset from which the files of the manifest are in the directory; the divide if there are none."""
    present = set(files.list_directory(directory)) if files.is_directory(directory) else set()
    begin = manifest.divide
    for file in reversed(manifest.files):
        if file.name not in present:
            break
        begin = int(file.name)
    return begin


def load_origin(files: Files, places: LogDirectories) -> BaseLogOrigin:
    """Return the origin of a node that has agreed on its base log (`cluster.replica.bootstrap`).

    Raises:
        BaseLogNotAgreed: it is not; the log must not be opened.
        store.errors.CorruptData: the manifest cannot be read.
    """
    saved = load_manifest(files, places.node_directory)
    if saved is None or not saved.is_agreed:
        raise BaseLogNotAgreed(f"{places.node_directory}/{FILE_NAME}")
    return BaseLogOrigin(files, places.base_directory, places.node_directory, saved.manifest)
