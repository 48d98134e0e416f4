"""`dledger acl`: the policies of users and roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.access.roles import all_roles, delete_role, list_roles
from cluster.cli.access.users import all_users, broker_of
from cluster.cli.common import EXIT_USAGE, NameServers, fail, help_of, output
from cluster.cli.each_broker import Choice, change_chosen, chosen_brokers, end_if_silent, list_chosen, read_each
from cluster.cli.message_common import Broker, BrokerNames, Cluster
from cluster.cli.rows import AsJson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.client.broker_calls import BrokerCalls

acl_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Grant, revoke, list and explain rights of users and roles. A resource is Topic:NAME, Group:NAME, "
    "Cluster:NAME or *; a name may end in *. Actions are Pub, Sub, Create, Update, Delete, Get, List or All. With name "
    "servers the commands apply to all their brokers, or to chosen ones.",
)

Subject = Annotated[str, typer.Argument(metavar="USER", help="The user; with --role, the role.")]
Resource = Annotated[str, typer.Argument(metavar="RESOURCE", help="Such as Topic:orders, Group:billing-*, *.")]
Actions = Annotated[str, typer.Argument(metavar="ACTIONS", help="Such as Pub or Sub,Get.")]
OfRole = Annotated[bool, typer.Option("--role", help="Change a role, which is created if it does not exist.")]


def grant(
    context: typer.Context,
    subject: Subject,
    resource: Resource,
    actions: Actions,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    sources: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="NETWORK", help="Only from this network; may be repeated."),
    ] = None,
    of_role: OfRole = False,
    is_denied: Annotated[bool, typer.Option("--deny", help="Deny the actions; a deny overrides every allow.")] = False,
) -> None:
    """Add a policy to a user or a role.

    It replaces one with the same effect and sources on the same resource.

    Examples:
        dledger acl grant alice Topic:orders Pub
        dledger acl grant readers 'Topic:*' Sub --role
        dledger acl grant alice 'Topic:secret-*' All --deny
        dledger acl grant ci Topic:builds Pub --from 10.1.0.0/16
    """
    policy = _policy(resource, actions, sources or [], is_denied=is_denied)

    def altered(policies: list[Any]) -> list[Any]:
        return [each for each in policies if not _is_same_place(each, policy)] + [policy]

    choice = Choice(broker, name_servers, broker_names, cluster)
    _alter(context, choice, subject, altered, of_role=of_role, may_create=True)


def revoke(
    context: typer.Context,
    subject: Subject,
    resource: Resource,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    of_role: OfRole = False,
) -> None:
    """Remove all policies of a user or a role on a resource.

    Policies on other texts that also match it, such as Topic:* for Topic:orders, are kept.

    Examples:
        dledger acl revoke alice Topic:orders
        dledger acl revoke readers 'Topic:*' --role
    """
    wanted = _policy(resource, "All", [], is_denied=False).resource

    def altered(policies: list[Any]) -> list[Any]:
        return [each for each in policies if each.resource != wanted]

    choice = Choice(broker, name_servers, broker_names, cluster)
    _alter(context, choice, subject, altered, of_role=of_role, may_create=False)


def list_policies(
    context: typer.Context,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    as_json: AsJson = False,
) -> None:
    """List the policies of all users and roles.

    Examples:
        dledger acl list
    """
    columns = {name: name for name in ("broker", "of", "name", "effect", "resource", "actions")}
    list_chosen(
        context,
        Choice(broker, name_servers, broker_names, cluster),
        lambda calls: list(_rows(calls)),
        lambda target, rows: ({**broker_of(target), **row} for row in rows),
        {**columns, "sources": "from"},
        as_json=as_json,
    )


def explain(
    context: typer.Context,
    user: Annotated[str, typer.Argument(metavar="USER", help="The user.")],
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="One resource, such as Topic:orders.")],
    action: Annotated[str, typer.Argument(metavar="ACTION", help="Pub, Sub, Create, Update, Delete, Get or List.")],
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    address: Annotated[str, typer.Option("--from", metavar="ADDRESS", help="Address of the client.")] = "",
) -> None:
    """Show whether a user may perform an action, and why.

    The output has the policies that match. Exit code 1 if the action is denied at one of the brokers.

    Examples:
        dledger acl explain alice Topic:orders Pub
    """
    from cluster.v1 import access_pb2 as pb

    request = pb.ExplainRequest(user=user, resource=resource, actions=_actions(action), address=address)
    with chosen_brokers(context, Choice(broker, name_servers, broker_names, cluster), is_change=False) as targets:
        answers, silent = read_each(targets, lambda calls: calls.ask_access(lambda stub: stub.Explain, request))
    for target, found in answers:
        prefix = f"{target.broker}: " if target.broker else ""
        decision = "allowed" if found.is_allowed else "denied"
        output.print(f"{prefix}{decision}: {found.reason}", highlight=False, markup=False)
        for match in found.matches:
            output.print(f"  {match}", highlight=False, markup=False)
    end_if_silent(silent)
    if not all(found.is_allowed for _, found in answers):
        raise typer.Exit(1)


def _alter(
    context: typer.Context,
    choice: Choice,
    subject: str,
    altered: Callable[[list[Any]], list[Any]],
    *,
    of_role: bool,
    may_create: bool,
) -> None:
    """Change the policies of a user or a role at each broker, unless another administrator does at the same time."""
    from cluster.protocol.errors import Reason, RequestFailed
    from cluster.v1 import access_pb2 as pb

    def change_user(calls: BrokerCalls) -> str:
        listed = calls.ask_access(lambda stub: stub.ListUsers, pb.ListUsersRequest(name=subject))
        user = listed.users[0].user
        policies = altered(list(user.policies))
        del user.policies[:]
        user.policies.extend(policies)
        request = pb.SetUserRequest(user=user, access_version=listed.access_version)
        done = calls.ask_access(lambda stub: stub.SetUser, request)
        return f"user {subject} {'changed' if done.is_changed else 'is unchanged'}"

    def change_role(calls: BrokerCalls) -> str:
        role, version = pb.AccessRole(name=subject), 0
        try:
            listed = calls.ask_access(lambda stub: stub.ListRoles, pb.ListRolesRequest(name=subject))
            role, version = listed.roles[0], listed.access_version
        except RequestFailed as failure:
            if failure.reason is not Reason.UNKNOWN_ROLE or not may_create:
                raise
        request = pb.SetRoleRequest(
            role=pb.AccessRole(name=subject, policies=altered(list(role.policies))),
            access_version=version,
            is_new=not version,
        )
        done = calls.ask_access(lambda stub: stub.SetRole, request)
        return f"role {subject} {'changed' if done.is_changed else 'is unchanged'}"

    change_chosen(context, choice, change_role if of_role else change_user)


def _policy(resource: str, actions: str, sources: list[str], *, is_denied: bool) -> Any:
    """Return a policy in the broker's canonical form."""
    from cluster.access.model import IllegalAccessChange, canonical_source, resource_of
    from cluster.v1 import access_pb2 as pb

    try:
        return pb.AccessPolicy(
            resource=str(resource_of(resource)),
            actions=_actions(actions),
            is_denied=is_denied,
            sources=sorted({canonical_source(source) for source in sources}),
        )
    except IllegalAccessChange as error:
        fail(str(error), EXIT_USAGE)


