"""One request to change a group over several attempts: temporary errors are retried, others are raised."""

from __future__ import annotations

import grpc
import pytest

from dledger.client.administration import AdminFailed, AdminSession, add_request
from dledger.client.outcomes import Refused
from dledger.client.retry import LAST_TRY_S
from dledger.errors import ResponseCode
from dledger.v1.admin_pb2 import AdminResponse, PromoteMemberRequest, RemoveMemberRequest

LOST = (grpc.StatusCode.UNAVAILABLE, "Socket closed")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def session(request: object = None, clock: Clock | None = None) -> AdminSession:
    return AdminSession(request or RemoveMemberRequest(id="n2"), patience_s=10.0, now_s=clock or Clock())


def refusal_of(session: AdminSession, code: int, message: str = "why") -> Refused:
    with pytest.raises(Refused) as refused:
        session.take(AdminResponse(code=code, message=message), "a:1")
    return refused.value


def test_success_is_returned_and_the_method_has_the_name_of_the_request() -> None:
    session().take(AdminResponse(code=200), "a:1")
    assert session().method == "RemoveMember"
    assert session(PromoteMemberRequest()).method == "PromoteMember"


@pytest.mark.parametrize("code", [302, 404, 412, 417, 500, 502, 505, 506])
def test_temporary_refusals_are_retried_until_the_deadline(code: int) -> None:
    clock = Clock()
    asked = session(clock=clock)
    assert 0 < asked.pause_after(refusal_of(asked, code)) < 1
    clock.now += 9.99
    assert asked.timeout_s() == pytest.approx(0.01)
    with pytest.raises(AdminFailed, match=r"why \(tried for 10 s\)") as failed:
        asked.pause_after(refusal_of(asked, code))
    assert failed.value.code == code


def test_no_attempt_starts_when_too_little_time_is_left() -> None:
    clock = Clock()
    asked = session(clock=clock)
    clock.now += 10.0 - LAST_TRY_S
    with pytest.raises(AdminFailed, match=r"a:1 answered: why \(tried for 10 s\)"):
        asked.pause_after(refusal_of(asked, ResponseCode.NETWORK_ERROR))


def test_last_attempt_without_an_answer_hides_no_earlier_answer() -> None:
    clock = Clock()
    asked = session(clock=clock)
    asked.pause_after(refusal_of(asked, ResponseCode.NETWORK_ERROR, "n2 does not answer"))
    clock.now += 10.0
    with pytest.raises(AdminFailed, match=r"before that a:1 answered: n2 does not answer \(tried for 10 s\)"):
        asked.pause_after(asked.broke("a:1", grpc.StatusCode.DEADLINE_EXCEEDED, ""))


@pytest.mark.parametrize("code", [400, 401, 402, 406, 411, 418, 999])
def test_permanent_refusals_are_reported_at_once(code: int) -> None:
    asked = session()
    with pytest.raises(AdminFailed, match="a:1 answered: why") as failed:
        asked.pause_after(refusal_of(asked, code))
    assert failed.value.code == code


def test_missing_member_after_an_unanswered_attempt_counts_as_removed_by_it() -> None:
    asked = session()
    refusal_of(asked, ResponseCode.UNKNOWN_MEMBER)
    asked.pause_after(asked.broke("a:1", *LOST))
    asked.take(AdminResponse(code=401, message="n2 is no member"), "b:1")

    never_sent = session()
    never_sent.broke("a:1", grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; Connection refused")
    refusal_of(never_sent, ResponseCode.UNKNOWN_MEMBER)

    promoted = session(PromoteMemberRequest(id="n2"))
    promoted.broke("a:1", *LOST)
    refusal_of(promoted, ResponseCode.UNKNOWN_MEMBER)


def test_answer_of_unknown_outcome_counts_as_no_answer() -> None:
    asked = session()
    refusal_of(asked, ResponseCode.WAIT_QUORUM_ACK_TIMEOUT)
    asked.take(AdminResponse(code=401), "b:1")


def test_node_without_the_service_is_named() -> None:
    refused = session().broke("a:1", grpc.StatusCode.UNIMPLEMENTED, "")
    assert "has no AdminService" in refused.message


@pytest.mark.parametrize(("member_id", "address"), [("../n3", "h:1"), ("", "h:1"), ("n3", "h"), ("n3", "h:0")])
def test_bad_arguments_are_reported_before_any_node_is_asked(member_id: str, address: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        add_request("g", member_id, address)
