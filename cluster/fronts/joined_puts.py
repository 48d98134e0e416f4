"""Messages that clients send one by one, joined into few calls of the leader.

A client of RocketMQ sends each message with a request of its own. As a call of its own each would cost the leader and
this node more than a millisecond of processor time, a hundred times as much as a message in a batch. So while a call
with messages of one client for one topic is on its way, further ones wait, and the next call carries them all. Nothing
waits without a call before it, so one message after the other is as quick as before; and they are put in the order of
their arrival.

Calls of one network (`current_network`) are bounded, those of batches and large messages, too: at the leader they take
places of all calls of this node. Further ones wait here.

The leader puts all messages of a call or none. If it refuses them because of one, the call is divided in halves until
each message has its own result.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

from cluster.fronts.callers import current_client, current_network
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from store.errors import Certainty

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from dledger.authentication.front_tokens import FrontClient

    # Sends a put, within a limit in seconds.
    Call = Callable[[pb.PutRequest, float], Awaitable[pb.PutResponse]]

JOINED_MESSAGES_MAX: Final = 512
JOINED_BYTES_MAX: Final = 1 << 20
# A larger message has a call of its own: its bytes cost more than the call.
_SINGLE_BYTES_MAX: Final = 64 << 10
# Calls at the same time of one network.
CALLS_MAX: Final = 64
# By which a message outlives its limit, so that the cause of a failed call reaches it.
_GRACE_S: Final = 0.2
# Causes that lie in one message, so that others of the same call may be put.
_OF_ONE: Final = frozenset(
    {
        Reason.ILLEGAL_MESSAGE,
        Reason.ILLEGAL_REQUEST,
        Reason.UNKNOWN_QUEUE,
        Reason.MESSAGE_TYPE_CONFLICT,
        Reason.UNSUPPORTED,
        Reason.TOO_MUCH_STATE,
    }
)

logger = logging.getLogger(__name__)


class _Key(NamedTuple):
    """What the messages of one call have in common."""

    topic: str
    client: FrontClient | None


class _Waiting(NamedTuple):
    """One message."""

    request: pb.PutRequest
    size_bytes: int
    deadline: float
    answer: asyncio.Future[pb.PutResponse]


class JoinedPuts:
    """Puts messages through calls that carry several.

    Messages that wait are bounded by the requests that a front has in progress.

    Args:
        call: sends a put to the leader, in the name of the client of the current task.
    """

    def __init__(self, call: Call) -> None:
        self._ungated = call
        # By network; each is kept by the calls that use it.
        self._rooms: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._lines: dict[_Key, deque[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Fail the messages that wait; of those on their way the outcome is unknown."""
        await end_tasks(self._tasks)

    async def put(self, request: pb.PutRequest, limit_s: float) -> pb.PutResponse:
        """Return the answer of the leader to a put, as if it had a call of its own.

        Args:
            request: an idempotent request, with queue, properties and born timestamp of each message; one with several
                messages has a call of its own.
            limit_s: of all attempts together, in seconds.

        Raises:
            RequestFailed: the refusal of the leader, or why there was no answer.
        """
        size_bytes = request.ByteSize()
        if len(request.bodies) != 1 or size_bytes > _SINGLE_BYTES_MAX:
            return await self._call(request, limit_s)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, size_bytes, time.monotonic() + limit_s, loop.create_future())
        key = _Key(request.topic, current_client())
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = deque()
            # In the context of this task, whose client is that of all messages of the line.
            task = loop.create_task(self._run(key, line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        line.append(waiting)
        try:
            async with asyncio.timeout(limit_s + _GRACE_S):
                return await waiting.answer
        except TimeoutError:
            raise _late(is_waiting=any(each is waiting for each in line)) from None

    async def _call(self, request: pb.PutRequest, limit_s: float) -> pb.PutResponse:
        """Send a put when the network of the current task has a place for it.

        Raises:
            RequestFailed: there was no place in time; or the refusal of the leader, or why there was no answer.
        """
        deadline = time.monotonic() + limit_s
        room = self._rooms.setdefault(current_network(), asyncio.Semaphore(CALLS_MAX))
        try:
            async with asyncio.timeout(limit_s):
                await room.acquire()
        except TimeoutError:
            raise _late(is_waiting=True) from None
        try:
            return await self._ungated(request, max(deadline - time.monotonic(), 0.0))
        finally:
            room.release()

    async def _run(self, key: _Key, line: deque[_Waiting]) -> None:
        """Send the messages of a line until none waits."""
        part: list[_Waiting] = []
        try:
            while line:
                part = _next_part(line)
                if part:
                    await self._send_noted(key, part)
        finally:
            # Without a pause since the line was empty: a later message begins a new one.
            del self._lines[key]
            _fail(part, RequestFailed(Reason.ANSWER_LOST, "the node is stopping"))
            _fail(line, RequestFailed(Reason.NOT_LEADER, "the node is stopping; the message was not sent"))

    async def _send_noted(self, key: _Key, part: Sequence[_Waiting]) -> None:
        """Send messages; what is not foreseen fails these, and not the others of the line."""
        try:
            await self._send(part)
        except Exception as error:
            logger.exception("joined_put_failed topic=%s messages=%d", key.topic, len(part))
            _fail(part, RequestFailed(Reason.INTERNAL_ERROR, f"unexpected {type(error).__name__}, see the node's log"))

    async def _send(self, part: Sequence[_Waiting]) -> None:
        limit_s = max(0.0, max(each.deadline for each in part) - time.monotonic())
        try:
            answer = await self._call(_joined([each.request for each in part]), limit_s)
        except RequestFailed as failure:
            is_of_one = failure.reason in _OF_ONE and failure.certainty is Certainty.NOT_APPENDED
            if len(part) == 1 or not is_of_one:
                _fail(part, failure)
                return
            middle = len(part) // 2
            await self._send(part[:middle])
            await self._send(part[middle:])
            return
        for row, each in enumerate(part):
            if not each.answer.done():
                each.answer.set_result(_of_row(answer, row))


def _next_part(line: deque[_Waiting]) -> list[_Waiting]:
    """Take the messages of the next call; those whose client has left are dropped."""
    part: list[_Waiting] = []
    size_bytes = 0
    while line and len(part) < JOINED_MESSAGES_MAX:
        size_bytes += line[0].size_bytes
        if part and size_bytes > JOINED_BYTES_MAX:
            break
        each = line.popleft()
        if not each.answer.done():
            part.append(each)
    return part


def _joined(requests: Sequence[pb.PutRequest]) -> pb.PutRequest:
    """Return one request with the messages of several, each with all its fields."""
    if len(requests) == 1:
        return requests[0]
    return pb.PutRequest(
        topic=requests[0].topic,
        queue_ids=[each.queue_ids[0] for each in requests],
        bodies=[each.bodies[0] for each in requests],
        properties=[each.properties[0] for each in requests],
        flags=[next(iter(each.flags), 0) for each in requests],
        sys_flags=[next(iter(each.sys_flags), 0) for each in requests],
        born_timestamps=[each.born_timestamps[0] for each in requests],
        reconsume_times=[next(iter(each.reconsume_times), 0) for each in requests],
    )


def _of_row(response: pb.PutResponse, row: int) -> pb.PutResponse:
    """Return the answer to one message of a joined put."""
    times, handles = response.store_timestamps, response.recall_handles
    return pb.PutResponse(
        answer=response.answer,
        status=response.status,
        physical_offsets=response.physical_offsets[row : row + 1],
        queue_offsets=response.queue_offsets[row : row + 1],
        store_timestamps=times if len(times) == 1 else times[row : row + 1],
        store_host=response.store_host,
        queue_ids=response.queue_ids[row : row + 1],
        store_hosts=response.store_hosts[row : row + 1],
        recall_handles=[handle for handle in handles[row : row + 1] if handle],
    )


def _late(*, is_waiting: bool) -> RequestFailed:
    if is_waiting:
        return RequestFailed(Reason.NOT_LEADER, "the leader took no message in time; this one was not sent")
    return RequestFailed(Reason.ANSWER_LATE, "the leader did not answer in time")


def _fail(waiting: Iterable[_Waiting], failure: RequestFailed) -> None:
    for each in waiting:
        if not each.answer.done():
            each.answer.set_exception(failure.copy())
