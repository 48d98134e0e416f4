"""`dledger topic list`, `describe`, `route` and `dledger offsets`: views of topics and their queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.common import NameServers, notes
from cluster.cli.each_broker import Choice, end_if_silent, list_chosen, read_each
from cluster.cli.message_common import Broker, BrokerNames, Cluster, Topic, moment, targets_of
from cluster.cli.messages.quota_options import shown_quotas
from cluster.cli.rows import AsJson, print_rows
from cluster.protocol.topic_types import MESSAGE_TYPE, TopicType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.cli.targets import BrokerTarget
    from cluster.client.broker_calls import BrokerCalls
    from cluster.v1 import broker_pb2 as pb

# RocketMQ's bits: 4 read, 2 write.
PERMISSIONS = {"rw": 6, "r": 4, "w": 2}
_PERMISSION_NAMES = {bits: name for name, bits in PERMISSIONS.items()}


def list_topics(
    context: typer.Context,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    as_json: AsJson = False,
) -> None:
    """List all topics, with their queues and permissions.

    Examples:
        dledger topic list
        dledger topic list --name-servers 10.0.0.5:9876,10.0.0.6:9876
        dledger topic list --json | jq -r .topic
    """
    from cluster.v1 import broker_pb2 as pb

    columns = {"topic": "topic", "broker": "broker", "read_queues": "queues read", "write_queues": "written"}
    list_chosen(
        context,
        Choice(broker, name_servers, broker_names, cluster),
        lambda calls: calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest()).topics,
        lambda target, topics: (_row(target, topic) for topic in topics),
        {**columns, "permission": "permission", "type": "type", "quotas": "quotas"},
        as_json=as_json,
        order=("topic", "broker"),
    )


def _where(are_named: bool) -> dict[str, str]:
    return {"broker": "broker"} if are_named else {}


def _row(target: BrokerTarget, topic: pb.Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "broker": target.broker,
        "read_queues": topic.read_queues,
        "write_queues": topic.write_queues,
        "permission": _PERMISSION_NAMES.get(topic.permission, str(topic.permission)),
        "type": topic.attributes.get(MESSAGE_TYPE, TopicType.UNSPECIFIED).lower(),
        "is_ordered": topic.is_ordered,
        "quotas": shown_quotas(topic.attributes),
        "attributes": dict(topic.attributes),
    }


def describe_topic(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Show a topic on each broker: settings, queues and groups.

    The output includes the number of messages in the queues of each broker.

    Examples:
        dledger topic describe orders
        dledger topic describe orders --json | jq .messages
    """
    from cluster.v1 import broker_pb2 as pb

    def read(calls: BrokerCalls) -> tuple[pb.Topic, pb.OffsetsResponse, list[str]]:
        found = calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest(topic=topic)).topics[0]
        offsets = calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic=topic))
        groups = calls.ask(lambda stub: stub.ListGroups, pb.ListGroupsRequest()).groups
        return found, offsets, sorted(each.group.name for each in groups if topic in each.topics)

    with targets_of(context, broker, name_servers) as targets:
        answers, silent = read_each(targets.having(topic), read)
        rows = []
        for target, (found, offsets, groups) in answers:
            counts = [high - low for low, high in zip(offsets.min_offsets, offsets.max_offsets, strict=True)]
            used = sum(count > 0 for count in counts)
            first = min((time for time in offsets.earliest_timestamps if time >= 0), default=-1)
            queues = {"messages": sum(counts), "queues_with_messages": used, "first_message": moment(first)}
            rows.append({**_row(target, found), **queues, "groups": groups})
        columns = {**_where(targets.is_named), "write_queues": "queues", "permission": "permission", "type": "type"}
    columns |= {"messages": "messages", "queues_with_messages": "in queues", "first_message": "first message"}
    print_rows(columns | {"groups": "groups", "quotas": "quotas"}, rows, as_json=as_json)
    end_if_silent(silent)


def route_topic(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Show the brokers that have a topic, and their leaders.

    This is the route that a client looks up before it sends or reads.

    Examples:
        dledger topic route orders --name-servers 10.0.0.5:9876,10.0.0.6:9876
        dledger topic route orders --broker 10.0.0.7:20921
    """
    with targets_of(context, broker, name_servers) as targets:
        routes = targets.routes(topic)
    rows = []
    for route in routes:
        registration, queues = route.registration, route.queues
        rows.append(
            {
                "broker": registration.broker,
                "cluster": registration.cluster,
                "leader": next(
                    (node.address for node in registration.nodes if node.id == registration.leader_id), None
                ),
                "nodes": [node.address for node in registration.nodes],
                "read_queues": queues.read_queues,
                "write_queues": queues.write_queues,
                "permission": _PERMISSION_NAMES.get(queues.permission, str(queues.permission)),
                "term": registration.term,
            }
        )
    headings = {
        "broker": "broker",
        "leader": "leader",
        "nodes": "nodes",
        "read_queues": "read",
        "write_queues": "written",
    }
    print_rows(headings | {"permission": "permission"}, rows, as_json=as_json)


def offsets(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    group: Annotated[str, typer.Option("--group", "-g", help="Also show the committed offsets of this group.")] = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Show the offsets of a topic's queues, and of a group.

    For each queue: its first offset, its end, and with --group the group's committed offset and lag.

    Examples:
        dledger offsets orders
        dledger offsets orders --group billing
        dledger offsets orders --group billing --json | jq .lag
    """
    from cluster.v1 import broker_pb2 as pb

    def read(calls: BrokerCalls) -> tuple[pb.OffsetsResponse, dict[int, int]]:
        found = calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic=topic))
        return found, _kept_offsets(calls, group, topic, found.queue_ids) if group else {}

    rows: list[dict[str, Any]] = []
    with targets_of(context, broker, name_servers) as targets:
        answers, silent = read_each(targets.having(topic), read)
        for target, (found, kept) in answers:
            for queue, low, high, earliest in zip(
                found.queue_ids, found.min_offsets, found.max_offsets, found.earliest_timestamps, strict=True
            ):
                committed = kept.get(queue, -1)
                row = {"broker": target.broker, "queue": queue, "min": low, "max": high, "first": moment(earliest)}
                of_group = {"group": committed if committed >= 0 else None, "lag": high - max(committed, low)}
                rows.append(row | (of_group if group else {}))
        columns = {**_where(targets.is_named), "queue": "queue", "min": "min", "max": "max", "first": "first message"}
    print_rows(columns | ({"group": "group", "lag": "lag"} if group else {}), rows, as_json=as_json)
    if group and not as_json:
        where_shown = ", without brokers that do not answer" if silent else ""
        notes.print(f"lag of group {group}: {sum(row['lag'] for row in rows)} messages{where_shown}", highlight=False)
    end_if_silent(silent)


def _kept_offsets(calls: BrokerCalls, group: str, topic: str, queue_ids: Sequence[int]) -> dict[int, int]:
    from cluster.v1 import broker_pb2 as pb

    request: pb.FetchOffsetRequest = pb.FetchOffsetRequest(group=group, topic=topic, queue_ids=queue_ids)
    fetched = calls.ask(lambda stub: stub.FetchOffset, request)
    return dict(zip(fetched.queue_ids, fetched.offsets, strict=True))
