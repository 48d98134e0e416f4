"""What the fronts have beside them when they are fuzzed: a node with one topic and one group, and its leader."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

from cluster.broker.core import BrokerOptions
from cluster.fronts.joined_puts import JoinedPuts
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.request_bounds import BROKER_BOUNDS
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.access_state import AccessState
from cluster.v1 import broker_pb2 as pb
from dledger.service.limits.field_bounds import RequestShape
from store.model.message import LOOPBACK
from store.model.message import Message as StoredMessage
from tests.support.records import encode_record

LOOP = asyncio.new_event_loop()
RECORD = encode_record(
    StoredMessage("T", b"body", properties={"UNIQ_KEY": "K"}),
    physical_offset=0,
    queue_offset=0,
    store_timestamp=1_700_000_000_000,
    store_host=LOOPBACK,
)
_SHAPES: dict[type, RequestShape] = {}
_TOPIC = pb.Topic(name="T", read_queues=2, write_queues=2, permission=6)


class FuzzedLeader:
    """Answers the calls of a front: of the topic T as if there were one message, of others that they do not exist."""

    async def call(self, method, request, limit_s, wait_s=0.0):
        """Return an answer; every request must be one that gRPC can send."""
        name = method(_Names())
        assert limit_s >= 0
        assert wait_s >= 0
        _check(request)
        topic = getattr(request, "topic", "")
        if isinstance(topic, str) and topic not in ("T", ""):
            raise RequestFailed(Reason.UNKNOWN_TOPIC, "unknown topic")
        return _ANSWERS[name](request)

    async def put(self, request, limit_s):
        """Return an answer through the calls that messages share."""
        _check(request)
        puts = JoinedPuts(lambda joined, left_s: self.call(lambda stub: stub.Put, joined, left_s))
        try:
            return await puts.put(request, limit_s)
        finally:
            await puts.close()

    async def checks(self, _group: str, _topic: str) -> AsyncIterator[pb.TransactionChecksResponse]:
        """Ask about nothing."""
        for each in ():
            yield each

    async def stay(self, beat) -> None:
        """Refuse a member, after a look at its request."""
        request = beat()
        if request is not None:
            _check(request)
        raise RequestFailed(Reason.ILLEGAL_REQUEST, "no members")

    async def close(self) -> None:
        """Nothing is open."""


def _check(request) -> None:
    """Raise unless gRPC can send a request, and the leader accepts its size."""
    request.SerializeToString()
    shape = _SHAPES.setdefault(type(request), RequestShape(request.DESCRIPTOR, BROKER_BOUNDS))
    fault = shape.fault_of(request)
    if fault is not None:
        raise RequestFailed(Reason.ILLEGAL_REQUEST, str(fault))


class _Names:
    def __getattr__(self, name):
        return name


def _put(request: pb.PutRequest) -> pb.PutResponse:
    count = range(len(request.bodies))
    return pb.PutResponse(physical_offsets=count, queue_offsets=count, store_host=b"\x7f\0\0\x01\0\0\x2a\x9f")


def _offsets(request: pb.OffsetsRequest) -> pb.OffsetsResponse:
    ids = list(request.queue_ids) or [0, 1]
    one = [1] * len(ids)
    return pb.OffsetsResponse(
        queue_ids=ids, min_offsets=[0] * len(ids), max_offsets=one, offsets_by_time=one, earliest_timestamps=one
    )


def _fetched(request: pb.FetchOffsetRequest) -> pb.FetchOffsetResponse:
    ids = list(request.queue_ids) or [0]
    topics = [] if request.topic else ["T"] * len(ids)
    return pb.FetchOffsetResponse(topics=topics, queue_ids=ids, offsets=[-1] * len(ids), reset_counts=[0] * len(ids))


_ANSWERS = {
    "Put": _put,
    "Offsets": _offsets,
    "FetchOffset": _fetched,
    "ListTopics": lambda _: pb.ListTopicsResponse(topics=[_TOPIC]),
    "ListGroups": lambda _: pb.ListGroupsResponse(groups=[pb.GroupState(group=pb.Group(name="G"))]),
    "Get": lambda request: pb.GetResponse(
        status=pb.GET_STATUS_FOUND, next_offset=min(request.offset, 1 << 40) + 1, records=RECORD
    ),
    "Receive": lambda _: pb.ReceiveResponse(records=RECORD, handles=["0 0 30000 0 0 b 0 0"], attempts=[1]),
    "Acknowledge": lambda request: pb.AcknowledgeResponse(outcomes=[0] * len(request.handles)),
    "ChangeInvisible": lambda _: pb.ChangeInvisibleResponse(),
    "QueryById": lambda _: pb.QueryResponse(records=RECORD),
    "QueryByKey": lambda _: pb.QueryResponse(records=RECORD),
    "LockQueues": lambda request: pb.LockQueuesResponse(locked=request.queues),
    "UnlockQueues": lambda _: pb.ChangeResponse(),
    "ListTransactions": lambda _: pb.ListTransactionsResponse(),
    "EndTransaction": lambda _: pb.EndTransactionResponse(),
    "RecallMessage": lambda _: pb.RecallMessageResponse(),
    **dict.fromkeys(
        ("SetTopic", "SetGroup", "DeleteTopic", "DeleteGroup", "CommitOffset", "ResetOffset", "ReturnMessage"),
        lambda _: pb.ChangeResponse(),
    ),
}


def fuzzed_core() -> SimpleNamespace:
    """Return the parts of a node that the fronts read."""
    group, topic = GroupConfig("G"), TopicConfig("T", 2, 2)
    state = SimpleNamespace(
        topics={"T": topic},
        groups={"G": group},
        topics_version=7,
        delay_offsets={1: 0},
        transactions=SimpleNamespace(find=lambda _: None, open_from=lambda *_: []),
        access=AccessState(),
        offset=lambda *_: None,
        offsets=lambda _: (SimpleNamespace(topic="T", queue_id=0, offset=0),),
    )
    log = SimpleNamespace(begin_offset=0, end_offset=1 << 20, find=lambda _: None)
    store = SimpleNamespace(
        max_offset=lambda *_: 1,
        message_time=lambda *_: 1,
        earliest_message_time=lambda *_: 1,
        offset_by_time=lambda *_: 0,
        log=log,
        derived=SimpleNamespace(queues={}, dispatcher=SimpleNamespace(offset=0, behind_bytes=0)),
    )
    status = SimpleNamespace(is_leading=True, leader_address="", leader_id="n0", role="leader", term=1)
    replica = SimpleNamespace(
        state=state,
        store=store,
        status=lambda: status,
        store_host=LOOPBACK,
        disk_used_ratio=lambda: 0.5,
        is_reachable=lambda _: True,
    )
    counts = SimpleNamespace(put_bytes=0, put_messages=0, get_messages=0)
    return SimpleNamespace(
        options=BrokerOptions("b", auto_create_topic_enable=True),
        replica=replica,
        clock_ms=lambda: 1_700_000_000_000,
        is_current=lambda: True,
        has_caught_up=lambda: True,
        metrics=SimpleNamespace(counts=counts),
    )
