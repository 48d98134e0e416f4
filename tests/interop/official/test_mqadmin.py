"""RocketMQ's mqadmin 5.3.3 against the remoting front of a broker: what each of its commands shows.

The folder of the jars of `org.apache.rocketmq:rocketmq-tools:5.3.3` is in DLEDGER_MQADMIN_LIB (`make interop` fetches
them); without it the tests are skipped. All commands run in one JVM, whose version is 17 to 23, because the commands
call `System.exit`.
"""

import pytest

from tests.integration.cluster.api.conftest import TOPIC, run
from tests.interop.official.mqadmin_commands import COMMANDS, Command
from tests.interop.official.mqadmin_session import filled, missing, session, skip_without_mqadmin
from tests.interop.served import served

pytestmark = pytest.mark.slow

TWO = '[{{"{0}":"{1}1"}},{{"{0}":"{1}2"}}]'


@pytest.fixture
def folder(tmp_path):
    skip_without_mqadmin()
    return tmp_path


def test_every_command_of_mqadmin_shows_what_the_broker_has_or_why_it_has_not(folder):
    (folder / "topics.json").write_text(TWO.format("topicName", "L"))
    (folder / "groups.json").write_text(TWO.format("groupName", "H"))

    async def scenario():
        async with served(folder / "store", trace_topic_enable=True) as address, session(folder) as tool:
            names = (await tool.run("@names")).split()
            assert set(names) == {each.name for each in COMMANDS}
            printed = await tool.run("@clients", address, TOPIC)
            lines = [line.split() for line in printed.splitlines()]
            assert len(lines) == 3, printed
            values = {"b": address, "C": "DefaultCluster", "d": str(folder), "client": lines[2][0], "traced": ""}
            values |= dict(zip(("unique", "place", "q"), lines[0][:3], strict=True))
            wrong = []
            for command in COMMANDS:
                printed = await tool.patient_run(command, address, values)
                if command.line.endswith("-m true"):
                    values["traced"] = printed.split()[-1]
                lacking = missing(printed, filled(command, values))
                if lacking:
                    wrong.append(f"{command.line}: {lacking}\n{printed[:1_500]}")
            assert not wrong, "\n\n".join(wrong)

    run(scenario)


@pytest.mark.parametrize("is_automatic", [False, True])
def test_a_java_producer_creates_a_topic_by_its_first_message_only_if_that_is_on(folder, is_automatic):
    async def scenario():
        async with (
            served(folder / "store", auto_create_topic_enable=is_automatic, default_topic_queue_nums=3) as address,
            session(folder) as tool,
        ):
            sent = ("SEND_OK", "!Exception") if is_automatic else ("No route info of this topic",)
            route = '"writeQueueNums":3' if is_automatic else "auto_create_topic_enable"
            commands = Command("sendMessage -t New -p hello", sent), Command("topicRoute -t New", (route,))
            for command in commands:
                printed = await tool.patient_run(command, address, {})
                assert not missing(printed, command.expected), printed

    run(scenario)
