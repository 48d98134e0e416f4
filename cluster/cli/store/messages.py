"""`dledger inspect messages` and `dledger export`: the messages of a store, read offline."""

from __future__ import annotations

import gzip
import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer
import zstandard

from cluster.cli.common import EXIT_FAILED, EXIT_USAGE, fail, preview_width
from cluster.cli.message_rows import row_of
from cluster.cli.store.common import (
    ForceReadOnly,
    FormatOption,
    FromOption,
    KeyOption,
    LimitOption,
    NoIndexOption,
    QueueOption,
    StoreArgument,
    TableFormat,
    ToOption,
    TopicOption,
    filter_of,
    open_parts,
    print_mode,
    reported_store_errors,
)
from commitlog.offline.reader import ReadMessage, StoreReader
from commitlog.record.compression import UnreadableBody, uncompressed_body
from store.model.finding import Finding
from store.model.message import KEYS, TAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from commitlog.offline.message_filter import MessageFilter

_TOPIC_WIDTH_MAX = 24
_FRAME_SIZE_BYTES = 4
_TEXT_WIDTH = len("tag, keys, body")


def messages(
    directory: StoreArgument,
    style: FormatOption = TableFormat.TABLE,
    topic: TopicOption = None,
    queue: QueueOption = None,
    begin: FromOption = None,
    end: ToOption = None,
    key: KeyOption = None,
    limit: LimitOption = 0,
    *,
    no_index: NoIndexOption = False,
    force_read_only: ForceReadOnly = False,
) -> None:
    """Print and check the messages of a store, in log order.

    The command reads stores of this program and of RocketMQ (plain, DLedger, and mixed; detected automatically).
    Nothing is changed. The table marks messages that are in their queue with Q, and messages that are in the index with
    I. An unreadable message is reported on standard error and skipped; the exit code is then 1.

    In a store that was not closed cleanly, queues and index may lag the log; messages that the next start will add to
    them are marked, too.

    Examples:
        dledger inspect messages /data/store
        dledger inspect messages /data/store --topic orders --queue 3 --from 1000 --limit 20
        dledger inspect messages /data/store --from 2026-11-21T09:00:00 --to 2026-11-21T09:05:00
        dledger inspect messages /data/store --key o-17 --format jsonl | jq .properties
    """
    wanted = filter_of(topic, queue, key, begin, end)
    with reported_store_errors():
        reader = _reader(directory, wanted, is_forced=force_read_only, is_index_used=not no_index)
        if style is TableFormat.TABLE:
            typer.echo(_head())
            _print(reader, limit, _print_line(_table_line))
        else:
            _print(reader, limit, _print_line(_json_line))


class Sink(Protocol):
    """A destination of bytes."""

    def write(self, data: bytes, /) -> object:
        """Write all bytes of `data`."""
        ...


class ExportFormat(StrEnum):
    """The output format of a message."""

    JSONL = "jsonl"
    LINES = "lines"
    FRAMES = "frames"


def export(
    directory: StoreArgument,
    target: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file; -: standard output; *.gz and *.zst are compressed."
        ),
    ] = Path("-"),
    style: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="jsonl: one object per message, as in `inspect messages`; lines: the bodies, one a line; "
            "frames: the bodies, each after its size in four bytes (big-endian).",
        ),
    ] = ExportFormat.JSONL,
    topic: TopicOption = None,
    queue: QueueOption = None,
    begin: FromOption = None,
    end: ToOption = None,
    key: KeyOption = None,
    *,
    limit: LimitOption = 0,
    uncompress: Annotated[
        bool, typer.Option("--uncompress", help="With lines and frames: uncompress compressed bodies.")
    ] = False,
    no_index: NoIndexOption = False,
    force_read_only: ForceReadOnly = False,
) -> None:
    """Write the messages of a store to a file.

    Messages are written in the order of the log. The file must not exist yet. Unreadable messages are reported on
    standard error; the exit code is then 1, and all other messages are written.

    Examples:
        dledger export /data/store --topic orders -o orders.jsonl.gz
        dledger export /data/store --topic orders --format lines --uncompress | wc -l
    """
    if uncompress and style is ExportFormat.JSONL:
        fail("--uncompress: expected with --format lines or frames; objects have messages as stored", EXIT_USAGE)
    wanted = filter_of(topic, queue, key, begin, end)
    body_of = _uncompressed if uncompress else _stored
    write_of: dict[ExportFormat, Callable[[ReadMessage], bytes]] = {
        ExportFormat.JSONL: _json_bytes,
        ExportFormat.LINES: lambda message: body_of(message) + b"\n",
        ExportFormat.FRAMES: lambda message: _frame(body_of(message)),
    }
    with reported_store_errors():
        reader = _reader(directory, wanted, is_forced=force_read_only, is_index_used=not no_index)
        with _opened(target) as stream:
            encode = write_of[style]
            _print(reader, limit, lambda message: stream.write(encode(message)))


