"""`dledger server`: run one node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.common import EXIT_USAGE, Insecure, fail, print_note, print_starting
from cluster.config.help import config_template
from cluster.config.load import ConfigError, load_config

_HelpConfig = Annotated[
    bool,
    typer.Option("--help-config", help="Print a TOML file with every option, its default and its meaning."),
]


def server(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file with the node's options.")
    ] = None,
    set_options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Override one option; may be repeated."),
    ] = None,
    *,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="For one start: accept a directory without an identity file, which a Java program or an older "
            "version wrote.",
        ),
    ] = False,
    insecure: Insecure = False,
    help_config: _HelpConfig = False,
) -> None:
    """Run one node until Ctrl-C or SIGTERM.

    Options are read from the file, then from the environment (DLEDGER_<OPTION>, except broker and name_servers, because
    DLEDGER_BROKER and DLEDGER_NAME_SERVERS are addresses for clients), then from --set. All invalid options are
    reported together.

    Examples:
        dledger server --help-config > n0.toml        a file to start from
        dledger server --config n0.toml
        dledger server --config n0.toml --adopt       once, for a directory of Java or an older version
        dledger server --config n0.toml --insecure    in a network in which all are trusted: without TLS
        dledger server --config n0.toml --set self_id=n1 --set client_address=127.0.0.1:20922
    """
    if help_config:
        typer.echo(config_template(), nl=False)
        return
    overrides = _parse_overrides(set_options or [])
    if adopt:
        overrides["is_adopting"] = "true"
    if insecure:
        overrides["insecure"] = "all"
    try:
        loaded = load_config(config, os.environ, overrides)
    except ConfigError as error:
        fail(str(error), EXIT_USAGE)
    node = loaded.node
    print_starting(
        f"node {node.self_id} of group {node.group}, clients on {node.client_address}, data in {node.store_base_dir}"
    )
    if loaded.broker is not None and not loaded.broker.name_servers and os.environ.get("DLEDGER_NAME_SERVERS"):
        print_note(
            "DLEDGER_NAME_SERVERS is for clients: this broker registers with no name server. Set name_servers in the "
            "file or by --set"
        )
    # Imported here: the modules of a node are slow to load.
    from cluster.server.node import run_server

    raise typer.Exit(run_server(loaded))


def _parse_overrides(texts: list[str]) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            fail(f"--set {text}: expected NAME=VALUE", EXIT_USAGE)
        overrides[name.strip()] = value.strip()
    return overrides
