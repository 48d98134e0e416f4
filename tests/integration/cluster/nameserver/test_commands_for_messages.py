"""The commands for messages with name servers instead of a broker: two brokers, one topic."""

import json
from collections.abc import Iterator

import grpc
import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from cluster.v1.nameserver_pb2 import BrokerNode, RegisterRequest
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from tests.support.brokers.process import BrokerProcess
from tests.support.waiting import wait_until

TOPIC = "orders"
SMALL = {"mapped_file_size": 4 << 20, "max_hash_slot_num": 1_000, "max_index_num": 4_000}


@pytest.fixture
def server(name_server):
    return name_server()


@pytest.fixture
def brokers(server, tmp_path) -> Iterator[list[BrokerProcess]]:
    """Return two brokers with the topic; the first has one queue of it, the second two."""
    made = [BrokerProcess(tmp_path / name, name, server.address, **SMALL) for name in ("broker-a", "broker-b")]
    try:
        for broker in made:
            broker.launch()
        for broker, queues in zip(made, ("1", "2"), strict=True):
            broker.wait_until_ready()
            run("topic", "create", TOPIC, "--queues", queues, "--broker", broker.address)
        yield made
    finally:
        for broker in made:
            broker.kill()


def run(*arguments, text="", code=0):
    """Run a command in this process, because the start of a process takes longer than most commands."""
    done = CliRunner().invoke(app, arguments, input=text)
    assert done.exit_code == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_lines_are_distributed_over_all_brokers_of_a_topic_and_all_are_consumed(server, brokers):
    of_servers = ("--name-servers", server.address)
    lines = [f"{number}\n" for number in range(600)]
    run("produce", TOPIC, "--key", "k", *of_servers, text="".join(lines))

    offsets = [line.split() for line in run("offsets", TOPIC, *of_servers).splitlines()]
    ends = {(row[0], row[1]): int(row[3]) for row in offsets if row and row[0].startswith("broker-")}
    assert ends == {("broker-a", "0"): 200, ("broker-b", "0"): 200, ("broker-b", "1"): 200}

    assert sorted(run("consume", TOPIC, "--group", "g", *of_servers).splitlines(keepends=True)) == sorted(lines)
    assert run("consume", TOPIC, "--group", "g", *of_servers) == ""
    assert len(run("consume", TOPIC, "--limit", "250", "--follow", *of_servers).splitlines()) == 250

    by_key = [json.loads(line) for line in run("query", "key", TOPIC, "k", "-n", "40", *of_servers).splitlines()]
    stamps = [each["storeTimestamp"] for each in by_key]
    assert (len(stamps), stamps) == (40, sorted(stamps, reverse=True))
    for each in (by_key[0], by_key[-1]):
        assert json.loads(run("query", "id", each["msgId"], "--name-server", server.address)) == each
        assert json.loads(run("query", "id", each["uniqKey"], "--topic", TOPIC, *of_servers)) == each
    by_time = run("query", "time", TOPIC, "@0", "--format", "text", *of_servers)
    assert sorted(by_time.splitlines(keepends=True)) == sorted(lines)


def test_lines_for_a_dead_broker_go_to_the_others(server, brokers):
    brokers[1].kill()
    run("produce", TOPIC, "--name-servers", server.address, text="".join(f"{number}\n" for number in range(500)))

    assert len(run("consume", TOPIC, "--broker", brokers[0].address).splitlines()) == 500


def table(text):
    """Return the rows of a table, as words, without its header."""
    return [line.split() for line in text.splitlines() if line.strip()][2:]


