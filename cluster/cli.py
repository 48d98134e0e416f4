"""The command `dledger`. What its commands do is in `cli_*.py`, by subject; `cli_loading` knows where each is."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from cluster.cli_common import help_of
from cluster.cli_loading import LoadingGroup
from cluster.cli_where import ContextName, note_context_of_root

app = typer.Typer(
    name="dledger",
    cls=LoadingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"dledger {version('dledger-py')}")
        raise typer.Exit


def log(
    context: typer.Context,
    context_name: ContextName = "",
    *,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Keep one sequence of entries on three nodes; what is acknowledged survives the loss of any one.

    The entries are lines, or messages in topics and queues, as in RocketMQ. Exit codes of all commands: 0 done; 1 not,
    or not all, and the message says what to do; 2 wrong usage.

    Examples:
        dledger server --config n0.toml              run a node
        export DLEDGER_ENDPOINTS=127.0.0.1:20921     where the commands below find the nodes
        dledger status                               who leads, how far is everybody
        dledger append access.log                    append a file, one line an entry
        dledger tail -n 5 --follow                   read the end of the log, and what comes
        dledger broker --standalone data/store       run a broker of messages on this machine alone
        dledger produce orders < orders.txt          put messages, one line each; `consume` prints them
        dledger consume orders --group billing -f    read them, go on where the group is, wait for more
        dledger group disable billing                hold a group up; `offsets --group` shows how far it is
        dledger nameserver                           run a name server: brokers register, clients look topics up
        dledger members list                         who belongs to the group
        dledger inspect entries data/dledger-n0      look into the files of a node
        dledger inspect messages /data/store         the messages of a store of RocketMQ, or ours
        dledger verify /data/store                   is everything in it as it must be?
        dledger bench                                measure three nodes of its own
        dledger spark report /data/store             a page about a log of any size, made with Spark
    """
    note_context_of_root(context, context_name)


app.callback(help=help_of(log))(log)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
