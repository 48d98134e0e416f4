"""Requests that are refused: with RocketMQ's codes, and before anything is done."""

import pytest

from cluster.rocketmq_v2 import messaging_pb2 as mq
from tests.support.brokers.rocketmq_stub import RocketMQStub, message, resource

pytestmark = pytest.mark.slow


@pytest.fixture
def stub(group):
    """Return a client of a follower."""
    leader, _ = group.leader()
    follower = next(name for name in group.ids if name != leader)
    with RocketMQStub(group.cluster.rocketmq_endpoint_of(follower)) as connected:
        yield connected


def test_messages_that_break_a_limit_get_rocketmqs_codes_and_are_not_stored(stub, topic):
    name = topic(1)
    far = message(name, "far", kind=mq.DELAY)
    far.system_properties.delivery_timestamp.seconds = 1 << 33
    orphan = message(name, "orphan", kind=mq.TRANSACTION)
    orphan.system_properties.orphaned_transaction_recovery_duration.seconds = 3_601
    broken = message(name, "broken", b"no gzip")
    broken.system_properties.body_encoding = mq.GZIP
    refused = {
        mq.MESSAGE_BODY_EMPTY: message(name, "m", b""),
        mq.MESSAGE_BODY_TOO_LARGE: message(name, "m", bytes((4 << 20) + 1)),
        mq.ILLEGAL_MESSAGE_TAG: message(name, "m", tag="a|b"),
        mq.ILLEGAL_MESSAGE_KEY: message(name, "m", keys=["a\x01"]),
        mq.ILLEGAL_MESSAGE_GROUP: message(name, "m", kind=mq.FIFO, message_group="g" * 64),
        mq.ILLEGAL_MESSAGE_PROPERTY_KEY: message(name, "m", properties={"UNIQ_KEY": "x"}),
        mq.MESSAGE_PROPERTIES_TOO_LARGE: message(name, "m", properties={"a": "x" * (16 << 10)}),
        mq.ILLEGAL_MESSAGE_ID: message(name, ""),
        mq.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE: message(name, "m", message_group="g"),
        mq.ILLEGAL_DELIVERY_TIME: far,
        mq.BAD_REQUEST: orphan,
        mq.MESSAGE_CORRUPTED: broken,
        mq.UNSUPPORTED: message(name, "m", kind=mq.PRIORITY),
        mq.ILLEGAL_TOPIC: message("a.b", "m"),
    }
    answers = {mq.Code.Name(code): mq.Code.Name(stub.send(each).status.code) for code, each in refused.items()}
    assert answers == {name: name for name in answers}
    assert stub.send(message(name, "a"), message(f"{name}x", "b")).status.code == mq.MESSAGE_CORRUPTED
    assert stub.send().status.code == mq.MESSAGE_CORRUPTED
    assert stub.receive(name, wait_s=0) == []


def test_a_topic_takes_only_messages_of_its_type(stub, topic):
    name = topic(1, "FIFO")
    assert stub.send(message(name, "m")).status.code == mq.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    route = stub.call("QueryRoute", mq.QueryRouteRequest(topic=resource(name)))
    assert [list(each.accept_message_types) for each in route.message_queues] == [[mq.FIFO]]


def test_an_unknown_topic_is_refused_in_the_words_by_which_clients_recognise_it(stub):
    sent = stub.send(message("nothere", "m")).status
    route = stub.call("QueryRoute", mq.QueryRouteRequest(topic=resource("nothere"))).status
    (received,) = stub.responses("nothere")
    for status in (sent, route, received.status):
        assert status.code == mq.TOPIC_NOT_FOUND
        assert status.message == "CODE: 17  DESC: No topic route info in name server for the topic: nothere"


