"""`dledger user`: users of a broker, their passwords and tokens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.access.access_keys import add_access_key_commands
from cluster.cli.access.user_changes import disable, enable, rotate_key, set_roles
from cluster.cli.common import EXIT_FAILED, EXIT_USAGE, NameServers, fail, help_of, notes
from cluster.cli.each_broker import Choice, change_chosen, change_each, chosen_brokers, list_chosen
from cluster.cli.message_common import Broker, BrokerNames, Cluster
from cluster.cli.rows import AsJson
from cluster.cli.tls import ignore_token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.cli.targets import BrokerTarget
    from cluster.client.broker_calls import BrokerCalls

user_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, list, change and delete users of brokers; log in. Commands authenticate with the token in the file "
    "that --token-file or DLEDGER_TOKEN_FILE names. With name servers they apply to all their brokers, or to chosen "
    "ones.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user: letters, digits and _ . @ -")]
TokenId = Annotated[str, typer.Argument(metavar="ID", help="Name of the token, unique for its user.")]
Generate = Annotated[
    bool, typer.Option("--generate", help="Generate a random password and print it, instead of asking for one.")
]


def first(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file, created with mode 0600.")],
    *,
    is_generated: Generate = False,
) -> None:
    """Create the file of the first administrator.

    The file has a verifier, from which the password cannot be recovered. Copy it to each node, and set first_user_file
    there to its path. The broker then refuses every call without a token or a certificate of a user.

    Examples:
        dledger user first admin first-user
        dledger server --config n0.toml --set first_user_file=first-user
    """
    from cluster.access.model import IllegalAccessChange, check_subject_name

    try:
        check_subject_name("NAME", name)
    except IllegalAccessChange as error:
        fail(str(error), EXIT_USAGE)
    password, verifier = _new_password(name, is_generated=is_generated)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as output:
            output.write(f"{name}:{verifier}\n")
    except OSError as error:
        fail(f"{file}: cannot be created: {error.strerror}", EXIT_FAILED)
    notes.print(f"{file}: created for the first user {name}", highlight=False)
    if is_generated:
        # The only output, so that it can be piped. The password is not stored anywhere.
        typer.echo(password)


def login(
    context: typer.Context,
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File for the token, written with mode 0600.")],
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="Read the password from this file, mode 0600."),
    ] = None,
) -> None:
    """Log in to a broker, and write the token to a file.

    The command asks for the password, which is never sent. The token is valid for an hour, on this broker; a token of
    `dledger user create-token` can be valid on several.

    Examples:
        dledger user login admin ~/.dledger-token
        export DLEDGER_TOKEN_FILE=~/.dledger-token
    """
    from cluster.client.login import log_in
    from cluster.client.token_file import write_token

    # Log in without the current token, which may have expired.
    ignore_token(context)
    password = _asked(f"Password of {name}") if password_file is None else _password_in(password_file)
    with chosen_brokers(context, Choice(broker, name_servers, broker_names, cluster), is_change=True) as targets:
        if len(targets) > 1:
            names = ", ".join(target.broker for target in targets)
            fail(
                f"there are several brokers ({names}), and a login is to one: choose it with --broker-name", EXIT_USAGE
            )
        write_token(file, log_in(targets[0].calls, name, password).token)
    notes.print(f"logged in as {name}: {file} has the token", highlight=False, soft_wrap=True)


def create(
    context: typer.Context,
    name: Name,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    roles: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="A role of the user; may be repeated.")
    ] = None,
    *,
    is_super: Annotated[bool, typer.Option("--super", help="An administrator with all permissions.")] = False,
    without_password: Annotated[
        bool, typer.Option("--without-password", help="The user authenticates only with tokens or a certificate.")
    ] = False,
    is_generated: Generate = False,
) -> None:
    """Create a user. Without roles and policies it has no permissions: see `dledger acl`.

    The broker gets a verifier, from which the password cannot be recovered.

    Examples:
        dledger user create alice --role readers
        dledger user create ci --without-password
        dledger user create root2 --super --generate
    """
    from cluster.v1 import access_pb2 as pb

    password, verifier = ("", "") if without_password else _new_password(name, is_generated=is_generated)
    message = pb.AccessUser(name=name, is_super=is_super, roles=roles or ())
    request = pb.SetUserRequest(user=message, verifier=verifier, is_new=True)

    def change(calls: BrokerCalls) -> str:
        _ask(calls, "SetUser", request)
        return f"user {name} created"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)
    if is_generated and password:
        typer.echo(password)


def set_password(
    context: typer.Context,
    name: Name,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    is_generated: Generate = False,
) -> None:
    """Set a user's password, which ends all its sessions.

    Examples:
        dledger user password alice
    """
    from cluster.v1 import access_pb2 as pb

    password, verifier = _new_password(name, is_generated=is_generated)

    def change(calls: BrokerCalls) -> str:
        listed = _ask(calls, "ListUsers", pb.ListUsersRequest(name=name))
        request = pb.SetUserRequest(user=listed.users[0].user, verifier=verifier, access_version=listed.access_version)
        _ask(calls, "SetUser", request)
        return f"password of user {name} changed"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)
    if is_generated:
        typer.echo(password)


def delete(
    context: typer.Context,
    name: Name,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Delete a user with its sessions and tokens.

    Examples:
        dledger user delete alice
    """
    from cluster.v1 import access_pb2 as pb

    def change(calls: BrokerCalls) -> str:
        _ask(calls, "DeleteUser", pb.DeleteUserRequest(name=name))
        return f"user {name} deleted"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


