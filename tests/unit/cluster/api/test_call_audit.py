"""The gate of a log of raw entries: it admits everything, and records administration with the client's certificate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cluster.api.gates.call_audit import AuditGate, CallAudit
from cluster.api.rights import Scope
from cluster.audit.log import AuditLog
from dledger.service.call_gate import EVERYTHING
from dledger.v1 import admin_pb2, log_pb2

if TYPE_CHECKING:
    from pathlib import Path

LOG, ADMIN = "/dledger.v1.LogService/", "/dledger.v1.AdminService/"


class Call:
    """What a gate reads of a call."""

    def __init__(self, *names: bytes) -> None:
        self._names = names

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        return {"x509_subject_alternative_name": self._names, "peer_uri": self._names}

    def peer(self) -> str:
        return "ipv6:[fd00::1]:40000"


def test_administration_of_raw_entries_is_recorded(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, "n0")
    gate = AuditGate(CallAudit(log, Scope("g0")))
    for call in (Call(), Call(b"dledger://g0/user/alice")):
        rights = gate.admit(ADMIN + "RemoveMember", call)  # type: ignore[arg-type]
        request = admin_pb2.RemoveMemberRequest(id="n2")
        rights.check(request)
        rights.done(request, admin_pb2.AdminResponse(code=200))
        rights.done(request, admin_pb2.AdminResponse(code=404))
    log.close()

    lines = [json.loads(line) for line in (tmp_path / "n0-admin.jsonl").open()]
    assert [(each["user"], each["via"], each["resources"], each["result"]) for each in lines] == [
        ("", "", ["Node:n2"], "OK"),
        ("", "", ["Node:n2"], "NOT_LEADER"),
        ("dledger://g0/user/alice", "certificate", ["Node:n2"], "OK"),
        ("dledger://g0/user/alice", "certificate", ["Node:n2"], "NOT_LEADER"),
    ]
    assert {each["address"] for each in lines} == {"fd00::1"}


def test_appends_cost_nothing_unless_they_are_recorded(tmp_path: Path) -> None:
    with_access = AuditLog(tmp_path / "all", "n0", is_access_recorded=True)
    without = AuditLog(tmp_path / "admin", "n0")
    path, call = LOG + "Append", Call()

    assert AuditGate(CallAudit(without, Scope("g0"))).admit(path, call) is EVERYTHING  # type: ignore[arg-type]
    rights = AuditGate(CallAudit(with_access, Scope("g0"))).admit(path, call)  # type: ignore[arg-type]
    rights.admitted(log_pb2.AppendRequest(group="g0"))
    without.close()
    with_access.close()

    (line,) = (json.loads(each) for each in (tmp_path / "all/n0-access.jsonl").open())
    assert (line["method"], line["resources"], line["result"]) == ("LogService/Append", ["Cluster:g0"], "ADMITTED")
