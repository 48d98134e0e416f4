"""The commands for messages against a broker process."""

import json
import os
import signal
import subprocess
import sys
import threading

import grpc
import pytest
from typer.testing import CliRunner

from cluster import Consumer, Producer
from cluster.cli.app import app
from cluster.local.node import choose_ports
from cluster.protocol.errors import RequestFailed
from cluster.state.commands import QueueOffset
from cluster.state.rocketmq_config import import_config
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from tests.support.waiting import PATIENCE_S, wait_until

GROUPS_OF_COMMANDS = ("topic", "group", "query", "delay", "transaction")
# Commands, by name and exit code, that ran as a process already.
RAN_AS_PROCESSES = set()


@pytest.fixture
def dledger(broker):
    """Return a function that runs a command against the broker: the first one as a process, others in this process.

    The start of a process takes many times as long as most commands.
    """

    def run(*arguments, text="", code=0):
        command = [*arguments, "--broker", broker.address]
        kind = (*arguments[: 2 if arguments[0] in GROUPS_OF_COMMANDS else 1], code)
        is_first = kind not in RAN_AS_PROCESSES
        RAN_AS_PROCESSES.add(kind)
        exit_code, stdout, stderr = run_process(command, text) if is_first else run_here(command, text)
        assert exit_code == code, stderr
        return stdout if code == 0 else stderr

    return run


