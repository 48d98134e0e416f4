"""RocketMQ's push consumer of version 5.3.3 in the mode POP, unchanged, with a group of three brokers of ours."""

import os
import subprocess
from pathlib import Path

import pytest

from cluster.client.broker_calls import BrokerCalls
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.group import BrokerGroup
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S

PROGRAM = Path(__file__).parents[1] / "java" / "pop" / "PopClient.java"
TOPIC, GROUP = "Popped", "pop-group"


@pytest.fixture
def jars():
    """Return the folder with the jars of the client; without it the test is skipped, with a reason."""
    folder = os.environ.get("DLEDGER_INTEROP_REMOTING")
    if not folder:
        names = ("DLEDGER_INTEROP_REMOTING_MISSING", "DLEDGER_INTEROP_MISSING")
        missing = next((os.environ[name] for name in names if name in os.environ), "")
        pytest.skip(missing or "needs the jars of rocketmq-client: `make interop` gets them")
    return Path(folder) / "5.3.3" / "lib"


def test_a_push_consumer_pops_all_messages_and_gets_the_one_that_it_returned_again(jars, tmp_path):
    started = BrokerGroup(tmp_path / "group", has_rocketmq=True, auto_create_topic_enable=True)
    with started as group, BrokerCalls(",".join(group.addresses), PATIENCE_S) as calls:
        topic = pb.Topic(name=TOPIC, read_queues=4, write_queues=4, permission=6)
        calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
        program = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Duser.home={tmp_path}", "-cp", f"{jars}/*"]
        ended = subprocess.run(
            [*program, str(PROGRAM), group.cluster.remoting_endpoints, TOPIC, GROUP],
            stdout=subprocess.PIPE,
            text=True,
            timeout=2 * SCENARIO_LIMIT_S,
            check=True,
        )
        print(ended.stdout)
        assert ended.stdout.splitlines()[-1] == "messages=40 handles=41 again=1"
        fetch = pb.FetchOffsetRequest(group=GROUP, topic=TOPIC, queue_ids=range(4))
        ends = calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic=TOPIC)).max_offsets
        assert list(calls.ask(lambda stub: stub.FetchOffset, fetch).offsets) == list(ends), "all are acknowledged"
