"""Requests about topics.

| code | request | answered from |
| --- | --- | --- |
| 17, 18 | create or change topics | the leader |
| 215 | delete a topic | the leader |
| 21, 351 | settings of topics | this node; of one topic it does not know, the leader |
| 202 | offsets of the queues | the leader; times of last messages: this node |
| 300, 343 | groups of a topic, topics of a group | this node |
| 303 | ages of consumed messages | this node |
| 305 | the broker's own topics | this node |

Source: RocketMQ `AdminBrokerProcessor`.
"""

# ruff: noqa: ARG002  (every handler gets the request and the client)
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster.api.topic_calls import topic_config
from cluster.process.cooperative import run_cooperatively
from cluster.protocol.errors import Reason, RequestFailed
from cluster.remoting.admin.answers import (
    LIMIT_S,
    NAME_LENGTH_MAX,
    answer,
    broker_name,
    data_version,
    queue_fields,
    queue_key,
    table_steps,
)
from cluster.remoting.admin.configs import json_object, objects_of, topic_of_fields, topic_of_object
from cluster.remoting.admin.lists import set_each
from cluster.remoting.command import Rejected, RemotingCode, Response
from cluster.remoting.fields import text_of
from cluster.state.rocketmq_export import topic_fields
from cluster.v1 import broker_pb2 as pb
from store.errors import IllegalMessage
from store.model.topics import check_topic, is_closed_topic, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.protocol.topic_config import TopicConfig
    from cluster.remoting.command import Request
    from cluster.remoting.front import Handler, RemotingClient
    from store.steps import Steps


