"""`dledger context`: named targets of commands."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.client_target import SETTINGS, complete_names
from cluster.cli.common import EXIT_USAGE, fail, help_of, notes
from cluster.cli.contexts import (
    FILES,
    NAME_VARIABLE,
    Context,
    ContextError,
    changed_contexts,
    check_context,
    load_contexts,
)
from cluster.cli.rows import AsJson, print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.", autocompletion=complete_names)]

context_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Save addresses under names, and choose the current one. For each setting of a command the first of these "
    "applies: an option on the command line, --context, the environment (DLEDGER_ENDPOINTS and others), the context "
    "that DLEDGER_CONTEXT names, the one of `dledger context use`. Contexts are stored in "
    "~/.config/dledger/contexts.toml, or in the file that DLEDGER_CONFIG names.",
    epilog="\b\nA cluster by name:\n"
    "    dledger context add prod --name-servers 10.0.0.5:9876,10.0.0.6:9876 --use\n"
    "    dledger status                        all nodes of all its brokers\n"
    "    dledger context add audit --endpoints 10.0.1.7:20921,10.0.1.8:20921 --group audit\n"
    "    dledger tail --context audit          once; `export DLEDGER_CONTEXT=audit` for this shell",
)


def list_contexts(*, as_json: AsJson = False) -> None:
    """List all contexts; an asterisk marks the current one.

    Examples:
        dledger context list
        dledger context list --json | jq -r .name
    """
    with _reported_errors():
        known = load_contexts()
    rows = [
        {
            "is_current": each.name == known.current,
            "name": each.name,
            "kind": "name servers" if each.name_servers else "endpoints",
            "endpoints": each.endpoints or None,
            "name_servers": each.name_servers or None,
            "where": (each.endpoints or each.name_servers).replace(" ", "").split(","),
            "group": each.group or None,
            "tls_ca": each.tls_ca or None,
            "tls_cert": each.tls_cert or None,
            "tls_key": each.tls_key or None,
            "tls_server_name": each.tls_server_name or None,
            "token_file": each.token_file or None,
            "description": each.description or None,
        }
        for each in known.by_name.values()
    ]
    if as_json:
        print_rows(
            {}, [{name: row[name] for name in row if name not in ("kind", "where")} for row in rows], as_json=True
        )
        return
    columns = {"mark": "", "name": "context", "kind": "kind", "where": "where", "group": "group"}
    shown = [{**row, "mark": "*" if row["is_current"] else ""} for row in rows]
    print_rows(columns | {"description": "description"}, shown, as_json=False)
    if not rows:
        notes.print(f"no contexts in {known.path}; `dledger context add` creates one", highlight=False, soft_wrap=True)


def show_context(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]", help="The context; default: the settings in use.", autocompletion=complete_names
        ),
    ] = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Show a context, or the settings in use.

    Without a name it shows the settings that commands use now, and the source of each.

    Examples:
        dledger context show
        dledger context show prod
        dledger context show --json | jq -r 'select(.setting == "group").value'
    """
    with _reported_errors():
        known = load_contexts()
        chosen = name or os.environ.get(NAME_VARIABLE) or known.current
        found = known.named(chosen) if chosen else None
    rows = []
    if found is not None:
        is_of_environment = not name and os.environ.get(NAME_VARIABLE)
        source = NAME_VARIABLE if is_of_environment else "name" if name else "current context"
        rows.append({"setting": "context", "value": found.name, "from": source})
    of_context = {} if found is None else found.settings()
    for variable, setting in SETTINGS.items():
        label = "broker" if variable == "DLEDGER_BROKER" else setting
        # The environment overrides a context that was not given on the command line.
        if not name and os.environ.get(variable):
            rows.append({"setting": label, "value": os.environ[variable], "from": variable})
        elif label in of_context:
            rows.append({"setting": label, "value": of_context[label], "from": f"context {chosen}"})
    if not as_json:
        notes.print(f"contexts are in {known.path}", highlight=False, soft_wrap=True)
    print_rows({"setting": "setting", "value": "value", "from": "from"}, rows, as_json=as_json)
    if not rows:
        notes.print("no context is in use: commands use this machine; see `dledger context --help`", highlight=False)


