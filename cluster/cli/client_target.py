"""The target of a client command: from its options, the environment, the current context, or by default this machine.

`add_context_option` adds `--context` to every command that takes an address from the environment. Precedence: an option
on the command line; `--context`; the environment; the context chosen by `DLEDGER_CONTEXT` or `dledger context use`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.main import get_command

from cluster.cli.common import DEFAULT_GROUP, EXIT_USAGE, fail
from cluster.cli.contexts import NAME_VARIABLE, Context, ContextError, load_contexts
from cluster.cli.tls import TLS_SETTINGS, security_of, tls_options
from dledger.security.settings import PLAIN, Security

# Environment variables of options, each with the context setting for the same option.
SETTINGS: Final = {
    "DLEDGER_ENDPOINTS": "endpoints",
    "DLEDGER_BROKER": "endpoints",
    "DLEDGER_NAME_SERVERS": "name_servers",
    "DLEDGER_GROUP": "group",
    **TLS_SETTINGS,
}
_PLACES: Final = ("DLEDGER_ENDPOINTS", "DLEDGER_BROKER", "DLEDGER_NAME_SERVERS")
# Commands of servers: their name servers are those with which they register.
_SERVING: Final = ("server", "broker", "nameserver")
_TYPED: Final = "COMMANDLINE"
_SOURCES: Final = (_TYPED, "ENVIRONMENT", "DEFAULT_MAP", "DEFAULT")
# The value of `--endpoints` for commands on a log if the context has name servers, which know the nodes.
_BY_NAME_SERVERS: Final = "name-servers:"
_OF_ROOT: Final = "cluster.context_name"


def complete_names(incomplete: str) -> list[str]:
    """Return the names of contexts that begin with a text; none if the file cannot be read."""
    with suppress(ContextError):
        return [name for name in load_contexts().by_name if name.startswith(incomplete)]
    return []


ContextName = Annotated[
    str,
    typer.Option(
        "--context",
        envvar=NAME_VARIABLE,
        metavar="NAME",
        autocompletion=complete_names,
        help="A saved set of addresses; see `dledger context`.",
    ),
]


def note_context_of_root(context: typer.Context, name: str) -> None:
    """Keep the option given before the command: `dledger --context NAME status`."""
    if name and _source(context, "context_name") == _TYPED:
        context.meta[_OF_ROOT] = name


def add_context_option(command: Any) -> Any:
    """Add the option `--context` to a command, or to all commands of a group; return it.

    Args:
        command: a `TyperCommand` or a `TyperGroup`.
    """
    if (of_group := getattr(command, "commands", None)) is not None:
        for each in of_group.values():
            add_context_option(each)
    elif command.name not in _SERVING and any(each.envvar in _PLACES for each in command.params):
        command.params += [_context_option(), *tls_options()]
    return command


def _context_option() -> Any:
    """Return the option as a click parameter; it has no value for the command, but sets defaults of other options."""
    holder = typer.Typer(add_completion=False)

    @holder.command()
    def _command(_name: _LeafContextName = "") -> None:
        """Do nothing: only the parameters of this function are used."""

    option = get_command(holder).params[0]
    option.expose_value = False
    return option


def _use(context: typer.Context, name: str) -> None:
    """Set the options that neither the command line nor the environment gives from the context in use."""
    if context.resilient_parsing:
        return
    is_typed = _source(context, "_name") == _TYPED
    if not is_typed and (of_root := context.meta.get(_OF_ROOT)):
        name, is_typed = of_root, True
    try:
        found = context_in_use(name)
    except ContextError as error:
        fail(str(error), EXIT_USAGE)
    if not is_typed and (name_servers := _name_servers_of_environment(context)):
        found = replace(found or Context(""), endpoints="", name_servers=name_servers)
    if found is None:
        return
    context.default_map = dict(context.default_map or {}) | {
        parameter.name: getattr(found, SETTINGS[parameter.envvar]) or _where_not_set(parameter.envvar, found)
        for parameter in context.command.params
        if parameter.envvar in SETTINGS
    }
    if is_typed:
        # The command line takes precedence over the environment.
        for parameter in context.command.params:
            if parameter.envvar in SETTINGS:
                parameter.envvar = None


def _name_servers_of_environment(context: typer.Context) -> str:
    """Return the environment's name servers for a command on a log that has no option for them; empty: none."""
    variables = {parameter.envvar for parameter in context.command.params}
    has_no_option = "DLEDGER_ENDPOINTS" in variables and "DLEDGER_NAME_SERVERS" not in variables
    return os.environ.get("DLEDGER_NAME_SERVERS", "") if has_no_option else ""