def _is_same_place(one: Any, other: Any) -> bool:
    return (one.resource, one.is_denied, list(one.sources)) == (other.resource, other.is_denied, list(other.sources))


def _actions(text: str) -> int:
    from cluster.access.model import ALL_ACTIONS, Action

    if text.lower() == "all":
        return int(ALL_ACTIONS)
    number = 0
    for name in text.split(","):
        action = Action.__members__.get(name.strip().upper())
        if action is None:
            expected = ", ".join(str(each.name).capitalize() for each in Action)
            fail(f"ACTIONS: expected {expected} or All, found {name[:40]!r}", EXIT_USAGE)
        number |= action
    return int(number)


def _rows(calls: BrokerCalls) -> Iterator[dict[str, Any]]:
    for state in all_users(calls):
        yield from (_row("user", state.user.name, each) for each in state.user.policies)
    for role in all_roles(calls):
        yield from (_row("role", role.name, each) for each in role.policies)


def _row(kind: str, name: str, policy: Any) -> dict[str, Any]:
    from cluster.access.model import ALL_ACTIONS, Action

    names = [str(each.name).capitalize() for each in Action(policy.actions)]
    return {
        "of": kind,
        "name": name,
        "effect": "deny" if policy.is_denied else "allow",
        "resource": policy.resource,
        "actions": "All" if policy.actions == ALL_ACTIONS else ",".join(names),
        "sources": ",".join(policy.sources),
    }


for _name, _command in (
    ("grant", grant),
    ("revoke", revoke),
    ("list", list_policies),
    ("explain", explain),
    ("roles", list_roles),
    ("delete-role", delete_role),
):
    acl_app.command(_name, help=help_of(_command))(_command)
