"""The ten things that break official clients most easily (ADR 90), each with what the clients do about it."""

import hashlib
import queue
import threading
import time

import grpc
import pytest

from cluster.client.broker_calls import BrokerCalls
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.rocketmq_stub import RocketMQStub, message, resource
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def stub(group):
    """Return a client of a follower."""
    leader, _ = group.leader()
    follower = next(name for name in group.ids if name != leader)
    with RocketMQStub(group.cluster.rocketmq_endpoint_of(follower)) as connected:
        yield connected


def answered(stub, settings):
    """Return the first command of the server after settings."""
    outgoing = queue.Queue()
    outgoing.put(mq.TelemetryCommand(settings=settings))
    call = stub.stub.Telemetry(iter(outgoing.get, None), metadata=stub.metadata, timeout=PATIENCE_S)
    try:
        return next(call)
    finally:
        outgoing.put(None)
        call.cancel()


def set_group(group, **settings):
    with BrokerCalls(",".join(group.addresses), PATIENCE_S) as calls:
        made = pb.Group(is_consume_enabled=True, is_from_min_enabled=True, retry_queues=1, **settings)
        calls.ask(lambda stub: stub.SetGroup, pb.SetGroupRequest(group=made))


def push_settings(group):
    return mq.Settings(client_type=mq.PUSH_CONSUMER, subscription=mq.Subscription(group=resource(group)))


def test_1_settings_come_with_the_status_ok_without_which_python_drops_them(stub):
    command = answered(stub, push_settings("G"))
    assert command.status.code == mq.OK
    assert command.WhichOneof("command") == "settings"


def test_2_settings_have_the_arm_of_the_client_as_others_are_ignored(stub, topic):
    publishing = mq.Settings(client_type=mq.PRODUCER, publishing=mq.Publishing(topics=[resource(topic())]))
    for settings, arm in ((publishing, "publishing"), (push_settings("G"), "subscription")):
        assert answered(stub, settings).settings.WhichOneof("pub_sub") == arm


def test_3_a_producer_may_send_bodies_of_4_mib_and_has_exponential_pauses(stub, topic):
    name = topic()
    publishing = mq.Settings(client_type=mq.PRODUCER, publishing=mq.Publishing(topics=[resource(name)]))
    settings = answered(stub, publishing).settings
    assert settings.publishing.max_body_size == 4 << 20
    assert settings.backoff_policy.max_attempts == 3
    assert settings.backoff_policy.exponential_backoff.multiplier == 2
    # What is permitted is accepted: also together with the largest properties.
    body, properties = b"x" * (4 << 20), {"p": "v" * (15 << 10)}
    stub.sent(message(name, "largest", body, properties=properties))
    (found,) = stub.receive(name)
    is_same = found.body == body
    assert is_same
    assert dict(found.user_properties) == properties
    assert found.system_properties.body_digest.checksum == hashlib.md5(body).hexdigest().upper()


def test_4_a_push_consumer_gets_pauses_a_batch_a_wait_and_the_attempts_of_its_group(group, stub):
    set_group(group, name="Gtwo", is_orderly=True, retry_max_times=1)
    set_group(group, name="Gall", retry_max_times=-1)
    found = {}

    def is_known():
        # A node that follows learns of a group a moment later.
        found.update({name: answered(stub, push_settings(name)).settings for name in ("Gtwo", "Gall", "Gnew")})
        return found["Gall"].backoff_policy.max_attempts != 17

    wait_until(is_known, "the node knows the groups")
    for settings in found.values():
        assert settings.backoff_policy.customized_backoff.next[0].seconds == 1
        assert settings.subscription.receive_batch_size == 32
        assert settings.subscription.long_polling_timeout.seconds == 20
    assert [found[name].backoff_policy.max_attempts for name in found] == [2, 1 << 30, 17]
    assert [found[name].subscription.fifo for name in found] == [True, False, False]


def test_5_every_message_has_what_clients_read_without_asking_whether_it_is_there(stub, topic):
    name = topic()
    stub.sent(message(name, "m", b"body"))
    (found,) = stub.receive(name)
    system = found.system_properties
    assert system.body_digest == mq.Digest(type=mq.MD5, checksum=hashlib.md5(b"body").hexdigest().upper())
    assert system.body_encoding == mq.IDENTITY
    assert system.receipt_handle
    assert system.message_id == "m"
    assert system.born_timestamp.seconds > 0
    assert system.delivery_attempt == 1


def test_6_a_send_has_one_entry_with_a_status_of_its_own(stub, topic):
    name = topic()
    for sent in ([message(name, "one")], [message(name, "a"), message(name, "b")]):
        response = stub.send(*sent)
        assert [response.status.code, *(each.status.code for each in response.entries)] == [mq.OK, mq.OK]


