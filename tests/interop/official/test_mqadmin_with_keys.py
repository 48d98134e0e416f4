"""RocketMQ's mqadmin 5.3.3, unchanged, over TLS with access keys, at a closed group of three brokers of ours."""

import asyncio

import pytest

from tests.interop.official.closed_group import OPERATOR, READER, SHOP, closed_group
from tests.interop.official.mqadmin_commands import Command
from tests.interop.official.mqadmin_session import filled, missing, session, skip_without_mqadmin
from tests.support.waiting import run

NO_KEY, DENIED, FAILED = "access key", "CODE: 16", "!Exception"
ALL_SEE = ("topicRoute -t orders", '"brokerName":"broker-a"', FAILED)
# Of the administrator, in this order.
COMMANDS = (
    ("updateTopic -c DefaultCluster -t Made -r 2 -w 2", "create topic to", FAILED),
    ("topicList", "Made\n", "orders\n", FAILED),
    ("clusterList", "broker-a", "V5_3_3", FAILED),
    ("updateSubGroup -c DefaultCluster -g Ggroup", "create subscription group to", FAILED),
    ("sendMessage -t orders -p hello", "SEND_OK", FAILED),
    ("topicStatus -t orders", "#Max Offset", FAILED),
    ("deleteTopic -c DefaultCluster -t Made", "success", FAILED),
    ALL_SEE,
)
# What each key may not, and what it may, at the same port.
OTHERS = {
    "shop": (
        (SHOP.key, SHOP.secret),
        (
            ("sendMessage -t orders -p hello", "SEND_OK", FAILED),
            ("updateTopic -c DefaultCluster -t New -r 2 -w 2", DENIED, "lacks Get on Cluster:DefaultCluster"),
            ("topicList", DENIED, "lacks List on Cluster:DefaultCluster"),
            ("clusterList", DENIED, "lacks Get on Cluster:DefaultCluster"),
            ALL_SEE,
        ),
    ),
    "reader": (
        (READER.key, READER.secret),
        (("sendMessage -t orders -p hello", DENIED, "lacks Pub on Topic:orders", "!SEND_OK"), ALL_SEE),
    ),
    "wrong": (
        (OPERATOR.key, "SK-of-another"),
        (
            ("topicList", DENIED, NO_KEY),
            ("topicRoute -t orders", DENIED, NO_KEY),
            ("sendMessage -t orders -p hello", "No route info", "!SEND_OK"),
        ),
    ),
    "unsigned": (None, (("topicList", DENIED, NO_KEY), ("clusterList", DENIED, NO_KEY))),
}


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Return the closed group, shared by the tests of the module."""
    skip_without_mqadmin()
    with closed_group(tmp_path_factory.mktemp("closed") / "run", {"orders": ""}) as made:
        yield made


def write_key(folder, key):
    """Write the file from which the tool reads its access key before each command; None: there is none."""
    file = folder / "conf" / "tools.yml"
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    if key is not None:
        file.write_text(f"accessKey: {key[0]}\nsecretKey: {key[1]}\n")


async def wrong_outputs(tool, group, commands):
    """Run commands; return those that do not print what they must."""
    found = []
    for line, *expected in commands:
        command = Command(line, tuple(expected))
        printed = await tool.patient_run(command, group.brokers.remoting_endpoints, {})
        if lacking := missing(printed, filled(command, {})):
            found.append(f"{line}: {lacking}\n{printed[:1_500]}")
    return found


def test_commands_of_an_administrator_are_done_and_those_of_others_refused_with_the_missing_right(group, tmp_path):
    tls = ("-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true")
    trust = f"-Dtls.client.trustCertPath={group.authority_file}"

    async def scenario():
        async with session(tmp_path, *tls, trust) as tool:
            for name, (key, commands) in {"operator": ((OPERATOR.key, OPERATOR.secret), COMMANDS), **OTHERS}.items():
                await asyncio.to_thread(write_key, tmp_path, key)
                wrong = await wrong_outputs(tool, group, commands)
                assert not wrong, f"{name}: " + "\n\n".join(wrong)

    run(scenario())


def test_a_tool_without_tls_gets_an_error(group, tmp_path):
    async def scenario():
        async with session(tmp_path) as tool:
            write_key(tmp_path, (OPERATOR.key, OPERATOR.secret))
            line = ("topicList", "-n", group.brokers.remoting_endpoints)
            assert "Exception" in await tool.run(*line)

    run(scenario())
