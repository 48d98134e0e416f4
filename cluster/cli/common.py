"""Common code of all commands: options of client commands, error messages, consoles."""

from __future__ import annotations

import inspect
import os
import sys
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NoReturn, TextIO

import typer
from rich.console import Console

from cluster.config.exposure import HOW_TO_LISTEN, is_loopback
from dledger.errors import DLedgerError
from store.fs.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cluster.config.exposure import ExposedPort

EXIT_FAILED = 1
EXIT_USAGE = 2

# Results go to standard output; progress bars, notes and errors to standard error, so that output can be piped.
# Output to a pipe or a file has no width limit, so that no address is broken and no name is cut.
_PIPED_WIDTH = 10_000
_PREVIEW_WIDTH_MAX = 200


def console_of(stream: TextIO, *, is_stderr: bool = False) -> Console:
    """Return a console with the width of the terminal or of `COLUMNS`; unlimited if there is neither."""
    is_piped = not stream.isatty() and not os.environ.get("COLUMNS")
    return Console(stderr=is_stderr, width=_PIPED_WIDTH if is_piped else None)


output = console_of(sys.stdout)
notes = console_of(sys.stderr, is_stderr=True)


def preview_width() -> int:
    """Return the width in columns of a line that ends with the beginning of a body."""
    return min(output.width, _PREVIEW_WIDTH_MAX)


class BodyFormat(StrEnum):
    """The output format of entries or messages."""

    TEXT = "text"
    JSONL = "jsonl"


Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Listen without TLS also where other machines can connect: all of them are trusted."
    ),
]
Debuggable = Annotated[
    bool,
    typer.Option(
        "--debuggable",
        envvar="DLEDGER_DEBUGGABLE",
        help="Let other processes of this user read the memory, with its keys: for a debugger or a profiler.",
    ),
]
Endpoints = Annotated[
    str,
    typer.Option(
        "--endpoints",
        "-e",
        envvar="DLEDGER_ENDPOINTS",
        metavar="HOST:PORT,...",
        help="Client addresses of the nodes; one running node is enough.",
    ),
]
Group = Annotated[str, typer.Option("--group", "-g", envvar="DLEDGER_GROUP", help="The replication group.")]
NameServers = Annotated[
    str,
    typer.Option(
        "--name-servers",
        "--name-server",
        envvar="DLEDGER_NAME_SERVERS",
        metavar="HOST:PORT,...",
        help="Addresses of name servers, instead of addresses of nodes.",
    ),
]
Deadline = Annotated[
    float, typer.Option("--deadline", min=0.1, metavar="SECONDS", help="Time limit, retries included.")
]
DEFAULT_ENDPOINTS = "127.0.0.1:20921"
DEFAULT_GROUP = "default"
DEFAULT_DEADLINE_S = 10.0


def help_of(command: Callable[..., None]) -> str:
    """Return a command's docstring as help text, with the examples unwrapped."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    # click wraps a paragraph unless it begins with this mark.
    return "\n\n".join(f"\b\n{text}" if "\n    " in text else text for text in paragraphs)


def print_starting(what: str) -> None:
    """Print on standard error that a server starts; to be called before slow imports and recovery."""
    print_note(f"starting {what}; Ctrl-C stops it")


def print_note(text: str) -> None:
    """Print a note on standard error."""
    notes.print(f"dledger: {text}", highlight=False, markup=False, soft_wrap=True)


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """Print an error on standard error, and end the command."""
    line = printable(f"dledger: {message}", kept="\n")
    sys.stderr.write(f"{line}\n")
    raise typer.Exit(code)


@contextmanager
def reported_errors(endpoints: str) -> Iterator[None]:
    """Turn the exceptions of a client command into an error message with advice."""
    try:
        yield
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    except DLedgerError as error:
        fail(str(error) + help_if_unreachable(str(error), endpoints))


def help_if_unreachable(error: str, endpoints: str) -> str:
    """Return advice if no node or no leader was found; empty for other errors."""
    if "no leader found" not in error:
        return ""
    return (
        f"\nAsked {endpoints}. Are the nodes running, and are these their client addresses? Set them with "
        "--endpoints, DLEDGER_ENDPOINTS or a context (`dledger context`); `dledger status` shows every node's state."
    )


def allowed_exposure(ports: Iterable[ExposedPort], *, is_insecure: bool) -> tuple[ExposedPort, ...]:
    """Return those of a process's unsecured ports that other machines can reach, and print a note of each.

    Without `--insecure` the first of them ends the command.

    Args:
        ports: that are plain, or do not authenticate their clients; their options are those of the command.
        is_insecure: `--insecure` was given.
    """
    exposed = tuple(port for port in ports if not is_loopback(port.address))
    for port in exposed:
        if not is_insecure:
            advice = f"{port.remedy}, or {HOW_TO_LISTEN}" if port.remedy else HOW_TO_LISTEN
            fail(f"{port.option}: {port}: {advice}", EXIT_USAGE)
        print_note(str(port))
    return exposed
