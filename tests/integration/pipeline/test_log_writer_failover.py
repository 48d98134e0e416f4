"""Tasks of an exactly-once write against three nodes: leaders and tasks are killed, and each row is stored once."""

import os
import random
import threading

import pyarrow as pa
import pytest

from cluster.v1 import broker_pb2 as pb
from pipeline.log.slices import plan
from pipeline.log.stores import open_store
from pipeline.reading.read_slice import read_slice
from pipeline.sink.log_writer import LogTarget, LogWriter, RowOrigin, WriteFailed
from pipeline.source.broker_connections import BrokerConnections
from tests.support.brokers.group import BrokerGroup
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow
SEED = int(os.environ.get("DLEDGER_SINK_SEED", str(random.randrange(1 << 30))))
TOPIC = "orders"
TASKS, ROWS = 6, 1_500


class TaskKilled(Exception):
    """A task ends here."""


def crash_sometimes(draw, share):
    if draw.random() < share:
        raise TaskKilled


def run_task(target, partition, draw):
    """Run one task until it succeeds, as Spark does; it is killed now and then."""
    batch = pa.record_batch({"body": [b"%d" % (partition * ROWS + row) for row in range(ROWS)]})
    for _ in range(30):
        may_crash = draw.random() < 0.4
        try:
            with LogWriter(target, RowOrigin("query", 0, partition)) as writer:
                for begin in range(0, ROWS, 100):
                    writer.write(batch.slice(begin, 100))
                    crash_sometimes(draw, 0.1 * may_crash)
                crash_sometimes(draw, 0.5 * may_crash)
                writer.finish()
        except (WriteFailed, TaskKilled):
            continue
        return
    raise AssertionError("the task never came to its end")


@pytest.mark.timeout(600)
def test_each_row_is_stored_once_while_leaders_and_tasks_are_killed(tmp_path):
    """The dedupe window covers messages in flight, but not all that are written."""
    print(f"DLEDGER_SINK_SEED={SEED}")
    draw = random.Random(SEED)
    with BrokerGroup(tmp_path, dedupe_window_count=4_000) as group:
        nodes = BrokerConnections(",".join(group.addresses))
        topic = pb.Topic(name=TOPIC, read_queues=3, write_queues=3, permission=6)
        nodes.ask(lambda stub: stub.SetTopic(pb.SetTopicRequest(topic=topic), timeout=PATIENCE_S))
        nodes.close()
        target = LogTarget(",".join(group.addresses), topic=TOPIC, is_exactly_once=True, timeout_s=15)
        draws = [random.Random(draw.random()) for _ in range(TASKS)]
        tasks = [threading.Thread(target=run_task, args=(target, number, draws[number])) for number in range(TASKS)]
        for begin in range(0, TASKS, 2):
            pair = tasks[begin : begin + 2]
            for task in pair:
                task.start()
            leader, _ = group.leader()
            group.kill(leader)
            group.cluster.start_node(leader, PATIENCE_S)
            for task in pair:
                task.join(240)
                assert not task.is_alive()
        group.wait_equal()
        root = group.roots[0]

    with open_store(str(root)) as store:
        bodies = [
            int(body.as_py())
            for part in plan(store)
            for batch in read_slice(part, ("topic", "body"))
            for topic, body in zip(batch["topic"], batch["body"], strict=True)
            if topic.as_py() == TOPIC
        ]
    assert sorted(bodies) == list(range(TASKS * ROWS))
