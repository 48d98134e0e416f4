"""`dledger acl roles` and `delete-role`: the roles of brokers. `dledger acl grant --role` creates them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.access.users import all_users, broker_of
from cluster.cli.common import NameServers
from cluster.cli.each_broker import Choice, change_chosen, list_chosen
from cluster.cli.message_common import Broker, BrokerNames, Cluster
from cluster.cli.rows import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.client.broker_calls import BrokerCalls


def list_roles(
    context: typer.Context,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    as_json: AsJson = False,
) -> None:
    """List the roles, with the users that have them.

    Examples:
        dledger acl roles
        dledger acl roles --json | jq -r .role
    """
    list_chosen(
        context,
        Choice(broker, name_servers, broker_names, cluster),
        lambda calls: list(_rows(calls)),
        lambda target, rows: ({**broker_of(target), **row} for row in rows),
        {name: name for name in ("broker", "role", "policies", "users")},
        as_json=as_json,
    )


def delete_role(
    context: typer.Context,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="The role.")],
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Delete a role with its policies.

    No user may have it: take it from them first.

    Examples:
        dledger user roles alice --remove readers
        dledger acl delete-role readers
    """
    from cluster.v1 import access_pb2 as pb

    def change(calls: BrokerCalls) -> str:
        calls.ask_access(lambda stub: stub.DeleteRole, pb.DeleteRoleRequest(name=role))
        return f"role {role} deleted"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


def all_roles(calls: BrokerCalls) -> Iterator[Any]:
    """Yield each role, ordered by name."""
    from cluster.v1 import access_pb2 as pb

    after = ""
    while True:
        page = calls.ask_access(lambda stub: stub.ListRoles, pb.ListRolesRequest(after=after))
        yield from page.roles
        if not page.has_more:
            return
        after = page.roles[-1].name


def _rows(calls: BrokerCalls) -> Iterator[dict[str, Any]]:
    users: defaultdict[str, list[str]] = defaultdict(list)
    for state in all_users(calls):
        for role in state.user.roles:
            users[role].append(state.user.name)
    for role in all_roles(calls):
        yield {"role": role.name, "policies": len(role.policies), "users": users[role.name]}
