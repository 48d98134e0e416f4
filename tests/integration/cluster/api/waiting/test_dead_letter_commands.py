"""`dledger dlq` and `dledger group alter` against a broker process."""

import json

import grpc
import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from tests.support.waiting import PATIENCE_S, wait_until

GROUP = "billing"


@pytest.fixture
def dledger(broker):
    """Return a function that runs a command against the broker, in this process."""

    def command(*arguments, text="", code=0):
        done = CliRunner().invoke(app, [*arguments, "--broker", broker.address], input=text)
        assert done.exit_code == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return command


@pytest.fixture
def stub(broker, dledger):
    dledger("topic", "create", "orders", "--queues", "1")
    dledger("group", "create", GROUP)
    with grpc.insecure_channel(broker.address) as channel:
        yield BrokerServiceStub(channel)


def read(stub, topic, offset=0):
    return stub.Get(pb.GetRequest(topic=topic, offset=offset, max_messages=100), timeout=PATIENCE_S).columns


def fail_all(stub, topic="orders", begin=0, delay_level=-1):
    """Move the messages of a topic to the dead letters."""
    places = list(read(stub, topic, begin).physical_offsets)
    for offset, place in enumerate(places, begin):
        request = pb.ReturnMessageRequest(
            group=GROUP, topic=topic, queue_offset=offset, physical_offset=place, delay_level=delay_level
        )
        answer = stub.ReturnMessage(request, timeout=PATIENCE_S)
        assert answer.answer.code == 0, answer
    return places


def listed(dledger, *arguments):
    return list(map(json.loads, dledger("dlq", "list", GROUP, "--json", *arguments).splitlines()))


def test_dead_letters_are_listed_and_replayed_once(dledger, stub):
    assert listed(dledger) == []
    dledger("produce", "orders", "-K", ":", "--tag", "t", text="k1:a\nk2:b\nk3:c\n")
    fail_all(stub)
    rows = listed(dledger)
    first = read(stub, "orders")
    assert [(row["offset"], row["topic"], row["attempts"], row["keys"], row["is_replayed"]) for row in rows] == [
        (number, "orders", 1, [f"k{number + 1}"], False) for number in range(3)
    ]
    assert "attempts" in dledger("dlq", "list", GROUP)
    assert [row["offset"] for row in listed(dledger, "--from", "1", "--limit", "1")] == [1]

    dledger("dlq", "replay", GROUP, "--id", rows[1]["id"])
    again = read(stub, "orders", 3)
    assert (list(again.bodies), list(again.reconsume_times)) == ([b"b"], [])
    properties = dict(pair.split("\x01") for pair in again.properties[0].decode().split("\x02") if pair)
    assert properties == {
        "KEYS": "k2",
        "TAGS": "t",
        "UNIQ_KEY": rows[1]["dead_letter_id"],
        **({"DLQ_ORIGIN_UNIQ_KEY": rows[1]["unique_key"]} if rows[1]["unique_key"] else {}),
    }
    assert list(again.born_timestamps) == [first.born_timestamps[1]]

    # The second is recognised; then the offset says that nothing is left, until there is a new one.
    dledger("dlq", "replay", GROUP, "--all")
    assert list(read(stub, "orders", 4).bodies) == [b"a", b"c"]
    assert [row["is_replayed"] for row in listed(dledger)] == [True] * 3
    dledger("dlq", "replay", GROUP, "--all")
    dledger("dlq", "replay", GROUP, "--all", "--again")
    assert len(read(stub, "orders").bodies) == 6
    fail_all(stub, begin=3)
    dledger("dlq", "replay", GROUP, "--all")
    assert list(read(stub, "orders", 6).bodies) == [b"b", b"a", b"c"]


def test_only_those_of_a_topic_are_replayed(dledger, stub):
    dledger("topic", "create", "bills", "--queues", "1")
    dledger("produce", "orders", text="order\n")
    dledger("produce", "bills", text="bill\n")
    fail_all(stub)
    fail_all(stub, "bills")
    dledger("dlq", "replay", GROUP, "--all", "--topic", "bills")
    assert list(read(stub, "bills").bodies) == [b"bill", b"bill"]
    assert list(read(stub, "orders").bodies) == [b"order"]
    dledger("dlq", "replay", GROUP, "--all")
    assert list(read(stub, "bills").bodies) == [b"bill", b"bill"], "recognised"
    assert list(read(stub, "orders").bodies) == [b"order", b"order"]


def test_dead_letter_of_a_deleted_topic_is_reported_and_can_be_put_later(dledger, stub):
    dledger("produce", "orders", text="x\n")
    fail_all(stub)
    dledger("topic", "delete", "orders")
    assert "1 of topic orders" in dledger("dlq", "replay", GROUP, "--all", code=1)
    dledger("topic", "create", "orders", "--queues", "1")
    dledger("dlq", "replay", GROUP, "--all", "--again")
    wait_until(lambda: b"x" in list(read(stub, "orders", 1).bodies))


def test_wrong_use_is_explained(dledger, stub):
    assert "--all or --id" in dledger("dlq", "replay", GROUP, code=2)
    assert "--all or --id" in dledger("dlq", "replay", GROUP, "--all", "--id", "x", code=2)
    assert "no dead letter with this id" in dledger("dlq", "replay", GROUP, "--id", "x", code=1)


def test_retries_of_a_group_are_set(dledger, stub):
    dledger("group", "alter", GROUP, "--retry-max", "1", "--retry-policy", "custom:1s,10m", "--retry-queues", "2")
    (row,) = map(json.loads, dledger("group", "list", "--json").splitlines())
    found = (row["retry_max_times"], row["retry_queues"], row["retry_policy"])
    assert found == (1, 2, "customized:1000,1000,1000,600000")
    dledger("produce", "orders", text="x\n")
    fail_all(stub, delay_level=0)
    topic = stub.ListTopics(pb.ListTopicsRequest(topic="%RETRY%billing")).topics[0]
    assert topic.write_queues == 2

    dledger("group", "alter", GROUP, "--retry-policy", "levels")
    assert json.loads(dledger("group", "list", "--json"))["retry_policy"] is None
    assert "there is no group" in dledger("group", "alter", "other", "--retry-max", "1", code=1)
    assert "expected --retry-max" in dledger("group", "alter", GROUP, code=2)
    for wrong in ("custom:", "custom:1", "exponential:1s", "exponential:1s,1h,0", "linear:1s", "custom:1y"):
        assert "expected levels" in dledger("group", "alter", GROUP, "--retry-policy", wrong, code=2)


def test_dead_letter_of_a_pop_group_is_listed_and_replayed(dledger, stub):
    dledger("group", "alter", GROUP, "--retry-max", "0")
    dledger("produce", "orders", "--tag", "t", text="a\n")

    def receive():
        request = pb.ReceiveRequest(group=GROUP, topic="orders", invisible_ms=1_000, wait_ms=1_500)
        return list(stub.Receive(request, timeout=PATIENCE_S).attempts)

    assert receive() == [1]
    wait_until(lambda: receive() == [] and listed(dledger), "the dead letter")
    (row,) = listed(dledger)
    assert (row["topic"], row["attempts"], row["is_replayed"]) == ("orders", 1, False)
    dledger("dlq", "replay", GROUP, "--all")
    assert list(read(stub, "orders", 1).bodies) == [b"a"]
    assert receive() == [1], "as a new message"
    assert [each["is_replayed"] for each in listed(dledger)] == [True]
