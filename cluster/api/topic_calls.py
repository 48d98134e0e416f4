"""Administration of topics and groups, the route to this broker, and its status."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from cluster.api.answers import DONE, leader_hint
from cluster.nameserver.registration import TopicChange
from cluster.process.cooperative import run_cooperatively
from cluster.protocol.compacted_topics import check_cleanup_policy, is_compacted
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.flow_attributes import QUOTAS_OF_GROUP, QUOTAS_OF_TOPIC, check_quotas
from cluster.protocol.retry_policy import POLICY_ATTRIBUTE, parse_policy
from cluster.protocol.route_table import TOPICS_PER_REGISTRATION_MAX, BrokerRoute, Registration, TopicQueues
from cluster.protocol.topic_config import (
    PERMISSION_INHERIT,
    PERMISSION_READ,
    PERMISSION_WRITE,
    GroupConfig,
    TopicConfig,
)
from cluster.protocol.topic_types import check_topic_type
from cluster.protocol.wire.routes import route_response
from cluster.state.commands import DeleteGroup, DeleteTopic, SetGroup, SetTopic
from cluster.state.features import WITH_COMPACTION
from cluster.state.verdicts import CommandVerdict
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import nameserver_pb2
from store.errors import IllegalRequest
from store.model.topics import AUTO_CREATE_TOPIC, is_closed_topic, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.broker.core import BrokerCore
    from cluster.broker.group_members import GroupMembers
    from store.steps import Steps


class TopicCalls:
    """The calls of administrators."""

    def __init__(self, core: BrokerCore, members: GroupMembers) -> None:
        self._core = core
        self._members = members

    # ----------------------------------------------------------------------------------------------------- topics

    async def set_topic(self, request: pb.SetTopicRequest) -> pb.ChangeResponse:
        """Create or change a topic; all reachable name servers have the change when this returns.

        Raises:
            StoreError, DLedgerError: nothing was changed, unless the error's certainty is unknown.
        """
        topic = topic_config(request.topic)
        if is_system_topic(topic.name):
            raise RequestFailed(Reason.ILLEGAL_REQUEST, f"topic {topic.name!r} is a system topic; use another name")
        if topic.read_queues < 1 and topic.write_queues < 1:
            raise IllegalRequest("read_queues, write_queues", "at least one queue", "0 and 0")
        check_topic_type(topic.attributes)
        check_quotas(topic.attributes, QUOTAS_OF_TOPIC)
        check_cleanup_policy(topic, None if request.is_new else self._core.replica.state.topics.get(topic.name))
        if is_compacted(topic.attributes):
            self._core.check_feature(WITH_COMPACTION, "compacted topics")
        applied = await self._core.change(SetTopic(topic, request.is_new))
        await self._core.announced()
        return pb.ChangeResponse(answer=DONE, is_changed=applied.verdict is CommandVerdict.CHANGED)

    async def delete_topic(self, request: pb.DeleteTopicRequest) -> pb.ChangeResponse:
        """Delete a topic and the groups' offsets in it; retention deletes its messages later.

        Raises:
            StoreError, DLedgerError: see `set_topic`.
        """
        await self._core.check_current()
        self._core.known_topic(request.topic)
        await self._core.change(DeleteTopic(request.topic))
        await self._core.announced()
        return pb.ChangeResponse(answer=DONE, is_changed=True)

    async def list_topics(self, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        """Return topics, in order of their names."""
        await self._core.confirm()
        if request.topic:
            return pb.ListTopicsResponse(topics=[topic_message(self._core.known_topic(request.topic))])
        return await run_cooperatively(self._all_topics(is_system_included=request.is_system_included))

    def _all_topics(self, *, is_system_included: bool) -> Steps[pb.ListTopicsResponse]:
        topics, response = self._core.replica.state.topics, pb.ListTopicsResponse()
        for name in sorted(topics):
            yield
            topic = topics.get(name)
            if topic is not None and (is_system_included or not is_system_topic(name)):
                response.topics.append(topic_message(topic))
        return response

    # ----------------------------------------------------------------------------------------------------- groups

    async def set_group(self, request: pb.SetGroupRequest) -> pb.ChangeResponse:
        """Create or change a group.

        Raises:
            IllegalMessage: its retry policy is invalid.
            StoreError, DLedgerError: see `set_topic`.
        """
        policy = request.group.attributes.get(POLICY_ATTRIBUTE)
        if policy is not None:
            parse_policy(policy)
        group = group_config(request.group)
        check_quotas(group.attributes, QUOTAS_OF_GROUP)
        applied = await self._core.change(SetGroup(group, request.is_new))
        return pb.ChangeResponse(answer=DONE, is_changed=applied.verdict is CommandVerdict.CHANGED)

    async def delete_group(self, request: pb.DeleteGroupRequest) -> pb.ChangeResponse:
        """Delete a group and its offsets.

        Raises:
            StoreError, DLedgerError: see `set_topic`.
        """
        self._core.check_leading()
        client_ids = self._members.client_ids(request.group)
        if client_ids:
            shown = ", ".join(client_ids[:5])
            raise RequestFailed(
                Reason.GROUP_IN_USE,
                f"group {request.group!r} has {len(client_ids)} consumers ({shown}); stop them first",
            )
        await self._core.change(DeleteGroup(request.group))
        return pb.ChangeResponse(answer=DONE, is_changed=True)

    async def list_groups(self, request: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        """Return groups, in order of their names. Only the leader answers, because it alone knows their members.

        Raises:
            RequestFailed: NOT_LEADER, UNKNOWN_GROUP.
            StoreError, DLedgerError: see `Replica.confirm`.
        """
        self._core.check_leading()
        await self._core.confirm()
        state = self._core.replica.state
        if request.group and request.group not in state.groups:
            raise RequestFailed(Reason.UNKNOWN_GROUP, f"there is no group {request.group!r}")
        names = [request.group] if request.group else sorted(state.groups)
        return pb.ListGroupsResponse(groups=await run_cooperatively(self._group_states(names)))

    def _group_states(self, names: Sequence[str]) -> Steps[list[pb.GroupState]]:
        """Return these groups, except those deleted meanwhile."""
        state, found = self._core.replica.state, []
        for name in names:
            topics = set()
            for kept in tuple(state.offsets(name)):
                yield
                topics.add(kept.topic)
            yield
            group = state.groups.get(name)
            if group is not None:
                client_ids = self._members.client_ids(name)
                found.append(pb.GroupState(group=group_message(group), client_ids=client_ids, topics=sorted(topics)))
        return found

    # ------------------------------------------------------------------------------------------ routes and status

    def changed_since(self, sequence: int) -> TopicChange | None:
        """Return the topics that changed since a sequence; None: the changes are no longer known."""
        state = self._core.replica.state
        names = state.topics_changed_since(sequence)
        if names is None:
            return None
        shown = [state.topics[name] for name in names if name in state.topics and not is_closed_topic(name)]
        return TopicChange([topic_queues(each) for each in shown], tuple(names - state.topics.keys()))

    def pieces(self) -> Iterator[Sequence[TopicQueues]]:
        """Yield all topics except system topics, a bounded number at a time; each piece has the current state.

        If a put may create topics, `AUTO_CREATE_TOPIC` is included: name servers derive routes of unknown topics from
        it.
        """
        options, state = self._core.options, self._core.replica.state
        if options.auto_create_topic_enable:
            count = options.default_topic_queue_nums
            permission = PERMISSION_READ | PERMISSION_WRITE | PERMISSION_INHERIT
            yield [TopicQueues(AUTO_CREATE_TOPIC, count, count, permission)]
        names = iter(list(state.topics))
        while some := list(islice(names, TOPICS_PER_REGISTRATION_MAX)):
            # Topics deleted or changed meanwhile are in the next difference.
            topics = filter(None, map(state.topics.get, some))
            yield [topic_queues(each) for each in topics if not is_closed_topic(each.name)]

    def registration(self, topics: tuple[TopicQueues, ...] = ()) -> Registration:
        """Return this broker's registration for name servers, with these topics."""
        options, status = self._core.options, self._core.replica.status()
        return Registration(
            broker=options.broker,
            cluster=options.cluster,
            term=status.term,
            sequence=self._core.replica.state.topics_version,
            leader_id=status.leader_id,
            nodes=self._core.replica.nodes(),
            topics=topics,
        )

    async def route(self, request: nameserver_pb2.RouteRequest) -> nameserver_pb2.RouteResponse:
        """Return the routes of topics at this broker, also of topics that their first put would create."""
        topics = self._core.replica.state.topics
        routes = {}
        for name in request.topics:
            topic = topics.get(name) or self._core.topic_to_create(name)
            if topic is not None and not is_closed_topic(name):
                queues = topic_queues(topic)
                routes[name] = [BrokerRoute(self.registration((queues,)), queues)]
        response = route_response(routes)
        status = self._core.replica.status()
        response.broker, response.term = self._core.options.broker, status.term
        response.may_lack_topics = not status.is_serving_puts
        return response

    async def status(self, _request: pb.BrokerStatusRequest) -> pb.BrokerStatusResponse:
        """Return the state of this node's message store."""
        replica, options = self._core.replica, self._core.options
        status, store, state = replica.status(), replica.store, replica.state
        return pb.BrokerStatusResponse(
            broker=options.broker,
            cluster=options.cluster,
            self_id=options.self_id,
            role=status.role,
            term=status.term,
            leader=leader_hint(self._core),
            is_serving_puts=status.is_serving_puts,
            min_physical_offset=store.log.begin_offset,
            max_physical_offset=store.log.end_offset,
            dispatched_physical_offset=store.derived.dispatcher.offset,
            divided_offset=replica.divided_offset,
            topics_count=len(state.topics),
            groups_count=len(state.groups),
            queues_count=len(store.derived.queues),
            waiters_count=store.waiters_count,
            not_serving_reason=status.reason,
            behind_bytes=status.behind_bytes,
            dedupe_window_count=store.config.dedupe_window_count,
            dedupe_window_ms=store.config.dedupe_window_ms,
            is_index_enabled=store.config.message_index_enable,
            life_digests=self._core.life_digests,
            delivered_messages=self._core.metrics.counts.get_messages,
        )


