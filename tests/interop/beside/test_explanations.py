"""How answers are reduced, and what counts as explained."""

import json

import pytest

from cluster.remoting.command import Response
from tests.interop.beside.explanations import DIFFERENCES, Difference, differences, explanations, faults
from tests.interop.beside.reduced import OBJECT_KEYS, quoted, reduced

ONE = """
[[difference]]
calls = ["sends/*", "pulls/all"]
part = "field.*"
rocketmq = "1"
ours = "absent"
why = "because"
"""
SEND = Difference("sends/normal", "field.a", "1", "absent")
PULL = Difference("pulls/all", "field.b", "1", "absent")


def test_differences_that_an_explanation_covers_are_no_faults():
    assert [] == faults([SEND, PULL], explanations(ONE))


@pytest.mark.parametrize(
    "other",
    [
        SEND._replace(call="views/normal"),
        SEND._replace(part="body.a"),
        SEND._replace(rocketmq="2"),
        SEND._replace(ours="3"),
    ],
)
def test_a_difference_that_no_explanation_covers_is_a_fault(other):
    (line,) = faults([SEND, PULL, other], explanations(ONE))
    assert line.startswith(f"not explained: {other.call}: {other.part}: ")


def test_each_call_of_an_explanation_without_a_difference_is_a_fault():
    (line,) = faults([SEND], explanations(ONE))
    assert line.startswith("explains nothing: pulls/all: ")


def test_of_answers_with_different_codes_only_the_codes_differ():
    theirs = {"a": {"code": "0", "field.x": "1"}, "b": {"code": "0", "field.x": "1", "body": "{}"}}
    ours = {"a": {"code": "1"}, "b": {"code": "0", "field.x": "2", "field.y": "3"}}
    assert differences(theirs, ours) == [
        Difference("a", "code", "0", "1"),
        Difference("b", "body", "{}", "absent"),
        Difference("b", "field.x", "1", "2"),
        Difference("b", "field.y", "absent", "3"),
    ]


def test_calls_that_one_side_lacks_are_a_fault():
    with pytest.raises(AssertionError, match="record RocketMQ's answers again"):
        differences({"a": {"code": "0"}}, {"b": {"code": "0"}})


def test_each_explanation_says_why_and_no_two_are_of_the_same_calls_and_part():
    found = explanations()
    assert [each for each in found if not each.why.endswith((".", ")"))] == []
    same = [(each.calls, each.part, each.rocketmq, each.ours) for each in found]
    assert len(set(same)) == len(same), DIFFERENCES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"a":{{"q":0,"t":"x}{"}:1,{"q":1}:[2,{3:"b"}]}}',
            {"a": {'{"q":0,"t":"x}{"}': 1, '{"q":1}': [2, {"3": "b"}]}},
        ),
        ('{"a":[1,{"b":"c\\",:{"}],"d":{}}', {"a": [1, {"b": 'c",:{'}], "d": {}}),
        ("{}", {}),
    ],
)
def test_keys_that_are_objects_or_numbers_become_texts(text, expected):
    assert json.loads(quoted(text)) == expected


def test_an_answer_is_reduced_to_what_two_brokers_can_have_in_common():
    fields = {"msgId": "7F00000100002A9F0000000000000000", "queueOffset": "3", "brokerAddr": "127.0.0.1:10911"}
    body = b'{"t":{{"queueId":0,"brokerName":"b"}:{"lastTimestamp":1795358939437,"tags":["y","x"]}},"n":null}'
    assert reduced(Response(17, fields, body)) == {
        "code": "17",
        "field.msgId": "<id>",
        "field.queueOffset": "3",
        "field.brokerAddr": "<address>",
        "form": OBJECT_KEYS,
        "body.t.brokerName=b queueId=0.lastTimestamp": "<time>",
        "body.t.brokerName=b queueId=0.tags.y": "there",
        "body.t.brokerName=b queueId=0.tags.x": "there",
        "body.n": "null",
    }
    assert reduced(Response(0, {}, b"a=1\nb=2\n")) == {"code": "0", "body.a": "there", "body.b": "there"}
