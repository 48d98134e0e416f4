"""The base log on which a node has agreed with its group: the small file `oldfiles` in the node's directory.

    state=settled
    manifest={"divide":192,"files":[["00000000000000000128",64,1001]]}

with a checksum (`dledger.storage.properties`). `fetching`: the group has this base log, and this node does not have all
of its files yet. `settled`: it has them, or they had expired on the other nodes, or there are none. The manifest never
changes afterwards and still lists expired files. So a start does not have to read the files, and the base logs of nodes
can be compared as long as the group exists.

Without the file the node has not agreed, and must not open its entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from commitlog.conversion.base_log_files import BaseLogManifest, end_fetch, manifest_from_json, manifest_to_json
from dledger.storage.properties import describe_fault, format_checked, parse_checked
from store.errors import CorruptData, StoreError

if TYPE_CHECKING:
    from store.fs.ports import Files

FILE_NAME: Final = "oldfiles"
_AGREED: Final = "settled"
_FETCHING: Final = "fetching"


class BaseLogNotAgreed(StoreError):
    """The node has not confirmed yet that it has the base log of its group."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: this node has not confirmed the base log of its group, so its log must not be "
            "opened. Start it as a node of its group, with the others reachable"
        )
        self.path = path


@dataclass(frozen=True, slots=True)
class SavedManifest:
    """The content of the file."""

    manifest: BaseLogManifest
    is_agreed: bool


def load_manifest(files: Files, node_directory: str) -> SavedManifest | None:
    """Return the saved manifest; None if none was saved.

    Raises:
        store.errors.CorruptData: it cannot be read; do not start.
    """
    path = f"{node_directory}/{FILE_NAME}"
    content = files.read_bytes(path)
    if content is None:
        return None
    try:
        properties = parse_checked(content)
        state = properties["state"]
        if state not in (_AGREED, _FETCHING):
            raise ValueError(f"state {state!r}")  # noqa: TRY301  (one place says what to do)
        return SavedManifest(manifest_from_json(properties["manifest"]), state == _AGREED)
    except (ValueError, KeyError) as error:
        raise CorruptData(path, 0, "the manifest of the base log, with a checksum", describe_fault(error)) from error


def save_manifest(files: Files, node_directory: str, manifest: BaseLogManifest, *, is_agreed: bool) -> None:
    """Save the manifest durably; if it is agreed, remove the state of the fetch.

    Raises:
        store.errors.DiskFull: the old content is kept.
        store.errors.StorageFailed: the node must stop.
    """
    files.make_directory(node_directory)
    lines = {"state": _AGREED if is_agreed else _FETCHING, "manifest": manifest_to_json(manifest)}
    files.replace(f"{node_directory}/{FILE_NAME}", format_checked(lines))
    if is_agreed:
        end_fetch(files, node_directory)