def test_topics_and_groups_are_changed_on_all_or_on_the_chosen_brokers(server, brokers):
    of_servers = ("--name-servers", server.address)
    run("topic", "create", "news", "--queues", "3", *of_servers)
    run("topic", "alter", "news", "--permission", "r", "--broker-name", "broker-b", *of_servers)
    rows = [row for row in table(run("topic", "list", *of_servers)) if row[0] == "news"]
    assert [row[:5] for row in rows] == [["news", "broker-a", "3", "3", "rw"], ["news", "broker-b", "3", "3", "r"]]

    run("group", "create", "billing", *of_servers)
    run("group", "disable", "billing", "--broker-name", "broker-a", *of_servers)
    groups = [["billing", "broker-a", "0", "no", "no"], ["billing", "broker-b", "0", "yes", "no"]]
    assert [row[:5] for row in table(run("group", "list", *of_servers))] == groups
    run("group", "enable", "billing", *of_servers)

    run("produce", TOPIC, *of_servers, text="".join(f"{number}\n" for number in range(300)))
    assert len(run("consume", TOPIC, "--group", "billing", *of_servers).splitlines()) == 300
    run("group", "reset", "billing", TOPIC, "--to", "begin", *of_servers)
    assert len(run("consume", TOPIC, "--group", "billing", *of_servers).splitlines()) == 300

    # A broker without it does not hide those that have it.
    run("group", "delete", "billing", "--broker-name", "broker-a", *of_servers)
    run("group", "delete", "billing", *of_servers)
    assert "there is no group 'billing'" in run("group", "delete", "billing", *of_servers, code=1)
    run("topic", "delete", "news", *of_servers)
    assert [row[0] for row in table(run("topic", "list", *of_servers))] == [TOPIC, TOPIC]


def test_a_topic_that_exists_on_some_brokers_is_created_on_the_others_only_if_that_is_asked_for(server, brokers):
    of_servers = ("--name-servers", server.address)
    run("topic", "create", "news", "--queues", "3", "--broker", brokers[0].address)
    refused = run("topic", "create", "news", "--queues", "5", *of_servers, code=1)
    assert "topic news exists already on broker-a; nothing was changed" in refused
    assert "news" not in run("topic", "list", "--broker", brokers[1].address)

    run("topic", "create", "news", "--queues", "5", "--if-not-exists", *of_servers)
    rows = [json.loads(line) for line in run("topic", "list", "--json", *of_servers).splitlines()]
    assert {row["broker"]: row["write_queues"] for row in rows if row["topic"] == "news"} == {
        "broker-a": 3,
        "broker-b": 5,
    }


def test_a_topic_is_described_and_its_route_shown(server, brokers):
    of_servers = ("--name-servers", server.address)
    run("produce", TOPIC, *of_servers, text="".join(f"{number}\n" for number in range(300)))
    run("consume", TOPIC, "--group", "billing", *of_servers)

    described = [json.loads(line) for line in run("topic", "describe", TOPIC, "--json", *of_servers).splitlines()]
    assert [(row["broker"], row["messages"], row["groups"]) for row in described] == [
        ("broker-a", 100, ["billing"]),
        ("broker-b", 200, ["billing"]),
    ]
    route = [json.loads(line) for line in run("topic", "route", TOPIC, "--json", *of_servers).splitlines()]
    assert [(row["broker"], row["leader"], row["write_queues"]) for row in route] == [
        ("broker-a", brokers[0].address, 1),
        ("broker-b", brokers[1].address, 2),
    ]
    by_address = ("--broker", brokers[0].address)
    assert [json.loads(run("topic", "route", TOPIC, "--json", *by_address))["leader"]] == [brokers[0].address]
    assert brokers[1].address in run("topic", "route", TOPIC, *of_servers)
    assert "no topic 'nothing'" in run("topic", "route", "nothing", *by_address, code=1)


def test_a_dead_broker_does_not_prevent_changes_of_others(server, brokers):
    of_servers = ("--name-servers", server.address)
    brokers[0].kill()
    text = run("topic", "create", "news", *of_servers, code=1)
    assert "broker-b: topic news created" in text
    assert "1 of 2 brokers failed (broker-a): repeat the command with --if-not-exists" in text
    rows = table(run("topic", "list", "--broker", brokers[1].address))
    assert ["news", "8", "8", "rw"] in [row[:4] for row in rows]


