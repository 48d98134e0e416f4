"""`dledger backup`: make backups of a group over the network, list and verify them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cluster.cli.client_target import log_nodes
from cluster.cli.common import (
    DEFAULT_ENDPOINTS,
    DEFAULT_GROUP,
    EXIT_USAGE,
    Endpoints,
    Group,
    fail,
    help_of,
    notes,
    output,
    reported_errors,
)
from cluster.cli.rows import AsJson, Row, print_rows
from cluster.cli.store.common import progress_bar, reported_store_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.backup.folder import BackupFolder
    from cluster.backup.manifest import BackupManifest

# Below it the pause after a piece would be longer than the patience of a read.
_RATE_MIN = 64 << 10
_PATIENCE_S = 30.0
_DAMAGES_SHOWN_MAX = 20

Destination = Annotated[Path, typer.Argument(metavar="DEST", help="Folder of the backup.")]

backup_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make backups of a running group.",
    epilog="\b\nEvery hour, from a follower, with at most 20 MB of a second:\n"
    "    dledger backup create /backups/orders --group orders --rate 20000000\n"
    "    dledger backup verify /backups/orders\n"
    "`dledger restore` makes a new group from a backup.",
)


@contextmanager
def reported_backup_errors() -> Iterator[None]:
    """Turn the exceptions of a backup into an error message with advice."""
    from cluster.backup.errors import BackupError, NoBackup

    try:
        with reported_store_errors():
            yield
    except NoBackup as error:
        fail(str(error), EXIT_USAGE)
    except BackupError as error:
        fail(str(error))


def opened(folder: Path) -> BackupFolder:
    """Return the backup in a folder."""
    from cluster.backup.folder import BackupFolder
    from store.fs.linux.files import OsFiles

    return BackupFolder(OsFiles(), str(folder.absolute()))


def create(
    context: typer.Context,
    destination: Destination,
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    rate: Annotated[
        int | None, typer.Option("--rate", min=_RATE_MIN, metavar="BYTES", help="Read at most this number a second.")
    ] = None,
    *,
    from_leader: Annotated[
        bool, typer.Option("--from-leader", help="Read from the leader, not from a follower.")
    ] = False,
) -> None:
    """Add what is new to a backup.

    The first run copies all entries of the log, later ones those after the last backup. All entries that were committed
    when a run began are in it. An interrupted run is continued by the next one. It needs the right to read the log: of
    a broker with access control, a super user.

    Examples:
        dledger backup create /backups/orders
        dledger backup create /backups/orders --group orders --rate 20000000
    """
    from cluster.backup.create import BackupRun
    from cluster.backup.log_source import GroupLog
    from cluster.backup.throttle import Throttle
    from cluster.cli.entry_kinds import AnyLogChecks
    from dledger.client import LogClient

    nodes = log_nodes(context, endpoints, group)
    folder = opened(destination)
    checks = AnyLogChecks()
    with reported_errors(nodes.endpoints), reported_backup_errors():
        client = LogClient(
            nodes.endpoints, group=nodes.group, deadline_s=_PATIENCE_S, checks=checks, security=nodes.security
        )
        lock = folder.lock()
        with client, _entries_bar() as bar:
            source = GroupLog(client, is_follower_preferred=not from_leader)
            task = bar.add_task("entries", total=source.facts().commit_index)
            run = BackupRun(
                folder,
                source,
                throttle=Throttle(rate or 0),
                checks=checks,
                now_ms=lambda: time.time_ns() // 1_000_000,
                on_progress=lambda index: bar.update(task, completed=index),
            )
            manifest = run.run()
        lock.release()
    size = sum(part.size for part in manifest.parts)
    count = manifest.parts[-1].last_index - manifest.parts[0].first_index + 1 if manifest.parts else 0
    output.print(
        f"backup {manifest.serial}: {count:,} new entries, {size:,} bytes; complete up to index {manifest.end.index} "
        f"of group {manifest.group}, id {manifest.group_id}",
        highlight=False,
        soft_wrap=True,
    )


def _entries_bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    return Progress(*columns, TimeRemainingColumn(), console=notes, transient=True, disable=not notes.is_terminal)


def list_backups(destination: Destination, *, as_json: AsJson = False) -> None:
    """List the backups of a folder, the oldest first.

    Only manifests are read: `dledger backup verify` reads the entries.

    Examples:
        dledger backup list /backups/orders
        dledger backup list /backups/orders --json | tail -n 1 | jq .createdMs
    """
    with reported_backup_errors():
        manifests = opened(destination).existing()
    columns = {
        "serial": "backup",
        "created": "created (UTC)",
        "firstIndex": "first new",
        "endIndex": "last index",
        "endTerm": "term",
        "parts": "parts",
        "bytes": "bytes",
        "lastTime": "last message (UTC)",
    }
    print_rows(columns, [_row(each) for each in manifests], as_json=as_json)


def _row(manifest: BackupManifest) -> Row:
    return {
        "serial": manifest.serial,
        "created": time_text(manifest.created_ms),
        "createdMs": manifest.created_ms,
        "group": manifest.group,
        "groupId": manifest.group_id,
        "node": manifest.node,
        "beginIndex": manifest.begin_index,
        "firstIndex": manifest.parts[0].first_index if manifest.parts else None,
        "endIndex": manifest.end.index,
        "endTerm": manifest.end.term,
        "parts": len(manifest.parts),
        "bytes": sum(part.size for part in manifest.parts),
        "lastTime": time_text(manifest.last_time_ms),
        "lastTimeMs": manifest.last_time_ms if manifest.last_time_ms >= 0 else None,
    }


def time_text(time_ms: int) -> str | None:
    """Return a time with seconds; None for an unknown one."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") if time_ms >= 0 else None


def verify(destination: Destination, *, as_json: AsJson = False) -> None:
    """Read a backup back, and check every entry.

    Checks the SHA-256 of each part and manifest, the checksums of each entry, and that each follows the one before. The
    exit code is 1 if anything is damaged.

    Examples:
        dledger backup verify /backups/orders
    """
    from cluster.backup.verify import verify_backup
    from cluster.cli.entry_kinds import AnyLogChecks

    with reported_backup_errors():
        folder = opened(destination)
        total = sum(part.size for manifest in folder.existing() for part in manifest.parts)
        with progress_bar() as bar:
            task = bar.add_task("verifying", total=total)
            found = verify_backup(folder, AnyLogChecks(), lambda size: bar.advance(task, size))
    row = {
        "backups": found.manifests,
        "parts": found.parts,
        "entries": found.entries,
        "bytes": found.size_bytes,
        "damages": len(found.damages),
    }
    headings = {name: name for name in row}
    print_rows(headings, [row], as_json=as_json)
    for damage in found.damages[:_DAMAGES_SHOWN_MAX]:
        typer.echo(f"dledger: {damage}", err=True)
    if found.damages:
        count = len(found.damages)
        fail(f"{count} {'part is' if count == 1 else 'parts are'} damaged: the backup cannot be restored completely")


for _name, _command in (("create", create), ("list", list_backups), ("verify", verify)):
    backup_app.command(_name, help=help_of(_command))(_command)