# --------------------------------------------------------------------------------------------------------- conversion


def topic_config(topic: pb.Topic) -> TopicConfig:
    """Convert the topic of a request, without checks."""
    return TopicConfig(
        topic.name,
        topic.read_queues,
        topic.write_queues,
        topic.permission,
        topic.is_ordered,
        topic.sys_flag,
        tuple(sorted(topic.attributes.items())),
    )


def topic_message(topic: TopicConfig) -> pb.Topic:
    """Convert a topic for an answer."""
    return pb.Topic(
        name=topic.name,
        read_queues=topic.read_queues,
        write_queues=topic.write_queues,
        permission=topic.permission,
        is_ordered=topic.is_ordered,
        sys_flag=topic.sys_flag,
        attributes=dict(topic.attributes),
    )


def topic_queues(topic: TopicConfig) -> TopicQueues:
    """Convert a topic for a route."""
    return TopicQueues(topic.name, topic.read_queues, topic.write_queues, topic.permission, topic.is_ordered)


def group_config(group: pb.Group) -> GroupConfig:
    """Convert the group of a request, without checks."""
    return GroupConfig(
        group.name,
        is_consume_enabled=group.is_consume_enabled,
        is_broadcast_enabled=group.is_broadcast_enabled,
        is_from_min_enabled=group.is_from_min_enabled,
        is_orderly=group.is_orderly,
        retry_queues=group.retry_queues,
        retry_max_times=group.retry_max_times,
        consume_timeout_minutes=group.consume_timeout_minutes,
        sys_flag=group.sys_flag,
        attributes=tuple(sorted(group.attributes.items())),
    )


def group_message(group: GroupConfig) -> pb.Group:
    """Convert a group for an answer."""
    return pb.Group(
        name=group.name,
        is_consume_enabled=group.is_consume_enabled,
        is_broadcast_enabled=group.is_broadcast_enabled,
        is_from_min_enabled=group.is_from_min_enabled,
        is_orderly=group.is_orderly,
        retry_queues=group.retry_queues,
        retry_max_times=group.retry_max_times,
        consume_timeout_minutes=group.consume_timeout_minutes,
        sys_flag=group.sys_flag,
        attributes=dict(group.attributes),
    )
