"""`dledger restore`: make the directory of a node of a new group from a backup."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.backup.backups import opened, reported_backup_errors, time_text
from cluster.cli.common import EXIT_USAGE, fail, output
from cluster.cli.store.common import progress_bar
from cluster.config.load import ConfigError, load_config
from commitlog.offline.message_filter import parse_time

if TYPE_CHECKING:
    from cluster.backup.folder import BackupFolder
    from cluster.backup.restore import NewNode, RestoreEnd
    from cluster.config.load import ServerConfig
    from dledger.entries.format.codec import EntryCodec

# Of a store of messages, beside the directory of the node: they would be taken for those of the restored log.
_STORE_NAMES = ("commitlog", "consumequeue", "index", "compacted", "checkpoint", "abort")

Source = Annotated[Path, typer.Argument(metavar="BACKUP", help="Folder of the backup.")]
NodeConfigFile = Annotated[
    Path, typer.Option("--config", "-c", metavar="FILE", help="Configuration file with which the node will be started.")
]


def restore(
    source: Source,
    config: NodeConfigFile,
    run: Annotated[
        str,
        typer.Option(
            "--run", metavar="NAME", help="Name of this restore: the same for all its nodes, and no earlier one."
        ),
    ],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Instead of store_base_dir of the configuration.")
    ] = None,
    serial: Annotated[
        int | None, typer.Option("--backup", min=1, metavar="NUMBER", help="Restore this backup; default: the newest.")
    ] = None,
    until_index: Annotated[
        int | None, typer.Option("--until-index", min=0, metavar="INDEX", help="Leave out the entries after this one.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Leave out messages that were stored later, and all after them: 2026-11-21T09:00:00 (UTC) or "
            "@1795227552330.",
        ),
    ] = None,
) -> None:
    """Make a directory of one node from a backup.

    The node is a member of a new group: run it once for each of its members, with the node's own configuration and
    otherwise the same options; then start all of them. Nodes that were restored with other options, and those of the
    old group, refuse each other. Offsets of consumers are those at the end of the restored log. The directory must not
    exist.

    Examples:
        dledger restore /backups/orders --config n0.toml --run 2026-11-21
        dledger restore /backups/orders --config n0.toml --run drill-7 --until 2026-11-21T09:00:00
    """
    from cluster.backup.restore import RestoreEnd

    if until_index is not None and until is not None:
        fail("--until-index and --until: expected one of them", EXIT_USAGE)
    if not run.isprintable() or not run:
        fail("--run: expected a printable name", EXIT_USAGE)
    end = RestoreEnd(until_index, None if until is None else _time_of(until))
    _restore(opened(source), serial, _node_of(load_server(config, data)), end, run)


def _restore(folder: BackupFolder, serial: int | None, node: NewNode, end: RestoreEnd, run: str) -> None:
    from cluster.backup.restore import Restore
    from cluster.cli.entry_kinds import AnyLogChecks
    from store.fs.linux.files import OsFiles

    with reported_backup_errors():
        manifests = folder.existing(serial)
        restoring = Restore(OsFiles(), folder, manifests, node, checks=AnyLogChecks(), end=end, run=run)
        started = time.monotonic()
        with progress_bar() as bar:
            task = bar.add_task("restoring", total=sum(part.size for each in manifests for part in each.parts))
            found = restoring.run(SystemRandom().randrange, lambda size: bar.advance(task, size))
    output.print(
        f"{node.directory}: entries {found.first_index} to {found.last_index} in {time.monotonic() - started:.1f} s; "
        f"{found.left_out:,} entries of the backup left out{_last_message(found.last_time_ms)}.\n"
        f"The new group {node.group} has the id {found.group_id}. Restore its other nodes with the same options, and "
        "compare this id, before any of them is started",
        highlight=False,
        soft_wrap=True,
    )


def load_server(config: Path, data: Path | None = None) -> ServerConfig:
    """Return the settings of a node; end the command if they are invalid."""
    overrides = {} if data is None else {"store_base_dir": str(data.absolute())}
    try:
        return load_config(config, os.environ, overrides)
    except ConfigError as error:
        fail(str(error), EXIT_USAGE)


def codec_of(loaded: ServerConfig, time_ms: int) -> EntryCodec:
    """Return the codec of the entries of a node's log; its own entries have this store time, in milliseconds."""
    from commitlog.record.system_records import MessageEntryCodec
    from dledger.entries.format.codec import RAW_ENTRY_CODEC

    return RAW_ENTRY_CODEC if loaded.broker is None else MessageEntryCodec(lambda: time_ms)


def _node_of(loaded: ServerConfig) -> NewNode:
    from cluster.backup.restore import NewNode
    from dledger.entries.store import EntryStoreConfig

    node = loaded.node
    if node.is_joining:
        fail("is_joining: expected false for a node of a restored group: all its members are in peers", EXIT_USAGE)
    return NewNode(
        str(Path(node.store_base_dir).absolute()),
        node.self_id,
        node.group,
        node.membership(),
        EntryStoreConfig(
            node.mapped_file_size_for_entry_data, node.mapped_file_size_for_entry_index, node.is_flush_sync
        ),
        lambda time_ms: codec_of(loaded, time_ms),
        has_messages=loaded.broker is not None,
        other_names=() if loaded.broker is None else _STORE_NAMES,
    )


def _time_of(text: str) -> int:
    try:
        return parse_time(text)
    except ValueError as error:
        fail(f"--until: {error}", EXIT_USAGE)


def _last_message(time_ms: int) -> str:
    found = time_text(time_ms)
    return "" if found is None else f", last message stored at {found} UTC"
