"""The secrets of a secured cluster on this machine: certificates, passwords and tokens, in the folder `security`.

| file | content |
| --- | --- |
| `certs/` | the authority; certificates of nodes, name servers and both users: a folder of `dledger certs` |
| `first-user` | the first user of brokers, as `dledger user first` writes it |
| `admin.password`, `app.password` | passwords of both users, for `dledger user login` and `LoggedIn` |
| `admin.token`, `app.token` | API tokens of both users, the same on all brokers |

`admin` is a super user and the administrator of name servers; `app` may send and receive messages of all topics, and
create topics. A log of raw entries has no users: there the certificates of both may do everything. The folder has mode
0700 and its files 0600. Everything is made before a process starts; `cluster.local.users` registers users and tokens.
"""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.client.security_files import SecurityFiles
from cluster.client.token_file import write_token
from cluster.local.node import ClusterError
from dledger.authentication.tokens import API_TOKEN_SIZE, api_token
from dledger.authentication.verifier import SALT_SIZE, make_verifier
from dledger.errors import DLedgerError
from dledger.security.identity import CertificateIdentity, IdentityKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.certificates.folder import CertificateFolder
    from cluster.local.node import Setting
    from dledger.security.settings import Security

ADMINISTRATOR: Final = "admin"
APPLICATION: Final = "app"
USERS: Final = (ADMINISTRATOR, APPLICATION)
FOLDER: Final = "security"

_USERS_GROUP: Final = "default"
_NAME_SERVERS_GROUP: Final = "nameserver"
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_PASSWORD_SIZE: Final = 24
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


