"""`dledger user enable`, `disable`, `roles` and `rotate-key`: changes of existing users and of their sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.common import EXIT_USAGE, NameServers, fail
from cluster.cli.each_broker import Choice, change_chosen, change_each, chosen_brokers
from cluster.cli.message_common import Broker, BrokerNames, Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.client.broker_calls import BrokerCalls

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]


def enable(
    context: typer.Context,
    name: _Name,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Enable a disabled user.

    Its password, API tokens and certificates are valid again; earlier sessions are not.

    Examples:
        dledger user enable alice
    """
    _enable(context, name, Choice(broker, name_servers, broker_names, cluster), is_enabled=True)


def disable(
    context: typer.Context,
    name: _Name,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Disable a user: its calls are refused.

    Its sessions end; its password, API tokens, roles and policies are kept. The last administrator cannot be disabled.

    Examples:
        dledger user disable alice
        dledger user enable alice
    """
    _enable(context, name, Choice(broker, name_servers, broker_names, cluster), is_enabled=False)


def _enable(context: typer.Context, name: str, choice: Choice, *, is_enabled: bool) -> None:
    state = "enabled" if is_enabled else "disabled"

    def change(user: Any) -> None:
        user.is_disabled = not is_enabled

    def changed(calls: BrokerCalls) -> str:
        return f"user {name} {state if _change(calls, name, change) else f'was {state} already'}"

    change_chosen(context, choice, changed)


def set_roles(
    context: typer.Context,
    name: _Name,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    added: Annotated[
        list[str] | None, typer.Option("--add", metavar="ROLE", help="Give this role to the user; may be repeated.")
    ] = None,
    removed: Annotated[
        list[str] | None, typer.Option("--remove", metavar="ROLE", help="Take this role from it; may be repeated.")
    ] = None,
) -> None:
    """Add roles to a user, or remove roles from it.

    The rights change with the next call; sessions and tokens are kept. `dledger acl grant --role` creates roles,
    `dledger acl roles` lists them.

    Examples:
        dledger user roles alice --add readers
        dledger user roles alice --add writers --remove readers
    """
    more, less = set(added or ()), set(removed or ())
    if not more | less:
        fail("expected a role to change: --add ROLE or --remove ROLE", EXIT_USAGE)
    if both := sorted(more & less):
        fail(f"{', '.join(both)}: expected either --add or --remove, found both", EXIT_USAGE)

    def change(user: Any) -> None:
        user.roles[:] = sorted((set(user.roles) | more) - less)

    def changed(calls: BrokerCalls) -> str:
        return f"user {name} {'changed' if _change(calls, name, change) else 'is unchanged'}"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), changed)


def _change(calls: BrokerCalls, name: str, change: Callable[[Any], None]) -> bool:
    """Change the settings of a user, unless another administrator does at the same time; return if they differ."""
    from cluster.v1 import access_pb2 as pb

    listed = calls.ask_access(lambda stub: stub.ListUsers, pb.ListUsersRequest(name=name))
    user = listed.users[0].user
    change(user)
    request = pb.SetUserRequest(user=user, access_version=listed.access_version)
    return calls.ask_access(lambda stub: stub.SetUser, request).is_changed


def rotate_key(
    context: typer.Context,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    ends_sessions: Annotated[
        bool, typer.Option("--end-sessions", help="End all sessions: replace the previous key, too. Asks first.")
    ] = False,
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Replace the key that signs session tokens.

    New sessions are signed with the new key. Those of the replaced key stay valid, for an hour at most; those of older
    keys end. With --end-sessions all sessions end, also yours, and every user has to log in again: use it if the files
    of a store may have been read by others, because the keys are in the log. API tokens and certificates stay valid.

    Examples:
        dledger user rotate-key
        dledger user rotate-key --end-sessions
    """
    from cluster.v1 import access_pb2 as pb

    request = pb.RotateTokenKeyRequest()

    def change(calls: BrokerCalls) -> str:
        calls.ask_access(lambda stub: stub.RotateTokenKey, request)
        if not ends_sessions:
            return "new sessions are signed with a new key"
        # The broker accepts two keys: after two changes no session of before is valid.
        calls.ask_access(lambda stub: stub.RotateTokenKey, request)
        return "all sessions have ended: users log in again with `dledger user login`"

    with chosen_brokers(context, Choice(broker, name_servers, broker_names, cluster), is_change=True) as targets:
        if ends_sessions and not is_confirmed:
            names = ", ".join(target.broker for target in targets if target.broker) or "this broker"
            # Fails without a terminal or an answer.
            if not typer.confirm(f"End the sessions of all users of {names}?", err=True):
                fail("nothing was changed")
        change_each(targets, change)
