"""The offsets of a group at its brokers: fetched when a queue is acquired, committed as it is consumed.

Brokers are called in parallel: one that does not answer delays no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cluster.client.consumer.queue_reader import QueueReader
from cluster.client.consumer.repeated_warnings import RepeatedWarnings
from cluster.client.routing.queue_choice import BrokerQueue
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from store.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from cluster.client.consumer.options import Start
    from cluster.client.routing.broker_nodes import BrokerNodes, Method, ResponseT

logger = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
# The timeout for a broker that accepted no connection in the last call. Connecting continues between calls, and calls
# are repeated every second.
_SILENT_TIMEOUT_S = 0.5
_QUEUES_PER_CALL = 4_096
# Maximum number of missing queues in a log line.
_NAMED_MAX = 10

# Pairs of a reader and the offset to commit.
_Rows = Sequence[tuple[QueueReader, int]]
_Row = TypeVar("_Row")


class Beginning(NamedTuple):
    """The start offset in a queue, and the reset count of the group's offset there."""

    offset: int
    reset_count: int


class GroupOffsets:
    """The offsets of one group.

    Args:
        group: name of the group.
        nodes: the connections.
        start: where to begin in a queue without an offset.
        is_kept: whether brokers store the offsets; False in broadcast mode.
    """

    def __init__(self, group: str, nodes: BrokerNodes, start: Start, *, is_kept: bool) -> None:
        self._group = group
        self._nodes = nodes
        self._start = start
        self._is_kept = is_kept
        self._warnings = RepeatedWarnings(logger)

    async def beginnings(self, broker: str, topic: str, queue_ids: Sequence[int]) -> dict[int, Beginning]:
        """Return the start offsets of queues of one topic of one broker; queues that the topic lacks are omitted.

        Raises:
            RequestFailed: the broker does not answer, or has none of the queues.
        """
        found: dict[int, Beginning] = {}

        async def ask(ids: Sequence[int]) -> None:
            found.update(await self._beginnings(broker, topic, ids))

        await self._ask_known(broker, topic, queue_ids, ask)
        return found

    async def _beginnings(self, broker: str, topic: str, queue_ids: Sequence[int]) -> dict[int, Beginning]:
        """Return start offsets, by one request of each kind; a queue that the topic lacks fails the request."""
        found: dict[int, Beginning] = {}
        if self._is_kept:
            request = pb.FetchOffsetRequest(group=self._group, topic=topic, queue_ids=queue_ids)
            response = await _ask(self._nodes, broker, lambda stub: stub.FetchOffset, request)
            counts = list(response.reset_counts) or [0] * len(response.queue_ids)
            rows = zip(response.queue_ids, response.offsets, counts, strict=True)
            found = {queue_id: Beginning(offset, count) for queue_id, offset, count in rows}
        missing = [each for each in queue_ids if each not in found or found[each].offset < 0]
        if missing:
            for queue_id, offset in (await self._starts(broker, topic, missing)).items():
                count = found[queue_id].reset_count if queue_id in found else 0
                found[queue_id] = Beginning(offset, count)
        return found

    async def ends(self, broker: str, topic: str, queue_ids: Sequence[int]) -> dict[int, int]:
        """Return the end offsets of queues; queues that the topic lacks are omitted.

        Raises:
            RequestFailed: the broker does not answer, or has none of the queues.
        """
        found: dict[int, int] = {}

        async def ask(ids: Sequence[int]) -> None:
            response = await self._offsets(broker, pb.OffsetsRequest(topic=topic, queue_ids=ids))
            found.update(zip(response.queue_ids, response.max_offsets, strict=True))

        await self._ask_known(broker, topic, queue_ids, ask)
        return found

    async def _ask_known(
        self, broker: str, topic: str, queue_ids: Sequence[int], ask: Callable[[Sequence[int]], Awaitable[None]]
    ) -> None:
        """Send the request for the queues that the topic has, and log which ones it lacks.

        Raises:
            RequestFailed: the broker does not answer, or has none of the queues.
        """
        key = (broker, topic, "missing")
        try:
            await ask(queue_ids)
        except RequestFailed as failure:
            if failure.reason is not Reason.UNKNOWN_QUEUE:
                raise
            missing = await _send_known(sorted(queue_ids), ask)
            if len(missing) == len(queue_ids):
                raise
            names = ",".join(map(str, missing[:_NAMED_MAX])) + (",..." if len(missing) > _NAMED_MAX else "")
            line = f"queues_missing group={self._group} broker={broker} topic={topic} queue_ids={names}: {failure}"
            self._warnings.failed(key, line)
        else:
            self._warnings.succeeded(key)

    async def _starts(self, broker: str, topic: str, queue_ids: Sequence[int]) -> dict[int, int]:
        request = pb.OffsetsRequest(topic=topic, queue_ids=queue_ids)
        # All messages of a retry topic are the group's own, and the first one comes before the topic is known here.
        start = "first" if topic.startswith(RETRY_PREFIX) else self._start
        if isinstance(start, int):
            request.timestamp_ms = start
            request.boundary = pb.TIME_BOUNDARY_LOWER
        response = await self._offsets(broker, request)
        offsets = {"first": response.min_offsets, "last": response.max_offsets}.get(
            str(start), response.offsets_by_time
        )
        return dict(zip(response.queue_ids, offsets, strict=True))

    async def _offsets(self, broker: str, request: pb.OffsetsRequest) -> pb.OffsetsResponse:
        return await _ask(self._nodes, broker, lambda stub: stub.Offsets, request)

    async def commit(self, readers: Iterable[QueueReader]) -> list[QueueReader]:
        """Commit what was processed since the last commit; return the readers whose offset was reset since.

        Offsets that cannot be committed now are included in the next commit.
        """
        if not self._is_kept:
            return []
        by_topic: dict[tuple[str, str], list[tuple[QueueReader, int]]] = defaultdict(list)
        for reader in readers:
            position = reader.progress.position
            if position > reader.progress.committed:
                by_topic[reader.queue.broker, reader.queue.topic].append((reader, position))
        by_broker: dict[str, list[tuple[str, _Rows]]] = defaultdict(list)
        for (broker, topic), rows in by_topic.items():
            rows.sort(key=lambda row: row[0].queue.queue_id)
            for begin in range(0, len(rows), _QUEUES_PER_CALL):
                by_broker[broker].append((topic, rows[begin : begin + _QUEUES_PER_CALL]))
        found = await asyncio.gather(*(self._commit_all(broker, parts) for broker, parts in by_broker.items()))
        return [reader for were_reset in found for reader in were_reset]

    async def _commit_all(self, broker: str, parts: Iterable[tuple[str, _Rows]]) -> list[QueueReader]:
        """Commit offsets in queues of one broker, by topic; return the readers whose offset was reset."""
        return [reader for topic, rows in parts for reader in await self._commit(broker, topic, rows)]

    async def _commit(self, broker: str, topic: str, rows: _Rows) -> list[QueueReader]:
        """Commit offsets in queues of one topic, with ascending ids; return the readers whose offset was reset."""
        try:
            were_reset = await self._send(broker, topic, rows)
        except RequestFailed as failure:
            line = f"offsets_not_committed group={self._group} broker={broker} topic={topic}: {failure}"
            self._warnings.failed((broker, topic), line)
            if failure.reason is Reason.UNKNOWN_QUEUE:
                return await self._commit_known(broker, topic, rows)
            _refuse(rows, failure)
            return []
        self._warnings.succeeded((broker, topic))
        return were_reset

    async def _commit_known(self, broker: str, topic: str, rows: _Rows) -> list[QueueReader]:
        """Commit offsets in the queues that the topic still has, after a refusal of all because it lacks some."""
        were_reset: list[QueueReader] = []
        sent_count = 0

        async def send(part: _Rows) -> None:
            nonlocal sent_count
            were_reset.extend(await self._send(broker, topic, part))
            sent_count += len(part)

        try:
            missing = await _send_known(rows, send)
        except RequestFailed as failure:
            _refuse(rows[sent_count:], failure)
        else:
            for reader, _ in missing:
                reader.progress.is_refused = True
        return were_reset

    async def _send(self, broker: str, topic: str, rows: _Rows) -> list[QueueReader]:
        """Commit offsets by one request; return the readers whose offset was reset.

        Raises:
            RequestFailed: the broker stored none of them, or its answer was lost.
        """
        request = pb.CommitOffsetRequest(
            group=self._group,
            topic=topic,
            queue_ids=[reader.queue.queue_id for reader, _ in rows],
            offsets=[position for _, position in rows],
            reset_counts=[reader.reset_count for reader, _ in rows],
        )
        response = await _ask(self._nodes, broker, lambda stub: stub.CommitOffset, request)
        were_reset = []
        for (reader, position), outcome in zip(rows, response.outcomes, strict=True):
            reader.progress.is_refused = outcome == pb.COMMIT_OUTCOME_WAS_RESET
            if reader.progress.is_refused:
                logger.info("offset_reset group=%s queue=%s", self._group, reader.queue)
                were_reset.append(reader)
            else:
                reader.progress.committed = position
        return were_reset


