"""`dledger nameserver`: run a name server."""

from __future__ import annotations

from typing import Annotated

import typer

from cluster.cli.common import EXIT_USAGE, Insecure, check_exposure, fail, print_starting
from cluster.config.values import parse_address


def nameserver(
    listen: Annotated[
        str, typer.Option("--listen", "-l", metavar="HOST:PORT", help="Address for brokers and clients.")
    ] = "127.0.0.1:9876",
    *,
    insecure: Insecure = False,
) -> None:
    """Run a name server until Ctrl-C or SIGTERM.

    Brokers register their topics with it, and clients look them up. It stores nothing on disk: after a restart the
    brokers register again, usually within seconds, at most after 30 s. Run two or three on different machines, and
    configure all of them on brokers and clients; name servers do not communicate with each other.

    Examples:
        dledger nameserver
        dledger nameserver --listen 10.0.0.5:9876 --insecure
    """
    try:
        address = parse_address(listen)
    except ValueError as error:
        fail(f"--listen: {error}", EXIT_USAGE)
    check_exposure("--listen", address, is_insecure=insecure)
    print_starting(f"name server on {address}")
    # Imported here: gRPC is slow to load.
    from cluster.api.name_server import run_name_server

    raise typer.Exit(run_name_server(address))
