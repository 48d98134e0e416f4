"""`dledger certs`: a small certificate authority for TLS, in files of one folder."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.common import DEFAULT_GROUP, EXIT_FAILED, EXIT_USAGE, fail, help_of, notes
from cluster.cli.rows import AsJson, print_rows
from cluster.config.values import parse_group, parse_id
from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cluster.certificates.folder import CertificateFolder, Made

_DAYS_MAX = 7300
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_COLUMNS = {
    "name": "certificate",
    "kind": "kind",
    "group": "group",
    "hosts": "hosts",
    "expires_at": "expires",
    "days_left": "days left",
    "fault": "fault",
}


class RotationStep(StrEnum):
    """The steps by which one authority replaces another without downtime."""

    BEGIN = "begin"
    USE = "use"
    FINISH = "finish"


Folder = Annotated[Path, typer.Option("--dir", "-d", metavar="FOLDER", help="The folder of certificates and keys.")]
OfGroup = Annotated[str, typer.Option("--group", "-g", help="The replication group; of a broker, its name.")]
Days = Annotated[
    int | None,
    typer.Option(
        "--days",
        min=1,
        max=_DAYS_MAX,
        metavar="DAYS",
        help="Validity in days; default: a year, at most until the authority expires.",
    ),
]
DEFAULT_FOLDER = Path("certs")

certs_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create and renew TLS certificates. An authority in a folder signs certificates of nodes and users; its key "
    "remains in that folder, and a node gets authority.crt and its own two files.",
    epilog="\b\nCertificates for three nodes and one user:\n"
    "    dledger certs init\n"
    "    dledger certs node n0=10.0.0.1 n1=10.0.0.2 n2=10.0.0.3\n"
    "    dledger certs client alice\n"
    "    dledger certs show                    expiry dates and faults",
)


def init(
    folder: Folder = DEFAULT_FOLDER,
    name: Annotated[
        str, typer.Option("--name", metavar="TEXT", help="Name of the authority, shown in TLS errors.")
    ] = "dledger authority",
    days: Annotated[int, typer.Option("--days", min=1, max=_DAYS_MAX, metavar="DAYS", help="Validity in days.")] = 3650,
    *,
    as_json: AsJson = False,
) -> None:
    """Create an authority: a folder with its certificate and key.

    Nodes and clients trust authority.crt; authority.key signs certificates. The key can sign any identity: keep the
    folder on the machine from which you administer the cluster, with a backup.

    Examples:
        dledger certs init
        dledger certs init --dir ~/certs --days 1825
    """
    with _reported_faults():
        _print([_open(folder).create(name, days)], as_json=as_json)


def node(
    nodes: Annotated[list[str], typer.Argument(metavar="ID[=HOST,...]...", help="Ids of nodes, as in their settings.")],
    group: OfGroup = DEFAULT_GROUP,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="HOST", help="An additional name or address by which clients reach all these nodes."
        ),
    ] = None,
    days: Days = None,
    folder: Folder = DEFAULT_FOLDER,
    *,
    as_json: AsJson = False,
) -> None:
    """Create certificates of nodes, for peers and clients.

    HOST is a name or address by which clients reach the node; the default is localhost. Copy authority.crt and
    the two files of a node to that node, with mode 0600.

    Examples:
        dledger certs node n0=10.0.0.1,db0.example.net n1=10.0.0.2 n2=10.0.0.3
        dledger certs node n0 n1 n2 --group broker-a
    """
    from dledger.security.identity import CertificateIdentity, IdentityKind

    with _reported_faults():
        parse_group(group)
        wanted = []
        for text in nodes:
            node_id, _, own = text.partition("=")
            known = [each.strip() for each in own.split(",") if each.strip()] + list(hosts or ())
            wanted.append((CertificateIdentity(group, IdentityKind.NODE, parse_id(node_id)), known or _LOCAL_HOSTS))
        of_folder = _open(folder)
        _print((of_folder.issue(identity, known, days) for identity, known in wanted), as_json=as_json)


def client(
    users: Annotated[list[str], typer.Argument(metavar="USER...", help="Names: letters, digits, _ . @ and -.")],
    group: OfGroup = DEFAULT_GROUP,
    days: Days = None,
    folder: Folder = DEFAULT_FOLDER,
    *,
    as_json: AsJson = False,
) -> None:
    """Create certificates of users, for clients of nodes.

    A client presents its certificate to a node that requires one. Nodes do not accept it as the certificate of a node.

    Examples:
        dledger certs client alice
        dledger certs client billing --group broker-a --days 90
    """
    from dledger.security.identity import CertificateIdentity, IdentityKind

    with _reported_faults():
        parse_group(group)
        wanted = [CertificateIdentity.parse(CertificateIdentity(group, IdentityKind.USER, name).uri) for name in users]
        of_folder = _open(folder)
        _print((of_folder.issue(identity, (), days) for identity in wanted), as_json=as_json)


def show(folder: Folder = DEFAULT_FOLDER, *, as_json: AsJson = False) -> None:
    """Show the certificates of a folder and their expiry.

    The output also has their names and faults.

    The exit code is 1 if one has expired, does not match its key, or was signed by another authority.

    Examples:
        dledger certs show
        dledger certs show --json | jq -r 'select(.days_left < 30).name'
    """
    with _reported_faults():
        found = _open(folder).check_all()
    _print(found, as_json=as_json)
    if any(each.fault for each in found):
        raise typer.Exit(EXIT_FAILED)


def renew(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="As `show` prints them, without .crt.")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Renew all certificates of nodes and users.")] = False,
    authority: Annotated[
        RotationStep | None, typer.Option("--authority", help="Instead: the next step to a new authority.")
    ] = None,
    days: Days = None,
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Renew certificates, or replace the authority.

    A renewed certificate has a new key and the same names. The authority is replaced in three steps. `--authority
    begin` creates a second authority, which is trusted but does not sign yet: distribute authority.crt. `use` makes it
    sign: then run `renew --all`, and distribute all files. `finish` removes the old authority: distribute
    authority.crt.

    Examples:
        dledger certs renew default.node.n0 --days 90
        dledger certs renew --all
        dledger certs renew --authority begin
    """
    if [bool(names), everything, authority is not None].count(True) != 1:
        fail("certs renew: expected either names, or --all, or --authority begin, use or finish", EXIT_USAGE)
    with _reported_faults():
        of_folder = _open(folder)
        if authority is not None:
            _print(_rotated(of_folder, authority, days), as_json=as_json)
            notes.print(_NEXT[authority], highlight=False, soft_wrap=True)
            return
        chosen = of_folder.names() if everything else names or []
        _print((of_folder.renew(name.removesuffix(".crt"), days) for name in chosen), as_json=as_json)


