"""`dledger inspect queue`, `index` (the key index) and `checkpoint`: the stored files that are derived from the log."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from cluster.cli.common import EXIT_FAILED, fail
from cluster.cli.rows import show_table
from cluster.cli.store.broker_queues import content_of, has_delivery_times
from cluster.cli.store.common import (
    ForceReadOnly,
    FormatOption,
    LimitOption,
    QueueOption,
    StoreArgument,
    TableFormat,
    TopicOption,
    find,
    open_parts,
    refuse_raw,
    reported_store_errors,
)
from commitlog.offline.checkpoint_check import read_numbers
from commitlog.offline.directory import NotAStore, StoreMode, find_store
from dledger.storage.checkpoint import FILE_NAME as NODE_CHECKPOINT_NAME
from dledger.storage.properties import parse_properties
from store.errors import StoreError
from store.fs.read_only_files import ReadOnlyFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from store.check.index_view import IndexView
    from store.check.queue_view import QueueView
    from store.model.finding import Finding

Row = dict[str, Any]
_CHUNK_UNITS = 4096
_NODE_CHECKPOINT = "it is ignored, and the next start of the node rewrites it"


def queue(
    directory: StoreArgument,
    style: FormatOption = TableFormat.TABLE,
    topic: TopicOption = None,
    queue: QueueOption = None,
    limit: LimitOption = 0,
    *,
    force_read_only: ForceReadOnly = False,
) -> None:
    """Print the consume queues of a store, or the units of one queue.

    The queues of the broker itself (delayed messages, transactions, dead letters) are shown with what they contain.
    With --topic and --queue the units of that queue are printed. A unit has the position of its message in the log;
    `dledger verify` checks that the message exists. Units of delayed messages have the time of delivery.

    Examples:
        dledger inspect queue /data/store
        dledger inspect queue /data/store --topic orders --queue 3 --limit 20
    """
    with reported_store_errors():
        parts = open_parts(directory, is_forced=force_read_only)
        chosen = [
            view
            for key, view in sorted(parts.queues.items())
            if topic in (None, key.topic) and queue in (None, key.queue_id)
        ]
        if (topic is not None or queue is not None) and not chosen:
            fail(f"{parts.directory.queues_path} has no such queue; `dledger inspect queue {directory}` lists all")
        if topic is not None and queue is not None:
            _print(_unit_rows(chosen[0]), style, limit, _unit_cells)
        else:
            _print((_queue_row(view) for view in chosen), style, limit, _queue_cells)
        _print_findings(parts.findings)


def checkpoint(directory: StoreArgument, style: FormatOption = TableFormat.TABLE) -> None:
    """Print the checkpoints of a store and of its node.

    They contain the times up to which log, queues and index are durable, and DLedger's commit index.

    Examples:
        dledger inspect checkpoint /data/store
    """
    with reported_store_errors():
        found = find(directory)
        files = ReadOnlyFiles()
        rows: list[Row] = []
        numbers = read_numbers(files, found.checkpoint_path)
        if numbers is not None:
            rows += [_checkpoint_row(found.checkpoint_path, name, value) for name, value in numbers.items()]
        if found.node_directory is not None:
            path = f"{found.node_directory}/{NODE_CHECKPOINT_NAME}"
            text = files.read_bytes(path)
            try:
                pairs = {} if text is None else parse_properties(text)
            except ValueError as error:
                fail(f"{path}: expected lines committedIndex=... and endIndex=..., found {error}; {_NODE_CHECKPOINT}")
            rows += [{"file": path, "field": name, "value": value, "time": None} for name, value in pairs.items()]
        if not rows:
            fail(f"{found.root} has no complete checkpoint: expected {found.checkpoint_path}")
        _print(rows, style, 0, lambda row: _checkpoint_cells(row, found.root))


def has_key_index(directory: Path) -> bool:
    """Return whether `directory` is a message store, rather than the directory of a node."""
    files = ReadOnlyFiles()
    if files.is_directory(f"{directory}/data"):
        return False
    try:
        found = find_store(files, str(directory))
    except StoreError:
        return False
    return found.mode is not StoreMode.RAW


def advice_for_messages(directory: Path) -> str:
    """Return additional advice if a directory without entries has messages; otherwise an empty text."""
    try:
        found = find_store(ReadOnlyFiles(), str(directory))
    except NotAStore:
        return ""
    except StoreError:
        return ""
    if found.mode is not StoreMode.PLAIN:
        return ""
    return f". It is a plain store: its log has messages and no entries; see `dledger inspect messages {directory}`"


def print_key_index(directory: Path, style: TableFormat, begin: int, limit: int, *, is_by_item: bool) -> None:
    """Print the files of the key index, or its items, beginning with number `begin` of each file."""
    with reported_store_errors():
        refuse_raw(find(directory))
        # Permitted for a store in use, because nothing is compared with the log.
        parts = open_parts(directory, is_forced=True)
        rows = (
            (row for view in parts.index_views for row in _item_rows(view, max(begin, 1)))
            if is_by_item
            else map(_index_row, parts.index_views)
        )
        _print(rows, style, limit, _same if is_by_item else _index_cells)
        _print_findings([finding for finding in parts.findings if finding.path.startswith(parts.directory.index_path)])


def _print_findings(findings: Iterable[Finding]) -> None:
    texts = list(map(str, findings))
    for text in texts:
        typer.echo(f"dledger: {text}", err=True)
    if texts:
        fail(f"{len(texts)} {'fault' if len(texts) == 1 else 'faults'} found", EXIT_FAILED)


def _queue_row(view: QueueView) -> Row:
    first = next((unit for unit in _units(view) if not unit["isBlank"]), None)
    last = None if first is None else view.unit(view.end - 1)
    return {
        "topic": view.key.topic,
        "queueId": view.key.queue_id,
        "files": len(view.queue_files),
        "minOffset": view.end if first is None else first["queueOffset"],
        "maxOffset": view.end,
        "firstPhysicalOffset": None if first is None else first["physicalOffset"],
        "lastPhysicalOffset": None if last is None else last.offset,
        "content": content_of(view.key),
    }


def _unit_rows(view: QueueView) -> Iterator[Row]:
    if not has_delivery_times(view.key):
        return _units(view)
    return (row | {"deliveryTime": _moment(row["tagsCode"])} for row in _units(view))


def _units(view: QueueView) -> Iterator[Row]:
    for begin in range(view.begin, view.end, _CHUNK_UNITS):
        units = view.units(begin, min(begin + _CHUNK_UNITS, view.end))
        for at, (offset, size, tags_code) in enumerate(units.tolist()):
            is_blank = size == 2**31 - 1 and not offset
            yield {
                "queueOffset": begin + at,
                "physicalOffset": offset,
                "size": size,
                "tagsCode": tags_code,
                "isBlank": is_blank,
            }


def _index_row(view: IndexView) -> Row:
    header = view.header
    return {
        "file": view.path.rsplit("/", 1)[-1],
        "slots": view.slot_count,
        "itemsMax": view.item_count_max,
        "items": view.stated_item_count,
        "usedSlots": header.slot_count,
        "beginTimestamp": header.begin_timestamp,
        "endTimestamp": header.end_timestamp,
        "beginPhyOffset": header.begin_offset,
        "endPhyOffset": header.end_offset,
    }


def _item_rows(view: IndexView, begin: int) -> Iterator[Row]:
    name = view.path.rsplit("/", 1)[-1]
    for number in range(begin, view.stated_item_count + 1):
        item = view.item(number)
        yield {
            "file": name,
            "item": number,
            "keyHash": item.key_hash,
            "physicalOffset": item.offset,
            "timeDiff": item.seconds,
            "previous": item.previous,
        }


def _same(row: Row) -> Row:
    return row


def _queue_cells(row: Row) -> Row:
    """Return the cells of a row that are shown in a table."""
    names = {"queueId": "queue", "minOffset": "min", "maxOffset": "max"}
    names |= {"firstPhysicalOffset": "first at", "lastPhysicalOffset": "last at"}
    return {names.get(name, name): value for name, value in row.items()}


def _unit_cells(row: Row) -> Row:
    """Return the cells of a row that are shown in a table."""
    if "deliveryTime" not in row:
        return row
    kept = {name: value for name, value in row.items() if name != "tagsCode"}
    return kept | {"deliveryTime": (row["deliveryTime"] or str(row["tagsCode"])).rstrip("Z")}


def _index_cells(row: Row) -> Row:
    """Return the cells of a row that are shown in a table."""
    begin, end = (_moment(row[name]) or str(row[name]) for name in ("beginTimestamp", "endTimestamp"))
    items = f"{row['items']} of {row['itemsMax']}"
    return {"file": row["file"], "items": items, "slots": row["usedSlots"], "from (UTC)": begin[:19], "to": end[:19]}


def _checkpoint_cells(row: Row, root: str) -> Row:
    moment = None if row["time"] is None else row["time"][:19]
    return {"file": row["file"].removeprefix(f"{root}/"), **dict(list(row.items())[1:3]), "time (UTC)": moment}


def _checkpoint_row(path: str, name: str, value: int) -> Row:
    moment = _moment(value) if name.endswith("Timestamp") and value else None
    return {"file": path, "field": name, "value": value, "time": moment}


def _moment(timestamp_ms: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC).replace(tzinfo=None)
        return f"{moment.isoformat(timespec='milliseconds')}Z"
    except (OverflowError, ValueError, OSError):
        return None


def _print(rows: Iterable[Row], style: TableFormat, limit: int, cells_of: Callable[[Row], Row] = _same) -> None:
    shown = islice(rows, limit) if limit else iter(rows)
    if style is TableFormat.JSONL:
        for row in shown:
            typer.echo(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for number, row in enumerate(map(cells_of, shown)):
        if not number:
            for name, value in row.items():
                is_text = isinstance(value, str)
                table.add_column(name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
        table.add_row(*("-" if value is None else escape(str(value)) for value in row.values()))
    if table.row_count:
        show_table(table)
