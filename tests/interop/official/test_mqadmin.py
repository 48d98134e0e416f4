"""RocketMQ's mqadmin 5.3.3 against the remoting front of a broker: what each of its commands shows.

The folder of the jars of `org.apache.rocketmq:rocketmq-tools:5.3.3` is in DLEDGER_MQADMIN_LIB (`make interop` fetches
them); without it the tests are skipped. All commands run in one JVM, whose version is 17 to 23, because the commands
call `System.exit`.
"""

import asyncio
import os
import shlex
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.cluster.api.conftest import TOPIC, run
from tests.interop.official.mqadmin_commands import COMMANDS
from tests.interop.served import served

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "java" / "mqadmin" / "MqadminSession.java"
# What a command prints whose time was too short; a trace of a message is sent some time after it.
BUSY = ("RemotingTimeoutException", "RemotingSendRequestException", "RemotingConnectException")
ATTEMPTS = 3
TWO = '[{{"{0}":"{1}1"}},{{"{0}":"{1}2"}}]'


class Session:
    """A JVM that runs commands, one after the other."""

    def __init__(self, process):
        self._process = process

    async def run(self, *arguments, limit_s=60.0):
        """Return the output of a command."""
        self._process.stdin.write("\t".join([str(limit_s), *arguments]).encode() + b"\n")
        size, _, _state = (await self._process.stdout.readline()).decode().strip().partition(" ")
        return (await self._process.stdout.readexactly(int(size))).decode()

    async def patient_run(self, command, address, values):
        """Return the output of a command, of another run after a timeout of its own 3 s or 5 s on a busy machine."""
        arguments = (*shlex.split(command.line.format(**values)), "-n", address)
        for _ in range(ATTEMPTS):
            printed = await self.run(*arguments, limit_s=command.limit_s)
            if not any(each in printed for each in BUSY) and not missing(printed, filled(command, values)):
                break
        return printed


def filled(command, values):
    return [each.format(**values) for each in command.expected]


@asynccontextmanager
async def session(folder):
    lib = os.environ["DLEDGER_MQADMIN_LIB"]
    options = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Djava.security.manager=allow", f"-Duser.home={folder}")
    command = ("java", *options, "-cp", f"{lib}/*", str(PROGRAM))
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    # Some commands write files where they run.
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=none, cwd=folder)
    try:
        yield Session(process)
    finally:
        process.kill()
        await process.communicate()


@pytest.fixture
def folder(tmp_path):
    if not os.environ.get("DLEDGER_MQADMIN_LIB"):
        pytest.skip("needs the jars of rocketmq-tools 5.3.3; DLEDGER_MQADMIN_LIB is their folder")
    return tmp_path


def missing(printed, expected):
    """Return the texts that are not printed, or must not be."""
    return [each for each in expected if (each.removeprefix("!") in printed) == each.startswith("!")]


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
            sent = await tool.run("sendMessage", "-t", "New", "-p", "hello", "-n", address)
            route = await tool.run("topicRoute", "-t", "New", "-n", address)
            if is_automatic:
                assert not missing(sent, ["SEND_OK", "!Exception"]), sent
                assert '"writeQueueNums":3' in route
            else:
                assert "No route info of this topic" in sent
                assert "auto_create_topic_enable" in route

    run(scenario)
