"""Broker state as the files of a RocketMQ broker's `config` folder, for a Java broker that takes over a store.

The form is that of the Java program, keys that are numbers without quotes included; `cluster.state.rocketmq_config`
reads it, too.

| file | content |
| --- | --- |
| topics.json | topics: queues, permission, order, attributes |
| subscriptionGroup.json | consumer groups |
| consumerOffset.json | committed offsets of groups |
| delayOffset.json | delivered offsets of the queues of delay levels |

Source: RocketMQ `TopicConfigManager`, `SubscriptionGroupManager`, `ConsumerOffsetManager`, `ScheduleMessageService`,
each in `encode`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from cluster.protocol.retry_policy import POLICY_ATTRIBUTE, CustomizedPolicy, policy_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.protocol.retry_policy import RetryPolicy
    from cluster.protocol.topic_config import GroupConfig, TopicConfig
    from cluster.state.commands import QueueOffset

_FILTER_TYPE: Final = "SINGLE_TAG"


def exported_files(
    topics: Iterable[TopicConfig],
    groups: Iterable[GroupConfig],
    offsets: Mapping[str, Iterable[QueueOffset]],
    delay_offsets: Mapping[int, int],
    now_ms: int,
) -> dict[str, str]:
    """Return the content of each file by its name.

    Args:
        topics: of the broker.
        groups: of the broker.
        offsets: by group.
        delay_offsets: delivered offset by delay level.
        now_ms: the time of the data version, milliseconds since 1970. RocketMQ's name servers and replicas compare it.
    """
    version = {"counter": 1, "stateVersion": 0, "timestamp": now_ms}
    topic_table = {topic.name: topic_fields(topic) for topic in topics}
    group_table = {group.name: group_fields(group) for group in groups}
    return {
        "topics.json": _text({"dataVersion": version, "topicConfigTable": topic_table}),
        "subscriptionGroup.json": _text(
            {"dataVersion": version, "forbiddenTable": {}, "subscriptionGroupTable": group_table}
        ),
        "consumerOffset.json": _offsets(offsets, version),
        "delayOffset.json": _with_numbers({"dataVersion": version}, "offsetTable", _numbers(delay_offsets)),
    }


def topic_fields(topic: TopicConfig) -> dict[str, Any]:
    """Return a topic in the form of RocketMQ's `TopicConfig`."""
    return {
        "attributes": dict(topic.attributes),
        "order": topic.is_ordered,
        "perm": topic.permission,
        "readQueueNums": topic.read_queues,
        "topicFilterType": _FILTER_TYPE,
        "topicName": topic.name,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queues,
    }


def group_fields(group: GroupConfig) -> dict[str, Any]:
    """Return a group in the form of RocketMQ's `SubscriptionGroupConfig`."""
    policy = policy_of(group)
    attributes = {name: value for name, value in group.attributes if policy is None or name != POLICY_ATTRIBUTE}
    return {
        "attributes": attributes,
        "brokerId": 0,
        "consumeBroadcastEnable": group.is_broadcast_enabled,
        "consumeEnable": group.is_consume_enabled,
        "consumeFromMinEnable": group.is_from_min_enabled,
        "consumeMessageOrderly": group.is_orderly,
        "consumeTimeoutMinute": group.consume_timeout_minutes,
        "groupName": group.name,
        **({} if policy is None else {"groupRetryPolicy": _retry_policy(policy)}),
        "groupSysFlag": group.sys_flag,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": group.retry_max_times,
        "retryQueueNums": group.retry_queues,
        "whichBrokerWhenConsumeSlowly": 1,
    }


def _retry_policy(policy: RetryPolicy) -> dict[str, Any]:
    if isinstance(policy, CustomizedPolicy):
        return {"customizedRetryPolicy": {"next": list(policy.delays_ms)}, "type": "CUSTOMIZED"}
    numbers = {"initial": policy.initial_ms, "max": policy.maximum_ms, "multiplier": policy.multiplier}
    return {"exponentialRetryPolicy": numbers, "type": "EXPONENTIAL"}


def _offsets(offsets: Mapping[str, Iterable[QueueOffset]], version: Mapping[str, int]) -> str:
    table: dict[str, dict[int, int]] = {}
    for group, rows in offsets.items():
        for row in rows:
            table.setdefault(f"{row.topic}@{group}", {})[row.queue_id] = row.offset
    # Names consist of letters, digits and a few signs, so none needs an escape.
    members = ",".join(f'"{name}":{_numbers(queues)}' for name, queues in sorted(table.items()))
    return _with_numbers({"dataVersion": version}, "offsetTable", "{" + members + "}")


def _numbers(values: Mapping[int, int]) -> str:
    return "{" + ",".join(f"{name}:{value}" for name, value in sorted(values.items())) + "}"


def _with_numbers(members: Mapping[str, Any], name: str, value: str) -> str:
    return f'{_text(members)[:-1]},"{name}":{value}}}'


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
