"""Common code of the commands on stored files: detection of the store, its lock, options, output of findings."""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from cluster.cli.common import EXIT_USAGE, fail, notes
from commitlog.offline.directory import NotAStore, StoreDirectory, StoreMode, find_store
from commitlog.offline.lock_probe import UNKNOWN_HOLDER, find_holder
from commitlog.offline.message_filter import Bound, MessageFilter, parse_bound
from commitlog.offline.verify import StoreParts
from store.errors import StorageFailed, StoreError
from store.fs.read_only_files import ReadOnlyFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

_SYSTEM_ADVICE = "check its permissions (`ls -l`), and the health of its disk"


class TableFormat(StrEnum):
    """The output format of rows."""

    TABLE = "table"
    JSONL = "jsonl"


StoreArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="Directory of a store, also of RocketMQ; or its commitlog or dledger-<id> folder."
    ),
]
ForceReadOnly = Annotated[
    bool,
    typer.Option(
        "--force-read-only", help="Read a store that is in use, without a lock; the newest messages may be missing."
    ),
]
FormatOption = Annotated[TableFormat, typer.Option("--format", help="A table, or one JSON object per line.")]
LimitOption = Annotated[int, typer.Option("--limit", min=0, metavar="COUNT", help="Print at most this number; 0: all.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Only messages of this topic.")]
QueueOption = Annotated[int | None, typer.Option("--queue", min=0, metavar="ID", help="Only messages of this queue.")]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="BOUND",
        help="Begin here: a queue offset (42), a store time (2026-11-21T09:00:00, UTC), or a time in milliseconds "
        "(@1795227552330).",
    ),
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="BOUND", help="End before this offset or time; written as for --from.")
]
KeyOption = Annotated[str | None, typer.Option("--key", help="Only messages with this key (in KEYS or UNIQ_KEY).")]
NoIndexOption = Annotated[
    bool, typer.Option("--no-index", help="Search all messages for the key instead of the index.")
]


@contextmanager
def reported_store_errors() -> Iterator[None]:
    """Turn the exceptions of reading stored files into an error message with advice."""
    try:
        yield
    except NotAStore as error:
        fail(str(error), EXIT_USAGE)
    except StorageFailed as error:
        fail(f"{error.path}: {error.operation} failed: {error.reason.strerror}; {_SYSTEM_ADVICE}")
    except StoreError as error:
        fail(str(error))
    except OSError as error:  # for example a directory without read permission
        fail(f"{error.filename}: {error.strerror}; {_SYSTEM_ADVICE}")


def find(directory: Path) -> StoreDirectory:
    """Return the store in a directory; end the command if there is none."""
    return find_store(ReadOnlyFiles(), str(directory))


def open_parts(directory: Path, *, is_forced: bool, needs_messages: bool = True) -> StoreParts:
    """Open a store for reading; end the command if it is in use, or contains no messages.

    Args:
        directory: directory of the store.
        is_forced: whether `--force-read-only` is given.
        needs_messages: whether a raw log is refused.
    """
    found = find(directory)
    if needs_messages:
        refuse_raw(found)
    holder = find_holder(found.lock_paths)
    if holder == UNKNOWN_HOLDER:
        # The process that has the store open records its id there, in RocketMQ and here.
        noted = (ReadOnlyFiles().read_bytes(found.abort_path) or b"").decode("ascii", "replace").strip()
        holder = f"process {noted}" if noted.isdigit() else holder
    if holder is not None and not is_forced:
        fail(
            f"{found.root} is in use by {holder}. Stop it, or read the store as it is now with --force-read-only "
            "(nothing is locked or changed)"
        )
    return StoreParts(ReadOnlyFiles(), found, is_live=holder is not None)


def refuse_raw(found: StoreDirectory) -> None:
    """End the command if a store contains no messages."""
    if found.mode is StoreMode.RAW:
        fail(
            f"{found.root} contains a raw log of DLedger: expected message records (RocketMQ) in its entries, found "
            "other bodies. `dledger inspect entries` shows them",
            EXIT_USAGE,
        )


def filter_of(
    topic: str | None, queue: int | None, key: str | None, begin: str | None, end: str | None
) -> MessageFilter:
    """Return the filter of the options; end the command if a bound is invalid."""
    return MessageFilter(topic, queue, key, _bound("--from", begin), _bound("--to", end))


def _bound(option: str, text: str | None) -> Bound | None:
    if text is None:
        return None
    try:
        return parse_bound(text)
    except ValueError as error:
        fail(f"{option}: {error}", EXIT_USAGE)


def print_mode(found: StoreDirectory) -> None:
    """Print a note on standard error that the commit index of a replicated log is unknown offline."""
    if found.mode in (StoreMode.DLEDGER, StoreMode.MIXED):
        notes.print(
            "dledger: a replicated log: its commit index is not known offline; all of it is shown",
            style="dim",
            highlight=False,
            soft_wrap=True,
        )


def progress_bar() -> Progress:
    """Return a progress bar over bytes of the log, on standard error; it is hidden if that is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=notes, transient=True, disable=not notes.is_terminal)
