"""14 QUERY_CONSUMER_OFFSET, 15 UPDATE_CONSUMER_OFFSET, 29 to 32: offsets of groups, and of queues.

Consumers send 15 without an answer for each of their queues each 5 s, changed or not; what the group has already is
not sent to the leader. An offset with such a request never goes back; with one that is answered (RocketMQ's tools) it
does, and its group must exist.

Source: RocketMQ `ConsumerManageProcessor`, `AdminBrokerProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.protocol.errors import RequestFailed
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.fields import bool_of, int_of, text_of
from cluster.remoting.own_names import check_group
from cluster.remoting.responses import response_of
from cluster.v1 import broker_pb2 as pb
from store.model.topics import RETRY_TOPIC_LENGTH_MAX

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.consumers.commits import PendingCommits
    from cluster.remoting.consumers.resets import OffsetResets
    from cluster.remoting.front import RemotingClient

# A queue whose first message is not older is read from its beginning by a new group: it was there before the queue.
YOUNG_MS: Final = 3_600_000
_LIMIT_S: Final = 2.5
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_NO_OFFSET: Final = -1


class Offsets:
    """The calls about offsets.

    Args:
        core: of this node.
        link: to the leader.
        resets: of offsets, which clients do not know of.
        commits: of this node that are on their way.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink, resets: OffsetResets, commits: PendingCommits) -> None:
        self._core = core
        self._link = link
        self._resets = resets
        self._commits = commits

    async def query(self, request: Request, _: RemotingClient) -> Response:
        """Return the offset of a group in a queue, with what was committed at this node before.

        Raises:
            Rejected: QUERY_NOT_FOUND: it has certainly none, and the client begins where it is set to;
                SYSTEM_ERROR: it is not certain, and the client asks again.
            RequestFailed: other refusals of the leader.
        """
        group, topic, queue_id = _place(request)
        try:
            found = await self._fetch(group, topic, queue_id)
            if found.offsets[0] != _NO_OFFSET:
                return Response(fields={"offset": str(found.offsets[0])})
            if bool_of(request.fields, "setZeroIfNotFound", default=True) and await self._is_young(topic, queue_id):
                return Response(fields={"offset": "0"})
        except RequestFailed as failure:
            code = response_of(failure).code
            if code in (RemotingCode.QUERY_NOT_FOUND, RemotingCode.SERVICE_NOT_AVAILABLE):
                raise Rejected(RemotingCode.SYSTEM_ERROR, failure.message) from failure
            raise
        raise Rejected(RemotingCode.QUERY_NOT_FOUND, f"group {group!r} has no offset in queue {queue_id} of {topic!r}")

    async def update(self, request: Request, _: RemotingClient) -> Response:
        """Store the offset of a group in a queue.

        Raises:
            Rejected, RequestFailed: it is not stored.
        """
        group, topic, queue_id = _place(request)
        offset = int_of(request.fields, "commitOffset", 0, _LONG_MAX)
        if request.is_oneway:
            await self.commit_soon(group, topic, queue_id, offset)
            return Response()
        # The leader would create it; tools that copy offsets to a mistyped group must see that. A client that pulls may
        # be faster than its first heartbeat, which creates its group.
        if not self._resets.is_pulled(group, topic, queue_id):
            await check_group(self._core, self._link, group, _LIMIT_S)
        found = await self._fetch(group, topic, queue_id)
        if offset < found.offsets[0]:
            reset = pb.ResetOffsetRequest(group=group, topic=topic, queue_ids=[queue_id], offsets=[offset])
            await self._link.call(lambda stub: stub.ResetOffset, reset, _LIMIT_S)
            return Response()
        committed = pb.CommitOffsetRequest(
            group=group, topic=topic, queue_ids=[queue_id], offsets=[offset], reset_counts=found.reset_counts[:1]
        )
        await self._link.call(lambda stub: stub.CommitOffset, committed, _LIMIT_S)
        return Response()

    async def _fetch(self, group: str, topic: str, queue_id: int) -> pb.FetchOffsetResponse:
        """Return the offset that the leader has, with what was committed at this node before."""
        await self._commits.settle(group, topic, queue_id)
        fetch = pb.FetchOffsetRequest(group=group, topic=topic, queue_ids=[queue_id])
        return await self._link.call(lambda stub: stub.FetchOffset, fetch, _LIMIT_S)

    async def commit_soon(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset if it is ahead; a failure is not reported, because the client repeats it each 5 s."""
        if self._resets.is_behind(group, topic, queue_id):
            return
        kept = self._core.replica.state.offset(group, topic, queue_id)
        if kept is None or kept.offset < offset:
            reset_count = 0 if kept is None else kept.reset_count
            await self._commits.store(group, topic, queue_id, offset, reset_count)

    async def max_offset(self, request: Request, _: RemotingClient) -> Response:
        """Return the offset after the last message of a queue.

        Raises:
            Rejected, RequestFailed: it is not known.
        """
        return _offset((await self._offsets(request)).max_offsets[0])

    async def min_offset(self, request: Request, _: RemotingClient) -> Response:
        """Return the offset of the first message of a queue.

        Raises:
            Rejected, RequestFailed: it is not known.
        """
        return _offset((await self._offsets(request)).min_offsets[0])

    async def offset_of_time(self, request: Request, _: RemotingClient) -> Response:
        """Return the offset of a time in a queue.

        Raises:
            Rejected, RequestFailed: it is not known.
        """
        # 0 would ask for none: all messages are newer than 1 ms after 1970.
        timestamp_ms = max(int_of(request.fields, "timestamp", -_LONG_MAX, _LONG_MAX), 1)
        is_upper = request.fields.get("boundaryType", "").upper() == "UPPER"
        boundary = pb.TIME_BOUNDARY_UPPER if is_upper else pb.TIME_BOUNDARY_LOWER
        return _offset((await self._offsets(request, timestamp_ms, boundary)).offsets_by_time[0])

    async def earliest_time(self, request: Request, _: RemotingClient) -> Response:
        """Return when the first message of a queue was stored.

        Raises:
            Rejected, RequestFailed: it is not known.
        """
        return Response(fields={"timestamp": str((await self._offsets(request)).earliest_timestamps[0])})

    async def _offsets(
        self,
        request: Request,
        timestamp_ms: int = 0,
        boundary: pb.TimeBoundary.ValueType = pb.TIME_BOUNDARY_LOWER,
    ) -> pb.OffsetsResponse:
        asked = pb.OffsetsRequest(
            topic=text_of(request.fields, "topic", RETRY_TOPIC_LENGTH_MAX),
            queue_ids=[int_of(request.fields, "queueId", 0, _INT_MAX)],
            timestamp_ms=timestamp_ms,
            boundary=boundary,
        )
        return await self._link.call(lambda stub: stub.Offsets, asked, _LIMIT_S)

    async def _is_young(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue has lost no message yet, and its first one is young."""
        asked = pb.OffsetsRequest(topic=topic, queue_ids=[queue_id])
        found = await self._link.call(lambda stub: stub.Offsets, asked, _LIMIT_S)
        if found.min_offsets[0] > 0:
            return False
        return found.max_offsets[0] == 0 or self._core.clock_ms() - found.earliest_timestamps[0] <= YOUNG_MS


def _offset(offset: int) -> Response:
    return Response(fields={"offset": str(offset)})


def _place(request: Request) -> tuple[str, str, int]:
    """Return group, topic and queue of a request.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    fields = request.fields
    return (
        text_of(fields, "consumerGroup", RETRY_TOPIC_LENGTH_MAX),
        text_of(fields, "topic", RETRY_TOPIC_LENGTH_MAX),
        int_of(fields, "queueId", 0, _INT_MAX),
    )
