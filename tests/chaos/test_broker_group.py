"""Leaders of a broker are killed under a mixed load; answers to clients are compared with the files of all nodes."""

from __future__ import annotations

import asyncio
import os
import random
import time

import pytest

from tests.support.brokers.group import BROKER, BrokerGroup
from tests.support.message_history import ClientOutcome, check_history, everything_is_delivered
from tests.support.message_load import TOPIC, mixed_load
from tests.support.stored_files import check_closed, check_states
from tests.support.waiting import SCENARIO_LIMIT_S, run

KILLS = int(os.environ.get("DLEDGER_BROKER_KILLS", "4"))


@pytest.fixture
def group(tmp_path):
    """Return three running nodes."""
    with BrokerGroup(tmp_path / "group") as group:
        yield group


def run_load(group, scenario):
    """Run a scenario under load, wait until it settles; return the history."""
    seed = random.SystemRandom().randrange(1 << 32)

    async def main():
        async with mixed_load(BROKER, group.addresses, seed) as load:
            await scenario(load)
            await load.settle()
            return load.history

    return run(main(), SCENARIO_LIMIT_S + 10 * KILLS)


def check(group, history, copy):
    """Stop all nodes and compare the history with their files."""
    group.wait_equal()
    group.cluster.stop()
    stored = [check_closed(root, copy) for root in group.roots]
    check_history(history, stored)
    assert check_states(stored) > 0, "no snapshot of broker state was taken"
    everything_is_delivered(history, stored[0], {TOPIC})
    return stored


def test_every_answer_holds_when_the_leader_is_killed_again_and_again(group, tmp_path):
    failovers_s = []
    terms = set()

    async def scenario(load):
        for _ in range(KILLS):
            await load.wait(200)
            leader, term = await asyncio.to_thread(group.leader)
            terms.add(term)
            await asyncio.to_thread(group.kill, leader)
            killed_at = time.monotonic()
            await load.wait(1)
            failovers_s.append(time.monotonic() - killed_at)
            await asyncio.to_thread(group.cluster.start_node, leader)
        await load.wait(200)
        await load.until("sends were sent again", lambda: len(load.history.retried) > KILLS)

    history = run_load(group, scenario)
    stored = check(group, history, tmp_path / "copy")

    print(f"failover, s: {' '.join(f'{each:.2f}' for each in sorted(failovers_s))}")
    assert len(terms) == KILLS
    assert len(history.retried) > KILLS
    made = {name for name, outcome in history.topics.items() if outcome is ClientOutcome.APPENDED}
    assert made <= set(stored[0].topics())
    assert not {name for name, outcome in history.topics.items() if outcome is ClientOutcome.NOT_APPENDED} & set(
        stored[0].topics()
    )


def test_every_answer_holds_when_all_nodes_are_killed_at_once(group, tmp_path):
    async def scenario(load):
        for _ in range(2):
            await load.wait(300)
            await asyncio.to_thread(group.kill)
            await asyncio.to_thread(group.cluster.start)
        await load.wait(300)

    check(group, run_load(group, scenario), tmp_path / "copy")