def test_a_dead_broker_hides_nothing_of_the_others(server, brokers):
    of_servers = ("--name-servers", server.address)
    run("group", "create", "billing", *of_servers)
    brokers[0].kill()
    for command, rows in (
        (("topic", "list"), [[TOPIC, "broker-b", "2", "2", "rw"]]),
        (("group", "list"), [["billing", "broker-b", "0", "yes", "no"]]),
        (("offsets", TOPIC, "--group", "billing"), [["broker-b", "0", "0"], ["broker-b", "1", "0"]]),
    ):
        done = CliRunner().invoke(app, [*command, *of_servers])
        assert done.exit_code == 1
        assert [row[: len(rows[0])] for row in table(done.stdout)] == rows
        assert "broker-a did not answer" in done.stderr
        assert f"{brokers[0].address} is not reachable" in done.stderr


def test_the_name_server_with_the_newest_leader_has_precedence(name_server):
    servers = name_server(), name_server()
    for server, term in zip(servers, (2, 1), strict=True):
        nodes = [BrokerNode(id="n0", address=f"127.0.0.1:{term}")]
        request = RegisterRequest(broker="broker-a", cluster="c", term=term, leader_id="n0", nodes=nodes)
        with grpc.insecure_channel(server.address) as channel:
            NameServerStub(channel).Register(request)
    for order in (servers, servers[::-1]):
        command = ("topic", "list", "--name-servers", ",".join(each.address for each in order))
        # A name server that does not answer in time is not waited for, so the answer of the other one decides.
        wait_until(lambda command=command: "127.0.0.1:2 is not reachable" in run(*command, code=1), "both answer")


def test_brokers_of_another_cluster_are_changed_only_when_they_are_asked_for(server, brokers):
    of_servers = ("--name-servers", server.address)
    nodes = [BrokerNode(id="n0", address="127.0.0.1:9")]
    other = RegisterRequest(broker="broker-c", cluster="elsewhere", term=1, leader_id="n0", nodes=nodes)
    with grpc.insecure_channel(server.address) as channel:
        NameServerStub(channel).Register(other)

    text = run("topic", "create", "news", *of_servers, code=2)
    assert "several clusters (DefaultCluster, elsewhere): choose one with --cluster" in text
    run("topic", "create", "news", "--cluster", "DefaultCluster", *of_servers)
    assert "127.0.0.1:9 is not reachable" in run("topic", "create", "news", "-c", "elsewhere", *of_servers, code=1)


def test_errors_have_the_cause_and_advice(server, brokers):
    of_servers = ("--name-servers", server.address)
    # "no broker has it", or "not known yet" if the name server has just started.
    assert "topic 'nothing'" in run("consume", "nothing", *of_servers, code=1)
    assert "expected only one of the two" in run("consume", TOPIC, *of_servers, "--broker", brokers[0].address, code=2)
    unreachable = run("consume", TOPIC, "--name-servers", "127.0.0.1:9", code=1)
    assert "no name server answers" in unreachable
    assert "--name-servers or DLEDGER_NAME_SERVERS" in unreachable
    assert "there is no broker x; `dledger brokers list`" in run(
        "topic", "create", "t", "--broker-name", "x", *of_servers, code=1
    )
    assert "none of these brokers is in cluster 'x'" in run("topic", "list", "--cluster", "x", *of_servers, code=1)
    by_address = ("--broker", brokers[0].address)
    assert "expected together with --name-servers" in run("group", "list", "-c", "x", *by_address, code=2)
    for broker in brokers:
        run("brokers", "drain", broker.name, *of_servers)
    assert "`dledger brokers list`" in run("produce", TOPIC, *of_servers, text="x\n", code=1)
    run("consume", TOPIC, *of_servers)
