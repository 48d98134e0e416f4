"""The front for official clients of RocketMQ 5: any request of any method, up to the calls of the leader."""

from functools import cache
from unittest.mock import patch

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from cluster.grpc_v2 import service
from cluster.grpc_v2.bounds import BOUNDS
from cluster.grpc_v2.service import MessagingService
from cluster.rocketmq_v2 import messaging_pb2 as mq
from dledger.config import Address
from dledger.security.settings import PLAIN
from dledger.service.limits.field_bounds import RequestShape
from tests.fuzz.target import Target
from tests.support.brokers.front_callers import UNRECORDED
from tests.support.brokers.fuzzed_leader import LOOP, FuzzedLeader, fuzzed_core

METHODS = list(mq.DESCRIPTOR.services_by_name["MessagingService"].methods)


class _EndedWithCodeError(Exception):
    """What `abort` of gRPC raises."""


class FuzzedContext:
    """A call of gRPC."""

    def invocation_metadata(self) -> list[tuple[str, str]]:
        """Return the id of the client."""
        return [("x-mq-client-id", "c")]

    def peer(self) -> str:
        """Return the address of the client."""
        return "ipv4:10.0.0.1:4000"

    def time_remaining(self) -> float:
        """Return the time until the deadline of the client, in seconds."""
        return 3.0

    async def abort(self, _code: object, _text: str) -> None:
        """End the call."""
        raise _EndedWithCodeError


@cache
def front() -> tuple[MessagingService, list[tuple[RequestShape, type[Message]]]]:
    """Return the front, beside a node that is none; and bounds and class of the requests of all methods."""

    async def made() -> MessagingService:
        with patch.object(service, "LeaderLink", lambda *_: FuzzedLeader()):
            address = Address("127.0.0.1", 1)
            return MessagingService(fuzzed_core(), address, "127.0.0.1:2", UNRECORDED, lambda: PLAIN)

    kinds = [(RequestShape(each.input_type, BOUNDS), GetMessageClass(each.input_type)) for each in METHODS]
    return LOOP.run_until_complete(made()), kinds


def rocketmq_requests(data: bytes) -> None:
    """Answer a request of any method, which the first byte says: with responses that can be sent, or a code."""
    number, data = (data[0] if data else 0) % len(METHODS), data[1:]
    served, kinds = front()
    shape, kind = kinds[number]
    try:
        request = kind.FromString(data)
    except DecodeError:
        return
    if shape.fault_of(request) is None:
        for response in LOOP.run_until_complete(_answers(served, METHODS[number], request)):
            response.SerializeToString()


async def _answers(served: MessagingService, method: object, request: Message) -> list[Message]:
    behaviour = getattr(served, method.name)
    try:
        if method.client_streaming:
            return [each async for each in behaviour(_one(request), FuzzedContext())]
        if method.server_streaming:
            return [each async for each in behaviour(request, FuzzedContext())]
        return [await behaviour(request, FuzzedContext())]
    except _EndedWithCodeError:
        return []


async def _one(request: Message):
    yield request


def seeds() -> list[bytes]:
    """Return a good request of most methods."""
    topic, group, handle = mq.Resource(name="T"), mq.Resource(name="G"), "0 1700000000000 30000 1 0 b 0 0"
    message = mq.Message(topic=topic, body=b"hello", user_properties={"a": "b"})
    system = message.system_properties
    system.message_id, system.tag, system.message_type = "id-1", "A", mq.NORMAL
    system.keys.extend(["k1", "k2"])
    system.born_timestamp.seconds = 1_700_000_000
    half = mq.Message()
    half.CopyFrom(message)
    half.system_properties.message_type, half.system_properties.trace_context = mq.TRANSACTION, "trace"
    half.system_properties.orphaned_transaction_recovery_duration.seconds = 30
    later = mq.Message()
    later.CopyFrom(message)
    later.system_properties.message_type = mq.DELAY
    later.system_properties.delivery_timestamp.seconds = 1_700_000_100
    receive = mq.ReceiveMessageRequest(group=group, message_queue=mq.MessageQueue(topic=topic), batch_size=8)
    receive.filter_expression.expression, receive.filter_expression.type = "a > 5 AND b IN ('x')", mq.SQL
    receive.invisible_duration.seconds = 30
    settings = mq.Settings(client_type=mq.PRODUCER, publishing=mq.Publishing(topics=[topic]))
    consumer = mq.Settings(client_type=mq.PUSH_CONSUMER, subscription=mq.Subscription(group=group))
    consumer.subscription.subscriptions.add(topic=topic).expression.expression = "a || b"
    entry = mq.AckMessageEntry(message_id="id-1", receipt_handle=handle)
    changed = mq.ChangeInvisibleDurationRequest(group=group, topic=topic, receipt_handle=handle)
    changed.invisible_duration.seconds = 30
    requests = [
        mq.SendMessageRequest(messages=[message]),
        mq.SendMessageRequest(messages=[half]),
        mq.SendMessageRequest(messages=[later]),
        receive,
        mq.AckMessageRequest(group=group, topic=topic, entries=[entry]),
        changed,
        mq.ForwardMessageToDeadLetterQueueRequest(group=group, topic=topic, receipt_handle=handle),
        mq.EndTransactionRequest(topic=topic, transaction_id="id-1@1.2", resolution=mq.COMMIT),
        mq.RecallMessageRequest(topic=topic, recall_handle="djEgVCBiIDEgSw=="),
        mq.QueryRouteRequest(topic=topic, endpoints=mq.Endpoints(scheme=mq.IPv4, addresses=[mq.Address(host="a")])),
        mq.QueryAssignmentRequest(topic=topic, group=group),
        mq.HeartbeatRequest(group=group, client_type=mq.PUSH_CONSUMER),
        mq.NotifyClientTerminationRequest(group=group),
        mq.TelemetryCommand(settings=settings),
        mq.TelemetryCommand(settings=consumer),
    ]
    numbers = {method.input_type.full_name: number for number, method in enumerate(METHODS)}
    return [bytes((numbers[each.DESCRIPTOR.full_name],)) + each.SerializeToString() for each in requests]


TARGETS = (Target("rocketmq_requests", rocketmq_requests, seeds),)
