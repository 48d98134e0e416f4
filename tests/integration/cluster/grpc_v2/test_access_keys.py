"""Clients of both protocols of RocketMQ with access keys, at each node of a broker with users."""

import json
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from cluster.access.access_keys import signature_of
from cluster.client.broker_calls import BrokerCalls
from cluster.client.login import log_in
from cluster.protocol.errors import RequestFailed
from cluster.remoting.command import RemotingCode
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.v1 import access_pb2, broker_pb2
from dledger.authentication.verifier import make_verifier
from dledger.security.settings import Plain
from tests.support.brokers.group import BrokerGroup
from tests.support.brokers.remoting_peer import RemotingPeer
from tests.support.brokers.rocketmq_stub import RocketMQStub, message, resource
from tests.support.waiting import PATIENCE_S, run, wait_until

pytestmark = pytest.mark.slow

PASSWORD = "secret-of-admin"
SECRETS = {
    "AK0": "SK-of-the-admin",
    "AK1": "SK123456",
    "AK2": "SK-of-the-reader",
    "AK3": "SK-to-be-deleted",
    "AK4": "SK-of-carol",
}


class Broker:
    """A broker of three nodes with users: `alice` may send to T and consume it as G; `bob` and `carol` only consume."""

    def __init__(self, folder):
        first = folder / "first-user"
        first.touch(mode=0o600)
        first.write_text(f"admin:{make_verifier(PASSWORD, bytes(16)).text()}\n")
        self.cluster = BrokerGroup(folder / "group", 3, has_rocketmq=True, first_user_file=str(first)).cluster
        self.addresses = ",".join(self.cluster.endpoint_of(node_id) for node_id in self.cluster.node_ids)

    def start(self):
        self.cluster.start()
        with BrokerCalls(self.addresses, PATIENCE_S) as calls:
            token = log_in(calls, "admin", PASSWORD).token
        self.security = Plain(lambda: token)
        with self.admin() as calls:
            topic = broker_pb2.Topic(name="T", read_queues=1, write_queues=1, permission=6)
            calls.ask(lambda stub: stub.SetTopic, broker_pb2.SetTopicRequest(topic=topic))
            consume = [("Topic:T", 2), ("Group:G", 2)]
            for name, policies in (("alice", [("Topic:T", 3), *consume[1:]]), ("bob", consume), ("carol", consume)):
                user = access_pb2.AccessUser(name=name)
                for text, actions in policies:
                    user.policies.add(resource=text, actions=actions, sources=["127.0.0.1/32"])
                calls.ask_access(lambda stub: stub.SetUser, access_pb2.SetUserRequest(user=user))
            # A key needs the newest feature level.
            wait_until(lambda: self.has_added(calls, "alice", "AK1"))
            assert self.has_added(calls, "admin", "AK0")
            assert self.has_added(calls, "bob", "AK2")
            assert self.has_added(calls, "carol", "AK4")
            assert self.has_added(calls, "alice", "AK3")
        for node_id in self.cluster.node_ids:
            # Followers learn of users and keys a moment later: of the newest key last.
            with self.connected(node_id, "AK3") as stub:
                ask = mq.QueryRouteRequest(topic=resource("T"))
                wait_until(lambda stub=stub, ask=ask: stub.call("QueryRoute", ask).status.code == mq.OK)

    def connected(self, node_id, access_key="", secret=None, date=None):
        """Return a connection to the front of a node, whose calls are signed with an access key."""
        stub = RocketMQStub(self.cluster.rocketmq_endpoint_of(node_id))
        text = (date or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        signature = signature_of(SECRETS.get(access_key, "") if secret is None else secret, text.encode()).hex()
        value = f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signature}"
        stub.metadata += [("authorization", value), ("x-mq-date-time", text)]
        return stub

    def lines(self, series):
        """Return the complete lines of the audit logs of all nodes."""
        folders = [self.cluster.directory_of(node_id).parent for node_id in self.cluster.node_ids]
        files = [path for folder in folders for path in folder.rglob(f"*-{series}.jsonl")]
        return [json.loads(line) for path in files for line in path.read_text().split("\n")[:-1]]

    def admin(self):
        return BrokerCalls(self.addresses, PATIENCE_S, security=self.security)

    @staticmethod
    def has_added(calls, user, name):
        request = access_pb2.AddAccessKeyRequest(user=user, id=name, secret=SECRETS[name])
        try:
            calls.ask_access(lambda stub: stub.AddAccessKey, request)
        except RequestFailed:
            return False
        return True


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """Return the broker, shared by the tests of the module."""
    made = Broker(tmp_path_factory.mktemp("keys"))
    try:
        made.start()
        yield made
    finally:
        made.cluster.stop()


