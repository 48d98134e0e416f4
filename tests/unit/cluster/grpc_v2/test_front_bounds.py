"""Requests of hostile clients of the gRPC front: each gets a code, and takes bounded memory and time."""

import asyncio
import zlib
from types import SimpleNamespace

import pytest
from google.protobuf.duration_pb2 import Duration

from cluster.client.consumer.received import records_of
from cluster.grpc_v2 import orphan_checks, receives
from cluster.grpc_v2.delivered import BODY_BYTES_MAX, delivered
from cluster.grpc_v2.orphan_checks import OrphanChecks
from cluster.grpc_v2.outgoing import outgoing
from cluster.grpc_v2.receives import Receives
from cluster.grpc_v2.renewal_table import FrontConsumer
from cluster.grpc_v2.routes import Routes
from cluster.grpc_v2.status_codes import CodedRefusal
from cluster.grpc_v2.telemetry import COMMANDS_BYTES_MAX, ClientStream
from cluster.grpc_v2.topics import KnownTopics
from cluster.protocol.topic_config import TopicConfig
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.v1 import broker_pb2 as pb
from commitlog.record.compression import UnreadableBody
from dledger.config import Address
from store.model.message import LOOPBACK, Message
from tests.support.brokers.rocketmq_stub import message, resource
from tests.support.records import encode_record
from tests.support.waiting import in_a_loop, until

CONSUMER = FrontConsumer("c")
NO_WAIT = Duration()


def stored(offset=0, **fields):
    return encode_record(
        Message("T", **{"body": b"body", **fields}),
        physical_offset=offset,
        queue_offset=offset,
        store_timestamp=1_700_000_000_000,
        store_host=LOOPBACK,
    )


def bomb(size=BODY_BYTES_MAX + 1):
    return zlib.compress(bytes(size))


class Leader:
    """Answers receives; `waits` has those that wait."""

    def __init__(self, *answers):
        self.answers, self.waits, self.calls = list(answers), 0, 0

    async def call(self, _method, request, _limit_s, wait_s=0.0):
        self.calls += 1
        if wait_s:
            self.waits += 1
            await asyncio.Event().wait()
        return self.answers.pop(0) if self.answers else pb.ReceiveResponse()


class Producer:
    topics, client = frozenset(), None


def receive_request(**fields):
    request = mq.ReceiveMessageRequest(
        group=resource("G"), message_queue=mq.MessageQueue(topic=resource("T")), batch_size=8, **fields
    )
    request.invisible_duration.seconds = 30
    return request


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("message_id", "a\x01TAGS\x02", mq.ILLEGAL_MESSAGE_ID),
        ("trace_context", "a\x02TAGS\x01b", mq.BAD_REQUEST),
        ("trace_context", "x" * 40_000, mq.MESSAGE_PROPERTIES_TOO_LARGE),
    ],
    ids=["id", "trace", "large"],
)
def test_no_field_becomes_a_property_of_another_name_and_none_is_too_large(field, value, code):
    given = message("T", "id-1")
    setattr(given.system_properties, field, value)
    with pytest.raises(CodedRefusal) as caught:
        outgoing(given, "T", 1 << 50)
    assert caught.value.code == code


@pytest.mark.parametrize("seconds", [-1, 1 << 40, (1 << 63) - 1])
def test_a_time_of_birth_that_no_clock_has_is_refused(seconds):
    given = message("T", "id-1")
    given.system_properties.born_timestamp.seconds = seconds
    with pytest.raises(CodedRefusal, match="born_timestamp"):
        outgoing(given, "T", 1 << 50)


@in_a_loop
async def test_a_route_repeats_no_kilobytes_of_a_client_for_each_of_its_queues():
    topics = KnownTopics(SimpleNamespace(topics={"T": TopicConfig("T", 65_536, 65_536)}, groups={}), None)
    routes = Routes(topics, "b", Address("127.0.0.1", 1))
    large = mq.Endpoints(scheme=mq.IPv4, addresses=[mq.Address(host="x" * 255)] * 64)
    with pytest.raises(CodedRefusal) as caught:
        await routes.route(mq.QueryRouteRequest(topic=resource("T"), endpoints=large), 1)
    assert caught.value.code == mq.ILLEGAL_ACCESS_POINT
    ask = mq.QueryAssignmentRequest(topic=resource("T"), group=resource("G"), endpoints=large)
    # Of a group that does not consume in order the answer has one queue.
    assert len((await routes.assignment(ask, 1)).assignments) == 1


