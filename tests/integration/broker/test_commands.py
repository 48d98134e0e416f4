"""The commands for messages against a broker process: what a person types, and what comes."""

import json
import subprocess
import sys

import pytest


@pytest.fixture
def dledger(broker):
    """Return what runs a command against the broker."""

    def run(*arguments, text="", code=0):
        command = [sys.executable, "-m", "cluster.cli", *arguments, "--broker", broker.address]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


def test_lines_go_into_a_topic_and_come_out_again(dledger):
    dledger("topic", "create", "orders", "--queues", "1")
    assert "orders" in dledger("topic", "list")
    dledger("produce", "orders", "--tag", "paid", "--key", "o-1 o-2", text="one\ntwo\n")
    dledger("produce", "orders", text="three\n")

    assert dledger("consume", "orders") == "one\ntwo\nthree\n"
    assert dledger("consume", "orders", "--tag", "paid") == "one\ntwo\n"
    assert dledger("consume", "orders", "--from", "end") == ""
    assert dledger("consume", "orders", "--follow", "--limit", "2") == "one\ntwo\n"

    found = [json.loads(line) for line in dledger("query", "key", "orders", "o-2").splitlines()]
    assert [each["body"] for each in found] == ["two", "one"]
    first = found[-1]
    assert json.loads(dledger("query", "id", first["msgId"]))["body"] == "one"
    assert json.loads(dledger("query", "id", first["uniqKey"], "--topic", "orders")) == first
    by_time = dledger("query", "time", "orders", f"@{first['storeTimestamp']}", "--format", "text")
    assert by_time == "one\ntwo\nthree\n"

    dledger("topic", "delete", "orders")
    assert "no topic 'orders'" in dledger("consume", "orders", code=1)


def test_a_group_goes_on_where_it_was_until_it_is_reset(dledger):
    dledger("topic", "create", "orders", "--queues", "2")
    dledger("produce", "orders", "--queue", "0", text="a\nb\nc\n")
    dledger("produce", "orders", "--queue", "1", text="d\n")

    assert dledger("consume", "orders", "--group", "billing", "--limit", "2") == "a\nb\n"
    assert dledger("consume", "orders", "--group", "billing") == "c\nd\n"
    assert dledger("consume", "orders", "--group", "billing") == ""
    assert "billing" in dledger("group", "list")
    rows = [line.split() for line in dledger("offsets", "orders", "--group", "billing").splitlines()]
    assert [row[-2:] for row in rows if row and row[0] in "01"] == [["3", "0"], ["1", "0"]]
    dledger("group", "reset", "billing", "orders", "--to", "begin")
    assert dledger("consume", "orders", "--group", "billing") == "a\nb\nc\nd\n"
    dledger("group", "delete", "billing")


def test_what_is_wrong_is_said_with_what_to_do_next(dledger, broker):
    assert "dledger topic create orders" in dledger("produce", "orders", text="x\n", code=1)
    assert "expected begin, end or a time" in dledger("group", "reset", "g", "t", "--to", "5", code=2)
    assert "expected rw, r or w" in dledger("topic", "create", "t", "--permission", "x", code=2)
    broker.kill()
    assert "Is the broker running?" in dledger("topic", "list", code=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--set", "mapped_file_sise=1"], "did you mean mapped_file_size"),
        (["--set", "dedupe_window_count=x"], "expected a whole number"),
        (["--listen", "nowhere"], "--listen"),
        (["--flush", "never"], "expected sync or async"),
    ],
)
def test_a_broker_that_is_called_wrongly_says_so(tmp_path, arguments, text):
    command = [sys.executable, "-m", "cluster.cli", "broker", "--standalone", str(tmp_path / "s"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert text in done.stderr
    assert not (tmp_path / "s").exists()
