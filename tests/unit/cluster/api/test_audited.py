"""The table of the audit log: every method of every service has a row, and each row names what a request is about."""

from __future__ import annotations

import pytest
from google.protobuf.message_factory import GetMessageClass

from cluster.api.audited import AUDITED, Recorded, resources_of
from cluster.api.rights import RIGHTS, Audience
from cluster.v1 import access_pb2
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import nameserver_pb2 as names_pb
from dledger.v1 import admin_pb2
from tests.unit.cluster.api.test_rights import SCOPE, methods

ACCESS, BROKER = "/cluster.v1.AccessService/", "/cluster.v1.BrokerService/"
# Verbs of methods that change something by a person's decision.
CHANGES = ("Set", "Delete", "Add", "Remove", "Promote", "Transfer", "Reset", "Rotate", "Unregister")


def test_every_method_has_a_row_and_every_row_a_method() -> None:
    assert set(methods()) == set(AUDITED)


@pytest.mark.parametrize("path", sorted(AUDITED))
def test_administration_is_always_recorded(path: str) -> None:
    """By the names of the methods, and by their rights: a new method in a wrong row is found."""
    name, row = path.rpartition("/")[2], AUDITED[path]

    assert (row.recorded is Recorded.LOGIN) == name.endswith("Login")
    if name.startswith(CHANGES) or (RIGHTS[path].audience is Audience.SUPER and "LogService" not in path):
        is_change = name.startswith(CHANGES)
        assert row.recorded is (Recorded.ADMIN if is_change else Recorded.ADMIN_READ)
    if RIGHTS[path].audience is Audience.PUBLIC:
        assert row.recorded in (Recorded.READ, Recorded.LOGIN)


@pytest.mark.parametrize("path", sorted(AUDITED))
def test_every_request_has_resources(path: str) -> None:
    """An empty request, so that each function of the table reads fields that exist."""
    request = GetMessageClass(methods()[path].input_type)()

    found = resources_of(path, request, SCOPE)

    assert all(":" in each for each in found if each)
    assert found or path.endswith(("Route", "PlanLog"))


@pytest.mark.parametrize(
    ("path", "request_", "expected"),
    [
        (BROKER + "SetTopic", pb.SetTopicRequest(topic=pb.Topic(name="a")), ("Topic:a",)),
        (BROKER + "ResetOffset", pb.ResetOffsetRequest(group="g", topic="a"), ("Group:g", "Topic:a")),
        (BROKER + "ReadLog", pb.ReadLogRequest(end_offset=1), ("Cluster:c1",)),
        (
            ACCESS + "SetUser",
            access_pb2.SetUserRequest(user=access_pb2.AccessUser(name="alice"), verifier="SCRAM-SHA-256$..."),
            ("User:alice",),
        ),
        (
            ACCESS + "AddToken",
            access_pb2.AddTokenRequest(user="ci", id="build", digest=b"d"),
            ("User:ci", "Token:build"),
        ),
        (
            ACCESS + "AddAccessKey",
            access_pb2.AddAccessKeyRequest(user="ci", id="ak", secret="not-in-the-record"),
            ("User:ci", "AccessKey:ak"),
        ),
        ("/dledger.v1.AdminService/RemoveMember", admin_pb2.RemoveMemberRequest(id="n2"), ("Node:n2",)),
    ],
)
def test_a_record_names_what_the_request_is_about(path: str, request_, expected: tuple[str, ...]) -> None:
    assert expected == resources_of(path, request_, SCOPE)


def test_of_many_resources_nine_are_looked_at() -> None:
    request = names_pb.RouteRequest(topics=[f"t{number}" for number in range(1_000)])

    assert len(resources_of(BROKER + "Route", request, SCOPE)) == 9