def add_context(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, - and _.")],
    endpoints: Annotated[
        str, typer.Option("--endpoints", "-e", metavar="HOST:PORT,...", help="Client addresses of nodes of one group.")
    ] = "",
    name_servers: Annotated[
        str,
        typer.Option("--name-servers", metavar="HOST:PORT,...", help="Instead: the name servers of an installation."),
    ] = "",
    group: Annotated[
        str, typer.Option("--group", "-g", help="The replication group; for nodes of a broker, the broker's name.")
    ] = "",
    *,
    tls_ca: Annotated[
        Path | None, typer.Option("--tls-ca", metavar="FILE", help="Use TLS, with this authority of the nodes.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Client certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.")] = None,
    tls_server_name: Annotated[
        str, typer.Option("--tls-server-name", metavar="NAME", help="The name in certificates of nodes.")
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="The token to send; `dledger user login`.")
    ] = None,
    description: Annotated[str, typer.Option("--description", "-d", metavar="TEXT", help="A line of free text.")] = "",
    use: Annotated[bool, typer.Option("--use", help="Also make it the current context.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing context.")] = False,
) -> None:
    """Add a context.

    A context has endpoints or name servers, and a group if it is not `default`. The command contacts no node: `dledger
    status --context NAME` shows whether they can be reached.

    Examples:
        dledger context add prod --name-servers 10.0.0.5:9876,10.0.0.6:9876 --use
        dledger context add audit --endpoints 10.0.1.7:20921,10.0.1.8:20921 --group audit
    """
    paths = zip(FILES, (tls_ca, tls_cert, tls_key, token_file), strict=True)
    files = {setting: str(path.absolute()) for setting, path in paths if path is not None}
    context = Context(
        name, endpoints, name_servers, group, tls_server_name=tls_server_name, description=description, **files
    )
    with _reported_errors():
        check_context(context)
        with changed_contexts() as changes:
            if name in changes.by_name and not replace:
                raise ContextError(f"context {name} exists in {changes.path}; --replace replaces it")
            changes.by_name[name] = context
            if use:
                changes.current = name
            is_current = changes.current == name
    hint = "it is the current one" if is_current else f"`dledger context use {name}` makes it the current one"
    notes.print(f"context {name} is in {changes.path}; {hint}", highlight=False, soft_wrap=True)


def use_context(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The context.", autocompletion=complete_names, show_default=False)
    ] = "",
    *,
    none: Annotated[bool, typer.Option("--none", help="Instead of a name: unset the current context.")] = False,
) -> None:
    """Make a context the current one.

    Commands use it unless an option or the environment overrides it.

    Examples:
        dledger context use prod
        dledger context use --none
    """
    if bool(name) == none:
        fail("context use: expected the name of a context or --none", EXIT_USAGE)
    with _reported_errors(), changed_contexts() as changes:
        if name and name not in changes.by_name:
            known = ", ".join(sorted(changes.by_name)) or "none"
            raise ContextError(f"there is no context {name!r} in {changes.path}, which has {known}")
        changes.current = name
    set_variables = [variable for variable in (NAME_VARIABLE, *SETTINGS) if os.environ.get(variable)]
    text = f"{name} is the current context" if name else "there is no current context"
    if set_variables and name:
        text += (
            f"; but {', '.join(set_variables)} in the environment override{'s' if len(set_variables) == 1 else ''} it"
        )
    notes.print(text, highlight=False, soft_wrap=True)


def remove_context(name: Name) -> None:
    """Remove a context.

    If it is the current one, there is no current context afterwards.

    Examples:
        dledger context remove audit
    """
    with _reported_errors(), changed_contexts() as changes:
        if name not in changes.by_name:
            raise ContextError(f"there is no context {name!r} in {changes.path}; `dledger context list` shows all")
        del changes.by_name[name]
        was_current = changes.current == name
        if was_current:
            changes.current = ""
    notes.print(f"context {name} removed{'; there is no current context now' if was_current else ''}", highlight=False)


@contextmanager
def _reported_errors() -> Iterator[None]:
    try:
        yield
    except ContextError as error:
        fail(str(error), EXIT_USAGE)


for _name, _command in (
    ("list", list_contexts),
    ("show", show_context),
    ("add", add_context),
    ("use", use_context),
    ("remove", remove_context),
):
    context_app.command(_name, help=help_of(_command))(_command)
