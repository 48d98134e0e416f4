"""What waits at a standalone broker continues in the group that its store becomes, each once."""

import asyncio

import pytest

from cluster.broker.core import wall_clock_ms
from cluster.delivery.delay_levels import DelayDelivery
from cluster.delivery.diversion import DeliverAt, diverted
from cluster.delivery.timers import TimerDelivery
from cluster.delivery.transactions.ends import EndRequest, TransactionEnds
from cluster.delivery.transactions.half_messages import with_halves
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.commands import QueueOffset, ResetOffsets, SetGroup, SetTopic
from cluster.state.effects import Ending, Returned, encode_effect
from cluster.state.pop.ops import Done, PopOps, Take
from cluster.state.waiting_commands import CountChecks
from commitlog.record.effects import properties_with_effect
from store.model.message import Message
from store.model.sys_flag import CARRIES_EFFECT
from tests.support.brokers.old_stores import opened
from tests.support.brokers.replicated import configs_in, running_group
from tests.support.waiting import run, until

pytestmark = pytest.mark.slow
KEY = b"k" * 16
HOUR_MS = 3_600_000


def halves(*keys):
    messages = [Message("T", key.encode(), 0, {"TRAN_MSG": "true", "UNIQ_KEY": key, "PGROUP": "g"}) for key in keys]
    return with_halves(messages, range(len(keys)))


async def write_standalone(root, begin_ms):
    """Leave transactions, one checked and one ended; a returned message; pops in flight; a delay; two times."""
    replica = opened(root)
    for command in (SetTopic(TopicConfig("T", 1, 1)), SetGroup(GroupConfig("g"))):
        await replica.change(command)
    await replica.begin_prepared_put(halves("a", "b", "c", "d"))
    ends = TransactionEnds(replica, wall_clock_ms, lambda _: None)
    task = asyncio.create_task(ends.run())
    await ends.begin(EndRequest(0, Ending.COMMITTED, is_own=True))
    await replica.change(CountChecks(begin_ms, ((1, 3),)))
    task.cancel()
    raw = properties_with_effect(b"", encode_effect(Returned(KEY, is_dead=False)))
    await replica.begin_own_put([Message("T", b"back", 0, raw, sys_flag=CARRIES_EFFECT)])
    plain = [Message("T", b"plain %d" % number, 0, {}) for number in range(6)]
    await replica.begin_put(plain)
    await replica.change(ResetOffsets("g", (QueueOffset("T", 0, 2),)))
    await replica.change(PopOps(begin_ms, (Take("g", "T", 0, 1, 0, 2, 8, HOUR_MS, (), (), tuple(range(2, 8))),)))
    (taken,) = replica.state.pop.queues.values()
    await replica.change(PopOps(begin_ms, (Done("g", "T", 0, 1, taken.last_serial, (2, 4)),)))
    times = [DeliverAt(1_000), DeliverAt(begin_ms + 2 * HOUR_MS), 1]
    waiting = [Message("T", body, 0, {"UNIQ_KEY": body.decode()}) for body in (b"due", b"far", b"level")]
    await replica.begin_put(diverted(waiting, times))
    await replica.stop()
    return replica.state


def test_transactions_returns_pops_delays_and_times_of_a_standalone_broker_continue_in_a_group(tmp_path):
    async def scenario():
        begin_ms = wall_clock_ms()
        old = await write_standalone(tmp_path / "n0", begin_ms)
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await group.start()
            replica = await group.leader()
            await until(lambda: replica.state.feature_level == 2)
            state = replica.state
            assert [half for half, _ in state.transactions.open_from(0, 9)] == [1, 2, 3]
            assert state.transactions.find(1) == old.transactions.find(1)
            assert state.transactions.find(1).checks == 3
            assert state.transactions.ended(0).ending is Ending.COMMITTED
            assert state.returned.is_dead(KEY) is False
            ((key, in_flight),) = state.pop.queues.items()
            assert key == ("g", "T", 0)
            assert in_flight.runs() == next(iter(old.pop.queues.values())).runs()
            assert state.offset("g", "T", 0).offset == old.offset("g", "T", 0).offset == 3
            tasks = [
                TransactionEnds(replica, wall_clock_ms, lambda _: None),
                TimerDelivery(replica, lambda: begin_ms + HOUR_MS, lambda _: None, lambda *_: None),
                DelayDelivery(replica, lambda: begin_ms + HOUR_MS, lambda _: None, lambda _: None),
            ]
            running = [asyncio.create_task(each.run()) for each in tasks]
            assert await tasks[0].begin(EndRequest(1, Ending.COMMITTED, is_own=True))
            assert not await tasks[0].begin(EndRequest(0, Ending.COMMITTED, is_own=True))
            await until(lambda: replica.store.max_offset("T", 0) == 11)
            await until(lambda: not state.transactions.without_op)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            bodies = [bytes(each.body) for each in replica.store.get("T", 0, 0, 20).messages]
            assert bodies[:2] == [b"a", b"back"]
            assert sorted(bodies[8:]) == [b"b", b"due", b"level"]
            assert state.timers.waiting_count(2) == 1
            assert state.unfit_effects_count == 0

    run(scenario())
