"""Routes have the bytes of RocketMQ's own, all queues under one name, and aliases where a send can be repeated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.remoting.codec import encode_json
from cluster.remoting.command import RemotingCode, Request, Response
from cluster.remoting.front import Front, RemotingClient
from cluster.remoting.names.part import NameServerRole
from cluster.remoting.names.routes import RoutePlaces, cluster_of, route_of
from tests.support.brokers.front_callers import any_callers
from tests.support.waiting import run

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink

THREE = {"n0": "h:1", "n1": "h:2", "n2": "h:3"}


class _Named:
    leader_id = ""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class _NoLeader:
    async def call(self, *_: object) -> object:
        raise RequestFailed(Reason.UNKNOWN_TOPIC, "no such topic")


def part(leader: str = "n0", **topics: TopicConfig) -> tuple[Front, _Named]:
    status = _Named(leader_id=leader)
    state = _Named(topics=topics, groups={"G": None})
    options = _Named(cluster="C1", broker="b0", auto_create_topic_enable=True, default_topic_queue_nums=8)
    core = _Named(options=options, replica=_Named(state=state, status=lambda: status))
    role = NameServerRole(cast("BrokerCore", core), cast("LeaderLink", _NoLeader()), THREE)
    return Front(role.handlers(), any_callers(), "C1"), status


def ask(front: Front, code: int, **fields: str) -> Response:
    response = run(front.answer(Request(code, fields), cast("RemotingClient", _Named(peer="ipv4:127.0.0.1:1"))))
    assert isinstance(response, Response)
    return response


def test_the_route_of_one_node_has_the_captured_bytes() -> None:
    route = route_of(TopicConfig("T", 4, 4), RoutePlaces("C1", "b0", {"n0": "127.0.0.1:10911"}, "n0"))
    assert encode_json(route) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"b0","cluster":"C1",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b0","perm":6,'
        b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_each_other_node_has_a_write_only_alias_and_consumers_see_one_name() -> None:
    route = route_of(TopicConfig("T", 3, 4), RoutePlaces("C1", "b0", THREE, "n1"))
    names = {each["brokerName"]: each["brokerAddrs"] for each in route["brokerDatas"]}
    assert names == {"b0": {"0": "h:2", "1": "h:1", "2": "h:3"}, "b0-n0": {"0": "h:1"}, "b0-n2": {"0": "h:3"}}
    queues = {each["brokerName"]: (each["perm"], each["readQueueNums"]) for each in route["queueDatas"]}
    assert queues == {"b0": (6, 3), "b0-n0": (2, 0), "b0-n2": (2, 0)}
    assert {each["writeQueueNums"] for each in route["queueDatas"]} == {4}


@pytest.mark.parametrize(
    "topic",
    [TopicConfig("T", is_ordered=True), TopicConfig("%RETRY%G"), TopicConfig("%DLQ%G"), TopicConfig("T", permission=4)],
    ids=lambda topic: f"{topic.name}-{topic.permission}-{topic.is_ordered}",
)
def test_topics_whose_sends_must_keep_their_order_or_come_from_the_broker_have_no_alias(topic: TopicConfig) -> None:
    route = route_of(topic, RoutePlaces("C1", "b0", THREE, "n0"))
    assert [each["brokerName"] for each in route["brokerDatas"]] == ["b0"]
    assert ("orderTopicConf" in route) == topic.is_ordered


def test_the_list_of_brokers_has_no_aliases() -> None:
    assert cluster_of(RoutePlaces("C1", "b0", THREE, "n0")) == {
        "brokerAddrTable": {
            "b0": {
                "brokerAddrs": {"0": "h:1", "1": "h:2", "2": "h:3"},
                "brokerName": "b0",
                "cluster": "C1",
                "enableActingMaster": False,
            }
        },
        "clusterAddrTable": {"C1": ["b0"]},
    }


def test_a_route_keeps_its_bytes_until_the_leader_changes_and_while_none_is_known() -> None:
    front, status = part(T=TopicConfig("T"))
    first = ask(front, 105, topic="T").body
    status.leader_id = ""
    assert ask(front, 105, topic="T").body == first
    status.leader_id = "n2"
    changed = json.loads(ask(front, 105, topic="T").body)
    assert changed["brokerDatas"][0]["brokerAddrs"]["0"] == "h:3"


def test_topics_that_clients_and_tools_expect_have_routes_and_others_are_unknown() -> None:
    front, _ = part()
    found = json.loads(ask(front, 105, topic="TBW102").body)["queueDatas"][0]
    assert (found["perm"], found["writeQueueNums"]) == (7, 8)
    for name in ("C1", "b0", "C1_REPLY_TOPIC", "%RETRY%G", "%DLQ%G"):
        assert ask(front, 105, topic=name).code == RemotingCode.SUCCESS
    assert ask(front, 105, topic="U").code == ask(front, 105, topic="%RETRY%H").code == RemotingCode.TOPIC_NOT_EXIST
    assert ask(front, 105).code == RemotingCode.INVALID_PARAMETER


def test_lists_have_the_topics_by_which_tools_find_groups() -> None:
    front, _ = part(T=TopicConfig("T"))
    names = json.loads(ask(front, 206).body)["topicList"]
    assert names == ["%RETRY%G", "C1", "C1_REPLY_TOPIC", "T", "TBW102", "b0"]
    assert json.loads(ask(front, 224, cluster="C1").body)["topicList"] == names
    assert json.loads(ask(front, 224, cluster="C2").body)["topicList"] == []
    assert json.loads(ask(front, 304).body) == {
        "brokerAddr": "h:1",
        "topicList": ["C1", "C1_REPLY_TOPIC", "TBW102", "b0"],
    }
    assert json.loads(ask(front, 106).body)["clusterAddrTable"] == {"C1": ["b0"]}


def test_values_are_those_of_ordered_topics_and_nothing_else_can_be_kept() -> None:
    front, _ = part(T=TopicConfig("T", 4, 4, is_ordered=True), U=TopicConfig("U"))
    order = "ORDER_TOPIC_CONFIG"
    assert ask(front, 101, namespace=order, key="T").fields == {"value": "b0:4"}
    assert json.loads(ask(front, 219, namespace=order).body) == {"table": {"T": "b0:4"}}
    for namespace, key in ((order, "U"), ("x", "T")):
        assert ask(front, 101, namespace=namespace, key=key).code == RemotingCode.QUERY_NOT_FOUND
    assert ask(front, 219, namespace="x").code == RemotingCode.QUERY_NOT_FOUND
    for code in (100, 102):
        assert ask(front, code, namespace=order, key="T", value="b0:4").code == RemotingCode.SUCCESS
        assert ask(front, code, namespace="x", key="T", value="1").code == RemotingCode.ILLEGAL_OPERATION
    assert ask(front, 216, topic="T").code == RemotingCode.SUCCESS
    assert b"orderMessageEnable=true\n" in ask(front, 319).body
    for code in (205, 318, 327):
        assert ask(front, code, brokerName="b0").code == RemotingCode.ILLEGAL_OPERATION