def run_process(arguments, text):
    command = [sys.executable, "-m", "cluster.cli", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def run_here(arguments, text):
    done = CliRunner().invoke(app, arguments, input=text)
    return done.exit_code, done.stdout, done.stderr


def test_lines_are_produced_to_a_topic_and_consumed(dledger):
    dledger("topic", "create", "orders", "--queues", "1")
    assert "orders" in dledger("topic", "list")
    dledger("produce", "orders", "--tag", "paid", "--key", "o-1 o-2", text="one\ntwo\n")
    dledger("produce", "orders", text="three\n")

    assert dledger("consume", "orders") == "one\ntwo\nthree\n"
    assert dledger("consume", "orders", "--tag", "paid") == "one\ntwo\n"
    dledger("produce", "orders", "--header", "amount=120", text="four\n")
    assert dledger("consume", "orders", "--sql", "amount > 100 OR TAGS IS NULL") == "three\nfour\n"
    assert dledger("consume", "orders", "--sql", "amount > 100 AND TAGS IS NULL") == "four\n"
    assert dledger("consume", "orders", "--from", "end") == ""
    assert dledger("consume", "orders", "--follow", "--limit", "2") == "one\ntwo\n"
    assert "at character 8" in dledger("consume", "orders", "--sql", "amount >", code=1)
    assert "only one of them" in dledger("consume", "orders", "--sql", "TRUE", "--tag", "paid", code=2)
    assert dledger("consume", "orders", "--group", "shared", "--pop", "--limit", "1") == "one\n"
    assert dledger("consume", "orders", "--group", "shared", "--pop", "--tag", "paid") == "two\n", "the rest is done"
    assert dledger("consume", "orders", "--group", "shared", "--pop") == ""
    assert "expected with --group" in dledger("consume", "orders", "--pop", code=2)

    found = [json.loads(line) for line in dledger("query", "key", "orders", "o-2").splitlines()]
    assert [each["body"] for each in found] == ["two", "one"]
    first = found[-1]
    assert json.loads(dledger("query", "id", first["msgId"]))["body"] == "one"
    assert json.loads(dledger("query", "id", first["uniqKey"], "--topic", "orders")) == first
    by_time = dledger("query", "time", "orders", f"@{first['storeTimestamp']}", "--format", "text")
    assert by_time == "one\ntwo\nthree\nfour\n"

    dledger("topic", "delete", "orders")
    assert "no topic 'orders'" in dledger("consume", "orders", code=1)


def test_messages_are_produced_and_consumed_with_keys_headers_queues_and_templates(dledger, tmp_path):
    dledger("topic", "create", "orders", "--queues", "4")
    lines = "".join(f"k{number % 7}:{number}\n" for number in range(200))
    dledger("produce", "orders", "-K", ":", "--by-key", "--header", "source=test", text=lines)
    shown = dledger("consume", "orders", "--template", "{queue} {keys} {header:source} {body}").split("\n")[:-1]
    queues = {}
    for queue, key, source, body in map(str.split, shown):
        assert source == "test"
        queues.setdefault((queue, key), []).append(int(body))
    assert len(queues) == 7
    assert all(numbers == sorted(numbers) for numbers in queues.values())
    assert sorted(number for numbers in queues.values() for number in numbers) == list(range(200))

    queue = shown[0].split()[0]
    of_queue = [line for line in shown if line.split()[0] == queue]
    from_third = dledger("consume", "orders", "--queue", queue, "--offset", "3", "-T", "{queue} {keys} test {body}")
    assert from_third.split("\n")[:-1] == of_queue[3:]
    assert "the end of queue" in dledger("consume", "orders", "--queue", queue, "--offset", "900", code=2)
    assert "0 to 3" in dledger("consume", "orders", "--queue", "9", code=2)
    assert "expected with --queue" in dledger("consume", "orders", "--offset", "1", code=2)
    assert "--template" in dledger("consume", "orders", "--template", "{x}", code=2)

    copied = dledger("consume", "orders", "--format", "jsonl")
    dledger("topic", "create", "copies")
    dledger("produce", "copies", "--input", "jsonl", text=copied)
    of_copies = dledger("consume", "copies", "--template", "{keys} {header:source} {body}").splitlines()
    assert sorted(of_copies) == sorted(line.split(" ", 1)[1] for line in shown)

    dledger("topic", "create", "files", "--queues", "1")
    (tmp_path / "a").write_bytes(b"one\ntwo\n")
    dledger("produce", "files", "--input", "file", str(tmp_path / "a"), "--queue-key", "x")
    assert dledger("consume", "files", "--template", "{size} {body}") == "8 one\ntwo\n\n"
    refused = dledger("produce", "files", "-i", "jsonl", text='{"body": "fits"}\nbad\n', code=2)
    assert "standard input, line 2: expected a JSON object" in refused
    assert "1 message put" in refused


def test_delayed_messages_are_listed_and_delivered(dledger):
    dledger("topic", "create", "orders", "--queues", "1")
    assert dledger("delay", "list", "--json") == ""
    dledger("produce", "orders", "--delay", "2h", text="much later\n")
    dledger("produce", "orders", "--delay", "1s", text="soon\n")

    assert dledger("consume", "orders", "--follow", "--limit", "1") == "soon\n"

    first, second = map(json.loads, dledger("delay", "list", "--json").splitlines())
    assert (first["level"], first["delay"], first["waiting"], first["next_due"], first["delivered"]) == (
        *(1, "1s", 0, None, 1),
    )
    assert (second["level"], second["delay_ms"], second["waiting"], second["delivered"]) == (18, 7_200_000, 1, 0)
    assert "next due" in dledger("delay", "list")
    assert "expected numbers with d, h" in dledger("produce", "orders", "--delay", "3 s", text="x\n", code=2)


def test_messages_for_any_time_are_listed_delivered_and_recalled(dledger):
    dledger("topic", "create", "orders", "--queues", "1")
    dledger("produce", "orders", "--delay", "700ms", text="soon\n")
    assert dledger("produce", "orders", "--at", "2026-01-01T00:00Z", text="past\n") == ""
    handles = [dledger("produce", "orders", "--delay", delay, text="x\n").strip() for delay in ("1h30m", "20h")]

    # On a slow machine the second one may come first.
    assert sorted(dledger("consume", "orders", "--follow", "--limit", "2").splitlines()) == ["past", "soon"]

    (row,) = map(json.loads, dledger("delay", "list", "--json").splitlines())
    assert (row["level"], row["delay"], row["waiting"], row["delivered"]) == (0, "any", 2, None)
    assert row["next_due_ms"] > 0
    assert "any" in dledger("delay", "list")
    assert dledger("recall", handles[0]) == "recalled\n"
    assert dledger("recall", *handles) == "recalled\nrecalled\n"
    assert "expected one that the answer" in dledger("recall", "x", code=2)
    assert "expected a time as" in dledger("produce", "orders", "--at", "noon", text="x\n", code=2)
    assert "found with --delay" in dledger("produce", "orders", "--at", "2026-12-24", "--delay=1s", text="x", code=2)


def test_open_transactions_are_listed_until_they_end(dledger, broker):
    dledger("topic", "create", "orders", "--queues", "1")
    assert dledger("transaction", "list", "--json") == ""
    with Producer(broker.address) as producer, producer.transaction("orders", b"x", group="payments") as transaction:
        (row,) = map(json.loads, dledger("transaction", "list", "--json").splitlines())
        assert (row["half"], row["topic"], row["group"], row["checks"]) == (0, "orders", "payments", 0)
        assert row["transaction_id"] == transaction.half.unique_key
        assert row["next_check_ms"] == row["begun_ms"] + 6_000
        assert "next check" in dledger("transaction", "list")
    assert dledger("transaction", "list", "--json") == ""


def test_state_is_exported_as_files_of_rocketmq(dledger, tmp_path):
    dledger("topic", "create", "orders", "--queues", "1")
    dledger("produce", "orders", text="one\ntwo\n")
    dledger("consume", "orders", "--group", "billing")
    dledger("produce", "orders", "--delay", "2h", text="later\n")

    dledger("export-config", str(tmp_path / "config"))

    found = import_config(tmp_path)
    assert [topic.name for topic in found.topics] == ["orders"]
    assert [group.name for group in found.groups] == ["billing"]
    assert found.offsets == {"billing": [QueueOffset("orders", 0, 2)]}
    assert found.delay_offsets == [(18, 0)]
    assert "found topics.json" in dledger("export-config", str(tmp_path / "config"), code=2)


def test_a_group_continues_at_its_offsets_until_it_is_reset(dledger):
    dledger("topic", "create", "orders", "--queues", "2")
    dledger("produce", "orders", "--queue", "0", text="a\nb\nc\n")
    dledger("produce", "orders", "--queue", "1", text="d\n")

    assert dledger("consume", "orders", "--group", "billing", "--limit", "2") == "a\nb\n"
    assert dledger("consume", "orders", "--group", "billing") == "c\nd\n"
    assert dledger("consume", "orders", "--group", "billing") == ""
    assert "billing" in dledger("group", "list")
    rows = [line.split() for line in dledger("offsets", "orders", "--group", "billing").splitlines()]
    assert [row[-2:] for row in rows if row and row[0] in "01"] == [["3", "0"], ["1", "0"]]
    dledger("topic", "create", "empty", "--queues", "1")
    assert json.loads(dledger("offsets", "empty", "--json"))["first"] is None
    assert json.loads(dledger("topic", "describe", "empty", "--json"))["first_message"] is None
    dledger("topic", "delete", "empty")
    dledger("group", "reset", "billing", "orders", "--to", "begin")
    assert dledger("consume", "orders", "--group", "billing") == "a\nb\nc\nd\n"
    assert "expected begin, end or a time" in dledger("consume", "orders", "--from", "42", code=2)
    dledger("group", "delete", "billing")


def test_group_continues_at_the_offsets_of_another_one(dledger):
    dledger("topic", "create", "orders", "--queues", "2")
    dledger("produce", "orders", "--queue", "0", text="a\nb\nc\n")
    dledger("produce", "orders", "--queue", "1", text="d\n")
    dledger("consume", "orders", "--group", "billing", "--queue", "0", "--limit", "2")
    dledger("consume", "orders", "--group", "test")

    dledger("group", "copy", "billing", "test", "orders")

    # In the other queue it stays where it was.
    assert dledger("consume", "orders", "--group", "test") == "c\n"
    assert "group 'none' has no offset in topic 'orders'" in dledger("group", "copy", "none", "test", "orders", code=1)
    assert "has no offset in topic 'none'" in dledger("group", "copy", "billing", "test", "none", code=1)


def test_a_disabled_group_gets_nothing_and_continues_after_it_is_enabled(dledger, broker):
    dledger("topic", "create", "orders", "--queues", "2")
    dledger("group", "create", "billing", "--orderly")
    with (
        Producer(broker.address) as producer,
        Consumer(broker.address, group="billing", topics="orders", start="first") as consumer,
    ):
        producer.send("orders", b"a", queue_id=0)
        assert next(iter(consumer)).body == b"a"
        dledger("group", "disable", "billing")
        assert " no " in dledger("group", "list")
        producer.send("orders", b"b", queue_id=0)
        producer.send("orders", b"c", queue_id=1)
        assert consumer.poll(timeout_s=1.0) == []
        assert "dledger group enable billing" in dledger("consume", "orders", "--group", "billing", code=1)
        with (
            pytest.raises(RequestFailed, match="dledger group enable billing"),
            Consumer(broker.address, group="billing", topics="orders") as late,
        ):
            late.poll(timeout_s=PATIENCE_S)
        dledger("group", "enable", "billing")
        found = [next(iter(consumer)).body, next(iter(consumer)).body]
        assert sorted(found) == [b"b", b"c"]


def test_a_topic_is_created_once_and_only_the_given_options_are_altered(dledger):
    def topic():
        (row,) = map(json.loads, dledger("topic", "list", "--json").splitlines())
        return row["topic"], row["read_queues"], row["write_queues"], row["permission"]

    assert "there is no topic 'orders'" in dledger("topic", "alter", "orders", "--queues", "2", code=1)
    dledger("topic", "create", "orders", "--queues", "16")
    refused = dledger("topic", "create", "orders", "--queues", "4", code=1)
    assert "topic orders exists already; nothing was changed. `dledger topic alter` changes it" in refused
    dledger("topic", "create", "orders", "--queues", "4", "--if-not-exists")
    assert topic() == ("orders", 16, 16, "rw")
    dledger("topic", "alter", "orders", "--permission", "r")
    assert topic() == ("orders", 16, 16, "r")
    dledger("topic", "alter", "orders", "--queues", "20")
    assert topic() == ("orders", 20, 20, "r")
    assert "expected --queues, --permission, --type or --quota" in dledger("topic", "alter", "orders", code=2)


def test_a_topic_that_another_created_after_the_check_is_unchanged(dledger, broker, monkeypatch):
    dledger("topic", "create", "orders", "--queues", "16")
    monkeypatch.setattr("cluster.cli.messages.topics._known_topic", lambda *_: None)
    again = ["topic", "create", "orders", "--queues", "4", "--broker", broker.address]
    code, _, text = run_here(again, "")
    assert (code, "topic 'orders' exists, with other settings" in text) == (1, True), text
    code, _, text = run_here([*again, "--if-not-exists"], "")
    assert (code, "topic orders exists already" in text) == (0, True), text
    (row,) = map(json.loads, dledger("topic", "list", "--json").splitlines())
    assert (row["read_queues"], row["write_queues"]) == (16, 16)


def test_creating_a_group_again_changes_only_the_given_options(dledger, broker):
    dledger("group", "create", "billing")
    dledger("group", "disable", "billing")
    dledger("group", "create", "billing", "--orderly")
    with grpc.insecure_channel(broker.address) as channel:
        (found,) = BrokerServiceStub(channel).ListGroups(pb.ListGroupsRequest()).groups
    assert (found.group.is_consume_enabled, found.group.is_orderly, found.group.retry_max_times) == (False, True, 16)


def test_errors_have_the_cause_and_advice(dledger, broker):
    assert "dledger topic create orders" in dledger("produce", "orders", text="x\n", code=1)
    assert "expected begin, end or a time" in dledger("group", "reset", "g", "t", "--to", "5", code=2)
    assert "a time is 2026-11-21T09:00:00 (UTC)" in dledger("query", "time", "t", "yesterday", code=2)
    assert "there is no group 'absent'" in dledger("group", "disable", "absent", code=1)
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
def test_a_broker_reports_wrong_options(tmp_path, arguments, text):
    command = [sys.executable, "-m", "cluster.cli", "broker", "--standalone", str(tmp_path / "s"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert text in done.stderr
    assert not (tmp_path / "s").exists()


def test_consume_commits_the_printed_messages_on_sigterm(dledger, broker, tmp_path):
    """Output arrives immediately, also in a file, which Python buffers. No step waits longer than 30 s."""
    dledger("topic", "create", "orders", "--queues", "1")
    dledger("produce", "orders", text="a\nb\nc\n")
    printed, notes = tmp_path / "printed", tmp_path / "notes"
    command = [sys.executable, "-m", "cluster.cli", "consume", "orders", "--group", "billing", "--follow"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with printed.open("w") as stdout, notes.open("w") as stderr:
        consumer = subprocess.Popen([*command, "-b", broker.address], stdout=stdout, stderr=stderr, env=buffered)
    try:
        wait_until(lambda: printed.read_text() == "a\nb\nc\n" or consumer.poll() is not None, notes.read_text, 30)

        def has_ended():
            consumer.send_signal(signal.SIGTERM)  # repeatedly: `timeout` sends two, to the process and its group
            return consumer.poll() is not None

        wait_until(has_ended, notes.read_text, 30)
        assert consumer.returncode == 0, notes.read_text()
    finally:
        consumer.kill()
        consumer.wait(timeout=30)
    assert "stopped" in notes.read_text()

    (row,) = map(json.loads, dledger("offsets", "orders", "--group", "billing", "--json").splitlines())
    assert (row["group"], row["lag"]) == (3, 0)


def test_output_shows_a_new_user_the_state_and_address_of_a_broker(tmp_path):
    """The command of README, in an empty home directory, with output that Python buffers."""
    (port,) = choose_ports(1, None)
    store = tmp_path / "data" / "store"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONUNBUFFERED", "DLEDGER_"))}
    command = [sys.executable, "-m", "cluster.cli", "broker", "--standalone", str(store)]
    one = subprocess.Popen(
        [*command, "--listen", f"127.0.0.1:{port}"],
        env={**kept, "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = threading.Timer(30, one.kill)
    limit.start()
    try:
        what = f"broker broker-a on 127.0.0.1:{port}, store {store}"
        assert one.stderr.readline() == f"dledger: starting {what}; Ctrl-C stops it\n"
        assert one.stdout.readline() == f"ready broker=broker-a grpc=127.0.0.1:{port} metrics=\n"
        status = CliRunner().invoke(app, ["status", "--endpoints", f"127.0.0.1:{port}"])
        assert (status.exit_code, "broker broker-a\n" in status.stdout, "taken" in status.stdout) == (0, True, True)
        one.send_signal(signal.SIGINT)
        _, said = one.communicate(timeout=30)
    finally:
        limit.cancel()
        one.kill()
        one.communicate(timeout=30)
    assert (one.returncode, "stopping signal=SIGINT" in said) == (0, True)
    assert "fatal" not in said.lower(), "nothing sounds like an error in a run without one"


def test_quotas_of_topics_and_groups_are_set_shown_and_removed(dledger):
    dledger("topic", "create", "orders", "--quota", "put.messages=500", "--quota", "get.bytes=1000000")
    assert json.loads(dledger("topic", "list", "--json"))["quotas"] == ["get.bytes=1000000", "put.messages=500"]
    dledger("topic", "alter", "orders", "--quota", "put.messages=700", "--quota", "get.bytes=off")
    assert json.loads(dledger("topic", "describe", "orders", "--json"))["quotas"] == ["put.messages=700"]
    dledger("topic", "alter", "orders", "--queues", "4")
    assert json.loads(dledger("topic", "describe", "orders", "--json"))["quotas"] == ["put.messages=700"]
    dledger("group", "create", "billing", "--orderly")
    dledger("group", "alter", "billing", "--quota", "get.messages=50")
    group = json.loads(dledger("group", "list", "--json"))
    assert (group["quotas"], group["is_orderly"]) == (["get.messages=50"], True)
    for wrong in ("puts=5", "put.messages", "put.messages=0", "put.bytes=1000", "put.messages=x"):
        assert f"--quota {wrong}" in dledger("topic", "alter", "orders", "--quota", wrong, code=2)
    assert "--quota put.messages=5" in dledger("group", "alter", "billing", "--quota", "put.messages=5", code=2)
    assert "or --quota" in dledger("group", "alter", "billing", code=2)
    assert "no group 'other'" in dledger("group", "alter", "other", "--quota", "get.messages=5", code=1)
