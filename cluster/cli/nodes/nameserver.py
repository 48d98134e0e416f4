"""`dledger nameserver`: run a name server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeVar

import typer

from cluster.cli.common import EXIT_USAGE, Debuggable, Insecure, allowed_exposure, fail, print_starting
from cluster.cli.nodes.port_tls import (
    AuthorityFile,
    CertificateFile,
    KeyFile,
    MetricsAddress,
    MetricsTls,
    RevokedFile,
    certificate_files,
    check_effects,
)
from cluster.config.exposure import ExposedPort
from cluster.config.port_tls import process_tls
from cluster.config.quotas import BYTES_PER_S_MIN, QuotaSettings
from cluster.config.values import parse_address, parse_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dledger.config import Address
    from dledger.security.credentials import CertificateFiles
    from dledger.security.identity import CertificateIdentity


Value = TypeVar("Value")
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
_Brokers = Annotated[
    list[str] | None,
    typer.Option(
        "--broker",
        metavar="NAME",
        help="A broker that may register, with mutual TLS; may be given several times. Without it all brokers of the "
        "authority may, and a warning is logged.",
    ),
]
_AuditDir = Annotated[
    str, typer.Option("--audit-dir", metavar="DIR", help="Record registrations, changes and refusals in DIR.")
]
_SetOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set a quota (quota_address_requests_per_s); may be repeated."),
]
# Of a number; its use as a rate needs no more.
_DIGITS_MAX = 15
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
    tls_revoked_file: RevokedFile = "",
    administrators: _Administrators = None,
    brokers: _Brokers = None,
    plain_listen: _PlainListen = "",
    metrics: MetricsAddress = "",
    metrics_tls: MetricsTls = "off",
    audit_dir: _AuditDir = "",
    set_options: _SetOptions = None,
    insecure: Insecure = False,
    debuggable: Debuggable = False,
) -> None:
    """Run a name server until Ctrl-C or SIGTERM.

    Brokers register their topics with it, and clients look them up. It keeps nothing on disk: after a restart the
    brokers register again within seconds, half a minute at most. Run two or three on different machines, and configure
    all of them on brokers and clients; name servers do not communicate with each other.

    With mutual TLS a broker can register only itself, by the certificate of its node, and only if --broker names it;
    only users with a certificate of the authority are served.

    Examples:
        dledger nameserver
        dledger nameserver --listen 10.0.0.5:9876 --insecure
        dledger nameserver --client-tls mutual --broker broker-a ...
    """
    check_effects(metrics, metrics_tls, client_tls, tls_revoked_file)
    _check_tls(client_tls, {"--administrator": administrators, "--broker": brokers}, plain_listen)
    ports = _ports_of(listen, plain_listen, metrics, client_tls, metrics_tls, is_insecure=insecure)
    modes = {"--client-tls": client_tls, "--metrics-tls": metrics_tls}
    files = _certificates(modes, tls_certificate_file, tls_key_file, tls_authority_file)
    quotas = _quotas(set_options or [])
    identities = tuple(map(_administrator, administrators or ()))
    print_starting(f"name server on {ports.clients}")
    from cluster.server.name_server import NameServerConfig, run_name_server  # only now: gRPC is slow to load

    config = NameServerConfig(
        ports.clients,
        None if client_tls == "off" else files,
        client_tls == "mutual",
        identities,
        ports.plain,
        audit_dir,
        quotas,
        ports.metrics,
        process_tls("off", metrics_tls, "off", files).metrics,
        tls_revoked_file,
        tuple(_parsed("--broker", parse_group, name) for name in brokers or ()),
        ports.exposed,
        debuggable,
    )
    raise typer.Exit(run_name_server(config))


def _check_tls(client_tls: str, of_certificates: Mapping[str, list[str] | None], plain_listen: str) -> None:
    if client_tls == "off" and plain_listen:
        fail("--plain-listen is for a name server with --client-tls", EXIT_USAGE)
    for option, values in of_certificates.items():
        if client_tls != "mutual" and values:
            fail(f"{option}: expected --client-tls mutual, which shows callers by their certificates", EXIT_USAGE)


def _quotas(texts: list[str]) -> QuotaSettings:
    values: dict[str, int] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if name not in QuotaSettings.__dataclass_fields__:
            fail(f"--set {text}: expected one of {', '.join(QuotaSettings.__dataclass_fields__)}", EXIT_USAGE)
        if not (value.isascii() and value.isdigit()) or len(value) > _DIGITS_MAX:
            fail(f"--set {text}: expected a number of at least 0, found {value!r}", EXIT_USAGE)
        values[name] = int(value)
        if name.endswith("_bytes_per_s") and 0 < values[name] < BYTES_PER_S_MIN:
            fail(f"--set {text}: expected 0 or at least {BYTES_PER_S_MIN}: one answer may have 4 MiB", EXIT_USAGE)
    return QuotaSettings(**values)


class _Ports(NamedTuple):
    """Where it listens; None: there is no such port. `exposed` are those that others can use unauthenticated."""

    clients: Address
    plain: Address | None
    metrics: Address | None
    exposed: tuple[ExposedPort, ...] = ()


def _ports_of(
    listen: str, plain_listen: str, metrics: str, client_tls: str, metrics_tls: str, *, is_insecure: bool
) -> _Ports:
    ports = _Ports(
        _parsed("--listen", parse_address, listen),
        _parsed("--plain-listen", parse_address, plain_listen) if plain_listen else None,
        _parsed("--metrics", parse_address, metrics) if metrics else None,
    )
    unsecured = _unsecured(ports, client_tls, metrics_tls)
    return ports._replace(exposed=allowed_exposure(unsecured, is_insecure=is_insecure))


def _unsecured(ports: _Ports, client_tls: str, metrics_tls: str) -> Iterator[ExposedPort]:
    """Yield the ports that are plain, or do not authenticate their clients, whatever their addresses."""
    if client_tls == "off":
        yield ExposedPort("--listen", ports.clients)
    elif client_tls == "on":
        yield ExposedPort("--listen", ports.clients, "set --client-tls mutual", is_plain=False)
    if ports.plain is not None:
        yield ExposedPort("--plain-listen", ports.plain)
    if ports.metrics is not None and metrics_tls == "off":
        yield ExposedPort("--metrics", ports.metrics)


def _certificates(modes: Mapping[str, str], certificate: str, key: str, authority: str) -> CertificateFiles:
    users = [f"{option} {mode}" for option, mode in modes.items() if mode != "off"]
    return certificate_files(users, certificate, key, authority, is_authority_needed="mutual" in modes.values())


def _administrator(uri: str) -> CertificateIdentity:
    from cluster.config.log_callers import parse_user

    return _parsed("--administrator", parse_user, uri)


def _parsed(option: str, parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        fail(f"{option}: {error}", EXIT_USAGE)
