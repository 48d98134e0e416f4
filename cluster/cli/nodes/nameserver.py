"""`dledger nameserver`: run a name server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cluster.cli.common import EXIT_USAGE, Insecure, check_exposure, fail, print_starting
from cluster.cli.nodes.port_tls import AuthorityFile, CertificateFile, KeyFile, certificate_files
from cluster.config.values import parse_address

if TYPE_CHECKING:
    from dledger.config import Address
    from dledger.security.credentials import CertificateFiles
    from dledger.security.identity import CertificateIdentity


_ClientTls = Annotated[
    Literal["off", "on", "mutual"],
    typer.Option(help="TLS on this address. mutual: brokers and clients present certificates; access control is on."),
]
_Administrators = Annotated[
    list[str] | None,
    typer.Option(
        "--administrator",
        metavar="dledger://GROUP/user/NAME",
        help="A user that may drain brokers, with mutual TLS; may be given several times.",
    ),
]
_PlainListen = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Also serve without TLS and access control here, during a change to TLS."),
]


def nameserver(
    listen: Annotated[
        str, typer.Option("--listen", "-l", metavar="HOST:PORT", help="Address for brokers and clients.")
    ] = "127.0.0.1:9876",
    *,
    client_tls: _ClientTls = "off",
    tls_certificate_file: CertificateFile = "",
    tls_key_file: KeyFile = "",
    tls_authority_file: AuthorityFile = "",
    administrators: _Administrators = None,
    plain_listen: _PlainListen = "",
    insecure: Insecure = False,
) -> None:
    """Run a name server until Ctrl-C or SIGTERM.

    Brokers register their topics with it, and clients look them up. It keeps nothing on disk: after a restart the
    brokers register again within seconds, half a minute at most. Run two or three on different machines, and configure
    all of them on brokers and clients; name servers do not communicate with each other.

    With mutual TLS a broker can register only itself, by the certificate of its node, and only users with a certificate
    of the authority are served.

    Examples:
        dledger nameserver
        dledger nameserver --listen 10.0.0.5:9876 --insecure
    """
    address = _address("--listen", listen)
    plain_address = _address("--plain-listen", plain_listen) if plain_listen else None
    if client_tls == "off" and (administrators or plain_listen):
        fail("--administrator and --plain-listen are for a name server with --client-tls", EXIT_USAGE)
    if client_tls != "mutual" and administrators:
        fail("--administrator: expected --client-tls mutual, which shows users by their certificates", EXIT_USAGE)
    if client_tls == "off":
        check_exposure("--listen", address, is_insecure=insecure)
    if plain_address is not None:
        check_exposure("--plain-listen", plain_address, is_insecure=insecure)
    certificates = _certificates(client_tls, tls_certificate_file, tls_key_file, tls_authority_file)
    identities = tuple(map(_administrator, administrators or ()))
    print_starting(f"name server on {address}")
    # Only now: gRPC is slow to load.
    from cluster.server.name_server import NameServerConfig, run_name_server

    config = NameServerConfig(address, certificates, client_tls == "mutual", identities, plain_address)
    raise typer.Exit(run_name_server(config))


def _address(option: str, text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        fail(f"{option}: {error}", EXIT_USAGE)


def _certificates(client_tls: str, certificate: str, key: str, authority: str) -> CertificateFiles | None:
    if client_tls == "off":
        return None
    users = [f"--client-tls {client_tls}"]
    return certificate_files(users, certificate, key, authority, is_authority_needed=client_tls == "mutual")


def _administrator(uri: str) -> CertificateIdentity:
    from dledger.security.errors import NoIdentity
    from dledger.security.identity import CertificateIdentity, IdentityKind

    try:
        identity = CertificateIdentity.parse(uri)
    except NoIdentity as error:
        fail(f"--administrator: {error}", EXIT_USAGE)
    if identity.kind is not IdentityKind.USER:
        fail(f"--administrator: expected a user, found {identity}", EXIT_USAGE)
    return identity
