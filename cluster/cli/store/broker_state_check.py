"""Checks the state of a standalone broker: its snapshots, or the configuration of RocketMQ that it would import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.cli.store.node_files_check import SNAPSHOT_NAME, check_snapshots
from cluster.state.rocketmq_config import UnreadableConfig, import_config
from commitlog.conversion.old_config import LOCAL_STATE_DIRECTORY
from store.fs.read_only_files import ReadOnlyFiles
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEANING: Final = "the broker does not start: it would lose topics, groups and offsets"
_REMEDY: Final = "Restore the file from a backup, or move it away: the broker then starts with the previous state"


def check_broker_state(root: str) -> Iterator[Finding]:
    """Yield the faults that prevent a standalone broker from starting with the state in the store `root`."""
    files = ReadOnlyFiles()
    directory = f"{root}/{LOCAL_STATE_DIRECTORY}/{SNAPSHOT_NAME}"
    if files.is_directory(directory) and files.list_directory(directory):
        yield from check_snapshots(files, directory, _MEANING, _REMEDY)
        return
    try:
        import_config(Path(root))
    except UnreadableConfig as error:
        expected = "the configuration of RocketMQ, which the broker imports at its first start"
        yield Finding(Area.FILES, error.path, 0, expected, f"another content at {error.position}", _MEANING, _REMEDY)
