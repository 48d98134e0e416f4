"""No caller makes rotation delete records of others: neither by changes, nor by lists, logins, data or refusals.

Method: calls as the gate reports them, with a clock of the test, into files that are much smaller than all lines.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cluster.api.gates.call_audit import CallAudit
from cluster.api.gates.callers import Caller
from cluster.api.rights import Scope
from cluster.audit.chain import verify_chain
from cluster.audit.log import AuditLog
from cluster.v1 import access_pb2 as access
from cluster.v1 import broker_pb2 as pb
from dledger.errors import CallRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ACCESS, BROKER = "/cluster.v1.AccessService/", "/cluster.v1.BrokerService/"
CALLS = 50_000
FILE_SIZE_BYTES, FILES = 512 << 10, 8
EVE, ADMIN = Caller("eve", "session", "ipv4:10.0.0.66:1"), Caller("admin", "session", "ipv4:10.0.0.1:1")
# Without users, and with mutual TLS: the name in the certificate.
BY_CERTIFICATE = Caller("dledger://b/user/eve", "certificate", "ipv4:10.0.0.66:1")


class Audited:
    """The audit log of a process, whose clock advances with each call."""

    def __init__(self, path: Path, step_ms: int) -> None:
        self._path = path
        self._now_ms = 0
        self._step_ms = step_ms
        self.log = AuditLog(
            path,
            "n0",
            size_bytes_max=FILE_SIZE_BYTES,
            files_max=FILES,
            is_access_recorded=True,
            clock_ms=lambda: self._now_ms,
        )
        self._calls = CallAudit(self.log, Scope("c1"))

    def delete_user(self) -> None:
        self.call("DeleteUser", access.DeleteUserRequest(name="bob"), access.AccessChangeResponse(), ADMIN)

    def call(self, method: str, request: Any, response: Any, caller: Caller = EVE) -> None:
        service = ACCESS if "User" in method or "Role" in method or method == "Explain" else BROKER
        self._now_ms += self._step_ms
        self._calls.done(service + method, request, response, caller)

    def refuse(self, number: int, caller: Caller = EVE) -> None:
        self._now_ms += self._step_ms
        refused = CallRefused(f"user 'eve' lacks Pub on Topic:t{number}", is_authenticated=True)
        request = pb.SetTopicRequest(topic=pb.Topic(name=f"t{number}"))
        self._calls.refused(BROKER + "SetTopic", request, caller, refused)

    def log_in(self, number: int, cause: str) -> None:
        self._now_ms += self._step_ms
        self._calls.login("eve", f"ipv4:10.0.0.66:{number}", cause)

    def lines(self, series: str) -> list[dict[str, Any]]:
        """Return the lines of a series, oldest first; the log is closed, and the chain of its files is checked."""
        self.log.close()
        newest = self._path / f"n0-{series}.jsonl"
        assert verify_chain(newest).faults == ()
        older = [self._path / f"n0-{series}.{number}.jsonl" for number in range(FILES - 1, 0, -1)]
        files = [path for path in (*older, newest) if path.exists()]
        return [json.loads(line) for path in files for line in path.open()]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[int], Audited]]:
    logs = []

    def make(step_ms: int) -> Audited:
        logs.append(Audited(tmp_path, step_ms))
        return logs[-1]

    yield make
    for each in logs:
        each.log.close()


def methods(lines: list[dict[str, Any]]) -> set[str]:
    return {line["method"].partition("/")[2] for line in lines}


@pytest.mark.parametrize("step_ms", [1, 200], ids=["in a minute", "in three hours"])
@pytest.mark.parametrize("caller", [EVE, BY_CERTIFICATE], ids=["user", "certificate"])
def test_changes_of_one_administrator_do_not_rotate_a_change_of_another_away(
    opened: Callable[[int], Audited], step_ms: int, caller: Caller
) -> None:
    audited = opened(step_ms)
    audited.delete_user()
    for number in range(CALLS):
        request = pb.SetTopicRequest(topic=pb.Topic(name=f"t{number}", read_queues=8, write_queues=8, permission=6))
        audited.call("SetTopic", request, pb.ChangeResponse(), caller)
    lines = audited.lines("admin")

    assert (lines[0]["user"], lines[0]["resources"]) == ("admin", ["User:bob"])
    assert len(lines) < CALLS // 7
    # Nothing is missing in the sums, also of what a stalled thread had to drop.
    assert sum(line.get("count", 1) for line in lines) == CALLS + 1


@pytest.mark.parametrize(
    ("method", "request_", "response"),
    [
        ("ListUsers", access.ListUsersRequest(), access.ListUsersResponse()),
        ("ListRoles", access.ListRolesRequest(), access.ListRolesResponse()),
        ("Explain", access.ExplainRequest(user="bob", resource="Topic:a"), access.ExplainResponse()),
    ],
)
def test_lists_of_users_and_roles_do_not_rotate_changes_away(
    opened: Callable[[int], Audited], method: str, request_: Any, response: Any
) -> None:
    audited = opened(1)
    audited.delete_user()
    for _ in range(CALLS):
        audited.call(method, request_, response)

    assert methods(audited.lines("admin")) == {"DeleteUser"}
    reads = audited.lines("access")
    assert methods(reads) == {method}
    assert sum(line.get("count", 1) for line in reads) == CALLS


def test_refusals_do_not_rotate_changes_away(opened: Callable[[int], Audited]) -> None:
    """Each of another client, so that no two are equal."""
    audited = opened(1)
    audited.delete_user()
    for number in range(CALLS):
        audited.refuse(number, Caller("", "", f"ipv4:10.1.{number >> 8}.{number & 255}:1"))

    assert methods(audited.lines("admin")) == {"DeleteUser"}
    assert sum(line.get("count", 1) for line in audited.lines("refusals")) == CALLS


@pytest.mark.parametrize("flood", ["changes", "lists", "logins", "data"])
def test_what_succeeds_does_not_rotate_refusals_away(opened: Callable[[int], Audited], flood: str) -> None:
    audited = opened(1)
    audited.refuse(1)
    audited.log_in(1, "wrong password")
    for number in range(CALLS):
        if flood == "changes":
            request = pb.SetTopicRequest(topic=pb.Topic(name=f"t{number}"))
            audited.call("SetTopic", request, pb.ChangeResponse())
        elif flood == "lists":
            audited.call("ListUsers", access.ListUsersRequest(), access.ListUsersResponse())
        elif flood == "logins":
            audited.log_in(number, "")
        else:
            audited.call("Put", pb.PutRequest(), pb.PutResponse())

    kept = [(line["kind"], line["result"]) for line in audited.lines("refusals") if line["kind"] != "lost"]
    assert kept == [("refusal", "ACCESS_DENIED"), ("login", "NOT_AUTHENTICATED")]
