"""`dledger verify`: check the integrity of a store."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from cluster.cli.common import fail, notes
from cluster.cli.rows import show_table
from cluster.cli.store.broker_state_check import check_broker_state
from cluster.cli.store.common import (
    ForceReadOnly,
    StoreArgument,
    open_parts,
    print_mode,
    progress_bar,
    reported_store_errors,
)
from cluster.cli.store.entry_check import EntryCheck
from commitlog.offline.directory import StoreDirectory, StoreMode
from commitlog.offline.verify import Verification
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console

_SHOWN_MAX = 100
_DAMAGE, _UNFINISHED, _ACCEPTED = "damage", "unfinished", "accepted"


def verify(
    directory: StoreArgument,
    shown_max: Annotated[
        int, typer.Option("--limit", min=0, metavar="COUNT", help="Print at most this number of findings; 0: all.")
    ] = _SHOWN_MAX,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each finding, then one for each part.")
    ] = False,
    force_read_only: ForceReadOnly = False,
) -> None:
    """Check a store: records, queues, index and checkpoint.

    Every record, checksum, queue unit, index item and chain, and the checkpoint are compared with the log. In the
    directory of a node, the command also checks entries, their index, identity, peers, term and vote, memberships, the
    begin of the log, and snapshots; of a standalone broker, the snapshots of its topics, groups and offsets.

    Nothing is changed. Each finding has the file, the position, expected and found values, the consequence, and what to
    do. The exit code is 1 if there are findings. Damage needs an operator; an unfinished state (after a crash, for
    example) is repaired by the next start of the store. Damage that was accepted with --skip-damaged is reported as
    accepted.

    In RocketMQ's format the header of a message, unlike its body, has no checksum, unless the store writes property
    CRCs or the log is a replicated log of this program. Without it, a change of most fields is detected by queue and
    index, but not a change of flag, born time and host, store host, reconsume times, prepared offset, and properties
    other than keys and tags.

    Examples:
        dledger verify /data/store
        dledger verify /data/store --limit 0 2> findings.txt
        dledger verify /data/store --json | jq 'select(.kind == "damage")'
        dledger verify /data/store --force-read-only     while a broker has it open
    """
    # The printed time includes the opening, which reads every queue.
    started = time.monotonic()
    with reported_store_errors():
        parts = open_parts(directory, is_forced=force_read_only, needs_messages=False)
        print_mode(parts.directory)
        totals: Counter[tuple[Area, str]] = Counter()
        with progress_bar() as bar:
            task = bar.add_task("checking", total=parts.directory.size)
            verification = Verification(parts, lambda size: bar.advance(task, size))
            entries = EntryCheck(parts.directory, is_live=parts.is_live)
            shown_count = 0
            for finding in _all(parts.directory, verification, entries):
                totals[finding.area, _kind(finding)] += 1
                shown_count += 1
                if shown_count <= shown_max or not shown_max:
                    _print_finding(finding, bar.console, as_json=as_json)
    if shown_max and shown_count > shown_max:
        notes.print(f"dledger: and {shown_count - shown_max} findings more; --limit 0 shows all", highlight=False)
    elapsed_s = time.monotonic() - started
    checked = _checked(parts.directory, verification, entries)
    if as_json:
        _print_parts(checked, totals)
    else:
        show_table(_table(parts.directory, checked, totals, elapsed_s))
    _fail_if_found(totals)


def _fail_if_found(totals: Counter[tuple[Area, str]]) -> None:
    """End with exit code 1 if there is damage that was not accepted, or something unfinished."""
    by_kind = {kind: sum(totals[area, kind] for area in Area) for kind in (_DAMAGE, _UNFINISHED, _ACCEPTED)}
    if by_kind[_DAMAGE] or by_kind[_UNFINISHED]:
        accepted = f", {by_kind[_ACCEPTED]} accepted" if by_kind[_ACCEPTED] else ""
        fail(f"{_counted(by_kind[_DAMAGE], 'place')} of damage, {by_kind[_UNFINISHED]} unfinished{accepted}")


def _kind(finding: Finding) -> str:
    if finding.is_accepted:
        return _ACCEPTED
    return _UNFINISHED if finding.is_unfinished else _DAMAGE


def _all(directory: StoreDirectory, verification: Verification, entries: EntryCheck) -> Iterator[Finding]:
    yield from verification.findings()
    yield from entries.findings()
    if directory.mode is StoreMode.PLAIN:
        yield from check_broker_state(directory.root)


def _print_finding(finding: Finding, console: Console, *, as_json: bool) -> None:
    if as_json:
        row = asdict(finding) | {"kind": _kind(finding)}
        # `kind` says both.
        del row["is_unfinished"], row["is_accepted"]
        typer.echo(json.dumps(row))
        return
    console.print(f"dledger: {finding}", markup=False, highlight=False, soft_wrap=True)


def _print_parts(checked: Mapping[Area, str], totals: Counter[tuple[Area, str]]) -> None:
    for area, text in checked.items():
        of_kinds = {kind: totals[area, kind] for kind in (_DAMAGE, _UNFINISHED, _ACCEPTED)}
        typer.echo(json.dumps({"part": area, "checked": text} | of_kinds))


def _checked(directory: StoreDirectory, verification: Verification, entries: EntryCheck) -> dict[Area, str]:
    """Return the description of each part of the store that was checked."""
    counts = verification.counts
    rows: dict[Area, str] = {Area.FILES: _counted(len(directory.log_files), "log file")}
    if directory.node_directory is not None:
        if entries.has_aside:
            rows[Area.FILES] += ", and an unchecked old log in the folder aside"
        rows[Area.ENTRIES] = f"{_counted(entries.entry_count, 'entry')}, {_counted(entries.unit_count, 'index unit')}"
    if directory.mode is not StoreMode.RAW:
        rows[Area.LOG] = f"{_counted(counts.messages, 'message')}, up to offset {counts.log_end}"
        rows[Area.QUEUES] = f"{_counted(counts.queues, 'queue')}, {_counted(counts.units, 'unit')}"
        rows[Area.INDEX] = f"{_counted(counts.index_files, 'file')}, {_counted(counts.items, 'item')}"
        rows[Area.CHECKPOINT] = directory.checkpoint_path.rsplit("/", 1)[-1]
    return rows


def _table(
    directory: StoreDirectory, checked: Mapping[Area, str], totals: Counter[tuple[Area, str]], elapsed_s: float
) -> Table:
    speed = directory.size / max(elapsed_s, 1e-9) / 1e6
    title = f"{directory.root}: a {directory.mode} store, {directory.size / 1e6:,.1f} MB of log, {elapsed_s:.1f} s"
    title += f" ({speed:,.0f} MB/s)"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("part")
    table.add_column("checked")
    table.add_column("damage", justify="right")
    table.add_column("unfinished", justify="right")
    has_accepted = any(kind == _ACCEPTED for _, kind in totals)
    if has_accepted:
        table.add_column("accepted", justify="right")
    for area, text in checked.items():
        damage, unfinished = totals[area, _DAMAGE], totals[area, _UNFINISHED]
        table.add_row(
            area.value,
            text,
            f"[red]{damage}[/]" if damage else "0",
            f"[yellow]{unfinished}[/]" if unfinished else "0",
            *([str(totals[area, _ACCEPTED])] if has_accepted else ()),
        )
    return table


def _counted(count: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
