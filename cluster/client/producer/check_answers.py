"""Answers the questions of brokers about transactions that are not ended: one stream for each broker.

A broker asks any producer of the group, some seconds after the half message and then every half minute. So every
process that sends half messages should answer for its group, from what its own database says.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from cluster.client.producer.transaction_ends import EndedHalf
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import check_answer, failure_of_call
from cluster.v1 import broker_pb2 as pb
from commitlog.record.compression import uncompressed_body
from commitlog.record.properties import decode_properties
from commitlog.record.record import BadRecord, decode
from dledger.client.aio.stream_end import StreamEnded, next_response
from dledger.client.retry import Backoff
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from cluster.client.producer.transaction_ends import EndSender
    from cluster.client.producer.transactions import TransactionEnd
    from cluster.client.routing.connection import BrokerConnection
    from cluster.process.loop_thread import LoopThread

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0
# How often brokers are looked up that have the topics since.
_LOOK_S: Final = 30.0
# Answers at the same time: the caller's function may wait for a database.
_ANSWERS_MAX: Final = 16
# The group or topics are wrong, or the user has no right to them: a repetition would be refused, too.
_FINAL: Final = frozenset({Reason.ILLEGAL_REQUEST, Reason.ILLEGAL_MESSAGE, Reason.ACCESS_DENIED})


class TransactionQuestion(NamedTuple):
    """A question of a broker: what shall become of this half message?

    Attributes:
        topic: of the message.
        body: its payload, decompressed.
        properties: all of its properties.
        transaction_id: its UNIQ_KEY.
        store_timestamp: when it was stored, milliseconds since 1970.
        check: the number of this question, from 1.
    """

    topic: str
    body: bytes
    properties: Mapping[str, str]
    transaction_id: str
    store_timestamp: int
    check: int


class CheckAnswers:
    """The answers of one producer group; `async with` starts and ends them.

    Args:
        connection: routes and nodes of the producer.
        ends: sends the decisions.
        group: producer group.
        topics: of its transactions.
        decide: returns the decision; None: not known yet, so that the broker asks again. An exception counts as None.
    """

    def __init__(
        self,
        connection: BrokerConnection,
        ends: EndSender,
        group: str,
        topics: Sequence[str],
        decide: Callable[[TransactionQuestion], Awaitable[TransactionEnd | None]],
    ) -> None:
        self._connection = connection
        self._ends = ends
        self._group = group
        self._topics = tuple(topics)
        self._decide = decide
        self._space = asyncio.Semaphore(_ANSWERS_MAX)
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin to answer, at all brokers that have the topics now or later."""
        self._looking = asyncio.get_running_loop().create_task(self._look())
        return self

    async def __aexit__(self, *_error: object) -> None:
        """End."""
        await end_tasks([each for each in (self._looking, *self._streams.values(), *self._answers) if each is not None])

    async def _look(self) -> None:
        """Open a stream to each broker of the topics."""
        backoff = Backoff()
        while True:
            pause_s = _LOOK_S
            for topic in self._topics:
                try:
                    routes = await self._connection.find(topic)
                except RequestFailed as failure:
                    logger.info("transaction_topic_not_found topic=%s: %s", topic, failure.message)
                    pause_s = min(pause_s, backoff.next_s(failure.repeat_after_s))
                    continue
                for route in routes:
                    broker = route.registration.broker
                    if broker not in self._streams:
                        self._streams[broker] = asyncio.get_running_loop().create_task(self._listen(broker))
            await asyncio.sleep(pause_s)

    async def _listen(self, broker: str) -> None:
        """Answer the questions of one broker, over changes of its leader."""
        nodes, backoff = self._connection.nodes, Backoff()
        while True:
            address = nodes.leader(broker)
            try:
                await nodes.reach(address)
                await self._run_stream(broker, address)
            except RequestFailed as failure:
                nodes.observe(broker, address, failure)
                if failure.reason in _FINAL:
                    logger.error("check_answers_refused broker=%s: %s", broker, failure)  # noqa: TRY400
                    return
                await asyncio.sleep(backoff.next_s(failure.repeat_after_s))

    async def _run_stream(self, broker: str, address: str) -> None:
        """Answer until the stream ends.

        Raises:
            RequestFailed: why it ended.
        """
        request = pb.TransactionChecksRequest(producer_group=self._group, topics=self._topics)
        call = self._connection.nodes.stub(address).TransactionChecks(request)
        try:
            while True:
                response = await next_response(call, "another node leads now")
                check_answer(response.answer, address)
                await self._space.acquire()
                task = asyncio.get_running_loop().create_task(self._answer(broker, response))
                self._answers.add(task)
                task.add_done_callback(self._answered)
        except StreamEnded as end:
            raise failure_of_call(address, end.code, end.details, "BrokerService") from None
        finally:
            call.cancel()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answers.discard(task)
        self._space.release()

    async def _answer(self, broker: str, response: pb.TransactionChecksResponse) -> None:
        end = await self._decision(response)
        if end is None:
            return
        place = (response.half_offset, response.physical_offset)
        half = EndedHalf(broker, response.topic, self._group, *place, response.transaction_id, end.value)
        try:
            await self._ends.end(half, _TIMEOUT_S)
        except RequestFailed as failure:
            # The broker asks again, unless it has ended.
            logger.info("transaction_not_ended id=%s: %s", response.transaction_id, failure)

    async def _decision(self, response: pb.TransactionChecksResponse) -> TransactionEnd | None:
        try:
            record = decode(memoryview(response.record), 0)
            question = TransactionQuestion(
                response.topic,
                uncompressed_body(record.sys_flag, record.body),
                decode_properties(record.properties_raw),
                response.transaction_id,
                record.store_timestamp,
                response.check,
            )
        except (BadRecord, StoreError) as error:
            logger.error("half_message_unreadable id=%s error=%r", response.transaction_id, str(error))  # noqa: TRY400
            return None
        try:
            return await self._decide(question)
        except Exception:
            # Code of the application: the broker asks again.
            logger.exception("transaction_check_failed id=%s", response.transaction_id)
            return None


class BlockingCheckAnswers:
    """The same for the blocking interface; `decide` runs in a thread.

    Args:
        thread: runs the loop of the producer.
        open_checks: makes the answers, on that loop.
    """

    def __init__(self, thread: LoopThread, open_checks: Callable[[], CheckAnswers]) -> None:
        self._thread = thread
        self._open_checks = open_checks
        self._checks: CheckAnswers | None = None

    def __enter__(self) -> Self:
        """Begin to answer."""

        async def begin() -> CheckAnswers:
            return await self._open_checks().__aenter__()

        self._checks = self._thread.run(begin())
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        assert self._checks is not None
        self._thread.run(self._checks.__aexit__(*error))
