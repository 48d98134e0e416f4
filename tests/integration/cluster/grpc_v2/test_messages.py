"""Official clients' calls on real nodes: what is sent at any node is received at any node, once, as it was sent."""

import hashlib
import time
import zlib
from contextlib import ExitStack

import grpc
import pytest

from cluster.broker.core import wall_clock_ms
from cluster.client.broker_calls import BrokerCalls
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.rocketmq_stub import RocketMQStub, message, resource
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(group):
    """Return a client of each node, the leader's first."""
    leader, _ = group.leader()
    names = sorted(group.ids, key=lambda name: name != leader)
    with ExitStack() as stack:
        yield [stack.enter_context(RocketMQStub(group.cluster.rocketmq_endpoint_of(name))) for name in names]


def test_a_message_sent_at_any_node_is_received_at_any_other_as_it_was_sent(nodes, topic):
    name = topic()
    for number, node in enumerate(nodes):
        entry = node.sent(message(name, f"m{number}", b"body", tag="A", keys=["k1", "k2"], properties={"a": "b"}))
        assert (entry.message_id, entry.transaction_id) == (f"m{number}", f"m{number}")

    found = {}
    for node in [*nodes, *nodes]:
        found |= {each.system_properties.message_id: each for each in node.receive(name, wait_s=0)}
    assert sorted(found) == ["m0", "m1", "m2"]
    one = found["m0"]
    system = one.system_properties
    assert (one.body, dict(one.user_properties), system.tag, list(system.keys)) == (
        b"body",
        {"a": "b"},
        "A",
        ["k1", "k2"],
    )
    assert (system.message_type, system.body_encoding, system.delivery_attempt) == (mq.NORMAL, mq.IDENTITY, 1)
    assert system.body_digest == mq.Digest(type=mq.MD5, checksum=hashlib.md5(b"body").hexdigest().upper())
    assert system.born_timestamp.seconds > 0
    assert all(nodes[1].ack(each).code == mq.OK for each in found.values())
    assert nodes[2].ack(one).code == mq.OK, "a second acknowledgement is no error"


def test_a_repeated_send_with_the_same_id_stores_nothing_again(nodes, topic):
    name = topic()
    first, second = (node.sent(message(name, "same", b"x")) for node in nodes[:2])
    assert first.offset == second.offset
    assert len(nodes[0].receive(name)) == 1
    assert nodes[0].receive(name, wait_s=0) == []


def test_a_message_that_is_not_acknowledged_is_given_again_with_one_attempt_more(nodes, topic):
    name = topic(1)
    nodes[0].sent(message(name, "m"))
    (first,) = nodes[1].receive(name)
    change = mq.ChangeInvisibleDurationRequest(
        group=resource("G"), topic=resource(name), receipt_handle=first.system_properties.receipt_handle
    )
    changed = nodes[2].call("ChangeInvisibleDuration", change)
    assert changed.status.code == mq.OK
    assert changed.receipt_handle not in ("", first.system_properties.receipt_handle)

    (again,) = nodes[1].receive(name)
    assert again.system_properties.delivery_attempt == 2
    assert nodes[0].ack(first).code == mq.INVALID_RECEIPT_HANDLE, "the old handle is no longer valid"
    assert nodes[0].ack(again).code == mq.OK


def test_a_receive_waits_for_a_message_and_answers_before_its_deadline_without_one(nodes, topic):
    name = topic()
    begin = time.monotonic()
    responses = nodes[1].responses(name, wait_s=1)
    assert [each.WhichOneof("content") for each in responses] == ["status", "delivery_timestamp"]
    assert responses[0].status.code == mq.MESSAGE_NOT_FOUND
    assert time.monotonic() - begin >= 1
    # Without a wait of its own it takes the deadline: a gRPC error would be one of DEADLINE_EXCEEDED.
    request = mq.ReceiveMessageRequest(
        group=resource("G"), message_queue=mq.MessageQueue(topic=resource(name)), batch_size=1, auto_renew=True
    )
    stream = nodes[1].stub.ReceiveMessage(request, timeout=PATIENCE_S, metadata=nodes[1].metadata)
    nodes[0].sent(message(name, "m"))
    assert [each.WhichOneof("content") for each in stream] == ["status", "message", "delivery_timestamp"]


def test_messages_of_one_group_go_to_one_queue_in_their_order_whatever_node_takes_them(nodes, topic):
    name = topic(4, "FIFO")
    for number in range(9):
        nodes[number % 3].sent(message(name, f"m{number}", b"%d" % number, mq.FIFO, message_group="g"))
    found = nodes[0].receive(name)
    assert [int(each.body) for each in found] == list(range(9))
    assert {(each.system_properties.message_group, each.system_properties.queue_id) for each in found} == {
        ("g", found[0].system_properties.queue_id)
    }
    assert found[0].system_properties.message_type == mq.FIFO


def test_a_group_in_order_gets_one_message_of_a_message_group_and_a_repeated_attempt_the_same(group, nodes, topic):
    name = topic(1, "FIFO")
    with BrokerCalls(",".join(group.addresses), PATIENCE_S) as calls:
        settings = pb.Group(name="in-order", is_orderly=True, is_consume_enabled=True, is_from_min_enabled=True)
        calls.ask(lambda stub: stub.SetGroup, pb.SetGroupRequest(group=settings))
    for message_id, message_group in (("a0", "a"), ("a1", "a"), ("b0", "b")):
        nodes[0].sent(message(name, message_id, kind=mq.FIFO, message_group=message_group))

    def received(node, attempt, wait_s=10):
        found = nodes[node].receive(name, "in-order", wait_s=wait_s, attempt_id=attempt)
        return {each.system_properties.message_id: each for each in found}

    first = received(0, "1")
    assert sorted(first) == ["a0", "b0"]
    assert received(1, "2", wait_s=0) == {}, "a1 waits for a0"
    again = received(2, "1")
    assert {each: found.system_properties.receipt_handle for each, found in again.items()} == {
        each: found.system_properties.receipt_handle for each, found in first.items()
    }
    assert nodes[1].ack(first["a0"], "in-order").code == mq.OK
    assert sorted(received(1, "3")) == ["a1"]


