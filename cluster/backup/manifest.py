"""The files of a backup, and its manifests.

    DEST/
      lock                                                  locked while a backup is made
      manifests/00000001.json  00000002.json …              one for each backup
      parts/00000000000000000000-00000000000000004095.entries …   entries, named by the first and the last index

A part has whole entries, back to back, as they are in the data files of nodes, without blanks. A manifest names the
parts that its backup added, and the SHA-256 of each; earlier parts are in the manifests before it, whose SHA-256 it
has. It is written last, with one rename: a backup without a manifest does not exist, and the next run uses its parts
again. No file is ever changed.

A manifest is one line of JSON with a checksum (`store.fs.sealed_json`):

| field | meaning |
| --- | --- |
| format | 1 |
| serial | number of this backup, from 1; its name |
| previousSha256 | of the manifest before; empty in the first one |
| createdMs | when it was made, in milliseconds since 1970, by the clock of the machine that made it |
| group, groupId | name and id of the group |
| node | client address of the node that was asked |
| beginIndex, beginPosition | of the first entry of the first part; the same in all manifests |
| parts | of this backup: firstIndex, lastIndex, size, sha256 of each |
| endIndex, endTerm, endPosition, endChainCrc | the last entry (`cluster.backup.chain.ChainEnd`) |
| lastTimeMs | store time of the last message of the log, -1: not known, as in logs of raw entries |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cluster.backup.chain import UNKNOWN_CHAIN, ChainEnd
from store.fs.sealed_json import seal, unseal

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 1
UNKNOWN_TIME: Final = -1
_SERIAL_DIGITS: Final = 8
_INDEX_DIGITS: Final = 20
_SHA256_DIGITS: Final = 64
# Above every index, position, size and time of a log.
_NUMBER_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class BackupPart:
    """A file of entries.

    Attributes:
        first_index, last_index: of its entries; at least one.
        size: bytes of the file.
        sha256: of the file, in hexadecimal digits.
    """

    first_index: int
    last_index: int
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return part_name(self.first_index, self.last_index)


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """One backup; the module's docstring describes the fields."""

    serial: int
    previous_sha256: str
    created_ms: int
    group: str
    group_id: str
    node: str
    begin_index: int
    begin_position: int
    parts: tuple[BackupPart, ...]
    end: ChainEnd
    last_time_ms: int = UNKNOWN_TIME

    @property
    def name(self) -> str:
        """The name of its file."""
        return manifest_name(self.serial)


def manifest_name(serial: int) -> str:
    """Return the name of the file of a manifest."""
    return f"{serial:0{_SERIAL_DIGITS}d}.json"


def part_name(first_index: int, last_index: int) -> str:
    """Return the name of the file of a part."""
    return f"{first_index:0{_INDEX_DIGITS}d}-{last_index:0{_INDEX_DIGITS}d}.entries"


def indexes_of(name: str) -> tuple[int, int] | None:
    """Return the first and the last index in the name of a part; None: it is another file."""
    first, _, rest = name.partition("-")
    last, _, ending = rest.partition(".")
    if ending != "entries" or not (first.isdecimal() and last.isdecimal()):
        return None
    indexes = int(first), int(last)
    return indexes if name == part_name(*indexes) and indexes[0] <= indexes[1] else None


def encode_manifest(manifest: BackupManifest) -> bytes:
    """Return the bytes of a manifest."""
    return seal(
        {
            "format": FORMAT,
            "serial": manifest.serial,
            "previousSha256": manifest.previous_sha256,
            "createdMs": manifest.created_ms,
            "group": manifest.group,
            "groupId": manifest.group_id,
            "node": manifest.node,
            "beginIndex": manifest.begin_index,
            "beginPosition": manifest.begin_position,
            "parts": [
                {
                    "firstIndex": part.first_index,
                    "lastIndex": part.last_index,
                    "size": part.size,
                    "sha256": part.sha256,
                }
                for part in manifest.parts
            ],
            "endIndex": manifest.end.index,
            "endTerm": manifest.end.term,
            "endPosition": manifest.end.position,
            "endChainCrc": manifest.end.chain_crc,
            "lastTimeMs": manifest.last_time_ms,
        }
    )


def decode_manifest(raw: bytes) -> BackupManifest:
    """Return the manifest of these bytes.

    Raises:
        ValueError: they are not a manifest of this format, or are damaged.
    """
    content = unseal(raw)
    if content.get("format") != FORMAT:
        raise ValueError(f"format {content.get('format')!r}, which this version does not know: it knows {FORMAT}")
    try:
        return _manifest_of(content)
    except KeyError as error:
        raise ValueError(f"no field {error}") from error


def _manifest_of(content: Mapping[str, Any]) -> BackupManifest:
    end = ChainEnd(
        _number(content["endIndex"], -1),
        _number(content["endTerm"]),
        _number(content["endPosition"]),
        _number(content["endChainCrc"], UNKNOWN_CHAIN),
    )
    return BackupManifest(
        serial=_number(content["serial"], 1),
        previous_sha256=_text(content["previousSha256"]),
        created_ms=_number(content["createdMs"]),
        group=_text(content["group"]),
        group_id=_text(content["groupId"]),
        node=_text(content["node"]),
        begin_index=_number(content["beginIndex"]),
        begin_position=_number(content["beginPosition"]),
        parts=tuple(_part_of(part) for part in content["parts"]),
        end=end,
        last_time_ms=_number(content["lastTimeMs"], UNKNOWN_TIME),
    )


def _part_of(content: Mapping[str, Any]) -> BackupPart:
    sha256 = _text(content["sha256"])
    if len(sha256) != _SHA256_DIGITS:
        raise ValueError(f"a SHA-256 of {len(sha256)} digits")
    first_index = _number(content["firstIndex"])
    return BackupPart(first_index, _number(content["lastIndex"], first_index), _number(content["size"], 1), sha256)


def _number(value: Any, least: int = 0) -> int:
    # `type` and not isinstance, because True is an int, too.
    if type(value) is not int or not least <= value < _NUMBER_END:
        raise ValueError(f"expected a number from {least}, found {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")  # noqa: TRY004  (damage of a file, not a bug)
    return value
