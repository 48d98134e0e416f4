"""Requests about consumer groups and their offsets.

| code | request | answered from |
| --- | --- | --- |
| 200, 225 | create or change groups | the leader |
| 207 | delete a group | the leader |
| 201, 352 | settings of groups | this node |
| 208 | offsets of a group | the leader; times of last consumed messages: this node |
| 222 | set a group's offsets to a time, or to one offset | the leader |
| 317 | lag of all groups | this node |

Source: RocketMQ `AdminBrokerProcessor`.
"""

# ruff: noqa: ARG002  (every handler gets the request and the client)
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster.process.cooperative import run_cooperatively
from cluster.protocol.errors import Reason, RequestFailed
from cluster.remoting.admin.answers import (
    LIMIT_S,
    NAME_LENGTH_MAX,
    answer,
    broker_name,
    data_version,
    queue_key,
    table_steps,
)
from cluster.remoting.admin.configs import group_of_object, json_object, objects_of
from cluster.remoting.admin.lists import set_each
from cluster.remoting.command import Rejected, RemotingCode, Response
from cluster.remoting.fields import bool_of, int_of, text_of
from cluster.remoting.own_names import check_group
from cluster.remoting.pop.request_modes import kept_modes
from cluster.state.rocketmq_export import group_fields
from cluster.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.command import Request
    from cluster.remoting.consumers.commits import PendingCommits
    from cluster.remoting.front import Handler, RemotingClient
    from store.steps import Steps

_LONG_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1
# Topics of one group in one answer; each is a call of the leader.
_TOPICS_MAX: Final = 100
# Rows of 317.
_ROWS_MAX: Final = 20_000


class _Progress(NamedTuple):
    """A queue of a group: its end, and the offset up to which it is consumed."""

    topic: str
    queue_id: int
    end: int
    offset: int


