"""`dledger inspect`: print the files of a store or of a node; this module: entries, index, term."""

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from cluster.cli.common import EXIT_FAILED, EXIT_USAGE, fail, help_of, preview_width
from cluster.cli.entry_kinds import kind_of
from cluster.cli.store.common import FormatOption, TableFormat, reported_store_errors
from cluster.cli.store.common import LimitOption as Limit
from cluster.cli.store.derived_files import advice_for_messages, checkpoint, has_key_index, print_key_index, queue
from cluster.cli.store.inspection import (
    FileFault,
    NotANode,
    StoredIndexUnit,
    entries_of,
    file_faults,
    find_store,
    hard_state_of,
    units_of,
)
from cluster.cli.store.messages import messages
from dledger.entries.format.entry import Entry

T = TypeVar("T")

inspect_app = typer.Typer(
    help="Print the files of a store or of a node.\n\nIt also reads stores of RocketMQ. Nothing is changed or locked.",
    no_args_is_help=True,
)

_ENTRY_COLUMNS = f"{'index':>10} {'term':>6} {'pos':>14} {'size':>8} {'kind':<6} {'chainCrc':>10} {'bodyCrc':>10}  body"
_UNIT_COLUMNS = f"{'index':>10} {'term':>6} {'pos':>14} {'size':>8} {'kind':<6}"


Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="Directory of a node (.../dledger-n0), or the directory that contains it, such as a store."
    ),
]
From = Annotated[int, typer.Option("--from", min=0, metavar="INDEX", help="The first index to print.")]


def entries(
    directory: Directory,
    style: FormatOption = TableFormat.TABLE,
    begin: From = 0,
    limit: Limit = 0,
) -> None:
    """Print and check the entries of the log.

    A damaged entry is reported with its file and position on standard error and skipped; a file with a wrong name or
    size is reported after the entries. The exit code is then 1.

    Examples:
        dledger inspect entries data/dledger-n0
        dledger inspect entries data/dledger-n0 --from 1000 --limit 20
        dledger inspect entries data --format jsonl | jq .bodySha256
    """
    with reported_store_errors():
        node = _store(directory)
        found = chain(entries_of(node), file_faults(node / "data"))
        shown = (item for item in found if isinstance(item, FileFault) or item.index >= begin)
        if style is TableFormat.TABLE:
            typer.echo(_ENTRY_COLUMNS)
            _print(shown, limit, _entry_line)
        else:
            _print(shown, limit, _entry_json)


def index(
    directory: Directory,
    style: FormatOption = TableFormat.TABLE,
    begin: From = 0,
    limit: Limit = 0,
    *,
    items: Annotated[
        bool, typer.Option("--items", help="With a key index: print every item instead of one row per file.")
    ] = False,
) -> None:
    """Print the key index of a store, or the entry index of a node.

    The entry index has the position of each entry in the log; the key index finds messages by their keys.

    Examples:
        dledger inspect index /data/store
        dledger inspect index /data/store --items --limit 20
        dledger inspect index data/dledger-n0 --from 1000 --limit 20
    """
    with reported_store_errors():
        if has_key_index(directory):
            print_key_index(directory, style, begin, limit, is_by_item=items)
            return
        node = _store(directory)
        found = chain(units_of(node), file_faults(node / "index"))
        shown = (item for item in found if isinstance(item, FileFault) or item.slot >= begin)
        if style is TableFormat.TABLE:
            typer.echo(_UNIT_COLUMNS)
            _print(shown, limit, _unit_line)
        else:
            _print(shown, limit, _unit_json)


def term(directory: Directory) -> None:
    """Print the node's current term and its vote as a JSON object.

    Examples:
        dledger inspect term data/dledger-n0
    """
    with reported_store_errors():
        state = hard_state_of(_store(directory))
    if state is None:
        fail(f"{directory} has no term yet: the node has taken part in no election")
    typer.echo(json.dumps({"currTerm": state.term, "voteLeader": state.voted_for}))


for command in (messages, queue, index, checkpoint, entries, term):
    inspect_app.command(help=help_of(command))(command)


def _store(directory: Path) -> Path:
    """Return the node's directory in `directory`; end the command if there is none."""
    try:
        return find_store(directory)
    except NotANode as error:
        fail(str(error) + advice_for_messages(directory), EXIT_USAGE)


def _print(found: Iterator[T | FileFault], limit: int, line_of: Callable[[T], str]) -> None:
    """Print up to `limit` items (0: all), and faults on standard error; exit with 1 if there are faults."""
    faults = count = 0
    for item in found:
        if isinstance(item, FileFault):
            faults += 1
            typer.echo(f"dledger: {item}", err=True)
            continue
        typer.echo(line_of(item))
        count += 1
        if count == limit:
            break
    if faults:
        fail(f"{faults} {'fault' if faults == 1 else 'faults'} found", EXIT_FAILED)


def _entry_json(entry: Entry) -> str:
    return json.dumps(
        {
            "index": entry.index,
            "term": entry.term,
            "pos": entry.position,
            "size": entry.size,
            "bodySize": len(entry.body),
            "bodySha256": hashlib.sha256(entry.body).hexdigest(),
            "magic": entry.magic,
            "channel": entry.channel,
            "chainCrc": entry.chain_crc,
            "bodyCrc": entry.body_crc,
        },
        separators=(",", ":"),
    )


def _entry_line(entry: Entry) -> str:
    kind = kind_of(entry.magic, entry.channel)
    head = (
        f"{entry.index:>10} {entry.term:>6} {entry.position:>14} {entry.size:>8} {kind:<6} "
        f"{entry.chain_crc:>#10x} {entry.body_crc:>#10x}  "
    )
    width = max(preview_width() - len(head), 8)
    # Unprintable characters are shown as dots, so that an entry cannot send control sequences to the terminal.
    text = entry.body[:width].decode(errors="replace")
    return head + "".join(char if char.isprintable() else "." for char in text)


def _unit_json(unit: StoredIndexUnit) -> str:
    fields = {"index": unit.index, "term": unit.term, "pos": unit.position, "size": unit.size, "magic": unit.magic}
    return json.dumps(fields, separators=(",", ":"))


def _unit_line(unit: StoredIndexUnit) -> str:
    return f"{unit.index:>10} {unit.term:>6} {unit.position:>14} {unit.size:>8} {kind_of(unit.magic, 0):<6}"
