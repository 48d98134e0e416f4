"""The table of causes: complete, equal on both ends, and never more certain than justified."""

from __future__ import annotations

import grpc
import pytest

from cluster.protocol.errors import CAUSES, Reason, RequestFailed, Status, failure_of, failure_of_code, reason_of_put
from cluster.protocol.route_table import (
    IllegalRegistration,
    StaleRegistration,
    TooManyBrokers,
    UnconfirmedRegistration,
    UnknownBroker,
)
from cluster.protocol.wire.answers import answer_of, check_answer, failure_of_call
from cluster.v1 import answer_pb2
from commitlog.replicated.put_outcomes import put_outcome
from dledger.errors import DLedgerError, InvariantBroken, ResponseCode, outcome_of
from dledger.pending.reads import RequestRefused
from dledger.v1.log_pb2 import LeaderHint
from store import errors as store_errors
from store.errors import Certainty
from store.model.commit_log import PutStatus

LEADER = LeaderHint(id="n1", address="127.0.0.1:20922")


def test_statuses_have_the_names_and_numbers_of_grpc() -> None:
    numbers = {code.name: code.value[0] for code in grpc.StatusCode}
    assert {each.name: each.value for each in Status} == {each.name: numbers[each.name] for each in Status}


def test_every_cause_has_its_row_and_every_failed_put_its_cause() -> None:
    assert set(CAUSES) == set(Reason)
    assert all(reason.name == reason.value for reason in Reason)
    for status in set(PutStatus) - {PutStatus.PUT_OK}:
        assert reason_of_put(status) in CAUSES


def test_no_temporary_cause_leaves_the_outcome_unknown() -> None:
    assert [] == [reason for reason, row in CAUSES.items() if row.is_retriable and row.certainty is Certainty.UNKNOWN]


@pytest.mark.parametrize("reason", list(Reason))
def test_a_failure_is_decoded_unchanged(reason: Reason) -> None:
    sent = RequestFailed(reason, "found no such thing")

    with pytest.raises(RequestFailed) as caught:
        check_answer(answer_of(sent, LEADER), "127.0.0.1:1")

    received = caught.value
    assert (received.reason, received.code, received.certainty) == (reason, sent.code, sent.certainty)
    assert received.message == "127.0.0.1:1 answered: found no such thing"
    assert received.leader == (LEADER.address if CAUSES[reason].is_retriable else "")


@pytest.mark.parametrize("code", [code for code in ResponseCode if code is not ResponseCode.SUCCESS])
def test_codes_of_the_raft_log_keep_their_certainty(code: ResponseCode) -> None:
    failure = failure_of(RequestRefused(code, "refused"))

    assert failure.message == "refused"
    assert (failure.certainty is Certainty.NOT_APPENDED) == (outcome_of(code) is Certainty.NOT_APPENDED)
    assert not (failure.is_worth_trying and outcome_of(code) is Certainty.UNKNOWN)


def test_the_outcome_of_an_unknown_code_is_unknown() -> None:
    assert failure_of_code(999, "").certainty is Certainty.UNKNOWN
    with pytest.raises(RequestFailed) as caught:
        check_answer(answer_pb2.Answer(code=8, reason="SOMETHING_NEW", message="m"))
    assert (caught.value.reason, caught.value.name, caught.value.code) == (None, "SOMETHING_NEW", 8)
    assert caught.value.certainty is Certainty.UNKNOWN
    assert not caught.value.is_worth_trying


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (store_errors.IllegalMessage("topic", "a name", "none"), Reason.ILLEGAL_MESSAGE),
        (store_errors.IllegalRequest("offset", "at least 0", "-1"), Reason.ILLEGAL_REQUEST),
        (store_errors.TooManyWaiters(5), Reason.TOO_MANY_WAITERS),
        (store_errors.StoreStopped("closed"), Reason.STORE_STOPPED),
        (store_errors.DiskFull("f", 1), Reason.DISK_FULL),
        (store_errors.StorageFailed("f", "sync", OSError(5, "I/O")), Reason.DISK_ERROR),
        (store_errors.CorruptData("f", 0, "a", "b"), Reason.CORRUPT_DATA),
        (store_errors.MissingFile("f", "g"), Reason.INTERNAL_ERROR),
        (IllegalRegistration("term", "0", "-1"), Reason.ILLEGAL_REGISTRATION),
        (StaleRegistration("b", (1, 0), (2, 0)), Reason.STALE_REGISTRATION),
        (UnconfirmedRegistration("b", "no known node answers"), Reason.REGISTRATION_UNCONFIRMED),
        (TooManyBrokers(), Reason.TOO_MANY_BROKERS),
        (UnknownBroker("b"), Reason.UNKNOWN_BROKER),
        (InvariantBroken("x"), Reason.INTERNAL_ERROR),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_exception_of_a_server_has_a_cause(error: DLedgerError | store_errors.StoreError, reason: Reason) -> None:
    assert failure_of(error).reason is reason
    assert answer_of(error, is_read=True).certainty == answer_pb2.CERTAINTY_NONE
    assert str(error) in answer_of(error).message


@pytest.mark.parametrize(
    ("code", "details", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; Connection refused", Reason.NOT_REACHED),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", Reason.ANSWER_LOST),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", Reason.ANSWER_LATE),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", Reason.UNSUPPORTED),
        (grpc.StatusCode.UNKNOWN, "what", Reason.ANSWER_LOST),
    ],
)
def test_a_broken_call_was_certainly_not_executed_only_if_no_node_was_reached(
    code: grpc.StatusCode, details: str, reason: Reason
) -> None:
    failure = failure_of_call("127.0.0.1:1", code, details, "BrokerService")

    assert failure.reason is reason
    assert (failure.certainty is Certainty.NOT_APPENDED) == (reason in (Reason.NOT_REACHED, Reason.UNSUPPORTED))


def test_a_successful_answer_raises_no_error() -> None:
    check_answer(answer_pb2.Answer())


@pytest.mark.parametrize("code", [code for code in ResponseCode if code is not ResponseCode.SUCCESS])
def test_put_is_worth_trying_again_whenever_the_append_is(code: ResponseCode) -> None:
    status, certainty = put_outcome(code)
    put = RequestFailed(reason_of_put(status), "refused", certainty=certainty)

    # Quotas are checked before the append: the log refuses none for them.
    is_by_the_log = code is not ResponseCode.OVER_QUOTA
    assert put.is_worth_trying or not (is_by_the_log and failure_of_code(code, "refused").is_worth_trying)