async def _ask(nodes: BrokerNodes, broker: str, method: Method[ResponseT], request: Any) -> ResponseT:
    """Call a broker, with a shorter timeout if it accepted no connection in the last call.

    Raises:
        RequestFailed: see `BrokerNodes.call`.
    """
    return await nodes.call(broker, method, request, _TIMEOUT_S, silent_timeout_s=_SILENT_TIMEOUT_S)


async def _send_known(rows: Sequence[_Row], send: Callable[[Sequence[_Row]], Awaitable[None]]) -> Sequence[_Row]:
    """Send the rows of the queues that a topic has; return the rows of the missing queues, which the broker refused.

    A topic that was recreated with fewer queues lacks the last ones: a binary search finds the first of them.

    Args:
        rows: one for each queue, with ascending ids.
        send: sends rows in one request.

    Raises:
        RequestFailed: a request failed for another reason; the requests before it succeeded.
    """
    # The first queue that the topic lacks is among these rows.
    among_count = len(rows)
    while among_count > 1:
        count = among_count // 2
        try:
            await send(rows[:count])
        except RequestFailed as failure:
            if failure.reason is not Reason.UNKNOWN_QUEUE:
                raise
            among_count = count
        else:
            rows, among_count = rows[count:], among_count - count
    return rows


def _refuse(rows: _Rows, failure: RequestFailed) -> None:
    """Record that offsets were not committed."""
    for reader, _ in rows:
        reader.progress.is_refused = not failure.is_worth_repeating