@pytest.fixture(params=["n0", "n1", "n2"])
def connect(broker, request):
    """Return a function that connects to one node, and signs with an access key."""
    opened = []

    def connected(access_key="", secret=None, date=None):
        opened.append(broker.connected(request.param, access_key, secret, date))
        return opened[-1]

    yield connected
    for each in opened:
        each.__exit__()


def telemetry(stub, settings):
    """Return the commands that answer settings, and the code of the error that ends the stream; None: there is none."""
    asked = iter([mq.TelemetryCommand(settings=settings)])
    found = []
    try:
        # What came before an error stays in the list.
        found.extend(stub.stub.Telemetry(asked, metadata=stub.metadata, timeout=PATIENCE_S))
    except grpc.RpcError as error:
        return found, error.code()
    return found, None


def assert_refused(answer, code, ending):
    """Check that settings were answered by a status only, and an error."""
    (command,), error = answer
    assert (command.status.code, command.HasField("settings"), error) == (code, False, ending)


def answered_settings(answer):
    """Return the settings of an answer that is no refusal."""
    (command,), error = answer
    assert (command.status.code, error) == (mq.OK, None)
    return command.settings


def producer_settings(topic):
    return mq.Settings(client_type=mq.PRODUCER, publishing=mq.Publishing(topics=[resource(topic)]))


def consumer_settings(topic, group, kind=mq.SIMPLE_CONSUMER):
    subscription = mq.Subscription(group=resource(group), subscriptions=[mq.SubscriptionEntry(topic=resource(topic))])
    return mq.Settings(client_type=kind, subscription=subscription)


def codes(stub, topic="T", group="G"):
    """Return the codes of a client's calls."""
    route = stub.call("QueryRoute", mq.QueryRouteRequest(topic=resource(topic))).status.code
    ask = mq.QueryAssignmentRequest(topic=resource(topic), group=resource(group))
    beat = stub.call("Heartbeat", mq.HeartbeatRequest(group=resource(group), client_type=mq.SIMPLE_CONSUMER))
    found = {
        "route": route,
        "assignment": stub.call("QueryAssignment", ask).status.code,
        "heartbeat": beat.status.code,
        "send": stub.send(message(topic, "m")).status.code,
        "receive": stub.responses(topic, group)[0].status.code,
    }
    return {name: mq.Code.Name(code) for name, code in found.items()}


def test_a_user_with_the_rights_sends_and_receives_at_each_node(connect):
    alice = connect("AK1")
    alice.sent(message("T", "m"))
    found = codes(alice)
    assert found.pop("receive") in ("OK", "MESSAGE_NOT_FOUND")
    assert set(found.values()) == {"OK"}
    assert answered_settings(telemetry(alice, producer_settings("T"))).publishing.max_body_size == 4 << 20


def test_a_call_that_a_go_client_repeats_and_signs_once_more_is_served(connect):
    """The client adds the headers of each attempt to those of the one before; seconds lie between them."""
    first = connect("AK1", date=datetime.now(UTC) - timedelta(seconds=2))
    repeated = connect("AK1")
    repeated.metadata[:0] = first.metadata
    repeated.sent(message("T", "m-repeated"))


def test_what_a_user_may_not_is_forbidden(connect):
    bob = connect("AK2")
    found = codes(bob)
    assert found.pop("receive") in ("OK", "MESSAGE_NOT_FOUND")
    assert found == {"route": "OK", "assignment": "OK", "heartbeat": "OK", "send": "FORBIDDEN"}
    # No answer shows whether another topic exists.
    assert set(codes(bob, "other", "H").values()) == {"FORBIDDEN"}


def test_settings_are_answered_to_users_without_rights_so_that_clients_start_and_report_the_refusal_of_a_call(
    connect, broker
):
    """A Node client waits without end for settings, and one in Java ends with an error of another kind."""
    with broker.admin() as calls:
        group = broker_pb2.Group(name="H", is_consume_enabled=True, is_orderly=True, retry_queues=1, retry_max_times=3)
        calls.ask(lambda stub: stub.SetGroup, broker_pb2.SetGroupRequest(group=group))
    # The audit log has the first ten refusals of a user and a minute one by one: those of `bob` are of other tests.
    carol = connect("AK4")
    assert answered_settings(telemetry(carol, producer_settings("T"))).publishing.max_body_size == 4 << 20
    for topic, group in (("other", "G"), ("T", "H")):
        shown = answered_settings(telemetry(carol, consumer_settings(topic, group)))
        assert (shown.subscription.fifo, shown.backoff_policy.max_attempts) == (False, 17), "not those of the group"
    # A push consumer has no call that could report the refusal.
    answer = telemetry(carol, consumer_settings("T", "H", mq.PUSH_CONSUMER))
    assert_refused(answer, mq.FORBIDDEN, grpc.StatusCode.PERMISSION_DENIED)
    needed = {"lacks Pub on Topic:T", "lacks Sub on Topic:other", "lacks Sub on Group:H"}

    def recorded():
        lines = broker.lines("refusals")
        return {each["detail"] for each in lines if each["method"] == "MessagingService/Telemetry"}

    wait_until(lambda: needed <= recorded(), lambda: f"the refusals are recorded: {recorded()}")


