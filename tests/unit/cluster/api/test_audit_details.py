"""What a record says of a change: enough to repeat it, printable, bounded, and without a secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from google.protobuf.message_factory import GetMessageClass

from cluster.api.audited import AUDITED, Recorded, detail_of
from cluster.api.gates.call_audit import CallAudit
from cluster.api.gates.callers import Caller
from cluster.api.rights import Scope
from cluster.audit.log import AuditLog
from cluster.audit.record import TEXT_LENGTH_MAX
from cluster.v1 import access_pb2 as access
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import nameserver_pb2 as names
from dledger.authentication.verifier import make_verifier
from dledger.v1 import admin_pb2
from tests.unit.cluster.api.test_rights import methods

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message

ACCESS, BROKER, NAMES = "/cluster.v1.AccessService/", "/cluster.v1.BrokerService/", "/cluster.v1.NameServer/"
CHANGES = sorted(path for path, row in AUDITED.items() if row.recorded in (Recorded.ADMIN, Recorded.BINDING))
# Of requests of changes: the names of what they are about, secrets, and what only prevents races.
NO_DETAIL = {
    "secret",
    "name",
    "user",
    "id",
    "group",
    "topic",
    "broker",
    "leader_id",
    "digest",
    "access_version",
    "life",
}
ALICE = access.AccessUser(
    name="alice",
    is_super=True,
    roles=["readers"],
    policies=[
        access.AccessPolicy(resource="Topic:*", actions=127),
        access.AccessPolicy(resource="Group:billing-*", actions=3, is_denied=True, sources=["10.1.0.0/16"]),
        access.AccessPolicy(resource="nonsense", actions=999),
    ],
)


@pytest.mark.parametrize(
    ("path", "request_", "expected"),
    [
        (
            ACCESS + "SetUser",
            access.SetUserRequest(user=ALICE, verifier="SCRAM-SHA-256$...", is_new=True),
            (
                "super, password set, new, 1 roles: readers, 3 policies: allow All on Topic:*; "
                "deny Pub,Sub on Group:billing-* from 10.1.0.0/16; allow actions=999 on nonsense"
            ),
        ),
        (
            ACCESS + "SetUser",
            access.SetUserRequest(user=access.AccessUser(is_disabled=True), is_password_removed=True),
            "disabled, password removed, no policies",
        ),
        (
            ACCESS + "SetRole",
            access.SetRoleRequest(role=access.AccessRole(name="r", policies=ALICE.policies[:1])),
            "1 policies: allow All on Topic:*",
        ),
        (ACCESS + "AddToken", access.AddTokenRequest(user="ci", id="t", digest=b"d"), "does not expire"),
        (ACCESS + "AddToken", access.AddTokenRequest(user="ci", id="t", expires_s=1_700), "expires_s=1700"),
        (
            BROKER + "SetTopic",
            pb.SetTopicRequest(
                topic=pb.Topic(name="a", read_queues=8, write_queues=4, permission=6, attributes={"+kind": "FIFO"}),
                is_new=True,
            ),
            "new, read_queues=8, write_queues=4, permission=6, 1 attributes: +kind=FIFO",
        ),
        (
            BROKER + "SetGroup",
            pb.SetGroupRequest(group=pb.Group(name="g", is_consume_enabled=True, retry_queues=1, sys_flag=3)),
            "consumes, retry_queues=1, retry_max_times=0, consume_timeout_minutes=0, sys_flag=3",
        ),
        (BROKER + "SetDelayLevels", pb.SetDelayLevelsRequest(delay_ms=[1_000, 90_000]), "2 levels: 1000; 90000"),
        (BROKER + "SetDelayLevels", pb.SetDelayLevelsRequest(), "default levels"),
        (
            BROKER + "ResetOffset",
            pb.ResetOffsetRequest(group="g", topic="a", queue_ids=[0, 7], offsets=[100, 5]),
            "2 queues: 0=100; 7=5",
        ),
        (
            "/dledger.v1.AdminService/AddMember",
            admin_pb2.AddMemberRequest(id="n3", address="10.0.0.9:20911"),
            "address=10.0.0.9:20911",
        ),
        (
            NAMES + "Register",
            names.RegisterRequest(
                broker="b", term=3, leader_id="n0", nodes=[names.BrokerNode(id="n0", address="10.0.0.1:20921")]
            ),
            "term=3, 0 topics, 1 nodes: n0=10.0.0.1:20921",
        ),
        (NAMES + "SetWritable", names.SetWritableRequest(broker="b"), "not writable"),
        (BROKER + "DeleteTopic", pb.DeleteTopicRequest(topic="a"), ""),
    ],
)
def test_a_record_says_what_a_change_sets(path: str, request_: Message, expected: str) -> None:
    assert detail_of(path, request_) == expected


@pytest.mark.parametrize("path", CHANGES)
def test_every_change_with_more_than_a_name_has_a_detail(path: str) -> None:
    """By the fields of the requests: a new method, whose row has none, is found."""
    fields = set(methods()[path].input_type.fields_by_name)  # type: ignore[attr-defined]

    assert bool(fields - NO_DETAIL) <= (AUDITED[path].detail is not None)


@pytest.mark.parametrize("path", [path for path in CHANGES if AUDITED[path].detail is not None])
def test_a_detail_is_printable_and_bounded(path: str) -> None:
    """Every field of text has hundreds of hostile characters, and every list a thousand items."""
    request = GetMessageClass(methods()[path].input_type)()  # type: ignore[attr-defined]
    _fill(request, "x\n\x1b[2J\u2028é" * 100)

    detail = detail_of(path, request)

    assert 0 < len(detail) <= TEXT_LENGTH_MAX
    assert detail.isascii()
    assert detail.isprintable()


def _fill(message: Message, text: str) -> None:
    """Set the fields of text, lists and messages of a request, at every depth."""
    for field in message.DESCRIPTOR.fields:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            getattr(message, field.name)[text] = text
        elif inner is not None:
            value = getattr(message, field.name)
            number = 1_000 if "." not in message.DESCRIPTOR.full_name.removeprefix("cluster.v1.") else 1
            for each in [value.add() for _ in range(number)] if field.is_repeated else [value]:
                _fill(each, text)
        elif field.type == field.TYPE_STRING and field.is_repeated:
            getattr(message, field.name).extend([text] * 10)
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, text)
        elif field.is_repeated:
            getattr(message, field.name).extend(range(1_000))


def test_no_secret_of_a_request_is_in_its_line(tmp_path: Path) -> None:
    """The verifier of a password, and the digest of a token, as they are sent."""
    verifier = make_verifier("correct horse", b"salt-of-16-bytes").text()
    log = AuditLog(tmp_path, "n0")
    audit, caller = CallAudit(log, Scope("c1")), Caller("admin", "session", "ipv4:10.0.0.1:1")
    request = access.SetUserRequest(user=ALICE, verifier=verifier)
    audit.done(ACCESS + "SetUser", request, access.AccessChangeResponse(), caller)
    token = access.AddTokenRequest(user="alice", id="t", digest=b"digest-of-the-token")
    audit.done(ACCESS + "AddToken", token, None, caller)
    log.close()

    text = (tmp_path / "n0-admin.jsonl").read_text()
    first, second = map(json.loads, text.splitlines())
    assert first["detail"].startswith("super, password set, 1 roles: readers, 3 policies: allow All on Topic:*")
    assert (second["detail"], second["result"]) == ("does not expire", "UNKNOWN")
    _, _, salt, stored_key, server_key = verifier.replace(":", "$").split("$")
    for secret in ("digest", "SCRAM", salt, stored_key, server_key):
        assert secret not in text
