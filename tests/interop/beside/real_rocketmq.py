"""A real RocketMQ 5.3.3 for tests: its name server and its broker, each a Java process, on loopback only.

The folder of the jars of `tests/interop/java/server/pom.xml` is in DLEDGER_INTEROP_ROCKETMQ_SERVER; `make interop`
fetches them. Both processes have small heaps, files in a folder of the test, and ports that were free.
"""

import asyncio
import json
import os
import shutil
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cluster.local.node import ClusterError, choose_ports
from tests.support.brokers.remoting_peer import RemotingPeer
from tests.support.waiting import PATIENCE_S, until_answered

JARS = "DLEDGER_INTEROP_ROCKETMQ_SERVER"
MISSING = "DLEDGER_INTEROP_ROCKETMQ_SERVER_MISSING"
# Producers are asked about their transactions, and again.
CHECKED_AFTER_MS = 1_000
BROKER, CLUSTER = "b", "DefaultCluster"
# RocketMQ's broker also listens at the port smaller by two.
_VIP_DISTANCE = 2
_PORT_TRIES_MAX = 50
_CLUSTERS = 106
_SHOWN_BYTES = 4_000


class RealAddresses(NamedTuple):
    """Where RocketMQ's processes listen, `host:port` of each."""

    names: str
    broker: str


def missing():
    """Return the reason why no RocketMQ can be started here; empty: it can."""
    if not os.environ.get(JARS):
        return os.environ.get(MISSING) or f"needs the jars of RocketMQ 5.3.3; {JARS} is their folder (`make interop`)"
    return "" if shutil.which("java") else "needs Java 17 or newer on the PATH"


@asynccontextmanager
async def real_rocketmq(folder):
    """Start a name server and a broker, and yield their addresses when both answer.

    Args:
        folder: an empty directory, for stores, settings and logs.
    """
    names_port, broker_port, ha_port = _ports()
    names, broker = f"127.0.0.1:{names_port}", f"127.0.0.1:{broker_port}"
    async with AsyncExitStack() as stack:
        settings = {"listenPort": names_port, "bindAddress": "127.0.0.1", "kvConfigPath": folder / "kv.json"}
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        server = await stack.enter_async_context(_process(folder, "names", main, settings))
        await _until(server, lambda: _clusters(names), "the name server answers")
        settings = {
            "listenPort": broker_port,
            "bindAddress": "127.0.0.1",
            "haListenPort": ha_port,
            "brokerIP1": "127.0.0.1",
            "brokerName": BROKER,
            "brokerClusterName": CLUSTER,
            "namesrvAddr": names,
            "storePathRootDir": folder / "store",
            "storePathCommitLog": folder / "store" / "commitlog",
            "mappedFileSizeCommitLog": 16 << 20,
            "mappedFileSizeConsumeQueue": 20_000,
            "maxIndexNum": 4_000,
            "maxHashSlotNum": 1_000,
            # Of the disk of the machine; a full one is no matter of these tests.
            "diskMaxUsedSpaceRatio": 95,
            "transactionTimeOut": CHECKED_AFTER_MS,
            "transactionCheckInterval": CHECKED_AFTER_MS,
            # What ours always has.
            "enablePropertyFilter": "true",
            "recallMessageEnable": "true",
        }
        server = await stack.enter_async_context(
            _process(folder, "broker", "org.apache.rocketmq.broker.BrokerStartup", settings)
        )
        await _until(server, lambda: _is_registered(names), "the broker has registered at the name server")
        yield RealAddresses(names, broker)


def _ports():
    """Return ports of the name server, of the broker, and of its replication."""
    for _ in range(_PORT_TRIES_MAX):
        names, broker, ha = choose_ports(3, None)
        with suppress(ClusterError):
            if broker - _VIP_DISTANCE not in (names, ha) and choose_ports(1, broker - _VIP_DISTANCE):
                return names, broker, ha
    raise AssertionError(f"no port was found with a free one smaller by {_VIP_DISTANCE}")


def _command(folder, name, main, settings):
    """Return the command that runs a class of RocketMQ, after its settings were written."""
    file = folder / f"{name}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    options = ("-Xms64m", "-Xmx400m", "-XX:MaxDirectMemorySize=256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    # Logs go below user.home.
    places = (f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}")
    return ("java", *options, *places, "-cp", f"{Path(os.environ[JARS]).resolve()}/*", main, "-c", str(file))


@asynccontextmanager
async def _process(folder, name, main, settings):
    """Start a class of RocketMQ, and yield the process and the file with what it prints; end it after the block."""
    command, printed = _command(folder, name, main, settings), folder / f"{name}.out"
    with printed.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, cwd=folder, env={**os.environ, "ROCKETMQ_HOME": str(folder)}
        )
    try:
        yield process, printed
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _until(server, question, what):
    """Wait until a question to a process has a true answer; fail at once if it has ended."""
    process, printed = server

    async def is_so():
        assert process.returncode is None, f"RocketMQ has ended:\n{_end_of(printed)}"
        return await question()

    await until_answered(is_so, lambda: f"{what}\n{_end_of(printed)}", 2 * PATIENCE_S)


def _end_of(printed):
    return printed.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace")


async def _clusters(names):
    """Return the name server's table of clusters; None: it does not answer yet."""
    try:
        async with RemotingPeer(names) as peer:
            return await peer.ask(_CLUSTERS)
    except (OSError, asyncio.IncompleteReadError):
        return None


async def _is_registered(names):
    found = await _clusters(names)
    # Its keys may be bare numbers, which is no JSON; the name of the broker is enough here.
    return found is not None and json.dumps(BROKER).encode() in found.body
