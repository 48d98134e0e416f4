"""`dledger topic`, `group` and `offsets`: administration of a broker of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from cluster.cli_common import EXIT_USAGE, fail, help_of, notes, output
from cluster.cli_message_common import DEFAULT_BROKER, Broker, Topic, calls_to, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.broker_calls import BrokerCalls
    from cluster.v1 import broker_pb2 as pb

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group of consumers.")]
_PERMISSIONS = {"rw": 6, "r": 4, "w": 2}
_NONE = "-"

topic_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Create, change, list and delete topics.")
group_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, list, hold up, reset and delete groups of consumers.",
)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if not number else "right", overflow="fold")
    return table


# -------------------------------------------------------------------------------------------------------------- topics


def create_topic(
    topic: Topic,
    broker: Broker = DEFAULT_BROKER,
    queues: Annotated[int, typer.Option("--queues", "-q", min=1, max=65536, help="How many queues.")] = 8,
    permission: Annotated[str, typer.Option("--permission", help="rw, r or w.")] = "rw",
) -> None:
    """Create a topic, or change it: messages that are there stay.

    Examples:
        dledger topic create orders --queues 4
        dledger topic create orders --permission r        no more messages, for now
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    if permission not in _PERMISSIONS:
        fail(f"--permission {permission}: expected rw, r or w", EXIT_USAGE)
    wanted = pb.Topic(name=topic, read_queues=queues, write_queues=queues, permission=_PERMISSIONS[permission])
    with calls_to(broker) as calls:
        answer = calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=wanted))
    notes.print(f"topic {topic} {'set' if answer.is_changed else 'was so already'}", highlight=False)


def list_topics(broker: Broker = DEFAULT_BROKER) -> None:
    """Show all topics, with their queues and what is permitted.

    Examples:
        dledger topic list
        dledger topic list --broker 10.0.0.5:10911,10.0.0.6:10911
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    with calls_to(broker) as calls:
        topics = calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest()).topics
    table = _table("topic", "queues read", "written", "permission")
    names = {number: name for name, number in _PERMISSIONS.items()}
    for topic in topics:
        permission = names.get(topic.permission, str(topic.permission))
        table.add_row(topic.name, str(topic.read_queues), str(topic.write_queues), permission)
    output.print(table)


def delete_topic(topic: Topic, broker: Broker = DEFAULT_BROKER) -> None:
    """Delete a topic, and what groups have consumed of it. Its messages go when they are old.

    Examples:
        dledger topic delete orders
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    with calls_to(broker) as calls:
        calls.ask(lambda stub: stub.DeleteTopic, pb.DeleteTopicRequest(topic=topic))
    notes.print(f"topic {topic} deleted", highlight=False)


# -------------------------------------------------------------------------------------------------------------- groups


def create_group(
    group: GroupName,
    broker: Broker = DEFAULT_BROKER,
    *,
    orderly: Annotated[bool, typer.Option("--orderly", help="One message of a queue after the other.")] = False,
) -> None:
    """Create a group of consumers, or change whether one is orderly; what else it has been set to stays.

    Examples:
        dledger group create billing
        dledger group create billing --orderly
    """
    with calls_to(broker) as calls:
        wanted = _known_group(calls, group) or _new_group(group)
        wanted.is_orderly = orderly
        is_changed = _set_group(calls, wanted)
    notes.print(f"group {group} {'set' if is_changed else 'was so already'}", highlight=False)


def enable_group(group: GroupName, broker: Broker = DEFAULT_BROKER) -> None:
    """Let the consumers of a group go on, where they were when it was disabled.

    Examples:
        dledger group enable billing
    """
    _enable(group, broker, is_enabled=True)


def disable_group(group: GroupName, broker: Broker = DEFAULT_BROKER) -> None:
    """Hold a group of consumers up: they get no more messages, and wait. What they have they may still commit.

    Examples:
        dledger group disable billing
        dledger offsets orders --group billing        how far it is
        dledger group enable billing
    """
    _enable(group, broker, is_enabled=False)


def _enable(group: str, broker: str, *, is_enabled: bool) -> None:
    with calls_to(broker) as calls:
        wanted = _known_group(calls, group)
        if wanted is None:
            fail(f"there is no group {group!r}; `dledger group list` shows all")
        wanted.is_consume_enabled = is_enabled
        is_changed = _set_group(calls, wanted)
    state = "enabled" if is_enabled else "disabled"
    notes.print(f"group {group} {state if is_changed else f'was {state} already'}", highlight=False)


def _known_group(calls: BrokerCalls, name: str) -> pb.Group | None:
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    groups = calls.ask(lambda stub: stub.ListGroups, pb.ListGroupsRequest()).groups
    return next((each.group for each in groups if each.group.name == name), None)


