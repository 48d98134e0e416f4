"""A store that a whole RocketMQ broker left, with delays, times and transactions that wait, continues in our broker.

A standalone broker opens it in place, and a group of three nodes has it on one of them. Consumers get each message
once, producers are asked about each open transaction, and RocketMQ reads the result.
"""

import threading
from collections import Counter
from contextlib import ExitStack

import pytest
from typer.testing import CliRunner

from cluster import Consumer, Producer
from cluster.cli.app import app
from cluster.client.producer.transactions import TransactionEnd
from cluster.local.brokers import LocalBrokers
from cluster.state.effects import Ending
from dledger import LogClient
from tests.interop.test_java_reads_our_brokers import OPTIONS, SIZES
from tests.support.brokers.java_waiting import COMMITTED, DONE, ENDINGS, GROUP, NEXT, names_of
from tests.support.brokers.process import BrokerProcess
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

# Messages for half a minute later are due meanwhile, those for hours later are not.
EXPECTED = names_of(DONE, {"bills": COMMITTED}, NEXT)
# Nothing is asked about it for ten minutes.
IMMUNE = "half-immune"


def decide(question):
    is_committed = ENDINGS[question.body.decode()] is Ending.COMMITTED
    return TransactionEnd.COMMIT if is_committed else TransactionEnd.ROLLBACK


def consume_and_answer(endpoints):
    """Answer checks until all that is due is consumed; return the names that came in each topic, and the questions."""
    got, asked, lock = {topic: Counter() for topic in DONE}, Counter(), threading.Lock()

    def answer(question):
        with lock:
            asked[question.body.decode()] += 1
        return decide(question)

    with ExitStack() as stack:
        producer = stack.enter_context(Producer(endpoints, is_unknown_retried=True, deadline_s=PATIENCE_S))
        stack.enter_context(producer.answer_checks(GROUP, ["bills"], answer))
        topics = dict.fromkeys(DONE, "*")
        consumer = stack.enter_context(Consumer(endpoints, group="audit", topics=topics, start="first"))
        for message in consumer:
            got[message.topic][message.body.decode()] += 1
            if sum(map(Counter.total, got.values())) >= sum(map(len, EXPECTED.values())):
                break
        wait_until(lambda: len(asked) == len(ENDINGS) - 1, lambda: f"asked: {asked}")
    return {topic: sorted(counts.elements()) for topic, counts in got.items()}, asked


def assert_continues(endpoints):
    got, asked = consume_and_answer(endpoints)
    assert got == EXPECTED
    assert set(asked) == ENDINGS.keys() - {IMMUNE}


def wait_until_all_is_committed(cluster):
    """Wait until each node knows that it may dispatch the last entry, which is an op message."""
    with LogClient(cluster.endpoints, group=cluster.group) as client:

        def is_committed():
            known = [each for each in client.statuses().values() if not isinstance(each, str)]
            ends = {index for each in known for index in (each.commit_index, each.end_index, each.applied_index)}
            return len(known) == len(cluster.node_ids) and len(ends) == 1

        wait_until(is_committed, lambda: f"{client.statuses()}")


def assert_verifies(folder):
    result = CliRunner().invoke(app, ["verify", str(folder)])
    assert result.exit_code == 0, result.output


def assert_java_reads(java, folder, sizes, **options):
    contents = java.read(folder, sizes, **options)
    assert contents.summary["problems"] == []
    ends = {topic: contents.queues[topic, 0] for topic in DONE}
    assert ends == {topic: (0, len(names)) for topic, names in EXPECTED.items()}


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_standalone_broker_continues_what_a_java_broker_left(java, tmp_path, is_killed):
    folder = tmp_path / "store"
    java.wait(folder, SIZES, is_halted=is_killed)
    settings = {
        "mapped_file_size": SIZES.log_file,
        "mapped_file_size_consume_queue": SIZES.queue_file,
        "max_hash_slot_num": SIZES.index_slots,
        "max_index_num": SIZES.index_items,
    }
    broker = BrokerProcess(folder, **settings)
    try:
        broker.start()
        assert_continues(broker.address)
        assert broker.stop() == 0
    finally:
        broker.kill()
    assert_verifies(folder)
    assert_java_reads(java, folder, SIZES)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_group_continues_what_a_java_broker_left(java, tmp_path, is_killed):
    brokers = LocalBrokers.create(tmp_path / "run", options=OPTIONS)
    cluster = brokers.clusters["broker-a"]
    folder = cluster.directory_of("n1").parent
    java.wait(folder, SIZES, is_halted=is_killed)
    try:
        brokers.start()
        cluster.wait_for_leader()
        assert_continues(cluster.endpoints)
        wait_until_all_is_committed(cluster)
    finally:
        brokers.stop()
    for node_id in cluster.node_ids:
        assert_verifies(cluster.directory_of(node_id).parent)
    assert_java_reads(java, folder, SIZES, node_id="n1")