class LocalSecurity:
    """The folder of one cluster's secrets.

    Args:
        folder: the folder `security`.

    Attributes:
        folder: the same.
        has_users: whether the cluster has brokers, and so users with passwords and tokens.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._certificates = folder / "certs"
        self.has_users = self.first_user.exists()

    @classmethod
    def create(cls, cluster_folder: Path, *, has_users: bool) -> LocalSecurity:
        """Create the folder, an authority, the certificates of both users, and for brokers passwords and tokens.

        Args:
            cluster_folder: folder of the cluster; created if absent.
            has_users: whether the cluster has brokers.

        Raises:
            ClusterError: there are secrets already, or they cannot be written.
        """
        folder = cluster_folder.absolute() / FOLDER
        if folder.exists():
            raise ClusterError(
                f"{folder} exists, and {cluster_folder} has no cluster: an earlier start was interrupted, or the "
                "folder is not of a cluster. Delete it, or choose another folder"
            )
        try:
            folder.mkdir(mode=_FOLDER_MODE, parents=True)
            made = cls(folder)
            certificates = made._open_certificates()
            certificates.create("a local cluster of dledger")
            for user in USERS:
                certificates.issue(_identity_of(user), ())
            if has_users:
                made._write_credentials()
        except (DLedgerError, OSError) as error:
            raise ClusterError(f"the secrets of a cluster cannot be created in {folder}: {error}") from error
        made.has_users = has_users
        return made

    def _write_credentials(self) -> None:
        for user in USERS:
            write_token(self.token_of(user), api_token(secrets.token_bytes(API_TOKEN_SIZE)))
            _write_secret(self._password_file(user), f"{secrets.token_urlsafe(_PASSWORD_SIZE)}\n")
        verifier = make_verifier(self.password_of(ADMINISTRATOR), secrets.token_bytes(SALT_SIZE))
        # Last: it shows that the other files are there.
        _write_secret(self.first_user, f"{ADMINISTRATOR}:{verifier.text()}\n")

    # -------------------------------------------------------------------------------------------------- for processes

    def node_settings(self, group: str, node_id: str) -> dict[str, Setting]:
        """Return the settings of a node; its certificate is created if there is none.

        Raises:
            ClusterError: it cannot be created.
        """
        settings: dict[str, Setting] = {"peer_security": "tls", "client_tls": "mutual", "metrics_tls": "mutual"}
        if self.has_users:
            settings |= {"name_server_tls": "on", "first_user_file": str(self.first_user)}
        else:
            # Whatever the group of the log, which the users' certificates do not name.
            users = ",".join(_identity_of(user).uri for user in USERS)
            settings |= {"log_administrators": _identity_of(ADMINISTRATOR).uri}
            settings |= {"log_writers": users, "log_readers": users}
        return settings | self._files_of(CertificateIdentity(group, IdentityKind.NODE, node_id))

    def forget_node(self, group: str, node_id: str) -> None:
        """Delete the certificate and the key of a node that was removed."""
        name = f"{group}.node.{node_id}"
        for suffix in (".crt", ".key"):
            (self._certificates / f"{name}{suffix}").unlink(missing_ok=True)

    def name_server_options(self, server: str, brokers: Iterable[str]) -> list[str]:
        """Return the options of `dledger nameserver`; its certificate is created if there is none.

        Args:
            server: id of the name server in its certificate.
            brokers: names of those that may register.

        Raises:
            ClusterError: it cannot be created.
        """
        owner = CertificateIdentity(_NAME_SERVERS_GROUP, IdentityKind.NODE, server)
        served = [word for broker in brokers for word in ("--broker", broker)]
        return ["--administrator", _identity_of(ADMINISTRATOR).uri, *served, *self._mutual_tls_options(owner)]

    def standalone_options(self, broker: str) -> list[str]:
        """Return the options of `dledger broker --standalone` for mutual TLS; its certificate is created if absent.

        Args:
            broker: its name.

        Raises:
            ClusterError: it cannot be created.
        """
        return self._mutual_tls_options(CertificateIdentity(broker, IdentityKind.NODE, broker))

    def _mutual_tls_options(self, owner: CertificateIdentity) -> list[str]:
        files = self._files_of(owner)
        options = [word for name, path in files.items() for word in (f"--{name.replace('_', '-')}", path)]
        return ["--client-tls", "mutual", *options]

    def _files_of(self, identity: CertificateIdentity) -> dict[str, str]:
        path = self._certificates / f"{identity.group}.{identity.kind}.{identity.name}"
        if not path.with_name(f"{path.name}.crt").exists():
            try:
                self._open_certificates().issue(identity, _HOSTS)
            except (DLedgerError, ValueError) as error:
                raise ClusterError(f"no certificate for {identity}: {error}") from error
        revoked = self._certificates / "revoked"
        # A folder of an older version has none.
        refused = {"tls_revoked_file": str(revoked)} if revoked.exists() else {}
        return refused | {
            "tls_authority_file": str(self._certificates / "authority.crt"),
            "tls_certificate_file": f"{path}.crt",
            "tls_key_file": f"{path}.key",
        }

    def _open_certificates(self) -> CertificateFolder:
        # Imported here: only a new cluster, or a new node, needs the package `cryptography`.
        from cluster.certificates.folder import CertificateFolder  # noqa: PLC0415

        return CertificateFolder(self._certificates, datetime.now(UTC))

    # ----------------------------------------------------------------------------------------------------- for clients

    @property
    def first_user(self) -> Path:
        """The file of the first user."""
        return self.folder / "first-user"

    def files_of(self, user: str) -> SecurityFiles:
        """Return the files by which a client acts as a user."""
        certificate = self._certificates / f"{_USERS_GROUP}.{IdentityKind.USER}.{user}"
        return SecurityFiles(
            tls_ca=str(self._certificates / "authority.crt"),
            tls_cert=f"{certificate}.crt",
            tls_key=f"{certificate}.key",
            token_file=str(self.token_of(user)) if self.has_users else "",
        )

    def client(self, user: str = ADMINISTRATOR) -> Security:
        """Return the security of a client's connections.

        Raises:
            ClusterError: a file cannot be used.
        """
        try:
            return self.files_of(user).load()
        except (DLedgerError, ValueError) as error:
            raise ClusterError(f"{self.folder}: {error}") from error

    def token_of(self, user: str) -> Path:
        """Return the file of a user's API token."""
        return self.folder / f"{user}.token"

    def password_of(self, user: str) -> str:
        """Return a user's password, as it was at the first start.

        Raises:
            OSError: its file cannot be read.
        """
        return self._password_file(user).read_text(encoding="ascii").strip()

    def _password_file(self, user: str) -> Path:
        return self.folder / f"{user}.password"


def secrets_of(state: Mapping[str, Any]) -> LocalSecurity | None:
    """Return the secrets that a state file names; None: the cluster is not secured."""
    return LocalSecurity(Path(state["security"])) if state.get("security") else None


def _write_secret(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def _identity_of(user: str) -> CertificateIdentity:
    return CertificateIdentity(_USERS_GROUP, IdentityKind.USER, user)