def test_7_a_receive_that_finds_nothing_has_a_status_and_ends_before_its_deadline_without_an_error(stub, topic):
    name = topic()
    begin = time.monotonic()
    responses = stub.responses(name, wait_s=60, timeout=4)
    assert responses[0].status.code == mq.MESSAGE_NOT_FOUND
    assert time.monotonic() - begin < 4


def test_8_a_receive_of_an_empty_queue_gets_messages_of_others(stub, topic):
    name = topic(4, "FIFO")
    sent = message(name, "m", kind=mq.FIFO, message_group="g")
    stub.sent(sent)
    route = stub.call("QueryRoute", mq.QueryRouteRequest(topic=resource(name))).message_queues
    found = set()
    for each in route:
        request = mq.ReceiveMessageRequest(group=resource(f"G{each.id}"), message_queue=each, batch_size=1)
        request.invisible_duration.seconds = 30
        request.long_polling_timeout.seconds = 10
        responses = list(stub.stub.ReceiveMessage(request, timeout=PATIENCE_S, metadata=stub.metadata))
        found |= {each.message.system_properties.message_id for each in responses if each.HasField("message")}
        assert responses[0].status.code == mq.OK
    assert found == {"m"}


def test_9_receives_heartbeats_and_acknowledgements_need_no_settings_before(group, topic):
    name = topic()
    for number, node in enumerate(group.ids):
        with RocketMQStub(group.cluster.rocketmq_endpoint_of(node), f"new-{number}") as fresh:
            fresh.sent(message(name, f"m{number}"))
            (found,) = fresh.receive(name)
            assert fresh.ack(found).code == mq.OK
            beat = mq.HeartbeatRequest(group=resource("G"), client_type=mq.SIMPLE_CONSUMER)
            assert fresh.call("Heartbeat", beat).status.code == mq.OK


def test_10_a_route_has_queues_that_every_role_may_use_and_an_address_with_a_scheme(stub, topic):
    name = topic()
    # Also if the client does not say how it came.
    route = stub.call("QueryRoute", mq.QueryRouteRequest(topic=resource(name)))
    assert [each.id for each in route.message_queues] == [0, 1]
    for each in route.message_queues:
        assert (each.broker.id, each.permission) == (0, mq.READ_WRITE)
        assert set(each.accept_message_types) == {mq.NORMAL, mq.FIFO, mq.DELAY, mq.TRANSACTION}
        assert each.broker.endpoints.scheme == mq.IPv4
        assert [f"{at.host}:{at.port}" for at in each.broker.endpoints.addresses] == [stub.address]


def test_consumers_with_heartbeats_are_members_at_the_leader_until_they_end(group, topic):
    name = topic()

    def members():
        with BrokerCalls(",".join(group.addresses), PATIENCE_S) as calls:
            listed = calls.ask(lambda stub: stub.ListGroups, pb.ListGroupsRequest())
        return next((list(each.client_ids) for each in listed.groups if each.group.name == "Gmembers"), [])

    beat = mq.HeartbeatRequest(group=resource("Gmembers"), client_type=mq.PUSH_CONSUMER)
    one, other = (RocketMQStub(group.cluster.rocketmq_endpoint_of(group.ids[n]), f"member-{n}") for n in (0, 1))
    with one, other:
        for each in (one, other):
            assert each.call("Heartbeat", beat).status.code == mq.OK
        wait_until(lambda: members() == ["member-0", "member-1"], lambda: f"two members, found {members()}")
        # Each has any queue, and every message one of them.
        ask = mq.QueryAssignmentRequest(topic=resource(name), group=resource("Gmembers"))
        for each in (one, other):
            assert [found.message_queue.id for found in each.call("QueryAssignment", ask).assignments] == [-1]
        for number in range(20):
            one.sent(message(name, f"m{number}"))
        got = [[], []]

        def consume(index, each):
            while found := each.receive(name, "Gmembers", wait_s=0, count=1):
                got[index] += [one_of.system_properties.message_id for one_of in found]

        threads = [threading.Thread(target=consume, args=pair) for pair in enumerate((one, other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sorted(got[0] + got[1]) == sorted(f"m{number}" for number in range(20))
        ended = mq.NotifyClientTerminationRequest(group=resource("Gmembers"))
        assert one.call("NotifyClientTermination", ended).status.code == mq.OK
        wait_until(lambda: members() == ["member-1"], lambda: f"one member, found {members()}")


def test_a_stream_of_settings_with_a_wrong_arm_is_a_status_for_node_and_then_an_error_of_grpc(stub):
    """A Node client that starts raises the status; without one it connects again each second, without end."""
    asked = iter([mq.TelemetryCommand(settings=mq.Settings(client_type=mq.PUSH_CONSUMER))])
    answers = stub.stub.Telemetry(asked, metadata=stub.metadata, timeout=PATIENCE_S)
    assert next(answers).status.code == mq.UNRECOGNIZED_CLIENT_TYPE
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