def test_a_route_has_every_queue_at_the_address_that_the_client_used(stub, topic):
    name = topic(3)
    used = mq.Endpoints(scheme=mq.DOMAIN_NAME, addresses=[mq.Address(host="broker.example", port=443)])
    route = stub.call("QueryRoute", mq.QueryRouteRequest(topic=resource(name), endpoints=used))
    assert [each.id for each in route.message_queues] == [0, 1, 2]
    for each in route.message_queues:
        assert (each.permission, each.broker.id, each.broker.endpoints) == (mq.READ_WRITE, 0, used)
        assert list(each.accept_message_types) == [mq.NORMAL, mq.FIFO, mq.DELAY, mq.TRANSACTION]
    ask = mq.QueryAssignmentRequest(topic=resource(name), group=resource("G"), endpoints=used)
    assignments = stub.call("QueryAssignment", ask).assignments
    assert [each.message_queue.id for each in assignments] == [-1]
    used.scheme = mq.ADDRESS_SCHEME_UNSPECIFIED
    refused = stub.call("QueryRoute", mq.QueryRouteRequest(topic=resource(name), endpoints=used))
    assert refused.status.code == mq.ILLEGAL_ACCESS_POINT


def test_consumers_requests_that_break_a_limit_get_rocketmqs_codes(stub, topic):
    name = topic(1)
    codes = {
        "invisible": stub.responses(name, invisible_s=9)[0].status.code,
        "batch": stub.responses(name, count=0)[0].status.code,
        "group": stub.responses(name, "a.b")[0].status.code,
    }
    assert codes == {
        "invisible": mq.ILLEGAL_INVISIBLE_TIME,
        "batch": mq.BAD_REQUEST,
        "group": mq.ILLEGAL_CONSUMER_GROUP,
    }
    bad = mq.AckMessageRequest(
        group=resource("G"), topic=resource(name), entries=[mq.AckMessageEntry(receipt_handle="rubbish")]
    )
    acked = stub.call("AckMessage", bad)
    assert (acked.status.code, acked.entries[0].status.code) == (mq.INVALID_RECEIPT_HANDLE, mq.INVALID_RECEIPT_HANDLE)
    change = mq.ChangeInvisibleDurationRequest(group=resource("G"), topic=resource(name), receipt_handle="rubbish")
    changed = stub.call("ChangeInvisibleDuration", change)
    assert (changed.status.code, changed.receipt_handle) == (mq.INVALID_RECEIPT_HANDLE, "rubbish")
    change.invisible_duration.seconds = 12 * 3_600 + 1
    assert stub.call("ChangeInvisibleDuration", change).status.code == mq.ILLEGAL_INVISIBLE_TIME


def test_calls_need_a_client_id_but_no_settings_before(stub):
    for client_type in (mq.PRODUCER, mq.SIMPLE_CONSUMER):
        assert stub.call("Heartbeat", mq.HeartbeatRequest(client_type=client_type)).status.code == mq.OK
    terminated = stub.call("NotifyClientTermination", mq.NotifyClientTerminationRequest(group=resource("G")))
    assert terminated.status.code == mq.OK
    stub.metadata = []
    assert stub.call("Heartbeat", mq.HeartbeatRequest()).status.code == mq.CLIENT_ID_REQUIRED
    assert stub.responses("T")[0].status.code == mq.CLIENT_ID_REQUIRED


def test_a_field_beyond_its_bound_is_refused_before_any_work(stub):
    assert stub.send(message("t" * 300, "m")).status.code == mq.BAD_REQUEST
    assert stub.send(message("T", "m", bytes((8 << 20) + 1))).status.code == mq.MESSAGE_BODY_TOO_LARGE
    entries = [mq.AckMessageEntry(receipt_handle="x")] * 513
    many = mq.AckMessageRequest(group=resource("G"), topic=resource("T"), entries=entries)
    assert stub.call("AckMessage", many).status.code == mq.BAD_REQUEST
    (refused,) = stub.responses("T", "g" * 300)
    assert refused.status.code == mq.BAD_REQUEST
