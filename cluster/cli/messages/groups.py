"""`dledger group`: the consumer groups of brokers, and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.common import EXIT_USAGE, NameServers, fail, help_of
from cluster.cli.each_broker import Choice, change_chosen, change_each, chosen_brokers, list_chosen
from cluster.cli.message_common import Broker, BrokerNames, Cluster, Topic
from cluster.cli.messages.quota_options import Quotas, rates_of_options, set_rates, shown_quotas
from cluster.cli.rows import AsJson

if TYPE_CHECKING:
    from cluster.cli.targets import BrokerTarget
    from cluster.client.broker_calls import BrokerCalls
    from cluster.v1 import broker_pb2 as pb

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]

group_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, list, disable, reset and delete consumer groups. With name servers they apply to all their "
    "brokers, or to chosen ones.",
)


def create_group(
    context: typer.Context,
    group: GroupName,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    orderly: Annotated[
        bool, typer.Option("--orderly", "--fifo", help="Process messages in order; pop: of each message group.")
    ] = False,
) -> None:
    """Create a consumer group, or change its order.

    Other settings of an existing group are unchanged.

    Examples:
        dledger group create billing
        dledger group create billing --fifo
        dledger group create billing --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """

    def change(calls: BrokerCalls) -> str:
        wanted = _known_group(calls, group) or _new_group(group)
        wanted.is_orderly = orderly
        return f"group {group} {'set' if _set_group(calls, wanted) else 'already has these settings'}"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


def alter_group(
    context: typer.Context,
    group: GroupName,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    retry_max: Annotated[
        int | None,
        typer.Option("--retry-max", min=-1, max=1_000, help="Redeliveries before a message is dead; -1: no limit."),
    ] = None,
    retry_queues: Annotated[
        int | None,
        typer.Option("--retry-queues", min=0, max=65_536, help="Queues of its retry topic; 0: no retries."),
    ] = None,
    retry_policy: Annotated[
        str | None,
        typer.Option("--retry-policy", metavar="POLICY", help="levels, custom:DELAYS or exponential:MIN,MAX,FACTOR."),
    ] = None,
    orderly: Annotated[
        bool | None,
        typer.Option("--fifo/--no-fifo", help="Process messages in order; pop: of each message group."),
    ] = None,
    quota: Quotas = None,
) -> None:
    """Change the order, the retries and the quotas of a group.

    Options that are not given are unchanged. A retry policy has the delays between attempts: `levels`, the default, are
    10 s, 30 s, 1 min, ... 2 h; a list ends with a delay that is repeated. Delays are rounded up to delay levels. A
    retry topic that exists keeps its queues; `dledger topic alter` changes them. For quotas, each broker counts what
    all consumers of the group get from it.

    Examples:
        dledger group alter billing --fifo
        dledger group alter billing --retry-max 3
        dledger group alter billing --retry-policy custom:1s,1m,1h
        dledger group alter billing --retry-policy exponential:5s,2h,2
        dledger group alter billing --quota get.messages=500 --quota get.bytes=1000000
        dledger group alter billing --quota get.messages=off
    """
    from cluster.protocol.flow_attributes import QUOTAS_OF_GROUP

    rates = rates_of_options(quota, QUOTAS_OF_GROUP)
    if all(option is None for option in (orderly, retry_max, retry_queues, retry_policy)) and not rates:
        options = "--retry-max, --retry-queues, --retry-policy, --fifo or --quota"
        fail(f"group alter: expected {options}, found none", EXIT_USAGE)

    def change(calls: BrokerCalls) -> str:
        wanted = _group_to_change(calls, group)
        wanted.is_orderly = wanted.is_orderly if orderly is None else orderly
        _set_retries(wanted, retry_max, retry_queues, retry_policy)
        set_rates(wanted.attributes, rates)
        return f"group {group} {'changed' if _set_group(calls, wanted) else 'already has these settings'}"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


def enable_group(
    context: typer.Context,
    group: GroupName,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Enable a disabled group: its consumers continue at their offsets.

    Examples:
        dledger group enable billing
    """
    _enable(context, group, Choice(broker, name_servers, broker_names, cluster), is_enabled=True)


