"""A broker without a group is killed under a mixed load; what its clients were told is held against its files."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys

import grpc
import pytest

from cluster.local_node import choose_ports
from dledger.event_loop import new_event_loop
from tests.message_history import Fate, everything_is_delivered, judge
from tests.message_load import TOPIC, mixed_load
from tests.stored_files import check_closed

KILLS = 3
PATIENCE_S = 20.0
SETTINGS = {
    "mapped_file_size": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
    "dedupe_window_count": 100_000,
}


class BrokerProcess:
    """One `dledger broker --standalone` that may be killed and started again."""

    def __init__(self, path):
        (port,) = choose_ports(1, None)
        self.path = path
        self.address = f"127.0.0.1:{port}"
        self._process = None

    def start(self):
        command = [sys.executable, "-m", "cluster.cli", "broker", "--standalone", str(self.path)]
        command += ["--listen", self.address, "--name", "b"]
        for name, value in SETTINGS.items():
            command += ["--set", f"{name}={value}"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with grpc.insecure_channel(self.address) as channel:
            grpc.channel_ready_future(channel).result(PATIENCE_S)

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self):
        self._process.terminate()
        assert self._process.wait(PATIENCE_S) == 0


@pytest.fixture
def broker(tmp_path):
    """Return a broker that runs."""
    process = BrokerProcess(tmp_path / "store")
    process.start()
    yield process
    process.kill()


def test_every_answer_holds_when_the_broker_is_killed(broker, tmp_path):
    seed = random.SystemRandom().randrange(1 << 32)

    async def main():
        async with mixed_load("b", [broker.address], seed) as load:
            for _ in range(KILLS):
                await load.wait(1000)
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            await load.wait(1000)
            await load.settle()
            return load.history

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        history = runner.run(asyncio.wait_for(main(), 120))
    broker.stop()

    stored = check_closed(broker.path, tmp_path / "copy")
    judge(history, [stored])
    everything_is_delivered(history, stored, {TOPIC})
    assert Fate.APPENDED in history.topics.values()
    assert len(history.retried) > 0
