"""Options for TLS of the ports of `dledger broker` and `dledger nameserver`, and their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cluster.cli.common import EXIT_USAGE, fail

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dledger.security.credentials import CertificateFiles

CertificateFile = Annotated[
    str,
    typer.Option("--tls-certificate-file", metavar="FILE", help="Its certificate, read again after a change."),
]
KeyFile = Annotated[str, typer.Option("--tls-key-file", metavar="FILE", help="Its private key, mode 0600.")]
AuthorityFile = Annotated[
    str,
    typer.Option(
        "--tls-authority-file", metavar="FILE", help="The authority of callers, for mutual, and of name servers."
    ),
]
RevokedFile = Annotated[
    str,
    typer.Option(
        "--tls-revoked-file",
        metavar="FILE",
        help="Certificates of callers that are refused, read again after a change.",
    ),
]
MetricsAddress = Annotated[str, typer.Option("--metrics", metavar="HOST:PORT", help="Serve /metrics on this address.")]
MetricsTls = Annotated[
    Literal["off", "on", "mutual"],
    typer.Option("--metrics-tls", help="TLS on --metrics. mutual: scrapers must present a certificate, too."),
]


def check_effects(metrics: str, metrics_tls: str, client_tls: str, revoked_file: str) -> None:
    """End the command if there is TLS for a page that is not served, or revoked certificates that no port demands."""
    if revoked_file and "mutual" not in (client_tls, metrics_tls):
        fail("--tls-revoked-file: expected --client-tls mutual, or --metrics-tls mutual", EXIT_USAGE)
    if metrics_tls != "off" and not metrics:
        fail(f"--metrics-tls {metrics_tls}: expected --metrics HOST:PORT, the address of the page", EXIT_USAGE)


def certificate_files(
    users: Iterable[str], certificate: str, key: str, authority: str, *, is_authority_needed: bool
) -> CertificateFiles:
    """Return the files of a process, or end the command if one that is needed is not named.

    Args:
        users: options that need files; none of them: no file is needed.
        certificate: path, or empty.
        key: path, or empty.
        authority: path, or empty.
        is_authority_needed: one of `users` needs it.
    """
    causes = " and ".join(users)
    needed = {"--tls-certificate-file": certificate, "--tls-key-file": key} if causes else {}
    if is_authority_needed:
        needed["--tls-authority-file"] = authority
    if missing := [option for option, path in needed.items() if not path]:
        fail(f"{', '.join(missing)}: must be set for {causes}; `dledger certs` makes such files", EXIT_USAGE)
    # Imported here: it loads ssl and the files' readers, and errors of usage are to be quick.
    from dledger.security.credentials import CertificateFiles

    return CertificateFiles(authority, certificate, key)