def disable_group(
    context: typer.Context,
    group: GroupName,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Disable a group: its consumers get no more messages.

    They wait until it is enabled again, and may still commit offsets.

    Examples:
        dledger group disable billing
        dledger offsets orders --group billing        its offsets and lag
        dledger group enable billing
    """
    _enable(context, group, Choice(broker, name_servers, broker_names, cluster), is_enabled=False)


def _enable(context: typer.Context, group: str, choice: Choice, *, is_enabled: bool) -> None:
    def change(calls: BrokerCalls) -> str:
        wanted = _group_to_change(calls, group)
        wanted.is_consume_enabled = is_enabled
        state = "enabled" if is_enabled else "disabled"
        return f"group {group} {state if _set_group(calls, wanted) else f'was {state} already'}"

    change_chosen(context, choice, change)


def _known_group(calls: BrokerCalls, name: str) -> pb.Group | None:
    from cluster.v1 import broker_pb2 as pb

    groups = calls.ask(lambda stub: stub.ListGroups, pb.ListGroupsRequest()).groups
    return next((each.group for each in groups if each.group.name == name), None)


def _group_to_change(calls: BrokerCalls, name: str) -> pb.Group:
    from cluster.protocol.errors import Reason, RequestFailed

    wanted = _known_group(calls, name)
    if wanted is None:
        raise RequestFailed(Reason.UNKNOWN_GROUP, f"there is no group {name!r}")
    return wanted


def _new_group(name: str) -> pb.Group:
    from cluster.v1 import broker_pb2 as pb

    return pb.Group(
        name=name,
        is_consume_enabled=True,
        is_broadcast_enabled=True,
        is_from_min_enabled=True,
        retry_queues=1,
        retry_max_times=16,
        consume_timeout_minutes=15,
    )


def _set_retries(wanted: pb.Group, maximum: int | None, queues: int | None, policy: str | None) -> None:
    """Set the given settings of retries.

    Raises:
        IllegalMessage: the policy is invalid.
    """
    from cluster.protocol.retry_policy import POLICY_ATTRIBUTE, parse_shown_policy

    if maximum is not None:
        wanted.retry_max_times = maximum
    if queues is not None:
        wanted.retry_queues = queues
    if policy is not None:
        wanted.attributes.pop(POLICY_ATTRIBUTE, None)
        text = parse_shown_policy(policy)
        if text:
            wanted.attributes[POLICY_ATTRIBUTE] = text


def _set_group(calls: BrokerCalls, wanted: pb.Group) -> bool:
    from cluster.v1 import broker_pb2 as pb

    return calls.ask(lambda stub: stub.SetGroup, pb.SetGroupRequest(group=wanted)).is_changed


def list_groups(
    context: typer.Context,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    as_json: AsJson = False,
) -> None:
    """List all consumer groups.

    For each group: its consumers, whether it is enabled, and the topics in which it has offsets.

    Examples:
        dledger group list
        dledger group list --json | jq -r .group
        dledger group list --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """
    from cluster.v1 import broker_pb2 as pb

    columns = {"group": "group", "broker": "broker", "consumers": "consumers"}
    list_chosen(
        context,
        Choice(broker, name_servers, broker_names, cluster),
        lambda calls: calls.ask(lambda stub: stub.ListGroups, pb.ListGroupsRequest()).groups,
        lambda target, groups: (_row(target, each) for each in groups),
        {**columns, "is_enabled": "enabled", "is_orderly": "in order", "topics": "topics", "quotas": "quotas"},
        as_json=as_json,
        order=("group", "broker"),
    )


def _row(target: BrokerTarget, state: pb.GroupState) -> dict[str, Any]:
    return {
        "group": state.group.name,
        "broker": target.broker,
        "consumers": len(state.client_ids),
        "client_ids": list(state.client_ids),
        "is_enabled": state.group.is_consume_enabled,
        "is_orderly": state.group.is_orderly,
        "retry_max_times": state.group.retry_max_times,
        "retry_queues": state.group.retry_queues,
        "retry_policy": state.group.attributes.get("retry.policy"),
        "topics": list(state.topics),
        "quotas": shown_quotas(state.group.attributes),
    }


def delete_group(
    context: typer.Context,
    group: GroupName,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Delete a group and its offsets.

    Its consumers must be stopped first.

    Examples:
        dledger group delete billing
    """
    from cluster.v1 import broker_pb2 as pb

    def change(calls: BrokerCalls) -> str:
        calls.ask(lambda stub: stub.DeleteGroup, pb.DeleteGroupRequest(group=group))
        return f"group {group} deleted"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


def reset_group(
    context: typer.Context,
    group: GroupName,
    topic: Topic,
    where: Annotated[str, typer.Option("--to", metavar="begin|end|TIME", help="The new position of the group.")],
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Set the offsets of a group in all queues of a topic.

    Examples:
        dledger group reset billing orders --to begin
        dledger group reset billing orders --to 2026-11-21T09:00:00
    """
    from cluster.v1 import broker_pb2 as pb
    from commitlog.offline.message_filter import parse_time

    asked = pb.OffsetsRequest(topic=topic)

    def change(calls: BrokerCalls) -> str:
        found = calls.ask(lambda stub: stub.Offsets, asked)
        offsets = {"begin": found.min_offsets, "end": found.max_offsets}.get(where, found.offsets_by_time)
        reset = pb.ResetOffsetRequest(group=group, topic=topic, queue_ids=found.queue_ids, offsets=offsets)
        calls.ask(lambda stub: stub.ResetOffset, reset)
        return f"group {group} continues in {len(offsets)} queues of {topic}"

    with chosen_brokers(context, Choice(broker, name_servers, broker_names, cluster), is_change=True) as targets:
        if where not in ("begin", "end"):
            try:
                asked.timestamp_ms = parse_time(where)
            except ValueError as error:
                fail(f"--to {where}: expected begin, end or a time; {error}", EXIT_USAGE)
        change_each(targets, change)


def copy_offsets(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The group whose offsets are copied.")],
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group that continues there.")],
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Copy the offsets of another group in a topic.

    Queues in which the other group has no offset are unchanged. Running consumers of the group continue at the new
    offsets.

    Examples:
        dledger group copy billing billing-test orders
    """
    from cluster.v1 import broker_pb2 as pb

    def change(calls: BrokerCalls) -> str:
        from cluster.protocol.errors import Reason, RequestFailed

        found = calls.ask(lambda stub: stub.FetchOffset, pb.FetchOffsetRequest(group=source, topic=topic))
        known = {queue: offset for queue, offset in zip(found.queue_ids, found.offsets, strict=True) if offset >= 0}
        if not known:
            raise RequestFailed(Reason.UNKNOWN_GROUP, f"group {source!r} has no offset in topic {topic!r}")
        reset = pb.ResetOffsetRequest(group=group, topic=topic, queue_ids=list(known), offsets=list(known.values()))
        calls.ask(lambda stub: stub.ResetOffset, reset)
        return f"group {group} continues in {len(known)} queues of {topic}, where {source} is"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


for _name, _command in (
    ("create", create_group),
    ("alter", alter_group),
    ("list", list_groups),
    ("disable", disable_group),
    ("enable", enable_group),
    ("reset", reset_group),
    ("copy", copy_offsets),
    ("delete", delete_group),
):
    group_app.command(_name, help=help_of(_command))(_command)