_LeafContextName = Annotated[
    str,
    typer.Option(
        "--context",
        envvar=NAME_VARIABLE,
        metavar="NAME",
        is_eager=True,
        callback=_use,
        autocompletion=complete_names,
        help="A saved set of addresses; see `dledger context`.",
    ),
]


def _where_not_set(variable: str, found: Context) -> str | None:
    """Return the default of an option that the context does not set; None: the option's own default."""
    if variable == "DLEDGER_ENDPOINTS":
        return _BY_NAME_SERVERS + found.name_servers
    return "" if variable in _PLACES else None


def context_in_use(name: str) -> Context | None:
    """Return the context with a name; without a name the current one, if any.

    Raises:
        ContextError: the file cannot be used, or has no such context.
    """
    known = load_contexts()
    return known.named(name or known.current) if name or known.current else None


def _source(context: typer.Context, name: str) -> str:
    source = context.get_parameter_source(name)
    return _SOURCES[-1] if source is None else source.name


def nodes_asked(context: typer.Context, endpoints: str, name_servers: str, group: str) -> list[LogNodes]:
    """Return the nodes of one group, or of all brokers of the name servers, depending on the options."""
    if preferred_option(context, "endpoints", "name_servers") == "endpoints":
        if not endpoints.startswith(_BY_NAME_SERVERS):
            return [LogNodes(endpoints, group, security_of(context))]
        name_servers = endpoints.removeprefix(_BY_NAME_SERVERS)
    found = brokers_of(name_servers, security_of(context))
    chosen = [each for each in found if group in (each.group, DEFAULT_GROUP)]
    if not chosen:
        names = ", ".join(each.group for each in found)
        fail(f"the name servers {name_servers} have no broker {group}: they know {names}", EXIT_USAGE)
    return chosen


def preferred_option(context: typer.Context, *names: str) -> str:
    """Return the option with the highest precedence: command line, environment, context, default.

    Args:
        context: context of the command.
        names: names of mutually exclusive parameters; of two with the same source the first is returned.
    """

    def rank(name: str) -> int:
        return _SOURCES.index(_source(context, name)) if context.params.get(name) else len(_SOURCES)

    return min(names, key=rank)


def are_given(context: typer.Context, *names: str) -> bool:
    """Return whether all of these options were given on the command line."""
    return all(_source(context, name) == _TYPED for name in names)


class LogNodes(NamedTuple):
    """The nodes of one group.

    Attributes:
        endpoints: `host:port` of nodes, comma separated.
        group: the replication group.
        security: TLS settings of the connections.
    """

    endpoints: str
    group: str
    security: Security = PLAIN


def log_nodes(context: typer.Context, endpoints: str, group: str) -> LogNodes:
    """Return the nodes for a command on a log; if the context has name servers, they are asked for the nodes.

    Args:
        context: context of the command.
        endpoints: the value of `--endpoints`.
        group: the group; selects one of several brokers by name.
    """
    if not endpoints.startswith(_BY_NAME_SERVERS):
        return LogNodes(endpoints, group, security_of(context))
    name_servers = endpoints.removeprefix(_BY_NAME_SERVERS)
    brokers = brokers_of(name_servers, security_of(context))
    by_name = {broker.group: broker for broker in brokers}
    if group not in by_name and not (group == DEFAULT_GROUP and len(brokers) == 1):
        names = ", ".join(by_name)
        fail(f"the name servers {name_servers} know the brokers {names}: choose one with --group", EXIT_USAGE)
    return by_name.get(group, brokers[0])


def brokers_of(name_servers: str, security: Security) -> list[LogNodes]:
    """Return the nodes of each broker of the name servers, ordered by name; end the command if there is none."""
    from cluster.cli.targets import registered_brokers
    from cluster.protocol.errors import RequestFailed
    from dledger.client.endpoints import parse_endpoints

    try:
        found = registered_brokers(parse_endpoints(name_servers), security)
    except ValueError as error:
        fail(f"--name-servers: {error}", EXIT_USAGE)
    except RequestFailed as failure:
        fail(f"{failure.message}. Set them with --name-servers, DLEDGER_NAME_SERVERS or a context")
    return [LogNodes(",".join(node.address for node in each.nodes), each.broker, security) for each in found]
