"""`dledger audit`: check the files of an audit log, offline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.common import EXIT_FAILED, EXIT_USAGE, fail, help_of, notes
from cluster.cli.rows import AsJson, print_rows

if TYPE_CHECKING:
    from cluster.audit.chain import ChainReport

_COLUMNS = {
    "file": "file",
    "lines": "lines",
    "cut": "cut",
    "from_first": "from first",
    "fault": "fault",
    "head": "head",
}
_HASH = re.compile(r"[0-9a-f]{64}")
_OLDER = re.compile(r".*\.[0-9]+\.jsonl")

audit_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check the files of an audit log. Each line has the hash of the line before it.",
    epilog="\b\nThe audit log of a node, and of all that was noted before:\n"
    "    dledger audit verify data/audit\n"
    "    dledger audit verify data/audit/n0-admin.jsonl --noted 3f9a...",
)


def verify(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The folder of an audit log, or the newest file of a series.")
    ],
    noted: Annotated[
        str,
        typer.Option("--noted", metavar="HASH", help="A head of this series that an earlier check printed."),
    ] = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Check that no line of an audit log was changed, removed or added.

    Each line has the hash of the line before it, over all files of a series and over restarts. Note the head (the hash
    of the last line) on another machine: a later check with --noted then also finds that lines at the end were removed,
    or that the log was written again from some line on. Old files that were deleted for their number are no fault.

    Exit code 1: the chain is broken, or the noted hash is of no line.

    Examples:
        dledger audit verify data/audit
        dledger audit verify data/audit/n0-admin.jsonl --noted $(cat n0-admin.head)
    """
    from cluster.audit.chain import verify_chain

    if noted and not _HASH.fullmatch(noted):
        fail(f"--noted {noted}: expected 64 hexadecimal digits, a head that an earlier check printed", EXIT_USAGE)
    if noted and path.is_dir():
        fail(f"--noted: expected the newest file of one series, found the folder {path}", EXIT_USAGE)
    try:
        newest = _series_of(path)
        reports = {file: verify_chain(file, noted) for file in newest}
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror}")
    if not reports:
        fail(f"{path}: expected files of an audit log (*.jsonl)")
    print_rows(_COLUMNS, [_row(file, report) for file, report in reports.items()], as_json=as_json)
    faults = [fault for report in reports.values() for fault in _faults(report)]
    for fault in faults:
        notes.print(fault, highlight=False, soft_wrap=True, markup=False)
    if faults:
        raise typer.Exit(EXIT_FAILED)


def _series_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.glob("*.jsonl") if not _OLDER.fullmatch(file.name))


def _faults(report: ChainReport) -> list[str]:
    unknown = [] if report.is_known else ["the noted hash is of no line: lines were removed, or written again"]
    return [*report.faults, *unknown]


def _row(file: Path, report: ChainReport) -> dict[str, Any]:
    faults = _faults(report)
    return {
        "file": str(file),
        "lines": report.lines,
        "unchained": report.unchained,
        "cut": report.cut,
        "from_first": report.is_complete,
        "head": report.head or None,
        "fault": faults[0] if faults else None,
        "faults": faults,
    }


audit_app.command("verify", help=help_of(verify))(verify)
