"""A standalone broker is killed under a mixed load; the answers to its clients are compared with its files."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.message_history import ClientOutcome, check_history, everything_is_delivered
from tests.support.message_load import TOPIC, mixed_load
from tests.support.stored_files import check_closed
from tests.support.waiting import run

KILLS = 3
SETTINGS = {
    "mapped_file_size": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
    "dedupe_window_count": 100_000,
}


@pytest.fixture
def broker(tmp_path):
    """Return a running broker."""
    process = BrokerProcess(tmp_path / "store", **SETTINGS)
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
            await load.until("a send was sent again", lambda: load.history.retried)
            await load.settle()
            return load.history

    history = run(main())
    assert broker.stop() == 0

    stored = check_closed(broker.path, tmp_path / "copy")
    check_history(history, [stored])
    everything_is_delivered(history, stored, {TOPIC})
    assert ClientOutcome.APPENDED in history.topics.values()
    assert len(history.retried) > 0
