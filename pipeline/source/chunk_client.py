"""Client for a broker's log over gRPC, for drivers and tasks: readable ranges, plans, and large chunks of the log.

Calls block. Any node serves any call, because committed bytes have the same position on all nodes. If a node fails or
hangs, the next node continues, also in the middle of a stream of chunks, without repetition.

Not here: connections, and the choice of the node (`pipeline.source.broker_connections`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import check_answer
from cluster.v1 import broker_pb2 as pb
from dledger.v1.log_pb2 import ReadMode
from pipeline.common.errors import BrokerRefused, DataLost, LostRange
from pipeline.source.broker_connections import BrokerConnections, Turn, failure
from pipeline.source.broker_range import PATIENCE_S, BrokerRange, Chunk, Span, Spans
from store.model.message import QueueKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CALL_TIMEOUT_S: Final = 10.0
# Timeout of a stream, which is then reopened: bounds the wait for a node that has stopped sending.
_STREAM_TIMEOUT_S: Final = 20.0
_CHUNK_BYTES: Final = 1 << 20


class Described(NamedTuple):
    """The readable range of a broker.

    Attributes:
        spans: readable ranges of the requested topics' queues.
        by_time: offset of the requested time in each queue; empty without a time.
        topics: all readable topics.
        begin_offset, end_offset: of the log.
    """

    spans: dict[QueueKey, Span]
    by_time: dict[QueueKey, int]
    topics: tuple[str, ...]
    begin_offset: int
    end_offset: int


class Planned(NamedTuple):
    """The next ranges to read; see `PlanLogResponse`."""

    spans: dict[QueueKey, Span]
    begin_offset: int
    end_offset: int
    split_offsets: tuple[int, ...]
    messages: int
    size_bytes: int


class BrokerLog:
    """The log of one broker. Not thread-safe. Can be pickled; the copy opens its own connections.

    Args:
        endpoints: `host:port` of its nodes, separated by commas.
        patience_s: seconds for which calls are retried.
    """

    def __init__(self, endpoints: str, patience_s: float = PATIENCE_S) -> None:
        self._nodes = BrokerConnections(endpoints, patience_s)

    def __reduce__(self) -> tuple[type[BrokerLog], tuple[str, float]]:
        """Pickle without connections."""
        return BrokerLog, (self._nodes.endpoints, self._nodes.patience_s)

    def close(self) -> None:
        """Close all connections. They are reopened at the next use."""
        self._nodes.close()

    # -------------------------------------------------------------------------------------------------- planning

    def describe(self, topics: tuple[str, ...] = (), timestamp_ms: int | None = None) -> Described:
        """Return the readable range, which includes everything acknowledged before the call.

        Args:
            topics: the requested topics; empty: all readable topics.
            timestamp_ms: also return the offset of this time in each queue.

        Raises: BrokerUnreachable: no node answered within `patience_s`. BrokerRefused: the broker refused the request
        permanently.
        """
        # 0 is "no time" to the broker; nothing was stored before 1.
        at = 0 if timestamp_ms is None else max(timestamp_ms, 1)
        request = pb.DescribeLogRequest(topics=topics, mode=ReadMode.READ_MODE_LINEARIZABLE, timestamp_ms=at)
        found: pb.DescribeLogResponse = self._nodes.ask(lambda stub: stub.DescribeLog(request, timeout=_CALL_TIMEOUT_S))
        by_time = {key: begin for key, (begin, _) in _spans_of(found.by_time).items()}
        spans = _spans_of(found.spans)
        return Described(spans, by_time, tuple(found.topics), found.begin_offset, found.end_offset)

    def plan(
        self, spans: Spans, messages_max: int | None = None, size_bytes_max: int | None = None, split_bytes: int = 0
    ) -> Planned:
        """Return the next ranges to read of these spans; see `PlanLogRequest`.

        Raises: BrokerUnreachable: no node answered within `patience_s`. BrokerRefused: the broker refused the request
        permanently.
        """
        request = pb.PlanLogRequest(
            spans=_to_wire(spans),
            max_messages=messages_max or 0,
            max_bytes=size_bytes_max or 0,
            split_bytes=split_bytes,
            mode=ReadMode.READ_MODE_LINEARIZABLE,
        )
        if not request.spans:
            return Planned({}, 0, 0, (), 0, 0)
        found: pb.PlanLogResponse = self._nodes.ask(lambda stub: stub.PlanLog(request, timeout=_CALL_TIMEOUT_S))
        window = (found.begin_offset, found.end_offset, tuple(found.split_offsets))
        return Planned(_spans_of(found.spans), *window, found.messages, found.size_bytes)

    def order(self, *, is_leader_first: bool) -> str:
        """Return the endpoints with the leader first or last. The first endpoint serves the reads.

        Raises: BrokerUnreachable: no node answered within `patience_s`. BrokerRefused: the broker refused the request
        permanently.
        """
        request = pb.BrokerStatusRequest()
        found: pb.BrokerStatusResponse = self._nodes.ask(lambda stub: stub.Status(request, timeout=_CALL_TIMEOUT_S))
        leader = found.leader.address
        others = [each for each in self._nodes.endpoints.split(",") if each != leader]
        ordered = ([leader, *others] if is_leader_first else [*others, leader]) if leader else others
        return ",".join(ordered)

    def may_read_ranges(self, begin: int) -> bool:
        """Return whether the broker lets this user read the log without naming a topic; it asks for one byte.

        Args:
            begin: offset of a message.

        Raises: BrokerUnreachable: no node answered within `patience_s`. BrokerRefused: the broker refused the request
        for another reason than the user's rights.
            DataLost: the message was deleted.
        """
        if self._nodes.is_anonymous:
            return True
        try:
            for _ in self.read(BrokerRange(self._nodes.endpoints, begin, begin + 1)):
                pass
        except BrokerRefused as refused:
            if isinstance(refused.__cause__, RequestFailed) and refused.__cause__.reason is Reason.ACCESS_DENIED:
                return False
            raise
        return True

    # --------------------------------------------------------------------------------------------------- reading

    def read(self, broker_range: BrokerRange) -> Iterator[Chunk]:
        """Yield a range of the log, chunk by chunk. After an error the next node continues at the same position.

        Raises: BrokerUnreachable: no node answered within `patience_s`. BrokerRefused: the broker refused the request
        permanently.
            DataLost: it was deleted after it was planned.
        """
        turn = Turn(self._nodes)
        offset = broker_range.begin
        while offset < broker_range.end:
            try:
                for chunk in self._stream(broker_range, offset, turn.address):
                    yield chunk
                    offset = chunk.next_offset
                    turn.succeeded()
            except RequestFailed as refusal:
                if refusal.reason is Reason.NO_MESSAGE and turn.has_asked_all:
                    raise _lost(broker_range, offset, refusal) from refusal
                turn.failed(refusal)
            else:
                if offset < broker_range.end:
                    turn.failed(RequestFailed(Reason.ANSWER_LOST, f"{turn.address} ended its stream at {offset}"))

    def _stream(self, broker_range: BrokerRange, offset: int, address: str) -> Iterator[Chunk]:
        if broker_range.topic:
            request = pb.ReadLogRequest(
                topic=broker_range.topic,
                queue_id=broker_range.queue_id,
                begin=offset,
                end=broker_range.end,
                chunk_bytes=_CHUNK_BYTES,
            )
        else:
            request = pb.ReadLogRequest(begin_offset=offset, end_offset=broker_range.end, chunk_bytes=_CHUNK_BYTES)
        timeout_s = min(_STREAM_TIMEOUT_S, self._nodes.patience_s / 3)
        call = self._nodes.stub(address).ReadLog(request, timeout=timeout_s)
        try:
            for found in call:
                check_answer(found.answer, address)
                places = (found.physical_offsets, found.sizes, found.begins)
                yield Chunk(found.data, found.header_size, found.offset, found.next_offset, *places)
        except grpc.RpcError as error:
            raise failure(address, error) from error
        finally:
            call.cancel()

    # ------------------------------------------------------------------------------------------------- progress

    def commit_offsets(self, group: str, offsets: Mapping[QueueKey, int]) -> None:
        """Publish offsets as the progress of a consumer group. A committed offset never decreases.

        Raises: BrokerUnreachable: no node answered within `patience_s`. BrokerRefused: the broker refused the request
        permanently.
        """
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for key, offset in sorted(offsets.items()):
            by_topic.setdefault(key.topic, []).append((key.queue_id, offset))
        for topic, queues in by_topic.items():
            self._commit(group, topic, queues)

    def _commit(self, group: str, topic: str, queues: list[tuple[int, int]]) -> None:
        queue_ids = [queue_id for queue_id, _ in queues]
        question = pb.FetchOffsetRequest(group=group, topic=topic, queue_ids=queue_ids)
        known: pb.FetchOffsetResponse = self._nodes.ask(
            lambda stub: stub.FetchOffset(question, timeout=_CALL_TIMEOUT_S)
        )
        resets = dict(zip(known.queue_ids, known.reset_counts, strict=True))
        request = pb.CommitOffsetRequest(
            group=group,
            topic=topic,
            queue_ids=queue_ids,
            offsets=[offset for _, offset in queues],
            reset_counts=[resets.get(queue_id, 0) for queue_id in queue_ids],
        )

        def commit(stub: Any) -> pb.CommitOffsetResponse:
            done: pb.CommitOffsetResponse = stub.CommitOffset(request, timeout=_CALL_TIMEOUT_S)
            return done

        self._nodes.ask(commit)


def _lost(broker_range: BrokerRange, offset: int, refusal: RequestFailed) -> DataLost:
    what = f"topic {broker_range.topic}, queue {broker_range.queue_id}" if broker_range.topic else "log"
    return DataLost(f"broker {broker_range.endpoints}", [LostRange(what, offset, broker_range.end, str(refusal))])


def _spans_of(spans: Any) -> dict[QueueKey, Span]:
    return {
        QueueKey(each.topic, queue_id): (begin, end)
        for each in spans
        for queue_id, begin, end in zip(each.queue_ids, each.begins, each.ends, strict=True)
    }


def _to_wire(spans: Spans) -> list[pb.QueueSpans]:
    found: dict[str, pb.QueueSpans] = {}
    for key, (begin, end) in sorted(spans.items()):
        topic = found.setdefault(key.topic, pb.QueueSpans(topic=key.topic))
        topic.queue_ids.append(key.queue_id)
        topic.begins.append(begin)
        topic.ends.append(end)
    return list(found.values())
