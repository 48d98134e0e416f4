"""How a command secures its connections to nodes and name servers: `--tls-ca` and its like, and `--token-file`.

The options are added to commands like `--context`, and a context may set them.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.main import get_command

from cluster.cli.common import EXIT_USAGE, fail
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from dledger.security.settings import Security

# Environment variables of options, each with the context setting for the same option.
TLS_SETTINGS: Final = {
    "DLEDGER_TLS_CA": "tls_ca",
    "DLEDGER_TLS_CERT": "tls_cert",
    "DLEDGER_TLS_KEY": "tls_key",
    "DLEDGER_TLS_SERVER_NAME": "tls_server_name",
    "DLEDGER_TOKEN_FILE": "token_file",
}
_GIVEN: Final = "cluster.tls"


def _keep(context: typer.Context, parameter: typer.CallbackParam, value: str | bool) -> None:
    if value and not context.resilient_parsing:
        context.meta.setdefault(_GIVEN, {})[str(parameter.name).lstrip("_")] = str(value)


def _option(name: str, variable: str, metavar: str, text: str) -> Any:
    return typer.Option(name, envvar=variable, metavar=metavar, callback=_keep, help=text)


def tls_options() -> list[Any]:
    """Return the options as click parameters; they have no values for the command, which calls `security_of`."""
    # Copies: `--context` changes those of its command.
    return [copy(option) for option in _made()]


def ignore_token(context: typer.Context) -> None:
    """Have `security_of` leave out the token."""
    context.meta.get(_GIVEN, {}).pop("token_file", None)


@cache
def _made() -> tuple[Any, ...]:
    holder = typer.Typer(add_completion=False)

    @holder.command()
    def _command(
        *,
        _tls_ca: Annotated[
            str,
            _option(
                "--tls-ca", "DLEDGER_TLS_CA", "FILE", "Connect with TLS, and trust certificates of this authority."
            ),
        ] = "",
        _tls_cert: Annotated[
            str, _option("--tls-cert", "DLEDGER_TLS_CERT", "FILE", "Certificate to show; `dledger certs client`.")
        ] = "",
        _tls_key: Annotated[str, _option("--tls-key", "DLEDGER_TLS_KEY", "FILE", "Its private key.")] = "",
        _tls_server_name: Annotated[
            str,
            _option("--tls-server-name", "DLEDGER_TLS_SERVER_NAME", "NAME", "The name in the servers' certificate."),
        ] = "",
        _token_file: Annotated[
            str, _option("--token-file", "DLEDGER_TOKEN_FILE", "FILE", "Send its token; `dledger user login`.")
        ] = "",
        _token_over_plain: Annotated[
            bool,
            typer.Option(
                "--token-over-plain",
                envvar="DLEDGER_TOKEN_OVER_PLAIN",
                callback=_keep,
                help="Send it to other machines without TLS, too.",
            ),
        ] = False,
    ) -> None:
        """Do nothing: only the options are taken."""

    options = tuple(get_command(holder).params)
    for option in options:
        option.expose_value = False
    return options


def security_of(context: typer.Context) -> Security:
    """Return the security of a command's connections; end the command if its files cannot be used."""
    given: dict[str, str] = context.meta.get(_GIVEN, {})
    if not given:
        return PLAIN
    # Imported here: commands without TLS and tokens do not need it.
    from cluster.client.security_files import SecurityFiles
    from dledger.security.errors import CertificateFault

    try:
        return SecurityFiles(**given).load()
    except CertificateFault as fault:
        fail(str(fault))
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
