"""RocketMQ's mqadmin 5.3.3 against the remoting front of a broker: what its commands show.

The folder of the jars of `org.apache.rocketmq:rocketmq-tools:5.3.3` is in DLEDGER_MQADMIN_LIB (by `mvn
dependency:copy-dependencies`); without it the test is skipped.
"""

import asyncio
import os

import pytest

from cluster.fronts.leader_link import LeaderLink
from cluster.remoting.admin.assembly import Administration
from cluster.remoting.clients import ClientTable
from cluster.remoting.command import Response
from cluster.remoting.front import Front
from cluster.remoting.names.part import NameServerRole
from cluster.remoting.server import RemotingServer
from cluster.v1 import broker_pb2 as pb
from dledger.config import Address
from dledger.security.settings import PLAIN
from tests.integration.cluster.api.conftest import TOPIC, Shop, run
from tests.support.brokers.front_callers import callers_of

pytestmark = pytest.mark.slow

MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


async def mqadmin(lib, port, command):
    """Return the output of a command."""
    program = ("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{lib}/*", MAIN)
    process = await asyncio.create_subprocess_exec(
        *program,
        *command.split(),
        "-n",
        f"127.0.0.1:{port}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    return printed.decode()


async def alive(_request, _client):
    """Answer a heartbeat."""
    return Response()


# What each command prints, among other things. {broker}: `host:port`.
COMMANDS = (
    ("updateTopic -b {broker} -t Made -r 3 -w 3", ("create topic to", "readQueueNums=3")),
    ("updateSubGroup -b {broker} -g G2", ("create subscription group to",)),
    ("topicList", (TOPIC, "Made")),
    ("topicRoute -t Made", ('"readQueueNums":3',)),
    ("topicStatus -t {topic}", ("#Max Offset", "2")),
    ("clusterList", ("DefaultCluster", "V5_3_3")),
    ("brokerStatus -b {broker}", ("commitLogMaxOffset", "msgPutTotalTodayNow")),
    ("getBrokerConfig -b {broker}", ("brokerName", "autoCreateTopicEnable")),
    ("consumerProgress -g G", ("#Consumer Offset", "Diff Total: 1")),
    ("resetOffsetByTime -g G -t {topic} -s now", ("#offset", "2")),
    ("queryMsgByKey -t {topic} -k k1", ("U1",)),
    ("queryMsgByUniqueKey -t {topic} -i U1", ("Keys:",)),
    ("deleteTopic -c DefaultCluster -t Made", ("success",)),
    ("updateBrokerConfig -b {broker} -k a -v b", ("in its file",)),
)


def test_commands_of_mqadmin_show_what_the_broker_has(tmp_path):
    lib = os.environ.get("DLEDGER_MQADMIN_LIB", "")
    if not lib:
        pytest.skip("needs the jars of rocketmq-tools 5.3.3; DLEDGER_MQADMIN_LIB is their folder")
    shop = Shop(tmp_path / "store")

    async def scenario():
        async with shop.open():
            core, link = shop.broker.core, LeaderLink(lambda: str(shop.address), PLAIN)
            addresses = {core.options.self_id: "127.0.0.1:1"}
            handlers = {34: alive, 35: alive, **NameServerRole(core, link, addresses).handlers()}
            handlers |= Administration(core, link, ClientTable(), str(shop.path), 0).handlers()
            server = RemotingServer([Address("127.0.0.1", 0)], Front(handlers, callers_of(core), core.options.cluster))
            await server.start()
            try:
                broker = addresses[core.options.self_id] = f"127.0.0.1:{server.ports[0]}"
                properties = [b"KEYS\x01k1\x02UNIQ_KEY\x01U1\x02", b"UNIQ_KEY\x01U2\x02"]
                await shop.put(b"one", b"two", properties=properties)
                commit = pb.CommitOffsetRequest(group="G", topic=TOPIC, queue_ids=[0], offsets=[1])
                await shop.stub.CommitOffset(commit)
                values = {"broker": broker, "topic": TOPIC}
                missing = {}
                for command, expected in COMMANDS:
                    printed = await mqadmin(lib, server.ports[0], command.format(**values))
                    if not all(each in printed for each in expected):
                        missing[command] = (expected, printed[-1_500:])
                assert not missing, "\n\n".join(f"{name}: {why[0]}\n{why[1]}" for name, why in missing.items())
            finally:
                await server.stop(0.1)
                await link.close()

    run(scenario)