@in_a_loop
async def test_settings_and_questions_that_a_client_does_not_read_are_bounded_in_bytes():
    stream = ClientStream()
    for number in range(1_000):
        settings = mq.Settings(client_type=mq.PRODUCER)
        settings.request_timeout.seconds = number
        stream.answer(mq.TelemetryCommand(settings=settings))
    question = mq.TelemetryCommand()
    question.recover_orphaned_transaction_command.message.body = bytes(1 << 20)
    taken = [stream.push(question) for _ in range(20)]
    assert sum(taken) == -(-COMMANDS_BYTES_MAX // question.ByteSize())
    stream.end(None)
    sent = [each async for each in stream.commands()]
    # The last settings only, and first.
    assert [each.WhichOneof("command") for each in sent[:2]] == ["settings", "recover_orphaned_transaction_command"]
    assert sent[0].settings.request_timeout.seconds == 999
    assert len(sent) == 1 + sum(taken)
    assert stream._size_bytes == 0


def test_a_body_that_expands_to_more_than_clients_send_is_unreadable():
    (record,) = records_of(stored(body=bomb(), sys_flag=1), "T")
    with pytest.raises(UnreadableBody):
        delivered(record, resource("T"))


@in_a_loop
async def test_a_message_that_cannot_be_decompressed_does_not_keep_the_others_from_a_consumer():
    records = stored(0, body=b"no zlib", sys_flag=1) + stored(1, body=zlib.compress(b"good"), sys_flag=1)
    answer = pb.ReceiveResponse(records=records, handles=["bad", "good"], attempts=[1, 1])
    renewed = []
    renewing = SimpleNamespace(add=lambda key, *_: renewed.append(key.handle))
    front = Receives(Leader(answer), renewing, lambda: 0)
    found = [
        each
        async for each in front.receive(
            receive_request(auto_renew=True, long_polling_timeout=NO_WAIT), CONSUMER, "10.0.0.1", 1.0
        )
    ]
    assert [each.message.body for each in found if each.HasField("message")] == [b"good"]
    assert found[0].status.code == mq.OK
    assert renewed == ["good"]


@in_a_loop
async def test_waits_of_one_address_leave_places_at_the_leader_for_calls_of_others(monkeypatch):
    monkeypatch.setattr(receives, "WAITS_MAX", 8)
    monkeypatch.setattr(receives, "POLL_S", 0.001)
    leader = Leader()
    front = Receives(leader, SimpleNamespace(add=None), lambda: 0)

    async def wait(holder):
        return [each async for each in front.receive(receive_request(), CONSUMER, holder, 1_000.0)]

    waiting = [asyncio.create_task(wait("10.0.0.1")) for _ in range(20)]
    await until(lambda: leader.calls >= 40)
    assert leader.waits == 4
    waiting.append(asyncio.create_task(wait("10.0.0.2")))
    await until(lambda: leader.waits == 5)
    # One that waits here gets what comes.
    leader.answers.append(pb.ReceiveResponse(records=stored(), handles=["h"], attempts=[1]))
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [each.message.body for each in done.pop().result() if each.HasField("message")] == [b"body"]
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert front._waits.used == 0


@in_a_loop
async def test_names_of_topics_that_a_stranger_makes_up_take_no_place_of_transactional_ones(monkeypatch):
    monkeypatch.setattr(orphan_checks, "TOPICS_MAX", 2)
    asked = []

    class Link:
        async def checks(self, _group, topic):
            asked.append(topic)
            await asyncio.Event().wait()
            yield

    known = {"T": TopicConfig("T", 1, 1), "F": TopicConfig("F", 1, 1, attributes={"message.type": "FIFO"})}
    callers = SimpleNamespace(may=lambda *_: True)
    checks = OrphanChecks(Link(), KnownTopics(SimpleNamespace(topics=known, groups={}), None), callers)
    stranger = Producer()
    honest = Producer()
    checks.join(stranger, frozenset(["F", *(f"made-up-{number}" for number in range(300))]))
    checks.join(honest, frozenset(["T", "later"]))
    await until(lambda: asked == ["T"])
    # A topic that is created later gets its stream in the next round.
    known["later"] = TopicConfig("later", 1, 1)
    checks._begin()
    await until(lambda: asked == ["T", "later"])
    await checks.stop()