def _reader(directory: Path, wanted: MessageFilter, *, is_forced: bool, is_index_used: bool) -> StoreReader:
    parts = open_parts(directory, is_forced=is_forced)
    print_mode(parts.directory)
    return StoreReader(parts, wanted, is_index_used=is_index_used)


def _print(reader: StoreReader, limit: int, write: Callable[[ReadMessage], object]) -> None:
    """Write up to `limit` messages (0: all), and faults on standard error; exit with 1 if there are faults."""
    faults = count = 0
    for item in reader.read():
        if isinstance(item, Finding):
            # A torn tail was never acknowledged: it is reported, but does not count as a fault.
            faults += not item.is_unfinished
            typer.echo(f"dledger: {item}", err=True)
            continue
        write(item)
        count += 1
        if count == limit:
            break
    for note in reader.notes:
        typer.echo(f"dledger: {note}", err=True)
    if reader.due_count:
        typer.echo(
            "dledger: the store was not closed cleanly, or is in use: queues or index lack "
            f"{reader.due_count} of these messages; the next start adds them, and they are marked as present",
            err=True,
        )
    if faults:
        fail(f"{faults} {'fault' if faults == 1 else 'faults'} found", EXIT_FAILED)


@contextmanager
def _opened(target: Path) -> Iterator[Sink]:
    if str(target) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        stream = target.open("xb")
    except FileExistsError:
        fail(f"{target} exists already: choose another file, or remove it", EXIT_USAGE)
    except OSError as error:
        fail(f"{target} cannot be written: {error.strerror}", EXIT_USAGE)
    with stream:
        if target.suffix == ".gz":
            with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=6, mtime=0) as packed:
                yield packed
        elif target.suffix == ".zst":
            with zstandard.ZstdCompressor().stream_writer(stream, closefd=False) as packed:
                yield packed
        else:
            yield stream


def _print_line(line_of: Callable[[ReadMessage], str]) -> Callable[[ReadMessage], None]:
    return lambda message: typer.echo(line_of(message))


def _json_line(message: ReadMessage) -> str:
    row = row_of(message.record, tags_code=message.tags_code, is_indexed=message.is_indexed)
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def _json_bytes(message: ReadMessage) -> bytes:
    return _json_line(message).encode("utf-8", "surrogatepass") + b"\n"


def _stored(message: ReadMessage) -> bytes:
    return message.record.body


def _uncompressed(message: ReadMessage) -> bytes:
    record = message.record
    try:
        return uncompressed_body(record.sys_flag, record.body)
    except UnreadableBody as error:
        typer.echo(f"dledger: the message at {record.physical_offset}: {error}; written as stored", err=True)
        return record.body


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(_FRAME_SIZE_BYTES, "big") + body


def _head() -> str:
    topic_width = _topic_width()
    head = f"{'offset':>14} {'size':>7} {'stored (UTC)':<19} {'topic':<{topic_width}} {'queue':>5} {'q offset':>9} QI  "
    # In 80 columns there is no space for the long heading.
    return head + ("tag, keys, body" if preview_width() - len(head) >= _TEXT_WIDTH else "text")


def _topic_width() -> int:
    return max(8, min(_TOPIC_WIDTH_MAX, preview_width() - 76))


def _table_line(message: ReadMessage) -> str:
    record, properties = message.record, message.record.properties
    width = _topic_width()
    known = ("Q" if message.tags_code is not None else "-") + ("I" if message.is_indexed else "-")
    head = (
        f"{record.physical_offset:>14} {record.size:>7} {_moment(record.store_timestamp):<19} "
        f"{_shortened(record.topic, width):<{width}} {record.queue_id:>5} {record.queue_offset:>9} {known}  "
    )
    text_width = max(preview_width() - len(head), 8)
    words = [
        properties.get(TAGS, "-"),
        properties.get(KEYS, "-"),
        bytes(record.body_view[:text_width]).decode(errors="replace"),
    ]
    # What cannot be printed is shown as a dot, so that no message can play with the terminal.
    text = "".join(char if char.isprintable() else "." for char in "  ".join(words))
    return head + text[:text_width]


def _shortened(text: str, width: int) -> str:
    text = "".join(char if char.isprintable() else "." for char in text)
    return text if len(text) <= width else text[: width - 2] + ".."


def _moment(timestamp_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)[:19]
