"""The requests of RocketMQ's exporter and of its dashboard, over a socket: each is served, or refused with a reason."""

import asyncio
import contextlib
import json
from typing import NamedTuple

import pytest

from cluster.protocol.topic_config import GroupConfig
from cluster.remoting.admin.refusals import REFUSALS
from cluster.remoting.command import RemotingCode
from cluster.state.commands import SetGroup
from store.model.message_id import encode_message_id
from tests.integration.cluster.api.conftest import TOPIC, Shop, run
from tests.integration.cluster.remoting.test_access import SHOP, Port

EXPORTER = {28, 202, 203, 208, 300, 307, 315, 328}
# With those of the exporter. Both also ask for routes, lists and clusters, as every tool.
DASHBOARD = {
    *{11, 12, 17, 21, 25, 26, 29, 30, 31, 33, 100, 101, 102, 105, 106, 200, 201, 204, 205, 206, 207, 215, 216, 219},
    *{222, 224, 303, 306, 309, 316, 327, 351, 352, *range(2001, 2005), *range(3001, 3011)},
}
_OK, _FAILED, _NAME_SERVER = RemotingCode.SUCCESS, RemotingCode.SYSTEM_ERROR, 604
_PLACE = {"topic": TOPIC, "queueId": 0}
_PULL = {"consumerGroup": "G", "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "subVersion": 0}
_ORDER = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Ordered"}
_FAR = (1 << 63) - 1


class Row(NamedTuple):
    """A request, and what its answer has.

    Attributes:
        code: of the request.
        fields: of the request.
        body: of the request.
        expected: names in the JSON of the answer; for a refusal its reason.
        answer: the code of the answer.
    """

    code: int
    fields: dict = {}  # noqa: RUF012  (never changed)
    body: bytes = b""
    expected: tuple[str, ...] = ()
    answer: int = _OK


def _statistics(name, key):
    return Row(315, {"statsName": name, "statsKey": key}, expected=("statsMinute", "statsHour", "statsDay"))


def _refused(code, reason, answer=_FAILED):
    return Row(code, expected=(reason,), answer=answer)


SERVED = (
    Row(28, expected=("table",)),
    Row(202, {"topic": TOPIC}, expected=("offsetTable", "topicPutTps")),
    Row(203, {"consumerGroup": "G"}, expected=("connectionSet", "subscriptionTable", "consumeType", "messageModel")),
    Row(208, {"consumerGroup": "G"}, expected=("offsetTable", "consumeTps")),
    Row(300, {"topic": TOPIC}, expected=("groupList",)),
    Row(307, {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false"}, expected=("properties",)),
    *(_statistics(name, TOPIC) for name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")),
    *(_statistics(name, f"{TOPIC}@G") for name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS")),
    *(_statistics(name, "DefaultCluster") for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")),
    Row(328, expected=("data",)),
    Row(105, {"topic": TOPIC}, expected=("brokerDatas", "queueDatas")),
    Row(106, expected=("brokerAddrTable", "clusterAddrTable")),
    Row(206, expected=("topicList",)),
    Row(219, {"namespace": "ORDER_TOPIC_CONFIG"}, expected=("table",)),
    Row(224, {"cluster": "DefaultCluster"}, expected=("topicList",)),
    Row(21, expected=("topicConfigTable", "dataVersion")),
    Row(201, expected=("subscriptionGroupTable", "forbiddenTable", "dataVersion")),
    Row(351, {"topic": TOPIC}, expected=("topicName", "attributes", "perm")),
    Row(352, {"group": "G"}, expected=("groupName", "retryMaxTimes", "attributes")),
    Row(204, {"producerGroup": "P"}, expected=("connectionSet",)),
    Row(303, {"topic": TOPIC, "group": "G"}, expected=("consumeTimeSpanSet",)),
    Row(2003, expected=("runtimeTable", "configTable")),
    Row(222, {"topic": TOPIC, "group": "G", "timestamp": 0, "isForce": "true"}, expected=("offsetTable",)),
    Row(200, body=b'{"groupName":"New"}'),
    Row(17, {"topic": "New", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}),
    Row(26),
    Row(306),
    Row(316),
    Row(29, {**_PLACE, "timestamp": 0}),
    Row(30, _PLACE),
    Row(31, _PLACE),
    Row(11, {**_PLACE, **_PULL, "subscription": "*"}),
    Row(12, {"topic": TOPIC, "key": "k1", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": _FAR}),
    Row(101, _ORDER),
    Row(207, {"groupName": "New"}),
    Row(215, {"topic": "New"}),
    Row(216, {"topic": "New"}),
)
REFUSED = (
    Row(100, {**_ORDER, "value": "b:9"}, expected=("by its write queues",), answer=_NAME_SERVER),
    Row(102, _ORDER, expected=("updateTopic -o false",), answer=_NAME_SERVER),
    _refused(205, "change the topic's permission", _NAME_SERVER),
    _refused(327, "change the topic's permission", _NAME_SERVER),
    _refused(25, "in its file", RemotingCode.NO_PERMISSION),
    *(_refused(code, REFUSALS[code]) for code in (2001, 2002, 2004, *range(3001, 3011))),
)


@contextlib.asynccontextmanager
async def consumer_of(port, key):
    """Connect a client "c1", consumer of the group and a producer, which answers what tools ask of it."""
    consumer = {"groupName": "G", "subscriptionDataSet": [{"topic": TOPIC, "subString": "*", "subVersion": 1}]}
    data = {"clientID": "c1", "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "P"}]}
    async with port.peer(key) as client:
        assert (await client.ask(34, json.dumps(data).encode())).code == _OK
        answering = asyncio.create_task(client.answer(b'{"properties":{},"consumeResult":"CR_SUCCESS"}'))
        try:
            yield
        finally:
            answering.cancel()


def check(row, answer):
    """Check the answer to the request of a row."""
    assert (row.code, answer.code) == (row.code, row.answer), answer.remark
    if row.answer == _OK:
        missing = set(row.expected) - (json.loads(answer.body).keys() if row.expected else set())
        assert not missing, f"{row.code}: {missing}"
    else:
        (reason,) = row.expected
        assert reason in answer.remark, row.code


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_each_request_of_the_exporter_and_the_dashboard_is_served_or_refused_with_a_reason(tmp_path, is_closed):
    """At a closed broker the tool signs with the key of an administrator, and the client with that of a user."""
    port = Port(Shop(tmp_path / "store"))

    async def scenario():
        async with port.open():
            put = await port.shop.put(b"one", properties=[b"KEYS\x01k1\x02"])
            await port.change(SetGroup(GroupConfig("G"), is_new=True))
            keys = ("AK1", "AK0") if is_closed else ("", "")
            if is_closed:
                await port.close(*SHOP)
            async with consumer_of(port, keys[0]), port.peer(keys[1]) as tool:
                commit = {"consumerGroup": "G", **_PLACE, "commitOffset": 1}
                assert (await tool.ask(15, **commit)).code == _OK
                ordered = {"topic": "Ordered", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": "true"}
                assert (await tool.ask(17, **ordered)).code == _OK
                place = put.physical_offsets[0]
                message_id = encode_message_id(port.shop.replica.store_host, place)
                seen = {"consumerGroup": "G", "clientId": "c1", "topic": TOPIC, "msgId": message_id}
                rows = (*SERVED, Row(33, {"offset": place}), Row(309, seen, expected=("consumeResult",)), *REFUSED)
                assert {row.code for row in rows} == EXPORTER | DASHBOARD
                for row in rows:
                    check(row, await tool.ask(row.code, row.body, **row.fields))

    run(scenario)
