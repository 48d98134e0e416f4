"""Transactions of official clients: ended at any node, and asked about by telemetry if nothing has ended them."""

import queue
import threading
from contextlib import contextmanager

import grpc
import pytest

from cluster.rocketmq_v2 import messaging_pb2 as mq
from tests.support.brokers.rocketmq_stub import RocketMQStub, message, resource
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture
def stubs(group):
    """Return a client of a follower, and one of the leader."""
    leader, _ = group.leader()
    follower = next(name for name in group.ids if name != leader)
    with (
        RocketMQStub(group.cluster.rocketmq_endpoint_of(follower)) as one,
        RocketMQStub(group.cluster.rocketmq_endpoint_of(leader)) as other,
    ):
        yield one, other


@contextmanager
def telemetry(stub, settings):
    """Yield a queue with the commands of the server."""
    sent, received = queue.Queue(), queue.Queue()
    sent.put(mq.TelemetryCommand(settings=settings))
    stream = stub.stub.Telemetry(iter(sent.get, None), metadata=stub.metadata)

    def read():
        try:
            for command in stream:
                received.put(command)
        except grpc.RpcError as error:
            received.put(error)

    reading = threading.Thread(target=read)
    reading.start()
    try:
        yield received
    finally:
        sent.put(None)
        stream.cancel()
        reading.join(PATIENCE_S)


def publishing(*topics):
    return mq.Settings(client_type=mq.PRODUCER, publishing=mq.Publishing(topics=[resource(each) for each in topics]))


def end(stub, topic, transaction_id, resolution):
    request = mq.EndTransactionRequest(
        topic=resource(topic), message_id="m", transaction_id=transaction_id, resolution=resolution
    )
    return stub.call("EndTransaction", request).status.code


def test_a_transaction_is_invisible_until_it_is_committed_at_another_node(stubs, topic):
    one, other = stubs
    name = topic(1, "TRANSACTION")
    committed, rolled_back = (one.sent(message(name, each, kind=mq.TRANSACTION)) for each in ("yes", "no"))
    assert one.receive(name, wait_s=0) == []
    assert end(other, name, committed.transaction_id, mq.TRANSACTION_RESOLUTION_UNSPECIFIED) == mq.OK
    assert one.receive(name, wait_s=0) == [], "a resolution that is not known changes nothing"

    for _ in range(2):
        assert end(other, name, committed.transaction_id, mq.COMMIT) == mq.OK, "the same end is no error"
    assert end(other, name, rolled_back.transaction_id, mq.ROLLBACK) == mq.OK
    assert end(one, name, committed.transaction_id, mq.ROLLBACK) == mq.INTERNAL_SERVER_ERROR
    (found,) = one.receive(name)
    assert (found.system_properties.message_id, found.system_properties.message_type) == ("yes", mq.TRANSACTION)
    assert end(one, name, "no-id-of-ours", mq.COMMIT) == mq.INVALID_TRANSACTION_ID


def test_a_producer_is_asked_about_a_transaction_that_nothing_has_ended(stubs, topic):
    one, other = stubs
    name = topic(1, "TRANSACTION")
    sent = one.sent(message(name, "orphan", b"half", mq.TRANSACTION, properties={"a": "b"}))
    with telemetry(one, publishing(name)) as commands:
        while True:
            command = commands.get(timeout=PATIENCE_S)
            assert command.status.code == mq.OK
            if command.WhichOneof("command") == "recover_orphaned_transaction_command":
                break
        question = command.recover_orphaned_transaction_command
        assert question.transaction_id == sent.transaction_id
        asked = question.message
        assert (asked.body, dict(asked.user_properties), asked.system_properties.message_id) == (
            b"half",
            {"a": "b"},
            "orphan",
        )
        assert asked.topic.name == name
        assert end(one, name, question.transaction_id, mq.COMMIT) == mq.OK
    assert [each.body for each in other.receive(name)] == [b"half"]


def test_settings_are_answered_with_those_of_the_client_and_what_it_needs_and_then_again(stubs, topic):
    one, _ = stubs
    name = topic()
    with telemetry(one, publishing(name)) as commands:
        for _ in range(2):
            command = commands.get(timeout=PATIENCE_S)
            settings = command.settings
            assert command.status.code == mq.OK
            assert [each.name for each in settings.publishing.topics] == [name]
            assert settings.publishing.max_body_size == 4 << 20
            assert settings.backoff_policy.HasField("exponential_backoff")
    consumer = mq.Settings(client_type=mq.PUSH_CONSUMER, subscription=mq.Subscription(group=resource("G")))
    with telemetry(one, consumer) as commands:
        settings = commands.get(timeout=PATIENCE_S).settings
        assert settings.subscription.group.name == "G"
        assert settings.subscription.receive_batch_size == 32
        assert settings.subscription.long_polling_timeout.seconds == 20
        assert not settings.subscription.fifo
        assert len(settings.backoff_policy.customized_backoff.next) == 18
        assert settings.backoff_policy.max_attempts == 17


def test_settings_of_neither_a_producer_nor_a_consumer_end_the_stream(stubs):
    one, _ = stubs
    illegal = mq.Settings(client_type=mq.PRODUCER, publishing=mq.Publishing(topics=[resource("a.b")]))
    for settings in (mq.Settings(client_type=mq.PRODUCER), illegal):
        with telemetry(one, settings) as commands:
            refused = commands.get(timeout=PATIENCE_S)
            error = commands.get(timeout=PATIENCE_S)
        assert refused.status.code // 100 == mq.BAD_REQUEST // 100
        assert not refused.HasField("settings")
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
