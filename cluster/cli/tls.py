"""`--tls-ca`, `--tls-cert` and `--tls-key`: how a command on a log secures its connections to nodes.

The options are added to commands like `--context`, and a context may set them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.main import get_command

from cluster.cli.common import fail
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from dledger.security.settings import Security

# By the variable that an option is also taken from: the setting of a context.
TLS_SETTINGS: Final = {"DLEDGER_TLS_CA": "tls_ca", "DLEDGER_TLS_CERT": "tls_cert", "DLEDGER_TLS_KEY": "tls_key"}
_GIVEN: Final = "cluster.tls"


def tls_options() -> list[Any]:
    """Return the options as typer makes them; they have no values for the command, which asks `security_of`."""
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
                help="Connect with TLS, and trust nodes that this authority has signed.",
            ),
        ] = "",
        _tls_cert: Annotated[
            str,
            typer.Option(
                "--tls-cert",
                envvar="DLEDGER_TLS_CERT",
                metavar="FILE",
                callback=_keep,
                help="Certificate to show to nodes that require one; `dledger certs client` makes it.",
            ),
        ] = "",
        _tls_key: Annotated[
            str,
            typer.Option(
                "--tls-key", envvar="DLEDGER_TLS_KEY", metavar="FILE", callback=_keep, help="Its private key."
            ),
        ] = "",
    ) -> None:
        """Do nothing: only the options are taken."""

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
    # Only here: commands without TLS do not load it.
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