def test_a_delayed_message_is_delivered_at_its_time_unless_it_is_recalled(nodes, topic):
    name = topic(1, "DELAY")
    due = {}
    handles = {}
    for message_id, after_s in (("late", 3), ("recalled", 2)):
        sent = message(name, message_id, kind=mq.DELAY)
        due[message_id] = wall_clock_ms() + 1_000 * after_s
        sent.system_properties.delivery_timestamp.FromMilliseconds(due[message_id])
        handles[message_id] = nodes[1].sent(sent).recall_handle
    recall = mq.RecallMessageRequest(topic=resource(name), recall_handle=handles["recalled"])
    recalled = nodes[2].call("RecallMessage", recall)
    assert (recalled.status.code, recalled.message_id) == (mq.OK, "recalled")

    (found,) = nodes[0].receive(name, wait_s=20)
    assert wall_clock_ms() >= due["late"]
    assert found.system_properties.message_id == "late"
    assert found.system_properties.message_type == mq.DELAY
    assert found.system_properties.HasField("delivery_timestamp")


def test_a_tag_filter_and_an_sql_filter_select_messages(nodes, topic):
    name = topic()
    for number, tag in enumerate("ABC"):
        nodes[0].sent(message(name, tag, tag=tag, properties={"n": str(number)}))

    def selected(group, kind, expression):
        chosen = mq.FilterExpression(type=kind, expression=expression)
        return sorted(each.system_properties.tag for each in nodes[1].receive(name, group, filter_expression=chosen))

    assert selected("G1", mq.TAG, "A || C") == ["A", "C"]
    assert selected("G2", mq.SQL, "n > 0") == ["B", "C"]
    bad = nodes[1].responses(name, filter_expression=mq.FilterExpression(type=mq.SQL, expression="n >"))
    assert [each.status.code for each in bad] == [mq.ILLEGAL_FILTER_EXPRESSION]


def test_a_body_of_4_mib_and_one_in_gzip_arrive_whole(nodes, topic):
    name = topic(1)
    large = bytes(range(256)) * (4 << 12)
    packed = zlib.compressobj(wbits=31)
    zipped = message(name, "gzip", packed.compress(b"small" * 10) + packed.flush())
    zipped.system_properties.body_encoding = mq.GZIP
    nodes[1].sent(message(name, "large", large[: (4 << 20) - 1024]))
    nodes[1].sent(zipped)
    bodies = {}
    while len(bodies) < 2:
        for each in nodes[2].receive(name):
            bodies[each.system_properties.message_id] = each.body
    assert bodies["gzip"] == b"small" * 10
    # Not compared by `==` in the assertion: the difference of two large texts takes minutes.
    is_same = bodies["large"] == large[: (4 << 20) - 1024]
    assert is_same


def test_a_message_that_a_consumer_gives_up_becomes_a_dead_letter_of_its_group(nodes, topic):
    name = topic(1)
    nodes[0].sent(message(name, "m", b"bad"))
    (found,) = nodes[1].receive(name, "Gdead")
    system = found.system_properties
    forward = mq.ForwardMessageToDeadLetterQueueRequest(
        group=resource("Gdead"),
        topic=resource(name),
        receipt_handle=system.receipt_handle,
        message_id=system.message_id,
    )
    for _ in range(2):
        assert nodes[2].call("ForwardMessageToDeadLetterQueue", forward).status.code == mq.OK
    dead = wait_until(lambda: nodes[1].receive("%DLQ%Gdead", "Gother", wait_s=0), "the dead letter")
    assert [each.body for each in dead] == [b"bad"]
    assert dead[0].system_properties.dead_letter_queue.topic == name


def test_calls_that_no_official_client_uses_are_unimplemented(nodes):
    for method, request in (
        ("UpdateOffset", mq.UpdateOffsetRequest()),
        ("GetOffset", mq.GetOffsetRequest()),
        ("QueryOffset", mq.QueryOffsetRequest()),
        ("SyncLiteSubscription", mq.SyncLiteSubscriptionRequest()),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            nodes[0].call(method, request)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_what_a_push_consumer_did_not_acknowledge_is_given_again_soon_after_its_end(nodes, topic):
    name = topic(1)
    for number in range(3):
        nodes[0].sent(message(name, f"m{number}"))
    taken = nodes[1].receive(name, "Gpush", auto_renew=True, count=3)
    assert nodes[1].ack(taken[0], "Gpush").code == mq.OK
    terminated = mq.NotifyClientTerminationRequest(group=resource("Gpush"))
    assert nodes[1].call("NotifyClientTermination", terminated).status.code == mq.OK
    # Sooner than the 60 s for which they were taken.
    found, end = [], time.monotonic() + 50
    while len(found) < 2 and time.monotonic() < end:
        found += nodes[2].receive(name, "Gpush", wait_s=10)
    assert [each.system_properties.message_id for each in found] == ["m1", "m2"]
    assert {each.system_properties.delivery_attempt for each in found} == {2}
