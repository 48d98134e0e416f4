"""Routes have the bytes of RocketMQ's own, all queues under one name, and aliases where a send can be repeated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from cluster.api.topic_calls import topic_message
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.remoting.codec import encode_json
from cluster.remoting.command import RemotingCode, Request, Response
from cluster.remoting.front import Front, RemotingClient
from cluster.remoting.names.part import NameServerRole
from cluster.remoting.names.pull_nodes import PullNodes
from cluster.remoting.names.routes import RoutePlaces, chosen, cluster_of, route_of
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.front_callers import any_callers
from tests.support.waiting import run

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.replica.port import Replica

THREE = {"n0": "h:1", "n1": "h:2", "n2": "h:3"}


class _Named:
    leader_id = gone = ""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class _Leader:
    """Knows topics of its own."""

    def __init__(self, **topics: TopicConfig) -> None:
        self.topics = topics

    async def call(self, _: object, request: pb.ListTopicsRequest, _limit_s: float) -> pb.ListTopicsResponse:
        topic = self.topics.get(request.topic)
        if topic is None:
            raise RequestFailed(Reason.UNKNOWN_TOPIC, "no such topic")
        return pb.ListTopicsResponse(topics=[topic_message(topic)])


def part(leader: str = "n0", **topics: TopicConfig) -> tuple[Front, _Named]:
    status = _Named(leader_id=leader, gone="")
    state = _Named(topics=topics, groups={"G": None})
    options = _Named(cluster="C1", broker="b0", auto_create_topic_enable=True, default_topic_queue_nums=8)
    replica = _Named(state=state, status=lambda: status, is_reachable=lambda each: each != status.gone)
    core = _Named(options=options, replica=replica)
    role = NameServerRole(cast("BrokerCore", core), cast("LeaderLink", _Leader(**topics)), THREE)
    return Front(role.handlers(), any_callers(), "C1"), status


def ask(front: Front, code: int, **fields: str) -> Response:
    response = run(front.answer(Request(code, fields), cast("RemotingClient", _Named(peer="ipv4:127.0.0.1:1"))))
    assert isinstance(response, Response)
    return response


def test_the_route_of_one_node_has_the_captured_bytes() -> None:
    route = route_of(TopicConfig("T", 4, 4), RoutePlaces("C1", "b0", {"n0": "127.0.0.1:10911"}, ["n0"]))
    assert encode_json(route) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"b0","cluster":"C1",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b0","perm":6,'
        b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_each_further_chosen_node_has_a_write_only_alias_and_consumers_see_one_name() -> None:
    route = route_of(TopicConfig("T", 3, 4), RoutePlaces("C1", "b0", THREE, ["n1", "n2"]))
    names = {each["brokerName"]: each["brokerAddrs"] for each in route["brokerDatas"]}
    assert names == {"b0": {"0": "h:2", "1": "h:1", "2": "h:2", "3": "h:3"}, "b0-n2": {"0": "h:3"}}
    queues = {each["brokerName"]: (each["perm"], each["readQueueNums"]) for each in route["queueDatas"]}
    assert queues == {"b0": (6, 3), "b0-n2": (2, 0)}
    assert {each["writeQueueNums"] for each in route["queueDatas"]} == {4}


@pytest.mark.parametrize(
    "topic",
    [TopicConfig("T", is_ordered=True), TopicConfig("%RETRY%G"), TopicConfig("%DLQ%G"), TopicConfig("T", permission=4)],
    ids=lambda topic: f"{topic.name}-{topic.permission}-{topic.is_ordered}",
)
def test_topics_whose_sends_must_keep_their_order_or_come_from_the_broker_have_no_alias(topic: TopicConfig) -> None:
    route = route_of(topic, RoutePlaces("C1", "b0", THREE, ["n0", "n1"]))
    assert [each["brokerName"] for each in route["brokerDatas"]] == ["b0"]
    assert ("orderTopicConf" in route) == topic.is_ordered


def test_the_list_of_brokers_has_no_aliases() -> None:
    assert cluster_of(RoutePlaces("C1", "b0", THREE, ["n0", "n1"])) == {
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


def names(front: Front, topic: str = "T") -> dict[str, str]:
    """Return the address under id 0 of each name in a route."""
    found = json.loads(ask(front, 105, topic=topic).body)
    return {each["brokerName"]: each["brokerAddrs"]["0"] for each in found["brokerDatas"]}


def test_the_end_of_the_leader_ends_no_address_to_which_a_client_sends() -> None:
    for leader, followers in (("n0", {"h:2", "h:3"}), ("n1", {"h:1", "h:3"}), ("n2", {"h:1", "h:2"})):
        front, _ = part(leader, T=TopicConfig("T"), O=TopicConfig("O", is_ordered=True))
        assert set(names(front).values()) == followers
        assert set(names(front, "O").values()) < followers


def test_a_route_keeps_its_bytes_until_its_first_node_leads_or_is_gone() -> None:
    front, status = part(T=TopicConfig("T"))
    first = ask(front, 105, topic="T").body
    status.leader_id = ""
    assert ask(front, 105, topic="T").body == first
    status.leader_id = "n1"
    # The node that led before is gone: the new leader takes a place, so that the number of queues stays.
    status.gone = "n0"
    assert names(front) == {"b0": "h:3", "b0-n1": "h:2"}
    status.gone = ""
    assert names(front) == {"b0": "h:3", "b0-n0": "h:1"}
    status.gone = "n2"
    assert names(front) == {"b0": "h:1", "b0-n1": "h:2"}
    # A node that returns does not get the first place again: its table of consumers is empty.
    status.gone = ""
    assert names(front) == {"b0": "h:1", "b0-n2": "h:3"}


@pytest.mark.parametrize(("count", "expected"), [(1, ["n0"]), (2, ["n1", "n0"]), (4, ["n1", "n2", "n3"])])
def test_the_leader_serves_only_where_there_would_be_less_than_two_nodes(count: int, expected: list[str]) -> None:
    ids = [f"n{number}" for number in range(count)]
    assert chosen(ids, "n0", lambda _: True, "") == expected


def test_a_choice_by_key_is_the_same_queue_whichever_nodes_are_chosen() -> None:
    ids = [f"n{number}" for number in range(5)]
    reachable = (ids[:0], ids[:3], ids)
    assert {len(chosen(ids, leader, each.__contains__, "")) for leader in ids for each in reachable} == {4}


def test_a_node_keeps_its_id_in_all_routes_while_it_can_be_reached() -> None:
    front, status = part(T=TopicConfig("T"))

    def ids() -> dict[str, str]:
        found: dict[str, str] = json.loads(ask(front, 105, topic="T").body)["brokerDatas"][0]["brokerAddrs"]
        return found

    own = {"1": "h:1", "2": "h:2", "3": "h:3"}
    assert ids() == {"0": "h:2", **own}
    status.gone = "n1"
    assert ids() == {"0": "h:3", "1": "h:1", "3": "h:3"}
    status.gone, status.leader_id = "", "n2"
    assert ids() == {"0": "h:1", **own}


@pytest.mark.parametrize(
    ("leader", "gone", "running", "stopping"),
    [("n0", "", 2, 3), ("n0", "n2", 2, 0), ("n2", "", 2, 1), ("n1", "", 0, 1), ("n1", "n0", 0, 3), ("", "", 2, 1)],
)
def test_a_follower_keeps_its_consumers_until_it_stops_and_a_leader_sends_them_away(
    leader: str, gone: str, running: int, stopping: int
) -> None:
    status = _Named(leader_id=leader, is_leading=leader == "n1")
    replica = _Named(status=lambda: status, is_reachable=lambda each: each != gone)
    nodes = PullNodes(cast("Replica", replica), "n1", THREE)
    assert (nodes.next_id(is_stopping=False), nodes.next_id(is_stopping=True)) == (running, stopping)
    for alone in ((), ("n1",), ("n0", "n2")):
        nodes = PullNodes(cast("Replica", replica), "n1", alone)
        assert nodes.next_id(is_stopping=False) == nodes.next_id(is_stopping=True) == 0


def test_tools_find_the_leader_under_id_0_of_the_list_of_brokers() -> None:
    front, _ = part("n2", T=TopicConfig("T"))
    table = json.loads(ask(front, 106).body)["brokerAddrTable"]["b0"]["brokerAddrs"]
    assert table == {"0": "h:3", "1": "h:1", "2": "h:2"}


def test_topics_that_clients_and_tools_expect_have_routes_and_others_are_unknown() -> None:
    front, _ = part()
    found = json.loads(ask(front, 105, topic="TBW102").body)["queueDatas"][0]
    assert (found["perm"], found["writeQueueNums"]) == (7, 8)
    for name in ("C1", "b0", "C1_REPLY_TOPIC", "%RETRY%G", "%DLQ%G"):
        assert ask(front, 105, topic=name).code == RemotingCode.SUCCESS
    assert ask(front, 105, topic="U").code == ask(front, 105, topic="%RETRY%H").code == RemotingCode.TOPIC_NOT_EXIST
    assert ask(front, 105).code == RemotingCode.INVALID_PARAMETER


def test_an_unknown_topic_names_what_creates_it_and_a_retry_topic_does_not() -> None:
    front, _ = part()
    unknown, retried = ask(front, 105, topic="U"), ask(front, 105, topic="%RETRY%H")
    assert unknown.remark.startswith("No topic route info in name server for the topic: U; `mqadmin updateTopic`")
    assert "auto_create_topic_enable" in unknown.remark
    assert "group does not exist" in retried.remark


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
        assert ask(front, code, namespace="x", key="T", value="1").code == RemotingCode.ILLEGAL_OPERATION
    assert ask(front, 216, topic="T").code == RemotingCode.SUCCESS
    assert b"orderMessageEnable=true\n" in ask(front, 319).body
    for code in (205, 318, 327):
        assert ask(front, code, brokerName="b0").code == RemotingCode.ILLEGAL_OPERATION


def test_a_value_is_taken_only_if_it_is_that_of_an_ordered_topic() -> None:
    front, _ = part(T=TopicConfig("T", 4, 3, is_ordered=True), U=TopicConfig("U"))

    def put(key: str, value: str) -> Response:
        return ask(front, 100, namespace="ORDER_TOPIC_CONFIG", key=key, value=value)

    assert put("T", "b0:3").code == RemotingCode.SUCCESS
    for key, value, reason in (("T", "b0:4", "'b0:3'"), ("U", "b0:8", "is not ordered")):
        refused = put(key, value)
        assert (refused.code, reason in refused.remark) == (RemotingCode.ILLEGAL_OPERATION, True)
    assert put("V", "b0:8").code == RemotingCode.TOPIC_NOT_EXIST


def test_the_value_of_an_ordered_topic_stays_and_deleting_that_of_another_one_succeeds() -> None:
    front, _ = part(T=TopicConfig("T", is_ordered=True), U=TopicConfig("U"))

    def delete(key: str) -> Response:
        return ask(front, 102, namespace="ORDER_TOPIC_CONFIG", key=key)

    assert delete("T").code == RemotingCode.ILLEGAL_OPERATION
    assert delete("U").code == delete("deleted").code == RemotingCode.SUCCESS
