"""The official Go client of RocketMQ 5, unchanged, with a broker of ours; also when its leader is killed."""

import os

import pytest

from tests.interop.official.brokers_and_programs import (
    check_load_while_the_leader_is_killed,
    endpoints,
    observed,
    prepare,
    started,
    started_broker,
)


@pytest.fixture
def program():
    """Return the built program; without it the test is skipped, with a reason."""
    path = os.environ.get("DLEDGER_INTEROP_ROCKETMQ_GO")
    if not path:
        pytest.skip(os.environ.get("DLEDGER_INTEROP_ROCKETMQ_GO_MISSING") or "needs Go: `make interop` builds it")
    return path


@pytest.fixture
def group(tmp_path):
    """Return a broker of three nodes, with a topic of each type."""
    with started_broker(tmp_path / "group") as made:
        prepare(made)
        yield made


@pytest.fixture
def run(program, tmp_path):
    """Return a function that starts a scenario; the client writes its log into its folder."""

    def start(address, scenario):
        environment = {"HOME": str(tmp_path), "user.home": str(tmp_path), "PATH": os.environ["PATH"]}
        return started([program, address, scenario], environment)

    return start


def test_messages_of_all_kinds_are_sent_and_received(group, run):
    found = observed(run(endpoints(group), "kinds"))
    assert sorted(found["found"].pop("TRANSACTION")) == ["committed", "orphan"]
    assert found["found"] == {
        "NORMAL": ["normal"],
        "SQL": ["normal"],
        "FIFO": ["0", "1", "2", "3", "4"],
        "DELAY": ["delay"],
    }
    assert set(found["asked"]) == {"orphan"}
    assert found["details"] == ["A", ["k1", "k2"], "7", True, 1]
    assert found["isLate"]
    assert found["large"]


def test_messages_are_given_again_and_then_become_dead_letters(group, run):
    found = observed(run(endpoints(group), "redelivery"))
    assert found == {
        "simple": [1, 2],
        "push": [["again", 1], ["again", 2]],
        "dead": ["dead"],
        "attempts": 2,
    }


def test_what_is_refused_is_an_error_with_its_reason(group, run):
    found = observed(run(endpoints(group), "errors"))
    assert "not match with topic accept message types" in found["type"]
    assert "nothere" in found["unknown"]
    assert "4194304" in found["large"]


def test_nothing_acknowledged_is_lost_and_order_holds_when_the_leader_of_the_client_is_killed(group, run):
    found = check_load_while_the_leader_is_killed(group, run(endpoints(group, leader_first=True), "load"))
    assert found["failed"] == 0
