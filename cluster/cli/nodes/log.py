"""`dledger append`, `get` and `tail`: write and read entries of the log."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from cluster.cli.client_target import log_nodes
from cluster.cli.common import (
    DEFAULT_DEADLINE_S,
    DEFAULT_ENDPOINTS,
    DEFAULT_GROUP,
    EXIT_USAGE,
    BodyFormat,
    Deadline,
    Endpoints,
    Group,
    fail,
    help_if_unreachable,
    notes,
    reported_errors,
)
from cluster.cli.entry_kinds import AnyLogChecks, kind_of, leaders_own
from cluster.cli.nodes.ingest import Ingest, IngestSource, batches, open_sources
from dledger.allocator import keep_large_blocks
from dledger.entries.format.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dledger.client import LogClient

# Readers do not see the no-ops of leaders; `tail` reads this many additional entries to find the last n.
_TAIL_SLACK = 64


FormatOption = Annotated[
    BodyFormat, typer.Option("--format", help="text: the bodies, one a line; jsonl: one object per entry.")
]


def append(
    context: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files to append; default: standard input.")
    ] = None,
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    deadline: Deadline = DEFAULT_DEADLINE_S,
    block_size: Annotated[
        int,
        typer.Option("--block-size", min=0, metavar="BYTES", help="Split into entries of this size instead of lines."),
    ] = 0,
) -> None:
    """Append files or standard input, one entry a line.

    Prints the number of appended entries and their indexes. The exit code is 1 unless all entries were appended.

    Examples:
        dledger append access.log error.log
        journalctl --since today | dledger append
        dledger append --block-size 4096 photo.jpg
    """
    with reported_errors(endpoints):
        try:
            sources = open_sources(files or [])
        except OSError as error:
            fail(f"{error.filename} cannot be read: {error.strerror}", EXIT_USAGE)
        keep_large_blocks()
        with _client(context, endpoints, group, deadline) as client:
            ingest = Ingest(client)
            begin = time.monotonic()
            _append_all(ingest, sources, block_size)
            _report(ingest, time.monotonic() - begin, endpoints)


def _append_all(ingest: Ingest, sources: list[IngestSource], block_size: int) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=notes, transient=True) as bar:
        for source in sources:
            task = bar.add_task(source.name, total=source.size_bytes)
            try:
                for batch in batches(source, block_size):
                    if not ingest.append(batch):
                        return
                    bar.advance(task, batch.size_bytes)
            except ValueError as error:
                ingest.faults.append(str(error))
                return
            except KeyboardInterrupt:
                ingest.faults.append("interrupted; the batch in flight may have been appended")
                return


def _report(ingest: Ingest, duration_s: float, endpoints: str) -> None:
    rate = ingest.appended_entries / max(duration_s, 1e-9)
    mb_s = ingest.appended_bytes / max(duration_s, 1e-9) / 1e6
    where = "" if ingest.first_index is None else f" at indexes {ingest.first_index} to {ingest.last_index}"
    typer.echo(
        f"appended {ingest.appended_entries} entries{where}, {ingest.appended_bytes} bytes in {duration_s:.2f} s "
        f"({rate:,.0f} entries/s, {mb_s:.1f} MB/s)"
    )
    for fault in ingest.faults:
        sys.stderr.write(f"dledger: {fault}{help_if_unreachable(fault, endpoints)}\n")
    if ingest.faults:
        fail(f"entries not appended: {ingest.refused_entries}; outcome unknown: {ingest.unknown_entries}")


def get(
    context: typer.Context,
    index: Annotated[int, typer.Argument(min=0, help="Index of the entry.")],
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    deadline: Deadline = DEFAULT_DEADLINE_S,
    style: FormatOption = BodyFormat.TEXT,
) -> None:
    """Print one entry.

    Prints the body unchanged; on a terminal, a newline follows.

    Examples:
        dledger get 41
        dledger get 41 --format jsonl
    """
    with reported_errors(endpoints), _client(context, endpoints, group, deadline) as client:
        entries = list(client.read(index, max_entries=1, include_internal=True))
        if not entries:
            fail(f"there is no entry {index} yet: `dledger status` shows the end of the log")
        if style is BodyFormat.TEXT:
            entry = entries[0]
            sys.stdout.buffer.write(entry.body + (b"\n" if sys.stdout.isatty() else b""))
            sys.stdout.buffer.flush()
            if kind := leaders_own(entry.magic, entry.channel):
                empty = "" if entry.body else "; it has no body"
                notes.print(
                    f"entry {index} is {kind} that the leader of term {entry.term} wrote, not of a client{empty}",
                    highlight=False,
                    soft_wrap=True,
                )
        else:
            _print(entries, style)


def tail(
    context: typer.Context,
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    deadline: Deadline = DEFAULT_DEADLINE_S,
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="Number of entries.")] = 10,
    style: FormatOption = BodyFormat.TEXT,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait for new entries, until Ctrl-C.")] = False,
) -> None:
    """Print the last entries, and with --follow new ones.

    If the leader fails, it continues with the next leader after the last printed entry.

    Examples:
        dledger tail -n 100
        dledger tail -f --format jsonl | jq .index
    """
    with reported_errors(endpoints), _client(context, endpoints, group, deadline) as client:
        log = client.status()
        begin = max(log.begin_index, log.commit_index + 1 - count - _TAIL_SLACK)
        last = deque(client.read(begin, max_bytes=0), maxlen=count) if count else deque[Entry]()
        _print(last, style)
        if follow:
            next_index = last[-1].index + 1 if last else max(begin, log.commit_index + 1)
            try:
                _print(client.read(next_index, follow=True), style)
            except KeyboardInterrupt:
                raise typer.Exit from None


def _client(context: typer.Context, endpoints: str, group: str, deadline_s: float) -> LogClient:
    from dledger.client import LogClient

    nodes = log_nodes(context, endpoints, group)
    return LogClient(
        nodes.endpoints, group=nodes.group, deadline_s=deadline_s, checks=AnyLogChecks(), security=nodes.security
    )


def _print(entries: Iterable[Entry], style: BodyFormat) -> None:
    write = sys.stdout.buffer.write
    for entry in entries:
        write(entry.body + b"\n" if style is BodyFormat.TEXT else json.dumps(_as_object(entry)).encode() + b"\n")
        sys.stdout.buffer.flush()


def _as_object(entry: Entry) -> dict[str, str | int]:
    """Return the entry, with its body as text if it is UTF-8, otherwise in Base64."""
    fields: dict[str, str | int] = {
        "index": entry.index,
        "term": entry.term,
        "pos": entry.position,
        "size": entry.size,
        "magic": entry.magic,
        "kind": kind_of(entry.magic, entry.channel),
    }
    try:
        return {**fields, "body": entry.body.decode()}
    except UnicodeDecodeError:
        return {**fields, "bodyBase64": base64.b64encode(entry.body).decode()}
