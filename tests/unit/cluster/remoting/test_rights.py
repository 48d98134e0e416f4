"""The rights that requests of the remoting protocol need."""

import json

import pytest

from cluster.access.model import Action
from cluster.remoting.command import Rejected, Request
from cluster.remoting.rights import RIGHTS


def needs(code, fields=None, body=b""):
    found = RIGHTS[code](Request(code, fields or {}, body), "C")
    return sorted({f"{each.type.name}:{each.name} {shown(each.actions)}" for each in found})


def shown(actions):
    return "|".join(str(each.name) for each in Action(actions))


def body(**values):
    return json.dumps(values).encode()


QUEUES = [{"topic": "T", "brokerName": "b", "queueId": 0}, {"topic": "%RETRY%G", "brokerName": "b", "queueId": 0}]
BEAT = {
    "clientID": "c",
    "producerDataSet": [{"groupName": "P"}],
    "consumerDataSet": [
        {"groupName": "G", "subscriptionDataSet": [{"topic": "T"}, {"topic": "%RETRY%G"}]},
        {"groupName": "H", "subscriptionDataSet": [{"topic": "U"}]},
    ],
}


@pytest.mark.parametrize(
    ("code", "fields", "content", "expected"),
    [
        (10, {"topic": "T", "b": "other"}, b"", ["TOPIC:T PUB"]),
        (310, {"b": "T", "topic": "other"}, b"", ["TOPIC:T PUB"]),
        (320, {"b": "%RETRY%G"}, b"", ["GROUP:G SUB"]),
        (324, {"topic": "R", "b": "other"}, b"", ["TOPIC:R PUB"]),
        (325, {"b": "R", "topic": "other"}, b"", ["TOPIC:R PUB"]),
        (11, {"consumerGroup": "G", "topic": "T"}, b"", ["GROUP:G SUB", "TOPIC:T SUB"]),
        (361, {"consumerGroup": "G", "topic": "%RETRY%G"}, b"", ["GROUP:G SUB"]),
        (15, {"consumerGroup": "G", "topic": "T"}, b"", ["GROUP:G SUB", "TOPIC:T SUB"]),
        (34, {}, body(**BEAT), ["GROUP:G SUB", "GROUP:H SUB", "TOPIC:T SUB", "TOPIC:U SUB"]),
        (35, {"clientID": "c", "consumerGroup": "G"}, b"", ["GROUP:G SUB"]),
        (35, {"clientID": "c", "producerGroup": "P"}, b"", []),
        (36, {"group": "G", "originTopic": "T"}, b"", ["GROUP:G SUB"]),
        (41, {}, body(consumerGroup="G", mqSet=QUEUES), ["GROUP:G SUB", "TOPIC:T SUB"]),
        (42, {}, body(consumerGroup="G", mqSet=QUEUES), ["GROUP:G SUB", "TOPIC:T SUB"]),
        (105, {"topic": "T"}, b"", ["TOPIC:T PUB|SUB|GET"]),
        (303, {"topic": "T", "group": "G"}, b"", ["GROUP:G SUB|GET", "TOPIC:T SUB|GET"]),
        (345, {"topic": "T", "group": "G"}, b"", ["GROUP:G SUB|GET", "TOPIC:T SUB|GET"]),
        (208, {"consumerGroup": "G"}, b"", ["GROUP:G SUB|GET"]),
        (17, {"topic": "T"}, b"", ["TOPIC:T CREATE|UPDATE"]),
        (215, {"topic": "T"}, b"", ["TOPIC:T DELETE"]),
        (207, {"groupName": "G"}, b"", ["GROUP:G DELETE"]),
        (222, {"topic": "T", "group": "G"}, b"", ["GROUP:G UPDATE"]),
        (28, {}, b"", ["CLUSTER:C GET"]),
        (21, {}, b"", ["CLUSTER:C LIST"]),
        (318, {}, b"", ["CLUSTER:C UPDATE"]),
    ],
)
def test_a_request_needs_rights_on_what_its_handler_reads(code, fields, content, expected):
    assert needs(code, fields, content) == expected


@pytest.mark.parametrize("code", sorted(RIGHTS))
def test_a_request_without_its_fields_is_refused_or_needs_what_is_not_in_them(code):
    try:
        found = needs(code)
    except Rejected:
        return
    assert all(each.startswith("CLUSTER:C ") for each in found)
    assert found or code in (18, 35, 37, 46, 200, 225)
