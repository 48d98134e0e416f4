"""The official Java client of RocketMQ 5, unchanged, with a broker of ours; also when its leader is killed.

The oldest version that can do without TLS is 5.0.5; 5.0.0 is tested with TLS (`test_official_clients_with_keys`).
"""

import os
from pathlib import Path

import pytest

from tests.interop.official.brokers_and_programs import (
    check_load_while_the_leader_is_killed,
    endpoints,
    observed,
    prepare,
    started,
    started_broker,
)

PROGRAM = Path(__file__).with_name("official_java_client.java")
NEWEST, OLDEST_PLAIN, OLDEST = "5.2.0", "5.0.5", "5.0.0"
JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@pytest.fixture
def jars():
    """Return the folder that has the client's jars; without it the test is skipped, with a reason."""
    path = os.environ.get("DLEDGER_INTEROP_ROCKETMQ_JAVA")
    if not path:
        missing = os.environ.get("DLEDGER_INTEROP_ROCKETMQ_JAVA_MISSING")
        pytest.skip(missing or "needs Java and the package rocketmq-client-java: `make interop` installs it")
    return Path(path)


@pytest.fixture
def group(tmp_path):
    """Return a broker of three nodes, with a topic of each type."""
    with started_broker(tmp_path / "group") as made:
        prepare(made)
        yield made


@pytest.fixture
def run(jars, tmp_path):
    """Return a function that starts a scenario; the client writes its log below user.home."""

    def start(version, address, scenario, mode="plain"):
        jar = jars / f"rocketmq-client-java-{version}.jar"
        command = ["java", *JVM, f"-Duser.home={tmp_path}", "-cp", jar, PROGRAM, address, scenario, mode]
        return started(list(map(str, command)), {"HOME": str(tmp_path), "PATH": os.environ["PATH"]})

    return start


def check_kinds(found, *, can_recall):
    assert found["found"] == {
        "NORMAL": ["normal"],
        "SQL": ["normal"],
        "FIFO": ["0", "1", "2", "3", "4"],
        "DELAY": ["delay"] if can_recall else ["delay", "recalled"],
        "TRANSACTION": found["found"]["TRANSACTION"],
    }
    assert sorted(found["found"]["TRANSACTION"]) == ["committed", "orphan"]
    assert set(found["asked"]) == {"orphan"}
    assert found["details"] == ["A", ["k1", "k2"], "7", True, 1]
    assert found["isLate"]
    assert found["large"], "a body of exactly 4 MiB"


@pytest.mark.parametrize("version", [OLDEST_PLAIN, NEWEST])
def test_messages_of_all_kinds_are_sent_and_received(group, run, version):
    found = observed(run(version, endpoints(group), "kinds"))
    assert found["isRecalled"] is (version == NEWEST)
    check_kinds(found, can_recall=found["isRecalled"])


@pytest.mark.parametrize("version", [OLDEST_PLAIN, NEWEST])
def test_messages_are_given_again_to_simple_and_to_push_consumers(group, run, version):
    found = observed(run(version, endpoints(group), "redelivery"))
    assert found["simple"] == [1, 2]
    assert found["push"] == [["again", 1], ["again", 2]]
    bodies = [body for body, _ in found["fifo"]]
    for number in ("0", "1"):
        assert [body for body in dict.fromkeys(bodies) if body.startswith(number)] == sorted(
            {body for body in bodies if body.startswith(number)}
        )
    assert sorted(bodies) == ["0-0", "0-2", "0-2", "0-4", "1-1", "1-3", "1-5"]
    assert [each for each in found["fifo"] if each[0] == "0-2"] == [["0-2", 1], ["0-2", 2]]


@pytest.mark.parametrize("version", [OLDEST_PLAIN, NEWEST])
def test_a_message_becomes_a_dead_letter_after_the_attempts_of_its_group(group, run, version):
    assert observed(run(version, endpoints(group), "dead")) == {
        "NORMAL": ["dead"],
        "NORMAL attempts": 2,
        "FIFO": ["dead"],
        "FIFO attempts": 2,
    }


def test_what_is_refused_is_an_error_with_its_reason(group, run):
    found = observed(run(NEWEST, endpoints(group), "errors"))
    assert "not match with topic accept message types" in found["type"]
    assert "40402" in found["unknown"]
    assert "4194304" in found["large"]
    assert "FAILED" in found["start"]
    assert "40010" in found["filter"]
    assert "40011" in found["invisible"]


def test_nothing_acknowledged_is_lost_and_order_holds_when_the_leader_of_the_client_is_killed(group, run):
    found = check_load_while_the_leader_is_killed(group, run(NEWEST, endpoints(group, leader_first=True), "load"))
    assert found["failed"] == 0
