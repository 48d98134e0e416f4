"""A broker of three real nodes, each with a port for official clients, shared by the tests of a module."""

import pytest

from cluster.client.broker_calls import BrokerCalls
from cluster.state.features import FEATURE_LEVEL
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.group import BrokerGroup
from tests.support.waiting import PATIENCE_S, wait_until

# Long election timeouts: a busy machine causes no election. Producers are soon asked about their transactions.
OPTIONS = {
    "heart_beat_time_interval_ms": 100,
    "min_election_timeout_ms": 3_000,
    "max_election_timeout_ms": 4_000,
    # For bodies of 4 MiB.
    "mapped_file_size_for_entry_data": 16 << 20,
    "transaction_timeout_ms": 1_000,
    "transaction_check_interval_ms": 1_000,
}


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Return the group, which has reached the newest feature level."""
    with BrokerGroup(tmp_path_factory.mktemp("rocketmq"), has_rocketmq=True, **OPTIONS) as started:
        with BrokerCalls(",".join(started.addresses), PATIENCE_S) as calls:

            def level():
                return calls.ask(lambda stub: stub.DelayLevels, pb.DelayLevelsRequest()).feature_level

            wait_until(lambda: level() == FEATURE_LEVEL, "the newest feature level")
        yield started


@pytest.fixture
def topic(group, request):
    """Return a function that creates a topic of its own for the test, and returns its name."""
    name = "".join(each for each in request.node.name if each.isalnum())[-60:]

    def create(queues=2, kind="", suffix=""):
        settings = pb.Topic(name=name + suffix, read_queues=queues, write_queues=queues, permission=6)
        if kind:
            settings.attributes["message.type"] = kind
        with BrokerCalls(",".join(group.addresses), PATIENCE_S) as calls:
            calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=settings))
        return name + suffix

    return create
