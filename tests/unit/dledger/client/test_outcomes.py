"""The outcome of an append by answer or failure; the messages name what to do."""

from __future__ import annotations

import subprocess
import sys

import grpc
import pytest

from dledger.client import AppendUnknown, NotAppended, ReadFailed
from dledger.client.endpoints import refusal_without_leader
from dledger.client.failures import answer_of_failure, describe, failure_of_append, never_left
from dledger.client.limits import REQUEST_ENTRIES_MAX, REQUEST_SIZE_BYTES_MAX, check_bodies
from dledger.client.outcomes import Appended, Refused, name_of, places_of, raise_outcome
from dledger.client.retry import Backoff, is_worth_trying
from dledger.entries.format.entry import MAX_BODY_BYTES
from dledger.errors import AccessUnknown, Overloaded, OverQuota, RepeatLater, ResponseCode, outcome_of
from dledger.frames.codec import NOT_BEGUN
from dledger.v1.log_pb2 import AppendResponse
from store.errors import Certainty

REFUSED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Connection refused"


def test_importing_a_part_of_the_log_does_not_load_grpc() -> None:
    code = "import sys, dledger.core.raft, dledger.entries.format.entry; sys.exit('grpc' in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_names_of_the_client_come_from_the_package() -> None:
    import dledger

    for name in dledger.__all__:
        assert getattr(dledger, name) is getattr(sys.modules["dledger.client"], name)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = dledger.nonsense


@pytest.mark.parametrize("code", list(ResponseCode))
def test_every_code_ends_as_the_outcome_that_the_table_says(code: ResponseCode) -> None:
    response = AppendResponse(code=code, message="why")

    if outcome_of(code) is Certainty.APPENDED:
        raise_outcome(response, "node")
    else:
        expected = Refused if outcome_of(code) is Certainty.NOT_APPENDED else AppendUnknown
        with pytest.raises(expected, match="node answered: why"):
            raise_outcome(response, "node")


def test_code_of_a_newer_server_leaves_the_outcome_open() -> None:
    with pytest.raises(AppendUnknown) as caught:
        raise_outcome(AppendResponse(code=999), "node")

    assert 999 == caught.value.code
    assert "999" == name_of(999)


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, REFUSED, Refused),
        (grpc.StatusCode.UNAVAILABLE, "errors resolving no.such.host: not found", Refused),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", Refused),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", AppendUnknown),
        (grpc.StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer", AppendUnknown),
        (grpc.StatusCode.UNAVAILABLE, "", AppendUnknown),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", AppendUnknown),
        (grpc.StatusCode.CANCELLED, "", AppendUnknown),
        (grpc.StatusCode.INTERNAL, REFUSED, AppendUnknown),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", AppendUnknown),
    ],
)
def test_failed_call_is_not_appended_only_if_it_was_provably_not_sent(
    code: grpc.StatusCode, details: str, expected: type[Exception]
) -> None:
    assert isinstance(failure_of_append("node", code, details), expected)


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "user alice: lacks Pub", ResponseCode.ACCESS_DENIED),
        (grpc.StatusCode.UNAUTHENTICATED, "expected a certificate", ResponseCode.NOT_AUTHENTICATED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, str(OverQuota("address 10.0.0.1", 0.5)), ResponseCode.OVER_QUOTA),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            str(Overloaded("address 10.0.0.1", "the 1024 calls", 0.5)),
            ResponseCode.LEADER_PENDING_FULL,
        ),
    ],
)
def test_request_that_a_gate_refuses_is_not_appended_and_has_a_code(
    code: grpc.StatusCode, details: str, expected: ResponseCode
) -> None:
    outcome = failure_of_append("node", code, details)

    assert isinstance(outcome, Refused)
    assert expected is outcome.code
    assert details in outcome.message


@pytest.mark.parametrize(
    "refused", [OverQuota("address a", 0.5), Overloaded("address a", "the 1024 calls", 0.5)], ids=["quota", "share"]
)
def test_temporary_refusals_have_a_code_that_is_retried(refused: RepeatLater) -> None:
    assert is_worth_trying(Refused(refused.code, str(refused)))


