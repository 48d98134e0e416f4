"""`--tls-ca`, `--tls-cert` and `--tls-key`: TLS between a command on a log and the nodes.

The options are added to commands in the same way as `--context`, and a context may set them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.main import get_command

from cluster.cli.common import fail
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from dledger.security.settings import Security

# Environment variables of options, each with the context setting for the same option.
TLS_SETTINGS: Final = {"DLEDGER_TLS_CA": "tls_ca", "DLEDGER_TLS_CERT": "tls_cert", "DLEDGER_TLS_KEY": "tls_key"}
_GIVEN: Final = "cluster.tls"


def tls_options() -> list[Any]:
    """Return the options as click parameters; they have no values for the command, which calls `security_of`."""
    holder = typer.Typer(add_completion=False)

    @holder.command()
    def _command(
        _tls_ca: Annotated[
            str,
            typer.Option(
                "--tls-ca",
                envvar="DLEDGER_TLS_CA",
                metavar="FILE",
                callback=_keep,
                help="Connect with TLS, and trust certificates of this authority.",
            ),
        ] = "",
        _tls_cert: Annotated[
            str,
            typer.Option(
                "--tls-cert",
                envvar="DLEDGER_TLS_CERT",
                metavar="FILE",
                callback=_keep,
                help="Client certificate, if nodes require one; `dledger certs client` creates it.",
            ),
        ] = "",
        _tls_key: Annotated[
            str,
            typer.Option(
                "--tls-key", envvar="DLEDGER_TLS_KEY", metavar="FILE", callback=_keep, help="Its private key."
            ),
        ] = "",
    ) -> None:
        """Do nothing: only the parameters of this function are used."""

    options = list(get_command(holder).params)
    for option in options:
        option.expose_value = False
    return options


def _keep(context: typer.Context, parameter: typer.CallbackParam, value: str) -> None:
    if value and not context.resilient_parsing:
        context.meta.setdefault(_GIVEN, {})[str(parameter.name).lstrip("_")] = value


def security_of(context: typer.Context) -> Security:
    """Return the TLS settings of a command's connections; end the command if its files cannot be used."""
    given: dict[str, str] = context.meta.get(_GIVEN, {})
    if not given:
        return PLAIN
    # Imported here: commands without TLS do not need it.
    from dledger.security.credentials import CertificateFiles, load_client_tls
    from dledger.security.errors import CertificateFault

    try:
        return load_client_tls(
            CertificateFiles(given.get("tls_ca", ""), given.get("tls_cert", ""), given.get("tls_key", ""))
        )
    except CertificateFault as fault:
        fail(str(fault))
    except ValueError as error:
        fail(f"--tls-cert and --tls-key: {error}")
