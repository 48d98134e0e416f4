"""`dledger topic` and `dledger offsets`: the topics of brokers, and where their queues begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli_common import EXIT_USAGE, fail, help_of, notes, output
from cluster.cli_each_broker import Choice, change_chosen, chosen_brokers, end_if_silent, read_each, table_of
from cluster.cli_message_common import Broker, BrokerNames, Cluster, NameServers, Topic, moment, targets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.broker_calls import BrokerCalls
    from cluster.v1 import broker_pb2 as pb

_PERMISSIONS = {"rw": 6, "r": 4, "w": 2}
_NEW_QUEUES = 8

topic_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Create, change, list and delete topics.")


# -------------------------------------------------------------------------------------------------------------- topics


def create_topic(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    queues: Annotated[
        int | None,
        typer.Option(
            "--queues", "-q", min=1, max=65536, help="How many queues, on each broker.", show_default=str(_NEW_QUEUES)
        ),
    ] = None,
    permission: Annotated[str, typer.Option("--permission", help="rw, r or w.", show_default="rw")] = "",
) -> None:
    """Create a topic, or change it: what is not said stays as it is, and so do messages that are there.

    With name servers on all their brokers, or on those that are chosen; each gets that many queues. Are there brokers
    of several clusters, one of the clusters must be chosen.

    Examples:
        dledger topic create orders --queues 4
        dledger topic create orders --permission r        no more messages, for now
        dledger topic create orders --name-servers 10.0.0.5:9876,10.0.0.6:9876
        dledger topic create orders --broker-name broker-a --broker-name broker-b
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    if permission and permission not in _PERMISSIONS:
        fail(f"--permission {permission}: expected rw, r or w", EXIT_USAGE)

    def change(calls: BrokerCalls) -> str:
        wanted = _known_topic(calls, topic) or _new_topic(topic)
        if queues is not None:
            wanted.read_queues = wanted.write_queues = queues
        if permission:
            wanted.permission = _PERMISSIONS[permission]
        answer = calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=wanted))
        return f"topic {topic} {'set' if answer.is_changed else 'was so already'}"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


def _known_topic(calls: BrokerCalls, name: str) -> pb.Topic | None:
    from cluster.errors import Reason, RequestFailed  # noqa: PLC0415  (gRPC is slow to load)
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415

    try:
        return calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest(topic=name)).topics[0]
    except RequestFailed as failure:
        if failure.reason is not Reason.UNKNOWN_TOPIC:
            raise
    return None


def _new_topic(name: str) -> pb.Topic:
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    return pb.Topic(name=name, read_queues=_NEW_QUEUES, write_queues=_NEW_QUEUES, permission=_PERMISSIONS["rw"])


def list_topics(
    context: typer.Context,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Show all topics, with their queues and what is permitted.

    Examples:
        dledger topic list
        dledger topic list --broker 10.0.0.5:10911,10.0.0.6:10911
        dledger topic list --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    with chosen_brokers(context, Choice(broker, name_servers, broker_names, cluster), is_change=False) as targets:
        answers, silent = read_each(
            targets, lambda calls: calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest()).topics
        )
        found = [(topic.name, target.broker, topic) for target, topics in answers for topic in topics]
        are_named = any(target.broker for target in targets)
    table = table_of("topic", *(["broker"] if are_named else []), "queues read", "written", "permission")
    names = {number: name for name, number in _PERMISSIONS.items()}
    for name, of_broker, topic in sorted(found, key=lambda each: each[:2]):
        permission = names.get(topic.permission, str(topic.permission))
        where = [of_broker] if are_named else []
        table.add_row(name, *where, str(topic.read_queues), str(topic.write_queues), permission)
    output.print(table)
    end_if_silent(silent)


def delete_topic(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Delete a topic, and what groups have consumed of it. Its messages go when they are old.

    With name servers on all their brokers, or on those that are chosen.

    Examples:
        dledger topic delete orders
        dledger topic delete orders --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    def change(calls: BrokerCalls) -> str:
        calls.ask(lambda stub: stub.DeleteTopic, pb.DeleteTopicRequest(topic=topic))
        return f"topic {topic} deleted"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


# ------------------------------------------------------------------------------------------------------------- offsets


def offsets(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    group: Annotated[str, typer.Option("--group", "-g", help="Show how far this group is, too.")] = "",
) -> None:
    """Show where the queues of a topic begin and end, and how far a group is.

    Examples:
        dledger offsets orders
        dledger offsets orders --group billing
        dledger offsets orders --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    def read(calls: BrokerCalls) -> tuple[pb.OffsetsResponse, dict[int, int]]:
        found = calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic=topic))
        return found, _kept_offsets(calls, group, topic, found.queue_ids) if group else {}

    behind_all = 0
    with targets_of(context, broker, name_servers) as targets:
        columns = ("min", "max", "first message", *(["group", "behind"] if group else []))
        table = table_of(*(["broker"] if targets.is_named else []), "queue", *columns)
        answers, silent = read_each(targets.having(topic), read)
        for target, (found, kept) in answers:
            for queue, low, high, earliest in zip(
                found.queue_ids, found.min_offsets, found.max_offsets, found.earliest_timestamps, strict=True
            ):
                place = kept.get(queue, -1)
                behind = high - max(place, low)
                behind_all += behind
                more = [str(place) if place >= 0 else "-", str(behind)] if group else []
                where = [target.broker] if targets.is_named else []
                table.add_row(*where, str(queue), str(low), str(high), moment(earliest), *more)
    output.print(table)
    if group:
        where_shown = ", where that is known" if silent else ""
        notes.print(f"group {group} is {behind_all} messages behind{where_shown}", highlight=False)
    end_if_silent(silent)


def _kept_offsets(calls: BrokerCalls, group: str, topic: str, queue_ids: Sequence[int]) -> dict[int, int]:
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415  (gRPC is slow to load)

    request: pb.FetchOffsetRequest = pb.FetchOffsetRequest(group=group, topic=topic, queue_ids=queue_ids)
    fetched = calls.ask(lambda stub: stub.FetchOffset, request)
    return dict(zip(fetched.queue_ids, fetched.offsets, strict=True))


topic_app.command("create", help=help_of(create_topic))(create_topic)
topic_app.command("list", help=help_of(list_topics))(list_topics)
topic_app.command("delete", help=help_of(delete_topic))(delete_topic)
