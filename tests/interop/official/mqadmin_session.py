"""RocketMQ's mqadmin 5.3.3 in one JVM, for tests: commands, and what they print."""

import asyncio
import os
import shlex
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "java" / "mqadmin" / "MqadminSession.java"
# What a command prints whose time was too short; a trace of a message is sent some time after it.
BUSY = ("RemotingTimeoutException", "RemotingSendRequestException", "RemotingConnectException")
ATTEMPTS = 3


def skip_without_mqadmin():
    """Skip the test, with a reason, unless the jars of mqadmin are there."""
    if not os.environ.get("DLEDGER_MQADMIN_LIB"):
        pytest.skip("needs the jars of rocketmq-tools 5.3.3; DLEDGER_MQADMIN_LIB is their folder")


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


def missing(printed, expected):
    """Return the texts that are not printed, or must not be."""
    return [each for each in expected if (each.removeprefix("!") in printed) == each.startswith("!")]


@asynccontextmanager
async def session(folder, *properties):
    """Yield a JVM with properties; its commands read the files of RocketMQ's home, which is the folder."""
    lib = os.environ["DLEDGER_MQADMIN_LIB"]
    options = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Djava.security.manager=allow", f"-Duser.home={folder}")
    own = (f"-Drocketmq.home.dir={folder}", *properties)
    command = ("java", *options, *own, "-cp", f"{lib}/*", str(PROGRAM))
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    # Some commands write files where they run.
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=none, cwd=folder)
    try:
        yield Session(process)
    finally:
        process.kill()
        await process.communicate()
