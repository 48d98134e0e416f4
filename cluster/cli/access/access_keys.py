"""`dledger user create-access-key` and `delete-access-key`: credentials of users for clients of RocketMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.common import NameServers, help_of
from cluster.cli.each_broker import Choice, change_chosen
from cluster.cli.message_common import Broker, BrokerNames, Cluster

if TYPE_CHECKING:
    from cluster.client.broker_calls import BrokerCalls

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]
_KeyId = Annotated[str, typer.Argument(metavar="KEY", help="Name of the access key, unique in the broker.")]


def create_access_key(
    context: typer.Context,
    name: _Name,
    key: _KeyId,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    secret_file: Annotated[
        str,
        typer.Option("--secret-file", metavar="FILE", help="Use the secret in this file, mode 0600, and print none."),
    ] = "",
) -> None:
    """Create an access key for clients of RocketMQ.

    The command generates a secret and prints it, once: no command shows it again. Brokers store the secret itself,
    because they verify signatures with it.

    Examples:
        dledger user create-access-key shop shop-key
    """
    import secrets

    from cluster.v1 import access_pb2 as pb

    secret = _secret_in(secret_file) if secret_file else secrets.token_urlsafe(30)
    request = pb.AddAccessKeyRequest(user=name, id=key, secret=secret)

    def change(calls: BrokerCalls) -> str:
        calls.ask_access(lambda stub: stub.AddAccessKey, request)
        return f"access key {key} of user {name} created"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)
    if not secret_file:
        # The only output, so that it can be piped.
        typer.echo(secret)


def delete_access_key(
    context: typer.Context,
    name: _Name,
    key: _KeyId,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Delete an access key of a user.

    It becomes invalid immediately. `dledger user list` shows the access keys.

    Examples:
        dledger user delete-access-key shop shop-key
    """
    from cluster.v1 import access_pb2 as pb

    def change(calls: BrokerCalls) -> str:
        calls.ask_access(lambda stub: stub.DeleteAccessKey, pb.DeleteAccessKeyRequest(user=name, id=key))
        return f"access key {key} of user {name} deleted"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


def _secret_in(file: str) -> str:
    from cluster.access.access_keys import SECRET_LENGTH_MAX
    from cluster.cli.common import EXIT_USAGE, fail
    from dledger.security.secret_files import read_secret_file

    try:
        return read_secret_file(file, SECRET_LENGTH_MAX + 2).decode("ascii").rstrip("\r\n")
    except OSError as error:
        fail(f"{file}: expected a file with a secret: {error.strerror}", EXIT_USAGE)
    except UnicodeDecodeError:
        fail(f"{file}: expected a secret in ASCII, found other bytes", EXIT_USAGE)


def add_access_key_commands(app: typer.Typer) -> None:
    """Add the commands to `dledger user`."""
    for name, command in (("create-access-key", create_access_key), ("delete-access-key", delete_access_key)):
        app.command(name, help=help_of(command))(command)