class AdminTopics:
    """Handlers of requests about topics.

    Args:
        core: of this node.
        link: to the leader.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink) -> None:
        self._core = core
        self._link = link

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request codes."""
        return {
            17: self._set_topic,
            18: self._set_topics,
            21: self._all_topics,
            202: self._offsets,
            215: self._delete_topic,
            300: self._groups_of,
            303: self._time_spans,
            305: self._system_topics,
            343: self._topics_of,
            351: self._topic,
        }

    async def _set_topic(self, request: Request, client: RemotingClient) -> Response:
        name = text_of(request.fields, "topic", NAME_LENGTH_MAX)
        try:
            check_topic(name)
        except IllegalMessage as error:
            raise Rejected(RemotingCode.INVALID_PARAMETER, str(error)) from error
        await self._set(topic_of_fields(request.fields, await self._known(name)))
        return Response()

    async def _set_topics(self, request: Request, client: RemotingClient) -> Response:
        topics: dict[str, pb.Topic] = {}
        for each in objects_of(await json_object(request.body), "topicConfigList"):
            known = self._core.replica.state.topics.get(str(each.get("topicName")))
            topic = topic_of_object(each, {} if known is None else dict(known.attributes))
            topics[topic.name] = topic
        await set_each(topics, self._set)
        return Response()

    async def _set(self, topic: pb.Topic, limit_s: float = LIMIT_S) -> None:
        await self._link.call(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic), limit_s)

    async def _known(self, name: str) -> pb.Topic | None:
        """Return a topic as the leader has it; None: there is none."""
        try:
            response = await self._link.call(lambda stub: stub.ListTopics, pb.ListTopicsRequest(topic=name), LIMIT_S)
        except RequestFailed as failure:
            if failure.reason is Reason.UNKNOWN_TOPIC:
                return None
            raise
        return response.topics[0]

    async def _delete_topic(self, request: Request, client: RemotingClient) -> Response:
        name = text_of(request.fields, "topic", NAME_LENGTH_MAX)
        if is_closed_topic(name):
            raise Rejected(RemotingCode.INVALID_PARAMETER, f"topic {name!r} is one of the broker itself: it stays")
        try:
            await self._link.call(lambda stub: stub.DeleteTopic, pb.DeleteTopicRequest(topic=name), LIMIT_S)
        except RequestFailed as failure:
            # Tools ask each name of the broker; the first one has deleted it.
            if failure.reason is not Reason.UNKNOWN_TOPIC:
                raise
        return Response()

    async def _all_topics(self, request: Request, client: RemotingClient) -> Response:
        topics = self._core.replica.state.topics

        def rows() -> Iterator[tuple[str, Any] | None]:
            for name in sorted(topics):
                topic = topics.get(name)
                yield None if topic is None else (name, topic_fields(topic))

        head = {"dataVersion": data_version(self._core)}
        return await run_cooperatively(table_steps(head, "topicConfigTable", rows()))

    async def _topic(self, request: Request, client: RemotingClient) -> Response:
        return answer(topic_fields(await self._config(text_of(request.fields, "topic", NAME_LENGTH_MAX))))

    async def _config(self, name: str) -> TopicConfig:
        """Return the settings of a topic.

        Raises:
            Rejected: TOPIC_NOT_EXIST.
        """
        topic = self._core.replica.state.topics.get(name)
        if topic is not None:
            return topic
        known = await self._known(name)
        if known is None:
            raise Rejected(RemotingCode.TOPIC_NOT_EXIST, f"topic {name[:NAME_LENGTH_MAX]!r} does not exist")
        return topic_config(known)

    async def _offsets(self, request: Request, client: RemotingClient) -> Response:
        name, broker = text_of(request.fields, "topic", NAME_LENGTH_MAX), broker_name(request, self._core)
        asked = pb.OffsetsRequest(topic=name)
        found = await self._link.call(lambda stub: stub.Offsets, asked, LIMIT_S)
        store = self._core.replica.store

        def rows() -> Iterator[tuple[str, Any]]:
            for queue_id, low, high in zip(found.queue_ids, found.min_offsets, found.max_offsets, strict=True):
                last_ms = max(store.message_time(name, queue_id, high - 1), 0)
                fields = {"lastUpdateTimestamp": last_ms, "maxOffset": high, "minOffset": low}
                yield queue_key(broker, name, queue_id), fields

        return await run_cooperatively(table_steps({"topicPutTps": 0.0}, "offsetTable", rows()))

    async def _groups_of(self, request: Request, client: RemotingClient) -> Response:
        name = text_of(request.fields, "topic", NAME_LENGTH_MAX)
        return answer({"groupList": await run_cooperatively(self._group_steps(name))})

    def _group_steps(self, topic: str) -> Steps[list[str]]:
        state, found = self._core.replica.state, []
        for group in sorted(state.groups):
            yield
            if any(row.topic == topic for row in tuple(state.offsets(group))):
                found.append(group)
        return found

    async def _topics_of(self, request: Request, client: RemotingClient) -> Response:
        group = text_of(request.fields, "group", NAME_LENGTH_MAX)
        topics = {row.topic for row in tuple(self._core.replica.state.offsets(group))}
        return answer({"topicList": sorted(topics)})

    async def _system_topics(self, request: Request, client: RemotingClient) -> Response:
        return answer(
            {"topicList": [name for name in sorted(self._core.replica.state.topics) if is_system_topic(name)]}
        )

    async def _time_spans(self, request: Request, client: RemotingClient) -> Response:
        topic = await self._config(text_of(request.fields, "topic", NAME_LENGTH_MAX))
        group = text_of(request.fields, "group", NAME_LENGTH_MAX)
        spans = await run_cooperatively(self._span_steps(topic, group, broker_name(request, self._core)))
        return answer({"consumeTimeSpanSet": spans})

    def _span_steps(self, topic: TopicConfig, group: str, broker: str) -> Steps[list[dict[str, Any]]]:
        """Return for each queue the times of its first, last, and last consumed message; and the age of the lag."""
        store, state = self._core.replica.store, self._core.replica.state
        found: list[dict[str, Any]] = []
        name, now_ms = topic.name, self._core.clock_ms()
        for queue_id in range(topic.read_queues):
            yield
            committed = state.offset(group, name, queue_id)
            offset = 0 if committed is None else committed.offset
            end = store.max_offset(name, queue_id)
            consumed_ms = max(store.message_time(name, queue_id, offset - 1), 0)
            waiting_ms = store.message_time(name, queue_id, offset) if offset < end else -1
            found.append(
                {
                    "consumeTimeStamp": consumed_ms,
                    "delayTime": max(now_ms - waiting_ms, 0) if waiting_ms >= 0 else 0,
                    "maxTimeStamp": max(store.message_time(name, queue_id, end - 1), 0),
                    "messageQueue": queue_fields(broker, name, queue_id),
                    "minTimeStamp": max(store.earliest_message_time(name, queue_id), 0),
                }
            )
        return found