def list_users(
    context: typer.Context,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    as_json: AsJson = False,
) -> None:
    """List the users of brokers, with roles and tokens.

    Examples:
        dledger user list
        dledger user list --json
    """
    list_chosen(
        context,
        Choice(broker, name_servers, broker_names, cluster),
        lambda calls: list(all_users(calls)),
        lambda target, users: ({**broker_of(target), **_row_of(each)} for each in users),
        {name: name for name in ("broker", "user", "kind", "roles", "policies", "credentials")},
        as_json=as_json,
    )


def create_token(
    context: typer.Context,
    name: Name,
    token_id: TokenId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File for the token, written with mode 0600.")],
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Create an API token of a user, for a program. A broker stores only its digest.

    With name servers the token is valid on all their brokers, or on chosen ones.

    Examples:
        dledger user create-token ci build token-of-ci
    """
    import secrets

    from cluster.client.token_file import write_token
    from cluster.v1 import access_pb2 as pb
    from dledger.authentication.tokens import API_TOKEN_SIZE, api_token, digest_of_api_token

    token = api_token(secrets.token_bytes(API_TOKEN_SIZE))
    digest = digest_of_api_token(token) or b""
    request = pb.AddTokenRequest(user=name, id=token_id, digest=digest)

    def change(calls: BrokerCalls) -> str:
        _ask(calls, "AddToken", request)
        return f"token {token_id} of user {name} written to {file}"

    with chosen_brokers(context, Choice(broker, name_servers, broker_names, cluster), is_change=True) as targets:
        # The file is created first: a token that could not be written would be lost.
        write_token(file, token)
        change_each(targets, change, remedy="delete the token and repeat the command")


def delete_token(
    context: typer.Context,
    name: Name,
    token_id: TokenId,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Delete an API token of a user. It becomes invalid immediately.

    Examples:
        dledger user delete-token ci build
    """
    from cluster.v1 import access_pb2 as pb

    def change(calls: BrokerCalls) -> str:
        _ask(calls, "DeleteToken", pb.DeleteTokenRequest(user=name, id=token_id))
        return f"token {token_id} of user {name} deleted"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


def _ask(calls: BrokerCalls, method: str, request: Any) -> Any:
    return calls.ask_access(lambda stub: getattr(stub, method), request)


def all_users(calls: BrokerCalls) -> Iterator[Any]:
    """Yield the state of each user, ordered by name."""
    from cluster.v1 import access_pb2 as pb

    after = ""
    while True:
        page = _ask(calls, "ListUsers", pb.ListUsersRequest(after=after))
        yield from page.users
        if not page.has_more:
            return
        after = page.users[-1].user.name


def broker_of(target: BrokerTarget) -> dict[str, str]:
    """Return the broker's name for a row, if it is known."""
    return {"broker": target.broker} if target.broker else {}


def _row_of(state: Any) -> dict[str, Any]:
    user = state.user
    credentials = ["password"] * state.has_password + [f"token {each.id}" for each in state.tokens]
    credentials += [f"access key {each}" for each in state.access_keys]
    return {
        "user": user.name,
        "kind": ("disabled " if user.is_disabled else "") + ("super" if user.is_super else "normal"),
        "roles": ", ".join(user.roles),
        "policies": len(user.policies),
        "credentials": ", ".join(credentials),
    }


def _new_password(name: str, *, is_generated: bool) -> tuple[str, str]:
    """Return a new password, and its verifier as text."""
    import secrets

    from dledger.authentication.verifier import SALT_SIZE, IllegalCredential, make_verifier

    password = secrets.token_urlsafe(24) if is_generated else _asked(f"New password of {name}", is_new=True)
    try:
        return password, make_verifier(password, secrets.token_bytes(SALT_SIZE)).text()
    except IllegalCredential as error:
        fail(str(error), EXIT_USAGE)


def _password_in(file: Path) -> str:
    from dledger.authentication.verifier import PASSWORD_LENGTH_MAX
    from dledger.security.secret_files import read_secret_file

    try:
        content = read_secret_file(str(file), 4 * PASSWORD_LENGTH_MAX)  # a character has at most four bytes
        return content.decode().rstrip("\r\n")
    except OSError as error:
        fail(f"{file}: expected a file with a password: {error.strerror}", EXIT_USAGE)
    except UnicodeDecodeError:
        fail(f"{file}: expected a password in UTF-8, found other bytes", EXIT_USAGE)


def _asked(question: str, *, is_new: bool = False) -> str:
    password: str = typer.prompt(question, hide_input=True, confirmation_prompt=is_new, err=True)
    return password


for _name, _command in (
    ("first", first),
    ("login", login),
    ("create", create),
    ("password", set_password),
    ("roles", set_roles),
    ("disable", disable),
    ("enable", enable),
    ("delete", delete),
    ("list", list_users),
    ("create-token", create_token),
    ("delete-token", delete_token),
    ("rotate-key", rotate_key),
):
    user_app.command(_name, help=help_of(_command))(_command)
add_access_key_commands(user_app)