def revoke(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="As `show` prints them, without .crt; or dledger://... .")
    ],
    folder: Folder = DEFAULT_FOLDER,
    *,
    as_json: AsJson = False,
) -> None:
    """Revoke certificates, for example of a stolen key.

    It adds lines to the file `revoked`: all certificates of these owners that were made until now are refused, also
    older ones. Copy it to all nodes and name servers that have it as tls_revoked_file; they read it within ten seconds.
    `renew` creates a certificate that is accepted.

    Examples:
        dledger certs revoke default.user.alice
        dledger certs revoke dledger://default/node/n2
    """
    rows = []
    with _reported_faults():
        of_folder = _open(folder)
        for name in names:
            owner = of_folder.revoke(name.removesuffix(".crt"))
            rows.append({"uri": owner.uri, "file": str(of_folder.revoked_file)})
    print_rows({"uri": "revoked", "file": "file"}, rows, as_json=as_json)
    text = f"Copy {of_folder.revoked_file} to all nodes and name servers (tls_revoked_file)."
    notes.print(text, highlight=False, soft_wrap=True)


def secret(
    step: Annotated[
        RotationStep | None, typer.Option("--renew", help="Instead: the next step to a new secret.")
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
    *,
    as_json: AsJson = False,
) -> None:
    """Make the secret that nodes share.

    It is an alternative to certificates between nodes: a node with the file can act as any node of the group. Copy it
    to all nodes, with mode 0600. It is replaced in three steps; after each, copy the file to all nodes.

    Examples:
        dledger certs secret
        dledger certs secret --renew begin
    """
    from cluster.certificates.peer_secret import begin_change, finish_change, make_secret, use_next

    steps = {
        None: make_secret,
        RotationStep.BEGIN: begin_change,
        RotationStep.USE: use_next,
        RotationStep.FINISH: finish_change,
    }
    with _reported_faults():
        print_rows({"file": "file"}, [{"file": str(steps[step](folder))}], as_json=as_json)
    following = {RotationStep.BEGIN: "use", RotationStep.USE: "finish"}
    if step in following:
        text = f"Copy the file to all nodes. After ten seconds: dledger certs secret --renew {following[step]}"
        notes.print(text, highlight=False, soft_wrap=True)


_NEXT = {
    RotationStep.BEGIN: "Copy authority.crt to all nodes and clients. When all use it: "
    "dledger certs renew --authority use",
    RotationStep.USE: "Now: dledger certs renew --all, and copy the renewed files to their nodes and users. When all "
    "use them: dledger certs renew --authority finish",
    RotationStep.FINISH: "Copy authority.crt to all nodes and clients: then they refuse certificates of the old one.",
}


def _rotated(folder: CertificateFolder, step: RotationStep, days: int | None) -> list[Made]:
    if step is RotationStep.BEGIN:
        return folder.begin_rotation(days)
    return folder.use_next() if step is RotationStep.USE else folder.finish_rotation()


def _open(folder: Path) -> CertificateFolder:
    from cluster.certificates.folder import CertificateFolder

    return CertificateFolder(folder, datetime.now(UTC))


def _print(made: Iterable[Made], *, as_json: bool) -> None:
    """Print certificates; if creating one fails, those before it are printed nevertheless."""
    rows: list[dict[str, Any]] = []
    try:
        rows.extend(map(_row, made))
    finally:
        if rows:
            print_rows(_COLUMNS, rows, as_json=as_json)


def _row(made: Made) -> dict[str, Any]:
    from cluster.certificates.folder import days_left

    identity, ends_at = made.identity, made.expires_at
    return {
        "name": made.file.name.removesuffix(".crt"),
        "kind": "authority" if made.is_authority else identity.kind.value if identity else None,
        "group": identity.group if identity else None,
        "id": identity.name if identity else None,
        "uri": identity.uri if identity else None,
        "hosts": list(made.hosts),
        "expires_at": f"{ends_at:%Y-%m-%dT%H:%M:%SZ}" if ends_at else None,
        "days_left": days_left(ends_at, datetime.now(UTC)) if ends_at else None,
        "serial": made.serial or None,
        "file": str(made.file),
        "fault": made.fault or None,
    }


@contextmanager
def _reported_faults() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    except DLedgerError as error:
        fail(str(error))


for _name, _command in (
    ("init", init),
    ("node", node),
    ("client", client),
    ("show", show),
    ("renew", renew),
    ("revoke", revoke),
    ("secret", secret),
):
    certs_app.command(_name, help=help_of(_command))(_command)
