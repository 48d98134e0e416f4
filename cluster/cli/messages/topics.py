"""`dledger topic`: create, change and delete topics; `messages.topic_views` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.common import EXIT_USAGE, NameServers, fail, help_of
from cluster.cli.each_broker import Choice, change_chosen, change_each, chosen_brokers, read_each
from cluster.cli.message_common import Broker, BrokerNames, Cluster, Topic
from cluster.cli.messages.quota_options import Quotas, rates_of_options, set_rates
from cluster.cli.messages.topic_views import PERMISSIONS, describe_topic, list_topics, route_topic
from cluster.protocol.compacted_topics import CLEANUP_POLICY, COMPACTION
from cluster.protocol.topic_types import MESSAGE_TYPE, TopicType

if TYPE_CHECKING:
    from cluster.client.broker_calls import BrokerCalls
    from cluster.v1 import broker_pb2 as pb

_NEW_QUEUES = 8
_RW = PERMISSIONS["rw"]

Queues = Annotated[
    int | None,
    typer.Option(
        "--queues", "-q", min=1, max=65536, help="Number of queues on each broker.", show_default=str(_NEW_QUEUES)
    ),
]
Permission = Annotated[str, typer.Option("--permission", help="rw, r or w.", show_default="rw")]
Type = Annotated[
    str,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Accepted messages: normal, fifo, delay, transaction; mixed or unspecified: all.",
        show_default="unspecified",
    ),
]
Compacted = Annotated[
    bool, typer.Option("--compacted", help="Keep the latest message of each key; messages must have keys.")
]
IfNotExists = Annotated[
    bool, typer.Option("--if-not-exists", help="Succeed without a change if the topic exists already.")
]

topic_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Create, change, list, describe and delete topics."
)


def create_topic(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    queues: Queues = None,
    permission: Permission = "",
    *,
    kind: Type = "",
    compacted: Compacted = False,
    quota: Quotas = None,
    if_not_exists: IfNotExists = False,
) -> None:
    """Create a topic. It is an error if the topic exists; `topic alter` changes it.

    With name servers the topic is created on all of their brokers, or on chosen ones, with --queues queues on each. If
    the brokers belong to several clusters, choose one with --cluster.

    Examples:
        dledger topic create orders --queues 4
        dledger topic create orders --type fifo
        dledger topic create prices --compacted
        dledger topic create orders --quota put.bytes=1000000
        dledger topic create orders --if-not-exists
        dledger topic create orders --name-servers 10.0.0.5:9876,10.0.0.6:9876
        dledger topic create orders --broker-name broker-a --broker-name broker-b
    """
    from cluster.protocol.errors import Reason, RequestFailed
    from cluster.protocol.flow_attributes import QUOTAS_OF_TOPIC
    from cluster.v1 import broker_pb2 as pb

    bits, message_type = _permission_of(permission), _type_of(kind)
    rates = rates_of_options(quota, QUOTAS_OF_TOPIC)
    with chosen_brokers(context, Choice(broker, name_servers, broker_names, cluster), is_change=True) as targets:
        answers, silent = read_each(targets, lambda calls: _known_topic(calls, topic))
        having = {target.broker for target, known in answers if known is not None}
        if having and not if_not_exists:
            where = f" on {', '.join(sorted(having))}" if having != {""} else ""
            fail(
                f"topic {topic} exists already{where}; nothing was changed. `dledger topic alter` changes it, "
                "--if-not-exists creates it only on brokers that lack it"
            )

        def change(calls: BrokerCalls) -> str:
            wanted = pb.Topic(name=topic, read_queues=_NEW_QUEUES, write_queues=_NEW_QUEUES, permission=bits or _RW)
            _set(wanted, queues, bits, message_type, is_compacted=compacted)
            set_rates(wanted.attributes, rates)
            # The broker decides: another caller or a put may have created the topic since it was read.
            try:
                answer = calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=wanted, is_new=True))
            except RequestFailed as failure:
                if failure.reason is not Reason.TOPIC_EXISTS or not if_not_exists:
                    raise
                return f"topic {topic} exists already"
            return f"topic {topic} {'created' if answer.is_changed else 'exists already'}"

        change_each(targets, change, silent=silent, remedy="repeat the command with --if-not-exists")


def alter_topic(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    queues: Queues = None,
    permission: Permission = "",
    *,
    kind: Type = "",
    quota: Quotas = None,
) -> None:
    """Change a topic; options that are not given are unchanged.

    Messages of the topic are kept.

    With name servers the topic is changed on all of their brokers that have it, or on chosen ones.

    Examples:
        dledger topic alter orders --queues 16
        dledger topic alter orders --permission r        refuse new messages
        dledger topic alter orders --type mixed          accept messages of all kinds
        dledger topic alter orders --quota put.messages=500 --quota get.bytes=off
    """
    from cluster.protocol.errors import Reason, RequestFailed
    from cluster.protocol.flow_attributes import QUOTAS_OF_TOPIC
    from cluster.v1 import broker_pb2 as pb

    bits, message_type = _permission_of(permission), _type_of(kind)
    rates = rates_of_options(quota, QUOTAS_OF_TOPIC)
    if queues is None and bits is None and message_type is None and not rates:
        fail("topic alter: expected --queues, --permission, --type or --quota, found none", EXIT_USAGE)

    def change(calls: BrokerCalls) -> str:
        wanted = _known_topic(calls, topic)
        if wanted is None:
            raise RequestFailed(Reason.UNKNOWN_TOPIC, f"there is no topic {topic!r}; `dledger topic create` creates it")
        _set(wanted, queues, bits, message_type)
        set_rates(wanted.attributes, rates)
        answer = calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=wanted))
        return f"topic {topic} {'changed' if answer.is_changed else 'has these settings already'}"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


def _permission_of(text: str) -> int | None:
    if text and text not in PERMISSIONS:
        fail(f"--permission {text}: expected rw, r or w", EXIT_USAGE)
    return PERMISSIONS.get(text)


def _type_of(text: str) -> TopicType | None:
    name = text.upper()
    if text and name not in TopicType.__members__:
        fail(f"--type {text}: expected {', '.join(TopicType).lower()}", EXIT_USAGE)
    return TopicType.__members__.get(name)


def _set(
    topic: pb.Topic,
    queues: int | None,
    bits: int | None,
    message_type: TopicType | None,
    *,
    is_compacted: bool = False,
) -> None:
    if is_compacted:
        topic.attributes[CLEANUP_POLICY] = COMPACTION
    if queues is not None:
        topic.read_queues = topic.write_queues = queues
    if bits is not None:
        topic.permission = bits
    if message_type is TopicType.UNSPECIFIED:
        topic.attributes.pop(MESSAGE_TYPE, None)
    elif message_type is not None:
        topic.attributes[MESSAGE_TYPE] = message_type


def _known_topic(calls: BrokerCalls, name: str) -> pb.Topic | None:
    from cluster.protocol.errors import Reason, RequestFailed
    from cluster.v1 import broker_pb2 as pb

    try:
        return calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest(topic=name)).topics[0]
    except RequestFailed as failure:
        if failure.reason is not Reason.UNKNOWN_TOPIC:
            raise
    return None


def delete_topic(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Delete a topic and the offsets of groups in it. Its messages stay in the log until they expire.

    With name servers it is deleted on all of their brokers, or on chosen ones.

    Examples:
        dledger topic delete orders
        dledger topic delete orders --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """
    from cluster.v1 import broker_pb2 as pb

    def change(calls: BrokerCalls) -> str:
        calls.ask(lambda stub: stub.DeleteTopic, pb.DeleteTopicRequest(topic=topic))
        return f"topic {topic} deleted"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


topic_app.command("create", help=help_of(create_topic))(create_topic)
topic_app.command("alter", help=help_of(alter_topic))(alter_topic)
topic_app.command("list", help=help_of(list_topics))(list_topics)
topic_app.command("describe", help=help_of(describe_topic))(describe_topic)
topic_app.command("route", help=help_of(route_topic))(route_topic)
topic_app.command("delete", help=help_of(delete_topic))(delete_topic)