@pytest.mark.parametrize("who", ["unsigned", "anonymous", "unknown", "wrong", "old"])
def test_a_client_without_a_valid_signature_is_refused(connect, who):
    old = datetime.now(UTC) - timedelta(hours=16)
    stub = {
        "unsigned": connect,
        "anonymous": connect,
        "unknown": lambda: connect("nokey", "SK123456"),
        "wrong": lambda: connect("AK1", "SK654321"),
        "old": lambda: connect("AK1", date=old),
    }[who]()
    if who == "unsigned":
        stub.metadata = stub.metadata[:3]
    answer = stub.send(message("T", "m")).status
    assert answer.code == mq.UNAUTHORIZED
    assert "SK" not in answer.message
    if who == "wrong":
        answer = telemetry(stub, producer_settings("T"))
        assert_refused(answer, mq.UNAUTHORIZED, grpc.StatusCode.UNAUTHENTICATED)


async def remoting_code(broker, node_id, access_key):
    """Return the code with which a node answers a signed send."""
    at = broker.cluster.node_ids.index(node_id)
    async with remoting(broker, access_key)[at] as peer:
        return (await peer.send("T")).code


def remoting(broker, access_key):
    """Return a client of the remoting protocol for each node."""
    return [
        RemotingPeer(each, access_key, SECRETS[access_key]) for each in broker.cluster.remoting_endpoints.split(";")
    ]


def test_each_node_forwards_what_a_client_of_the_remoting_protocol_signs_in_the_name_of_its_user(broker):
    async def scenario():
        for alice, bob in zip(remoting(broker, "AK1"), remoting(broker, "AK2"), strict=True):
            async with alice, bob:
                sent = await alice.send("T", body=b"signed")
                assert sent.code == RemotingCode.SUCCESS, sent.remark
                found = await bob.pull("T", "G", offset=sent.fields["queueOffset"])
                assert (found.code, b"signed" in found.body) == (RemotingCode.SUCCESS, True), found.remark
                refused = await bob.send("T")
                assert (refused.code, "Pub on Topic:T" in refused.remark) == (RemotingCode.NO_PERMISSION, True)

    run(scenario())

    def refusals():
        return {(each["user"], each["via"], each["method"], each["detail"]) for each in broker.lines("refusals")}

    wait_until(lambda: ("bob", "access key", "Remoting/310", "lacks Pub on Topic:T") in refusals(), "a refusal")


def test_a_change_by_the_remoting_protocol_is_recorded_with_the_user_of_its_access_key(broker):
    async def scenario():
        for number, admin in enumerate(remoting(broker, "AK0")):
            async with admin:
                made = await admin.ask(17, topic=f"made{number}", readQueueNums=1, writeQueueNums=1, perm=6)
                assert made.code == RemotingCode.SUCCESS, made.remark

    run(scenario())
    made = {("admin", "access key", "BrokerService/SetTopic", f"Topic:made{at}") for at in range(3)}

    def changes():
        return {(each["user"], each["via"], each["method"], *each["resources"]) for each in broker.lines("admin")}

    wait_until(lambda: made <= changes(), "three changes")


def test_an_access_key_is_invalid_as_soon_as_it_is_deleted_and_no_secret_is_recorded(broker):
    with broker.admin() as calls:
        request = access_pb2.DeleteAccessKeyRequest(user="alice", id="AK3")
        calls.ask_access(lambda stub: stub.DeleteAccessKey, request)
        listed = calls.ask_access(lambda stub: stub.ListUsers, access_pb2.ListUsersRequest(name="alice"))
        assert list(listed.users[0].access_keys) == ["AK1"]
        assert b"SK" not in listed.SerializeToString()
    text = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    signature = signature_of(SECRETS["AK3"], text.encode()).hex()
    for node_id in broker.cluster.node_ids:
        with RocketMQStub(broker.cluster.rocketmq_endpoint_of(node_id)) as stub:
            value = f"MQv2-HMAC-SHA1 Credential=AK3, SignedHeaders=x-mq-date-time, Signature={signature}"
            stub.metadata += [("authorization", value), ("x-mq-date-time", text)]
            assert stub.send(message("T", "m")).status.code == mq.UNAUTHORIZED
        assert run(remoting_code(broker, node_id, "AK3")) == RemotingCode.NO_PERMISSION
        log = broker.cluster.log_of(node_id).read_text()
        assert not [secret for secret in SECRETS.values() if secret in log]
        audit = b"".join(each.read_bytes() for each in broker.cluster.directory_of(node_id).parent.rglob("*audit*/*"))
        assert not [secret for secret in SECRETS.values() if secret.encode() in audit]
