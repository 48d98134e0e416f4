"""The files by which a client secures its connections: certificates, key, and token.

Commands take them from options, a context and the environment; the pipeline from the environment of each process, so
that no plan of Spark has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.client.token_file import TokenFile
from dledger.security.credentials import CertificateFiles, load_client_tls
from dledger.security.settings import Plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.security.settings import Security

# Of the environment, by field of `SecurityFiles`.
VARIABLES: Final = {
    "tls_ca": "DLEDGER_TLS_CA",
    "tls_cert": "DLEDGER_TLS_CERT",
    "tls_key": "DLEDGER_TLS_KEY",
    "tls_server_name": "DLEDGER_TLS_SERVER_NAME",
    "token_file": "DLEDGER_TOKEN_FILE",
    "token_over_plain": "DLEDGER_TOKEN_OVER_PLAIN",
}


@dataclass(frozen=True, slots=True)
class SecurityFiles:
    """Names of files; all may be empty.

    Attributes:
        tls_ca: the authority that signs servers; any of the first three means TLS.
        tls_cert: the client's certificate.
        tls_key: its private key.
        tls_server_name: see `dledger.security.settings.Tls`.
        token_file: has the token.
        token_over_plain: if not empty: see `is_token_exposed` of `dledger.security.settings.Plain`.
    """

    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_server_name: str = ""
    token_file: str = ""
    token_over_plain: str = ""

    def environment(self) -> dict[str, str]:
        """Return the variables by which another process gets the same files: see `security_of_environment`."""
        return {variable: path for name, variable in VARIABLES.items() if (path := getattr(self, name))}

    def load(self) -> Security:
        """Read the files.

        Raises:
            dledger.security.errors.CertificateFault: a file of certificates or keys cannot be used.
            ValueError: the file of the token cannot be used; or a certificate or a key is alone; or a name is given
                without TLS.
        """
        token = TokenFile(Path(self.token_file)) if self.token_file else None
        if not (self.tls_ca or self.tls_cert or self.tls_key):
            if self.tls_server_name:
                raise ValueError("a name of the server is of use only with TLS: name an authority, too")
            return Plain(token, is_token_exposed=bool(self.token_over_plain))
        files = CertificateFiles(self.tls_ca, self.tls_cert, self.tls_key)
        return load_client_tls(files, server_name=self.tls_server_name, token=token)


def security_of_environment(environment: Mapping[str, str]) -> Security:
    """Return the security of connections as the environment of this process sets it.

    Raises:
        dledger.security.errors.CertificateFault, ValueError: see `SecurityFiles.load`.
    """
    return SecurityFiles(**{name: environment.get(variable, "") for name, variable in VARIABLES.items()}).load()