class ConsumerLocks:
    """The queue locks of one consumer, which are renewed long before they expire.

    Args:
        group: its group.
        client_id: its id.
        nodes: the connections.
        is_kept: whether a lock must have one holder at every moment: of consumption in order.
    """

    def __init__(self, group: str, client_id: str, nodes: BrokerNodes, *, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._group = group
        self._client_id = client_id
        self._nodes = nodes
        self._warnings = RepeatedWarnings(logger)

    async def lock(self, queues: Iterable[BrokerQueue]) -> dict[BrokerQueue, float]:
        """Request locks; return how many seconds each is valid, counted from the call; 0: another consumer has it.

        Queues of a broker that does not answer are omitted.
        """
        found = await asyncio.gather(*(self._lock(broker, mine) for broker, mine in _in_requests(queues)))
        return {queue: held_s for held in found for queue, held_s in held.items()}

    async def _lock(self, broker: str, queues: Sequence[BrokerQueue]) -> dict[BrokerQueue, float]:
        """Request locks from one broker in one request."""
        request = self._request(queues)
        try:
            response = await _ask(self._nodes, broker, lambda stub: stub.LockQueues, request)
        except RequestFailed as failure:
            # The membership at another broker may begin slightly later.
            level = logging.INFO if failure.reason is Reason.NOT_IN_GROUP else logging.WARNING
            line = f"queues_not_locked group={self._group} broker={broker}: {failure}"
            self._warnings.failed((broker, level), line, level)
            return {}
        self._warnings.succeeded((broker, logging.INFO))
        self._warnings.succeeded((broker, logging.WARNING))
        held = dict.fromkeys(queues, 0.0)
        for each in response.locked:
            held[BrokerQueue(broker, each.topic, each.queue_id)] = response.lock_ms / 1000
        return held

    async def unlock(self, queues: Iterable[BrokerQueue]) -> None:
        """Release locks; those that cannot be released expire."""
        await asyncio.gather(*(self._unlock(broker, mine) for broker, mine in _in_requests(queues)))

    async def _unlock(self, broker: str, queues: Sequence[BrokerQueue]) -> None:
        request = self._request(queues)
        try:
            await _ask(self._nodes, broker, lambda stub: stub.UnlockQueues, request)
        except RequestFailed as failure:
            logger.warning("queues_not_unlocked group=%s broker=%s: %s", self._group, broker, failure)

    def _request(self, queues: Iterable[BrokerQueue]) -> pb.LockQueuesRequest:
        ids = [pb.QueueId(topic=queue.topic, queue_id=queue.queue_id) for queue in queues]
        return pb.LockQueuesRequest(group=self._group, client_id=self._client_id, queues=ids, is_kept=self._is_kept)


def _in_requests(queues: Iterable[BrokerQueue]) -> Iterator[tuple[str, list[BrokerQueue]]]:
    """Yield each broker with its queues, at most as many as one request may contain."""
    by_broker: dict[str, list[BrokerQueue]] = defaultdict(list)
    for queue in queues:
        by_broker[queue.broker].append(queue)
    for broker, mine in by_broker.items():
        for begin in range(0, len(mine), _QUEUES_PER_CALL):
            yield broker, mine[begin : begin + _QUEUES_PER_CALL]