def test_resources_that_are_exhausted_without_a_quota_leave_the_outcome_open() -> None:
    lost = failure_of_append("node", grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max")

    assert isinstance(lost, AppendUnknown)


def test_node_that_refuses_the_client_is_not_asked_again() -> None:
    answer = answer_of_failure("node", grpc.StatusCode.PERMISSION_DENIED, "node n0 of group b: expected group a")
    refusal = refusal_without_leader({"node": answer, "other": "other did not answer in time"})

    assert (ResponseCode.ACCESS_DENIED, False) == (refusal.code, is_worth_trying(refusal))
    assert "expected group a" in refusal.message
    assert isinstance(answer_of_failure("node", grpc.StatusCode.UNAVAILABLE, REFUSED), str)


def test_unreachable_node_is_reported_in_plain_words() -> None:
    assert "node is not reachable (Connection refused)" == describe("node", grpc.StatusCode.UNAVAILABLE, REFUSED)


@pytest.mark.parametrize("text", [NOT_BEGUN, f"{AccessUnknown.PREFIX}user ann"])
def test_node_that_did_not_begin_the_call_is_not_called_unreachable(text: str) -> None:
    assert f"node: UNAVAILABLE {text}" == describe("node", grpc.StatusCode.UNAVAILABLE, text)
    assert never_left(grpc.StatusCode.UNAVAILABLE, text)


@pytest.mark.parametrize("code", list(ResponseCode))
def test_only_temporary_refusals_are_retried(code: ResponseCode) -> None:
    retriable = {302, 404, 442, 501, 503, 505, 506}

    assert (code in retriable) is is_worth_trying(Refused(code, ""))
    assert not is_worth_trying(AppendUnknown(code, ""))


def test_outcomes_state_what_to_do() -> None:
    assert "404 NOT_LEADER" in str(NotAppended(404, "why"))
    assert "appending again is safe" in str(NotAppended(404, "why"))
    assert "read its end before appending again" in str(AppendUnknown(502, "why"))
    assert "resume with begin=7" in str(ReadFailed(302, "why", 7))


def test_positions_of_a_batch_are_consecutive() -> None:
    assert [Appended(5, 2, 100), Appended(6, 2, 150)] == places_of(5, 2, [100, 150])


@pytest.mark.parametrize(
    ("bodies", "code", "text"),
    [
        ([], 420, "no bodies"),
        ([bytes(MAX_BODY_BYTES + 1)], 411, "body 0 has"),
        ([b""] * (REQUEST_ENTRIES_MAX + 1), 411, "split them up"),
        ([bytes(MAX_BODY_BYTES)] * (REQUEST_SIZE_BYTES_MAX // MAX_BODY_BYTES + 1), 411, "split them up"),
    ],
)
def test_request_that_no_node_accepts_is_refused_before_it_is_sent(bodies: list[bytes], code: int, text: str) -> None:
    with pytest.raises(NotAppended, match=text) as caught:
        check_bodies(bodies)

    assert code == caught.value.code


def test_body_that_is_not_bytes_is_a_fault_of_the_program() -> None:
    with pytest.raises(TypeError, match="body 1 is str, expected bytes"):
        check_bodies([b"a", "b"])  # type: ignore[list-item]


def test_pauses_grow_and_are_reset_by_a_success() -> None:
    backoff = Backoff()
    pauses = [backoff.next_s() for _ in range(12)]
    backoff.reset()

    assert pauses[0] < 0.04 < pauses[-1] <= 0.12
    assert backoff.next_s() < 0.04


def test_call_of_a_caller_that_a_node_does_not_know_yet_may_be_repeated_elsewhere() -> None:
    details = str(AccessUnknown("expected a token that exists"))

    outcome = failure_of_append("h:1", grpc.StatusCode.UNAVAILABLE, details)

    assert isinstance(outcome, Refused)
    assert never_left(grpc.StatusCode.UNAVAILABLE, details)
    assert not never_left(grpc.StatusCode.UNAVAILABLE, "Socket closed")
    assert str(outcome).endswith(f"h:1: UNAVAILABLE {details}")
