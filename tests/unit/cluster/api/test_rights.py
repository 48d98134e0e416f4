"""The table of rights: every method of every service has a row, and each row asks for what the request touches."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from google.protobuf.message_factory import GetMessageClass

import cluster.v1
import dledger.v1
from cluster.access.model import ALL_ACTIONS, Action, Policy, resource_of
from cluster.access.rules import AccessRules, SubjectRules, UserRules
from cluster.api.rights import RIGHTS, Audience, Scope
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import nameserver_pb2 as names_pb
from dledger.service import grpc_server

SCOPE = Scope("c1", has_topic={"old"}.__contains__, has_group={"old"}.__contains__)
BROKER = "/cluster.v1.BrokerService/"


def methods() -> dict[str, object]:
    """Return every method of every service that the stubs, and the standard services of a server, define."""
    modules = [
        importlib.import_module(f"{package.__name__}.{each.name}")
        for package in (cluster.v1, dledger.v1)
        for each in pkgutil.iter_modules(package.__path__)
        if each.name.endswith("_pb2")
    ]
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    assert len(services) >= 4
    return {
        f"/{service.full_name}/{method.name}": method
        for service in [*services, *grpc_server._STANDARD]
        for method in service.methods
    }


def test_every_method_has_a_row_and_every_row_a_method() -> None:
    assert set(methods()) == set(RIGHTS)


def rules_of(*policies: Policy, **flags: bool) -> AccessRules:
    return AccessRules({"alice": UserRules(SubjectRules(policies), (), **flags)})


@pytest.mark.parametrize("path", sorted(RIGHTS))
def test_without_rights_only_open_methods_may_be_called(path: str) -> None:
    """An empty request: not one method grants something to a request that names nothing."""
    row, request = RIGHTS[path], GetMessageClass(methods()[path].input_type)()
    without, everything = rules_of(), rules_of(Policy(resource_of("*"), ALL_ACTIONS))
    is_open = row.audience in (Audience.PUBLIC, Audience.USER)
    # Those ask for as many rights as they name resources.
    names_nothing = path.endswith(("Route", "PlanLog"))

    assert (row.lacking("alice", request, SCOPE, without, None) is None) == (is_open or names_nothing)
    assert row.lacking("alice", request, SCOPE, rules_of(is_super=True), None) is None
    lacks_all = row.lacking("alice", request, SCOPE, everything, None)
    is_for_super = row.audience in (Audience.SUPER, Audience.NODE) or path.endswith(
        ("/ReadLog", "/QueryById", "/TransactionChecks")
    )
    assert isinstance(lacks_all, str) if is_for_super else lacks_all is None


def needs(method: str, request) -> list[str]:
    found = RIGHTS[method if method.startswith("/") else BROKER + method].needs(request, SCOPE)
    return ["super"] if found is None else [str(each) for each in found]


@pytest.mark.parametrize(
    ("method", "request_", "expected"),
    [
        ("Put", pb.PutRequest(topic="a"), ["Pub on Topic:a"]),
        ("PutStream", pb.PutRequest(topic="%RETRY%g"), ["Sub on Group:g"]),
        ("Put", pb.PutRequest(topic="%DLQ%g"), ["Pub on Topic:%DLQ%g"]),
        ("Get", pb.GetRequest(topic="a"), ["Sub on Topic:a"]),
        ("Get", pb.GetRequest(topic="%RETRY%g", group="g"), ["Sub on Group:g", "Sub on Group:g"]),
        ("Subscribe", pb.SubscribeRequest(topic="a", group="g"), ["Sub on Topic:a", "Sub on Group:g"]),
        ("QueryByKey", pb.QueryByKeyRequest(topic="a"), ["Sub or Get on Topic:a"]),
        ("QueryById", pb.QueryByIdRequest(message_id="0A", topic="a"), ["super"]),
        ("QueryById", pb.QueryByIdRequest(unique_key="k", topic="a"), ["Sub or Get on Topic:a"]),
        ("DescribeLog", pb.DescribeLogRequest(topics=["a"]), ["List on Cluster:c1", "Sub or Get on Topic:a"]),
        ("PlanLog", pb.PlanLogRequest(spans=[pb.QueueSpans(topic="a")]), ["Sub on Topic:a"]),
        ("ReadLog", pb.ReadLogRequest(topic="a"), ["Sub on Topic:a"]),
        ("ReadLog", pb.ReadLogRequest(begin_offset=0, end_offset=1), ["super"]),
        ("CommitOffset", pb.CommitOffsetRequest(group="g", topic="a"), ["Sub on Group:g", "Sub on Topic:a"]),
        ("FetchOffset", pb.FetchOffsetRequest(group="g"), ["Sub or Get on Group:g"]),
        (
            "ResetOffset",
            pb.ResetOffsetRequest(group="g", topic="a"),
            ["Update on Group:g", "Sub or Update or Get on Topic:a"],
        ),
        (
            "JoinGroup",
            pb.JoinGroupRequest(group="g", subscriptions=[pb.Subscription(topic="a"), pb.Subscription(topic="b")]),
            ["Sub on Group:g", "Sub on Topic:a", "Sub on Topic:b"],
        ),
        (
            "LockQueues",
            pb.LockQueuesRequest(group="g", queues=[pb.QueueId(topic="a")]),
            ["Sub on Group:g", "Sub on Topic:a"],
        ),
        ("ReturnMessage", pb.ReturnMessageRequest(group="g", topic="a"), ["Sub on Group:g", "Sub on Topic:a"]),
        (
            "ReturnMessage",
            pb.ReturnMessageRequest(group="g", topic="%RETRY%h"),
            ["Sub on Group:g", "Sub on Group:h"],
        ),
        ("SetTopic", pb.SetTopicRequest(topic=pb.Topic(name="new")), ["Create on Topic:new"]),
        ("SetTopic", pb.SetTopicRequest(topic=pb.Topic(name="old")), ["Update on Topic:old"]),
        ("SetTopic", pb.SetTopicRequest(topic=pb.Topic(name="old"), is_new=True), ["Create on Topic:old"]),
        ("DeleteTopic", pb.DeleteTopicRequest(topic="a"), ["Delete on Topic:a"]),
        ("ListTopics", pb.ListTopicsRequest(), ["List on Cluster:c1"]),
        ("ListTopics", pb.ListTopicsRequest(topic="a"), ["Pub or Sub or Get or List on Topic:a"]),
        ("SetGroup", pb.SetGroupRequest(group=pb.Group(name="old")), ["Update on Group:old"]),
        ("SetGroup", pb.SetGroupRequest(group=pb.Group(name="new")), ["Create on Group:new"]),
        ("DeleteGroup", pb.DeleteGroupRequest(group="g"), ["Delete on Group:g"]),
        ("ListGroups", pb.ListGroupsRequest(), ["List on Cluster:c1"]),
        ("DelayLevels", pb.DelayLevelsRequest(), ["Get on Cluster:c1"]),
        ("SetDelayLevels", pb.SetDelayLevelsRequest(), ["Update on Cluster:c1"]),
        ("ListTransactions", pb.ListTransactionsRequest(), ["Get on Cluster:c1"]),
        ("EndTransaction", pb.EndTransactionRequest(topic="a", producer_group="g"), ["Pub on Topic:a"]),
        (
            "TransactionChecks",
            pb.TransactionChecksRequest(producer_group="g", topics=["a", "b"]),
            ["Pub on Topic:a", "Pub on Topic:b"],
        ),
        ("ListGroups", pb.ListGroupsRequest(group="g"), ["Sub or Get or List on Group:g"]),
        (
            "Route",
            names_pb.RouteRequest(topics=["a", "%RETRY%g"]),
            ["Pub or Sub or Get on Topic:a", "Sub or Get on Group:g"],
        ),
    ],
)
def test_a_request_needs_rights_on_what_it_names(method: str, request_, expected: list[str]) -> None:
    assert expected == needs(method, request_)


def test_every_need_must_be_met() -> None:
    row, request = (
        RIGHTS[BROKER + "JoinGroup"],
        pb.JoinGroupRequest(group="g", subscriptions=[pb.Subscription(topic="a")]),
    )
    group, topic = (Policy(resource_of(text), Action.SUB) for text in ("Group:g", "Topic:a"))

    assert "Sub on Topic:a" == str(row.lacking("alice", request, SCOPE, rules_of(group), None))
    assert "Sub on Group:g" == str(row.lacking("alice", request, SCOPE, rules_of(topic), None))
    assert row.lacking("alice", request, SCOPE, rules_of(group, topic), None) is None


def test_methods_that_show_or_change_secrets_need_a_super_user() -> None:
    paths = {path for path, row in RIGHTS.items() if row.audience is Audience.SUPER}

    assert {f"/dledger.v1.LogService/{name}" for name in ("Append", "AppendStream", "Read")} | {
        "/dledger.v1.AdminService/AddMember"
    } <= paths
