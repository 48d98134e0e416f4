"""`dledger export-config`: the state of a broker as the configuration files of RocketMQ."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.common import EXIT_USAGE, NameServers, fail, notes
from cluster.cli.message_common import Broker, targets_of

if TYPE_CHECKING:
    from cluster.client.broker_calls import BrokerCalls
    from cluster.protocol.topic_config import GroupConfig, TopicConfig
    from cluster.state.commands import QueueOffset

_NS_PER_MS = 1_000_000


def export_config(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for the files; it is created, and must have none of them.")
    ],
    broker: Broker = "",
    name_servers: NameServers = "",
) -> None:
    """Write a broker's state as files of RocketMQ.

    The files have topics, groups, offsets and the progress of delay levels. For a Java broker that takes over the
    store: stop the clients, run this command, stop the nodes, and put the files into the folder `config` of the store.
    Users, tokens and settings of nodes are not written.

    Examples:
        dledger export-config /data/store-of-java/config --broker 127.0.0.1:20921
    """
    from cluster.state.rocketmq_export import exported_files

    with targets_of(context, broker, name_servers) as targets:
        brokers = targets.all()
        if len(brokers) != 1:
            fail(f"expected one broker, found {len(brokers)}; choose it with --broker", EXIT_USAGE)
        calls = brokers[0].calls
        topics, groups = _topics(calls), _groups(calls)
        offsets = {group.name: _offsets(calls, group.name) for group in groups}
        files = exported_files(topics, groups, offsets, _delays(calls), time.time_ns() // _NS_PER_MS)
    existing = [name for name in files if (directory / name).exists()]
    if existing:
        fail(f"{directory}: expected none of these files, found {', '.join(existing)}; nothing was written", EXIT_USAGE)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (directory / name).write_text(content, "utf-8")
    except OSError as error:
        fail(f"{directory} cannot be written: {error.strerror}")
    notes.print(f"{len(topics)} topics and {len(groups)} groups written to {directory}", highlight=False)


def _topics(calls: BrokerCalls) -> list[TopicConfig]:
    from cluster.api.topic_calls import topic_config
    from cluster.v1 import broker_pb2 as pb

    return list(map(topic_config, calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest()).topics))


def _groups(calls: BrokerCalls) -> list[GroupConfig]:
    from cluster.api.topic_calls import group_config
    from cluster.v1 import broker_pb2 as pb

    found = calls.ask(lambda stub: stub.ListGroups, pb.ListGroupsRequest()).groups
    return [group_config(each.group) for each in found]


def _offsets(calls: BrokerCalls, group: str) -> list[QueueOffset]:
    from cluster.state.commands import QueueOffset
    from cluster.v1 import broker_pb2 as pb

    found = calls.ask(lambda stub: stub.FetchOffset, pb.FetchOffsetRequest(group=group))
    return list(map(QueueOffset, found.topics, found.queue_ids, found.offsets))


def _delays(calls: BrokerCalls) -> dict[int, int]:
    from cluster.v1 import broker_pb2 as pb

    levels = calls.ask(lambda stub: stub.DelayLevels, pb.DelayLevelsRequest()).levels
    return {each.level: each.delivered_offset for each in levels if each.max_offset}