def _new_group(name: str) -> pb.Group:
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    return pb.Group(
        name=name,
        is_consume_enabled=True,
        is_broadcast_enabled=True,
        is_from_min_enabled=True,
        retry_queues=1,
        retry_max_times=16,
        consume_timeout_minutes=15,
    )


def _set_group(calls: BrokerCalls, wanted: pb.Group) -> bool:
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    return calls.ask(lambda stub: stub.SetGroup, pb.SetGroupRequest(group=wanted)).is_changed


def list_groups(broker: Broker = DEFAULT_BROKER) -> None:
    """Show all groups, how many consumers are in them, whether they may consume, and what.

    Examples:
        dledger group list
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    with calls_to(broker) as calls:
        groups = calls.ask(lambda stub: stub.ListGroups, pb.ListGroupsRequest()).groups
    table = _table("group", "consumers", "enabled", "topics")
    for each in groups:
        enabled = "yes" if each.group.is_consume_enabled else "no"
        table.add_row(each.group.name, str(len(each.client_ids)), enabled, ", ".join(each.topics) or _NONE)
    output.print(table)


def delete_group(group: GroupName, broker: Broker = DEFAULT_BROKER) -> None:
    """Delete a group, and what it has consumed; its consumers must have ended.

    Examples:
        dledger group delete billing
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    with calls_to(broker) as calls:
        calls.ask(lambda stub: stub.DeleteGroup, pb.DeleteGroupRequest(group=group))
    notes.print(f"group {group} deleted", highlight=False)


def reset_group(
    group: GroupName,
    topic: Topic,
    where: Annotated[str, typer.Option("--to", metavar="begin|end|TIME", help="Where the group shall go on.")],
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Set where a group goes on in all queues of a topic, forwards or back.

    Examples:
        dledger group reset billing orders --to begin
        dledger group reset billing orders --to 2026-11-21T09:00:00
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)
    from commitlog.message_filter import parse_bound  # noqa: PLC0415

    with calls_to(broker) as calls:
        request = pb.OffsetsRequest(topic=topic)
        if where not in ("begin", "end"):
            bound = parse_bound(where)
            if not bound.is_time:
                fail(f"--to {where}: expected begin, end or a time such as 2026-11-21T09:00:00", EXIT_USAGE)
            request.timestamp_ms = bound.value
        found = calls.ask(lambda stub: stub.Offsets, request)
        offsets = {"begin": found.min_offsets, "end": found.max_offsets}.get(where, found.offsets_by_time)
        reset = pb.ResetOffsetRequest(group=group, topic=topic, queue_ids=found.queue_ids, offsets=offsets)
        calls.ask(lambda stub: stub.ResetOffset, reset)
    notes.print(f"group {group} goes on in {len(offsets)} queues of {topic}", highlight=False)


# ------------------------------------------------------------------------------------------------------------- offsets


def offsets(
    topic: Topic,
    broker: Broker = DEFAULT_BROKER,
    group: Annotated[str, typer.Option("--group", "-g", help="Show how far this group is, too.")] = "",
) -> None:
    """Show where the queues of a topic begin and end, and how far a group is.

    Examples:
        dledger offsets orders
        dledger offsets orders --group billing
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    with calls_to(broker) as calls:
        found = calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic=topic))
        kept = _kept_offsets(calls, group, topic, found.queue_ids) if group else {}
    table = _table("queue", "min", "max", "first message", *(["group", "behind"] if group else []))
    rows = zip(found.queue_ids, found.min_offsets, found.max_offsets, found.earliest_timestamps, strict=True)
    behind_all = 0
    for queue, low, high, earliest in rows:
        place = kept.get(queue, -1)
        behind = high - max(place, low)
        behind_all += behind
        more = [str(place) if place >= 0 else _NONE, str(behind)] if group else []
        table.add_row(str(queue), str(low), str(high), moment(earliest), *more)
    output.print(table)
    if group:
        notes.print(f"group {group} is {behind_all} messages behind", highlight=False)


def _kept_offsets(calls: BrokerCalls, group: str, topic: str, queue_ids: Sequence[int]) -> dict[int, int]:
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    request: pb.FetchOffsetRequest = pb.FetchOffsetRequest(group=group, topic=topic, queue_ids=queue_ids)
    fetched = calls.ask(lambda stub: stub.FetchOffset, request)
    return dict(zip(fetched.queue_ids, fetched.offsets, strict=True))


topic_app.command("create", help=help_of(create_topic))(create_topic)
topic_app.command("list", help=help_of(list_topics))(list_topics)
topic_app.command("delete", help=help_of(delete_topic))(delete_topic)
group_app.command("create", help=help_of(create_group))(create_group)
group_app.command("list", help=help_of(list_groups))(list_groups)
group_app.command("disable", help=help_of(disable_group))(disable_group)
group_app.command("enable", help=help_of(enable_group))(enable_group)
group_app.command("reset", help=help_of(reset_group))(reset_group)
group_app.command("delete", help=help_of(delete_group))(delete_group)
