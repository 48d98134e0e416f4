"""The command `dledger`. Its subcommands are in folders by subject; `cluster.cli.loading` maps them to modules."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from cluster.cli.client_target import ContextName, note_context_of_root
from cluster.cli.common import help_of
from cluster.cli.loading import LoadingGroup
from dledger import native

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
        typer.echo(f"dledger {version('dledger-py')}, kernels: {native.in_use}")
        raise typer.Exit


def log(
    context: typer.Context,
    context_name: ContextName = "",
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Print the version, and whether the native module is in use.",
        ),
    ] = False,
) -> None:
    """A replicated log and message broker. An acknowledged entry survives the loss of any one of three nodes.

    Entries are lines, or messages in topics and queues, as in RocketMQ. Exit codes of all commands: 0 success; 1
    failure or partial success, with a message that explains what to do; 2 wrong usage.

    Examples:
        dledger server --config n0.toml            run a node
        dledger context add local --endpoints 127.0.0.1:20921 --use
        dledger status                             the leader, and each node's log
        dledger top                                the same, live, with rates
        dledger append access.log                  append a file, one entry a line
        dledger tail -n 5 --follow                 print the last entries, then new ones
        dledger members list                       the members of the group
        dledger certs init                         create certificates for TLS
        dledger broker --standalone data/store     run a broker without a group
        dledger nameserver                         run a name server for brokers
        dledger produce orders < orders.txt        send messages, one a line
        dledger consume orders --group billing -f  read from the group's offsets
        dledger offsets orders --group billing     the group's offsets and lag
        dledger inspect entries data/dledger-n0    read the files of a node
        dledger inspect messages /data/store       read a RocketMQ store
        dledger verify /data/store                 check every record and index unit
        dledger backup create /backups/orders      copy what is new in a running group's log
        dledger bench                              measure a temporary cluster
        dledger spark report /data/store           report on a log, with Spark
    """
    note_context_of_root(context, context_name)


app.callback(help=help_of(log))(log)


def main() -> None:
    """Run the command line."""
    app()
