"""Brokers in memory whose nodes answer as a test prescribes."""

# ruff: noqa: N802  (gRPC prescribes the methods' names)
from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from cluster.api.message_columns import encode_host
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import answer_of
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import broker_pb2_grpc, nameserver_pb2
from commitlog.record.properties import RawProperties
from dledger.v1.log_pb2 import LeaderHint
from store.model.message import Message
from tests.integration.cluster.client.stored_messages import EARLIER_HOST, HOST, Stored

if TYPE_CHECKING:
    from store.errors import Certainty

Step = Callable[["ScriptedBroker", grpc.ServicerContext], pb.PutResponse]


class ScriptedBroker(broker_pb2_grpc.BrokerServiceServicer):
    """One node of a broker: it leads unless it was set to follow; `script` has the answers to its next puts."""

    def __init__(self, stored: Stored, node_id: str = "n0") -> None:
        self.stored = stored
        self.node_id = node_id
        self.leader: ScriptedBroker = self
        self.nodes: list[ScriptedBroker] = [self]
        self.term = 1
        self.script: deque[Step] = deque()
        self.requests: list[pb.PutRequest] = []
        self.subscribed: list[pb.SubscribeRequest] = []
        self.sent_messages = 0
        self.epoch = 0
        # Streams to readers and members are open, and receive nothing.
        self.is_mute = False
        self.messages_per_response = 100
        # Queue offsets, in all queues, that this node's disk has damaged; and how often others were asked for them.
        self.damaged: frozenset[int] = frozenset()
        self.gets = 0
        # Groups' offsets are returned when all of those queues are consumed up to here.
        self.committed_from = -1
        self.released = threading.Event()
        self._pool = ThreadPoolExecutor(64)
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self.break_streams()
        self.released.set()
        self._server.stop(grace=None).wait()
        self._pool.shutdown()

    def break_streams(self) -> None:
        """End all streams to readers and members, as a lost connection does."""
        with self.stored.changed:
            self.epoch += 1
            self.stored.changed.notify_all()

    def follow(self, leader: ScriptedBroker) -> None:
        """Become a follower."""
        self.leader = leader
        self.break_streams()

    def refuse(
        self, reason: Reason, times: int = 1, certainty: Certainty | None = None, *, is_first: bool = False
    ) -> None:
        """Answer the next puts with a refusal, after the scripted answers or before them."""
        answer = answer_of(RequestFailed(reason, "why", certainty=certainty))
        add = self.script.extendleft if is_first else self.script.extend
        add([lambda _node, _context: pb.PutResponse(answer=answer)] * times)

    def lose_answer(self) -> None:
        """Store the next put, and break the stream instead of answering."""

        def lose(node: ScriptedBroker, context: grpc.ServicerContext) -> pb.PutResponse:
            node.store(node.requests[-1])
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            raise AssertionError("abort raises")

        self.script.append(lose)

    def stay_silent(self) -> None:
        """Give no answer to the next put before the node stops."""

        def wait(node: ScriptedBroker, _context: grpc.ServicerContext) -> pb.PutResponse:
            node.released.wait()
            return pb.PutResponse()

        self.script.append(wait)

    def _refusal(self) -> Any:
        if self.leader is self:
            return None
        hint = LeaderHint(id=self.leader.node_id, address=self.leader.address)
        return answer_of(RequestFailed(Reason.NOT_LEADER, "another node leads"), hint)

    # ----------------------------------------------------------------------------------------------------------- puts

    def PutStream(self, request_iterator: Iterator[pb.PutRequest], context: grpc.ServicerContext) -> Iterator[Any]:
        for request in request_iterator:
            self.requests.append(request)
            refusal = self._refusal()
            if refusal is not None:
                response = pb.PutResponse(answer=refusal)
            elif self.script:
                response = self.script.popleft()(self, context)
            else:
                response = self.store(request)
            copy = pb.PutResponse()
            copy.CopyFrom(response)
            copy.request_id = request.request_id
            yield copy

    def store(self, request: pb.PutRequest) -> pb.PutResponse:
        count = len(request.bodies)
        queue_ids = request.queue_ids if len(request.queue_ids) == count else list(request.queue_ids) * count
        with self.stored.changed:
            places = [
                self.stored.put(
                    Message(
                        request.topic,
                        body,
                        queue_id,
                        RawProperties(properties),
                        sys_flag=request.sys_flags[row] if request.sys_flags else 0,
                        born_timestamp=request.born_timestamps[0],
                    )
                )
                for row, (body, properties, queue_id) in enumerate(
                    zip(request.bodies, request.properties, queue_ids, strict=True)
                )
            ]
            self.stored.changed.notify_all()
        return pb.PutResponse(
            physical_offsets=[place[0] for place in places],
            queue_offsets=[place[1] for place in places],
            store_timestamps=[1_000],
            store_host=encode_host(HOST),
            store_hosts=[encode_host(EARLIER_HOST if place[2] else HOST) for place in places],
            repeated_count=sum(place[2] for place in places),
        )

    # ------------------------------------------------------------------------------------------------------- reading

    def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.SubscribeResponse]:
        stored, epoch = self.stored, self.epoch
        self.subscribed.append(request)
        queue_id, offset = request.queue_ids[0], request.offsets[0]
        key = (request.topic, queue_id)
        context.add_callback(self._wake)
        while context.is_active():
            with stored.changed:
                stored.changed.wait_for(
                    lambda offset=offset: (
                        not context.is_active()
                        or (not self.is_mute and (self.epoch != epoch or offset != len(stored.queues[key])))
                        or (not self.is_mute and self.leader is not self)
                    )
                )
                first, end = stored.firsts[key], len(stored.queues[key])
                refusal = self._refusal()
                upto = min(end, offset + self.messages_per_response)
                records = (
                    b""
                    if refusal
                    else stored.records(request.topic, queue_id, offset, upto, request.tags, self.damaged)
                )
                skipped = self._skipped(queue_id, offset, upto)
            if refusal is not None:
                yield pb.SubscribeResponse(answer=refusal)
                return
            if self.epoch != epoch:
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            common = {"queue_id": queue_id, "min_offset": first, "max_offset": end}
            if offset < first:
                yield pb.SubscribeResponse(status=pb.GET_STATUS_OFFSET_TOO_SMALL, next_offset=first, **common)
                return
            if offset > end:
                yield pb.SubscribeResponse(status=pb.GET_STATUS_OFFSET_OVERFLOW_BADLY, next_offset=end, **common)
                return
            if records or skipped:
                self.sent_messages += upto - offset
                status = pb.GET_STATUS_FOUND if records else pb.GET_STATUS_NO_MATCHED_MESSAGE
                yield pb.SubscribeResponse(status=status, records=records, next_offset=upto, skipped=skipped, **common)
            offset = upto

    def _skipped(self, queue_id: int, begin: int, end: int) -> list[pb.SkippedMessages]:
        found: list[pb.SkippedMessages] = []
        for at in sorted(self.damaged):
            if found and found[-1].end_offset == at < end:
                found[-1].end_offset += 1
            elif begin <= at < end:
                found.append(pb.SkippedMessages(queue_id=queue_id, begin_offset=at, end_offset=at + 1))
        return found

    def Get(self, request: pb.GetRequest, context: grpc.ServicerContext) -> pb.GetResponse:
        self.gets += 1
        with self.stored.changed:
            end = min(len(self.stored.queues[request.topic, request.queue_id]), request.offset + request.max_messages)
            place = (request.topic, request.queue_id, request.offset, end, request.tags)
            return pb.GetResponse(records=self.stored.records(*place, self.damaged), next_offset=end)

    def Offsets(self, request: pb.OffsetsRequest, context: grpc.ServicerContext) -> pb.OffsetsResponse:
        ids = list(request.queue_ids)
        with self.stored.changed:
            return pb.OffsetsResponse(
                answer=self._refusal(),
                queue_ids=ids,
                min_offsets=[self.stored.firsts[request.topic, each] for each in ids],
                max_offsets=[len(self.stored.queues[request.topic, each]) for each in ids],
                offsets_by_time=[2] * len(ids) if request.timestamp_ms else [],
            )

    # -------------------------------------------------------------------------------------------------------- groups

    def FetchOffset(self, request: pb.FetchOffsetRequest, context: grpc.ServicerContext) -> pb.FetchOffsetResponse:
        ids = list(request.queue_ids)
        context.add_callback(self._wake)
        with self.stored.changed:
            self.stored.changed.wait_for(
                lambda: (
                    not context.is_active() or all(self._offset(request, each) >= self.committed_from for each in ids)
                )
            )
            rows = [self.stored.offsets.get((request.group, request.topic, each), (-1, 0)) for each in ids]
        return pb.FetchOffsetResponse(
            answer=self._refusal(),
            queue_ids=ids,
            offsets=[offset for offset, _ in rows],
            reset_counts=[count for _, count in rows],
        )

    def _offset(self, request: pb.FetchOffsetRequest, queue_id: int) -> int:
        return self.stored.offsets.get((request.group, request.topic, queue_id), (-1, 0))[0]

    def CommitOffset(self, request: pb.CommitOffsetRequest, context: grpc.ServicerContext) -> pb.CommitOffsetResponse:
        refusal = self._refusal()
        if refusal is not None:
            return pb.CommitOffsetResponse(answer=refusal)
        outcomes = []
        counts = request.reset_counts or [0] * len(request.offsets)
        with self.stored.changed:
            for queue_id, offset, count in zip(request.queue_ids, request.offsets, counts, strict=True):
                key = (request.group, request.topic, queue_id)
                kept, kept_count = self.stored.offsets.get(key, (-1, 0))
                if count != kept_count:
                    outcomes.append(pb.COMMIT_OUTCOME_WAS_RESET)
                    continue
                outcomes.append(pb.COMMIT_OUTCOME_NOT_AHEAD if offset <= kept else pb.COMMIT_OUTCOME_COMMITTED)
                self.stored.offsets[key] = (max(offset, kept), kept_count)
            self.stored.changed.notify_all()
        return pb.CommitOffsetResponse(outcomes=outcomes)

    def JoinGroup(self, request_iterator: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        stored, epoch = self.stored, self.epoch
        request = next(request_iterator)
        refusal = self._refusal()
        members = stored.members[request.group]
        with stored.changed:
            if refusal is None and members.get(request.client_id, request.instance) != request.instance:
                refusal = answer_of(RequestFailed(Reason.CLIENT_ID_IN_USE, "another client has that id"))
            if refusal is None:
                members[request.client_id] = request.instance
                stored.changed.notify_all()
        if refusal is not None:
            yield pb.JoinGroupResponse(answer=refusal)
            return
        context.add_callback(self._wake)
        sent_ids: list[str] = []
        try:
            while context.is_active():
                with stored.changed:
                    stored.changed.wait_for(
                        lambda sent_ids=sent_ids: (
                            not context.is_active() or self.epoch != epoch or sorted(members) != sent_ids
                        )
                    )
                    sent_ids = sorted(members)
                if self.epoch != epoch:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
                yield pb.JoinGroupResponse(client_ids=sent_ids)
        finally:
            with stored.changed:
                members.pop(request.client_id, None)
                for key, holder in list(stored.locks.items()):
                    if (key[0], holder) == (request.group, request.client_id):
                        del stored.locks[key]
                stored.changed.notify_all()

    def LockQueues(self, request: pb.LockQueuesRequest, context: grpc.ServicerContext) -> pb.LockQueuesResponse:
        locked = []
        with self.stored.changed:
            for each in request.queues:
                key = (request.group, each.topic, each.queue_id)
                if self.stored.locks.setdefault(key, request.client_id) == request.client_id:
                    locked.append(each)
        return pb.LockQueuesResponse(answer=self._refusal(), locked=locked, lock_ms=60_000)

    def UnlockQueues(self, request: pb.LockQueuesRequest, context: grpc.ServicerContext) -> pb.ChangeResponse:
        with self.stored.changed:
            for each in request.queues:
                key = (request.group, each.topic, each.queue_id)
                if self.stored.locks.get(key) == request.client_id:
                    del self.stored.locks[key]
        return pb.ChangeResponse(answer=self._refusal(), is_changed=True)

    def _wake(self) -> None:
        with self.stored.changed:
            self.stored.changed.notify_all()

    # -------------------------------------------------------------------------------------------------------- routes

    def routes(self, topics: list[str]) -> list[nameserver_pb2.TopicRoute]:
        nodes = [nameserver_pb2.BrokerNode(id=node.node_id, address=node.address) for node in self.nodes]
        return [
            nameserver_pb2.TopicRoute(
                topic=topic,
                brokers=[
                    nameserver_pb2.BrokerRoute(
                        broker=self.stored.name,
                        cluster="c",
                        term=self.term,
                        leader_id=self.leader.node_id,
                        nodes=nodes,
                        queues=nameserver_pb2.TopicQueues(
                            topic=topic,
                            read_queues=self.stored.topics[topic],
                            write_queues=self.stored.topics[topic],
                            permission=6,
                        ),
                    )
                ],
            )
            for topic in topics
            if topic in self.stored.topics
        ]

    def Route(self, request: Any, context: grpc.ServicerContext) -> nameserver_pb2.RouteResponse:
        routes = self.routes(list(request.topics))
        return nameserver_pb2.RouteResponse(routes=routes, broker=self.stored.name, term=self.term)