class AdminGroups:
    """Handlers of requests about consumer groups.

    Args:
        core: of this node.
        link: to the leader.
        commits: of this node that are on their way.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink, commits: PendingCommits) -> None:
        self._core = core
        self._link = link
        self._commits = commits

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request codes."""
        return {
            200: self._set_group,
            201: self._all_groups,
            207: self._delete_group,
            208: self._progress,
            222: self._reset,
            225: self._set_groups,
            317: self._lags,
            352: self._group,
        }

    async def _set_group(self, request: Request, client: RemotingClient) -> Response:
        await self._set(group_of_object(await json_object(request.body)))
        return Response()

    async def _set_groups(self, request: Request, client: RemotingClient) -> Response:
        groups = map(group_of_object, objects_of(await json_object(request.body), "groupConfigList"))
        await set_each({group.name: group for group in groups}, self._set)
        return Response()

    async def _set(self, group: pb.Group, limit_s: float = LIMIT_S) -> None:
        """Create or change a group; its request modes, which are no part of such a request, stay."""
        known = self._core.replica.state.groups.get(group.name)
        for name, value in kept_modes(() if known is None else known.attributes).items():
            if name not in group.attributes:
                group.attributes[name] = value
        await self._link.call(lambda stub: stub.SetGroup, pb.SetGroupRequest(group=group), limit_s)

    async def _delete_group(self, request: Request, client: RemotingClient) -> Response:
        name = text_of(request.fields, "groupName", NAME_LENGTH_MAX)
        try:
            await self._link.call(lambda stub: stub.DeleteGroup, pb.DeleteGroupRequest(group=name), LIMIT_S)
        except RequestFailed as failure:
            # Tools ask each name of the broker; the first one has deleted it.
            if failure.reason is not Reason.UNKNOWN_GROUP:
                raise
        return Response()

    async def _all_groups(self, request: Request, client: RemotingClient) -> Response:
        groups = self._core.replica.state.groups

        def rows() -> Iterator[tuple[str, Any] | None]:
            for name in sorted(groups):
                group = groups.get(name)
                yield None if group is None else (name, group_fields(group))

        head = {"dataVersion": data_version(self._core), "forbiddenTable": {}}
        return await run_cooperatively(table_steps(head, "subscriptionGroupTable", rows()))

    async def _group(self, request: Request, client: RemotingClient) -> Response:
        name = text_of(request.fields, "group", NAME_LENGTH_MAX)
        group = self._core.replica.state.groups.get(name)
        if group is None:
            raise Rejected(RemotingCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {name!r} does not exist")
        return answer(group_fields(group))

    # ---------------------------------------------------------------------------------------------------- offsets

    async def _progress(self, request: Request, client: RemotingClient) -> Response:
        group, broker = text_of(request.fields, "consumerGroup", NAME_LENGTH_MAX), broker_name(request, self._core)
        only = text_of(request.fields, "topic", NAME_LENGTH_MAX) if request.fields.get("topic") else ""
        fetched = await self._fetched(group, only)
        topics = [only] if only else sorted({topic for topic, _ in fetched})[:_TOPICS_MAX]
        rows: list[_Progress] = []
        for topic in topics:
            rows += await self._progress_of(topic, fetched)
        found = (self._consume_row(broker, row) for row in rows)
        return await run_cooperatively(table_steps({"consumeTps": 0.0}, "offsetTable", found))

    async def _fetched(self, group: str, topic: str) -> dict[tuple[str, int], int]:
        """Return the offsets of a group by topic and queue; of one topic, unless that is empty."""
        await self._commits.settle(group, topic)
        asked = pb.FetchOffsetRequest(group=group, topic=topic)
        found = await self._link.call(lambda stub: stub.FetchOffset, asked, LIMIT_S)
        topics = list(found.topics) or [topic] * len(found.queue_ids)
        rows = zip(topics, found.queue_ids, found.offsets, strict=True)
        return {(name, queue_id): offset for name, queue_id, offset in rows if offset >= 0}

    async def _progress_of(self, topic: str, fetched: dict[tuple[str, int], int]) -> list[_Progress]:
        try:
            found = await self._link.call(lambda stub: stub.Offsets, pb.OffsetsRequest(topic=topic), LIMIT_S)
        except RequestFailed as failure:
            # Deleted meanwhile.
            if failure.reason is Reason.UNKNOWN_TOPIC:
                return []
            raise
        queues = zip(found.queue_ids, found.max_offsets, strict=True)
        return [_Progress(topic, number, end, fetched.get((topic, number), 0)) for number, end in queues]

    def _consume_row(self, broker: str, row: _Progress) -> tuple[str, dict[str, int]]:
        consumed_ms = self._core.replica.store.message_time(row.topic, row.queue_id, row.offset - 1)
        fields = {
            "brokerOffset": row.end,
            "consumerOffset": row.offset,
            "lastTimestamp": max(consumed_ms, 0),
            "pullOffset": row.offset,
        }
        return queue_key(broker, row.topic, row.queue_id), fields

    async def _reset(self, request: Request, client: RemotingClient) -> Response:
        fields = request.fields
        topic, group = text_of(fields, "topic", NAME_LENGTH_MAX), text_of(fields, "group", NAME_LENGTH_MAX)
        await check_group(self._core, self._link, group, LIMIT_S)
        time_ms = int_of(fields, "timestamp", -1, _LONG_MAX, -1)
        queue_id = int_of(fields, "queueId", -1, _INT_MAX, -1)
        offset = int_of(fields, "offset", -1, _LONG_MAX, -1)
        queue_ids = [queue_id] if queue_id >= 0 else []
        # 0 is in our API "no time", and every message is later than 1.
        asked = pb.OffsetsRequest(topic=topic, queue_ids=queue_ids, timestamp_ms=max(time_ms, 1))
        found = await self._link.call(lambda stub: stub.Offsets, asked, LIMIT_S)
        wanted = list(found.max_offsets if time_ms < 0 else found.offsets_by_time)
        if queue_id >= 0 and offset >= 0:
            wanted = [min(max(offset, found.min_offsets[0]), found.max_offsets[0])]
        if not bool_of(fields, "isForce", default=True):
            known = await self._fetched(group, topic)
            wanted = _only_back(topic, found.queue_ids, wanted, known)
        change = pb.ResetOffsetRequest(group=group, topic=topic, queue_ids=found.queue_ids, offsets=wanted)
        await self._link.call(lambda stub: stub.ResetOffset, change, LIMIT_S)
        broker, queues = broker_name(request, self._core), list(zip(found.queue_ids, wanted, strict=True))
        return answer({"offsetTable": {queue_key(broker, topic, number): to for number, to in queues}})

    async def _lags(self, request: Request, client: RemotingClient) -> Response:
        is_ordered = bool_of(request.fields, "isOrder")
        return answer(await run_cooperatively(self._lag_steps(broker_name(request, self._core), is_ordered=is_ordered)))

    def _lag_steps(self, broker: str, *, is_ordered: bool) -> Steps[dict[str, Any]]:
        """Return the progress of all groups in all topics, or in ordered ones only; at most `_ROWS_MAX` queues."""
        state, store = self._core.replica.state, self._core.replica.store
        stats: list[dict[str, Any]] = []
        total, rows = 0, 0
        for group in sorted(state.groups):
            tables: dict[str, dict[str, Any]] = {}
            for each in tuple(state.offsets(group)):
                yield
                topic = state.topics.get(each.topic)
                if rows >= _ROWS_MAX or topic is None or (is_ordered and not topic.is_ordered):
                    continue
                rows += 1
                end = store.max_offset(each.topic, each.queue_id)
                row = _Progress(each.topic, each.queue_id, end, min(each.offset, end))
                total += end - row.offset
                key, fields = self._consume_row(broker, row)
                tables.setdefault(each.topic, {})[key] = fields
            if tables:
                stats.append({group: [{"consumeTps": 0.0, "offsetTable": each} for each in tables.values()]})
        return {"brokerAddr": "", "consumeStatsList": stats, "totalDiff": total, "totalInflightDiff": 0}


def _only_back(
    topic: str, queue_ids: Sequence[int], wanted: Sequence[int], known: dict[tuple[str, int], int]
) -> list[int]:
    """Return the offsets of a reset that moves no queue forwards."""
    return [min(to, known.get((topic, each), to)) for each, to in zip(queue_ids, wanted, strict=True)]
