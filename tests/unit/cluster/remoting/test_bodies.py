"""Bodies of consumers' requests, whatever a client sends."""

import json

import pytest

from cluster.remoting.command import Rejected, RemotingCode
from cluster.remoting.consumers.bodies import heartbeat_of, object_of, queues_of

CAPTURED = (
    b'{"clientID":"ip@x","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":'
    b'"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,'
    b'"codeSet":[3552231],"expressionType":"TAG","subString":"tagA || tagB","subVersion":1795358944218,"tagsSet":'
    b'["tagA"],"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"},'
    b'{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}'
)
# In each group few, in all of them too many.
MANY = [{"groupName": f"G{group}", "subscriptionDataSet": [{"topic": "T"}] * 2_100} for group in range(2)]


def test_a_captured_heartbeat_is_read():
    found = heartbeat_of(CAPTURED)
    assert (found.client_id, found.producers) == ("ip@x", ("PG", "CLIENT_INNER_PRODUCER"))
    (consumer,) = found.consumers
    assert (consumer.group, consumer.consume_from_where) == ("G", "CONSUME_FROM_FIRST_OFFSET")
    subscription = consumer.subscriptions["T"]
    assert (subscription.expression, subscription.is_sql, subscription.version) == (
        "tagA || tagB",
        False,
        1795358944218,
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"7",
        b"{}",
        b" " * (1 << 20) + b"{}",
        json.dumps({"clientID": 7}).encode(),
        json.dumps({"clientID": "c" * 256}).encode(),
        json.dumps({"clientID": "c", "consumerDataSet": {}, "producerDataSet": "p"}).encode(),
        json.dumps({"clientID": "c", "consumerDataSet": [None]}).encode(),
        json.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "a b"}]}).encode(),
        json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "p"}] * 1_001}).encode(),
        json.dumps({"clientID": "c", "heartbeatFingerprint": 2**63}).encode(),
        json.dumps({"clientID": "c", "heartbeatFingerprint": 1.5}).encode(),
        b'{"clientID":"\\ud800"}',
        b'{"clientID":"c","consumerDataSet":[' + b"[]," * 40_000 + b"[]]}",
        json.dumps({"clientID": "c", "consumerDataSet": MANY}).encode(),
        b'{"clientID":"c","unread":[' + b"0," * 70_000 + b"0]}",
    ],
    ids=range(18),
)
def test_a_wrong_heartbeat_is_refused(body):
    with pytest.raises(Rejected) as caught:
        heartbeat_of(body)
    assert caught.value.code == RemotingCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    "queue", [None, {}, {"topic": "t", "queueId": -1}, {"topic": "t", "queueId": "1"}, {"queueId": 1}]
)
def test_wrong_queues_to_lock_are_refused(queue):
    with pytest.raises(Rejected):
        queues_of(object_of(json.dumps({"mqSet": [queue]}).encode()), 10)


def test_queues_to_lock_are_answered_without_what_else_a_client_has_sent():
    hostile = b'{"mqSet":[{"topic":"t","queueId":1,"brokerName":"b","x":' + b"[" * 900 + b"]" * 900 + b',"y":NaN}]}'
    found = queues_of(object_of(hostile), 10)
    assert found == [{"brokerName": "b", "topic": "t", "queueId": 1}]
