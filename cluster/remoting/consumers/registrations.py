"""34 HEART_BEAT, 35 UNREGISTER_CLIENT, 38 GET_CONSUMER_LIST_BY_GROUP, 46 CHECK_CLIENT_CONFIG; sends 40.

The first heartbeat of a consumer creates its group and the retry topic of it, as RocketMQ does. 40 asks the members
of a group to balance its queues; it is sent only when the members or the topics have changed.

Source: RocketMQ `ClientManageProcessor`, `ConsumerManageProcessor`, `DefaultConsumerIdsChangeListener`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from cluster.api.topic_calls import group_message
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import GroupConfig
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.consumers.bodies import CLIENT_ID_LENGTH_MAX, heartbeat_of, json_of, object_of, subscription_of
from cluster.remoting.consumers.filters import checked_filter
from cluster.remoting.fields import text_of
from cluster.v1 import broker_pb2 as pb
from store.model.topics import RETRY_PREFIX, RETRY_TOPIC_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from cluster.broker.core import BrokerCore
    from cluster.fronts.callers import Callers
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.clients import ClientTable
    from cluster.remoting.consumers.commits import PendingCommits
    from cluster.remoting.front import RemotingClient

_NOTIFY_CONSUMER_IDS_CHANGED: Final = 40
_READ_WRITE: Final = 6
# Clients have 3 s, and close the connection after that.
_LIMIT_S: Final = 2.0


class Registrations:
    """The calls about clients in groups.

    Args:
        core: of this node.
        link: to the leader.
        clients: of this node.
        callers: of the front.
        commits: of this node that are on their way.
        clock_ms: a monotonic clock, milliseconds.
    """

    def __init__(
        self,
        core: BrokerCore,
        link: LeaderLink,
        clients: ClientTable,
        callers: Callers,
        commits: PendingCommits,
        clock_ms: Callable[[], int],
    ) -> None:
        self._core = core
        self._link = link
        self._clients = clients
        self._callers = callers
        self._commits = commits
        self._clock_ms = clock_ms
        # Connections with a callback: one each.
        self._watched: set[RemotingClient] = set()

    async def heartbeat(self, request: Request, client: RemotingClient) -> Response:
        """Register a client in its groups.

        Raises:
            Rejected, RequestFailed: it is not registered; it repeats its heartbeat.
        """
        heartbeat, deadline = heartbeat_of(request.body), time.monotonic() + _LIMIT_S
        self._refuse_other_user(heartbeat.client_id, client)
        for each in heartbeat.consumers:
            await self._create(each.group, deadline)
        self._watch(client)
        beat = self._clients.beat(heartbeat, client, request.language, request.version, self._clock_ms())
        self._notify(beat.changed_groups)
        fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if beat.is_full_wanted else "false"}
        return Response(fields=fields)

    async def unregister(self, request: Request, client: RemotingClient) -> Response:
        """Remove a client from its groups, if this is its connection, after what it has committed is stored.

        The others learn of its end after that, so that the next reader of a queue begins there, whatever node it asks.

        Raises:
            Rejected: it stays registered.
        """
        fields = request.fields
        client_id = text_of(fields, "clientID", CLIENT_ID_LENGTH_MAX)
        self._refuse_other_user(client_id, client)
        consumer_group = fields.get("consumerGroup", "")
        if consumer_group:
            await self._commits.settle(consumer_group)
        changed = self._clients.unregister(
            client_id, client, producer_group=fields.get("producerGroup", ""), consumer_group=consumer_group
        )
        self._notify(changed)
        return Response()

    async def members(self, request: Request, _: RemotingClient) -> Response:
        """Return the ids of a group's members.

        Raises:
            Rejected: SYSTEM_ERROR: it has none; the client keeps its queues.
        """
        group = text_of(request.fields, "consumerGroup", RETRY_TOPIC_LENGTH_MAX)
        found = self._clients.consumers_of(group)
        if found is None:
            raise Rejected(RemotingCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return Response(body=json_of({"consumerIdList": sorted(found.members)}))

    async def check(self, request: Request, _: RemotingClient) -> Response:
        """Answer whether this broker can evaluate a subscription.

        Raises:
            Rejected: SUBSCRIPTION_PARSE_FAILED.
        """
        given = object_of(request.body).get("subscriptionData")
        if given is not None:
            checked_filter(subscription_of(given))
        return Response()

    def expire(self) -> None:
        """Remove silent clients; called each 10 s."""
        self._notify(self._clients.expire(self._clock_ms()))

    def _refuse_other_user(self, client_id: str, client: RemotingClient) -> None:
        """Refuse the id of another user's client, which would lose the replies and questions for it.

        Raises:
            Rejected: NO_PERMISSION.
        """
        known = self._clients.client(client_id)
        users = {self._callers.user_of(each.caller) for each in (known, client) if each is not None} - {""}
        if len(users) > 1:
            raise Rejected(RemotingCode.NO_PERMISSION, f"client id {client_id!r} is that of a client of another user")

    async def _create(self, group: str, deadline: float) -> None:
        """Create a group, if it may be, and its retry topic; those of a heartbeat together have until the deadline.

        Raises:
            Rejected: SUBSCRIPTION_GROUP_NOT_EXIST.
            RequestFailed: it is not certain that both are there.
        """
        state = self._core.replica.state
        if group not in state.groups:
            if not self._core.options.auto_create_subscription_group:
                raise Rejected(RemotingCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"there is no group {group!r}")
            created = pb.SetGroupRequest(group=group_message(GroupConfig(group)), is_new=True)
            await self._unless_there(
                self._link.call(lambda stub: stub.SetGroup, created, _left_s(deadline)), Reason.GROUP_EXISTS
            )
        if RETRY_PREFIX + group not in state.topics:
            known = state.groups.get(group)
            queues = 1 if known is None else known.retry_queues
            if queues:
                topic = pb.Topic(
                    name=RETRY_PREFIX + group, read_queues=queues, write_queues=queues, permission=_READ_WRITE
                )
                new = pb.SetTopicRequest(topic=topic, is_new=True)
                # Consumers seldom may create topics; then the first returned message creates this one.
                await self._unless_there(
                    self._link.call(lambda stub: stub.SetTopic, new, _left_s(deadline)),
                    Reason.TOPIC_EXISTS,
                    Reason.ACCESS_DENIED,
                )

    async def _unless_there(self, call: Awaitable[object], *reasons: Reason) -> None:
        try:
            await call
        except RequestFailed as failure:
            if failure.reason not in reasons:
                raise

    def _watch(self, client: RemotingClient) -> None:
        if client not in self._watched:
            self._watched.add(client)
            client.when_closed(lambda: self._closed(client))

    def _closed(self, client: RemotingClient) -> None:
        self._watched.discard(client)
        self._notify(self._clients.closed(client))

    def _notify(self, groups: Iterable[str]) -> None:
        """Notify the members of changed groups; of broadcasting ones each member reads all queues anyway."""
        for name in groups:
            group = self._clients.consumers_of(name)
            if group is None or group.data.is_broadcasting:
                continue
            request = Request(_NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": name}, is_oneway=True)
            # Once to each connection, however many ids of clients it has.
            for connection in dict.fromkeys(member.connection for member in group.members.values()):
                connection.push(request)


def _left_s(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)
