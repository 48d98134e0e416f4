"""`dledger console`: the web console for the browsers of this machine."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from cluster.cli.client_target import nodes_asked
from cluster.cli.common import (
    DEFAULT_ENDPOINTS,
    DEFAULT_GROUP,
    EXIT_USAGE,
    Group,
    NameServers,
    fail,
    print_note,
)

DEFAULT_PORT = 20951


def console(
    context: typer.Context,
    endpoints: Annotated[
        str,
        typer.Option(
            "--nodes",
            "--endpoints",
            "-e",
            envvar="DLEDGER_ENDPOINTS",
            metavar="HOST:PORT,...",
            help="Client addresses of all nodes of the group.",
        ),
    ] = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    name_servers: NameServers = "",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")
    ] = DEFAULT_PORT,
) -> None:
    """Serve the web console on this machine.

    Pages: what is wrong with each group now, and what to do; the nodes of a group with elections, votes and positions
    as they happen; topics. The console only reads, with the rights of the user whose certificate or token it is given.

    It listens on 127.0.0.1 only, and has no login: every user of this machine can open it. From another machine, use a
    tunnel: ssh -L 20951:127.0.0.1:20951 HOST.

    Examples:
        dledger console
        dledger console --nodes 10.0.0.1:20921,10.0.0.2:20921,10.0.0.3:20921 --port 8080
        dledger console --context prod
    """
    try:
        from cluster.console.serving import ConsoleGroups, serve
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed; the console needs the extra `console` of this project", EXIT_USAGE)
    from dledger.client.endpoints import parse_endpoints

    asked = nodes_asked(context, endpoints, name_servers, group)
    try:
        nodes = {each.group: parse_endpoints(each.endpoints) for each in asked}
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            fail(f"127.0.0.1:{port}: {error.strerror}; choose another port with --port", EXIT_USAGE)
        listener.listen(128)
        host, bound = listener.getsockname()
        print_note(f"http://{host}:{bound}/ shows {', '.join(nodes)}; Ctrl-C stops it")
        serve(ConsoleGroups(nodes, asked[0].security), listener)
