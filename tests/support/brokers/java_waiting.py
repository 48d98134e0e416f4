"""Stores that a RocketMQ broker left with messages that wait: what is in them, and what must become of it.

`WaitingWriter.java` of tests/interop/java writes them. Bodies are the names of messages.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from cluster.delivery.delay_levels import DelayDelivery
from cluster.delivery.timers import TimerDelivery
from cluster.delivery.transactions.ends import EndRequest, TransactionEnds
from cluster.state.effects import Ending
from store.model.topics import HALF_TOPIC, TIMER_TOPIC
from tests.support.waiting import until

if TYPE_CHECKING:
    from cluster.replica.port import Replica
    from commitlog.plain.commit_log import PlainCommitLog
    from store.model.message import StoredMessage

HOUR_MS: Final = 3_600_000
GROUP: Final = "payments"
# What the Java broker has delivered and committed.
DONE: Final = {
    "delays": ["delay-done-0", "delay-done-1", "delay-done-2", "delay-late"],
    "timers": ["timer-done-0", "timer-done-1"],
    "bills": ["half-committed-0", "half-committed-1", "half-committed-late"],
}
# What is due half a minute later, and after hours.
NEXT: Final = {"delays": ["delay-next-0", "delay-next-1"], "timers": ["timer-next-0", "timer-next-1"]}
FAR: Final = {
    "delays": ["delay-far-0", "delay-far-1"],
    "timers": ["timer-far-0", "timer-far-1", "timer-rolled-0", "timer-rolled-1"],
}
# How the open transactions are ended here.
ENDINGS: Final = {
    "half-checked-0": Ending.COMMITTED,
    "half-checked-1": Ending.ROLLED_BACK,
    "half-immune": Ending.ROLLED_BACK,
    "half-new": Ending.COMMITTED,
}
COMMITTED: Final = [name for name, ending in ENDINGS.items() if ending is Ending.COMMITTED]


def names_of(*tables: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the names of each topic in several tables, sorted."""
    return {topic: sorted(name for table in tables for name in table.get(topic, ())) for topic in DONE}


def names_in(replica: Replica) -> dict[str, list[str]]:
    """Return the names of the messages that each topic has, sorted."""
    return {topic: sorted(_bodies(replica, topic)) for topic in DONE}


def _bodies(replica: Replica, topic: str) -> list[str]:
    messages = replica.store.get(topic, 0, 0, 1_000).messages
    return [bytes(each.body).decode() for each in messages]


async def assert_all_continues(replica: Replica, log: PlainCommitLog | None = None) -> None:
    """Deliver and end what waits, as the broker does; assert that each is delivered or ended once.

    Args:
        replica: of the opened store, which accepts puts.
        log: of a standalone broker: its clock is set, and nothing may be delivered before its time. In a group a record
            of now makes everything due that was due before.
    """
    assert names_in(replica) == names_of(DONE)
    end_ms = replica.store.get("bills", 0, 2, 1).messages[0].store_timestamp
    clock_ms = [end_ms]
    if log is not None:
        log._clock = lambda: clock_ms[0]
    ends = TransactionEnds(replica, lambda: clock_ms[0], lambda _: None)
    timers = TimerDelivery(replica, lambda: clock_ms[0], lambda _: None, lambda *_: None)
    delays = DelayDelivery(replica, lambda: clock_ms[0], lambda _: None, lambda _: None)
    tasks = [asyncio.create_task(running) for running in (ends.run(), timers.run(), delays.run())]
    await _end_transactions(replica, ends)
    expected = [DONE, {"bills": COMMITTED}]
    for later_ms, more in ((0, {}), (60_000, NEXT), (3 * HOUR_MS, FAR)):
        clock_ms[0] = end_ms + later_ms
        expected.append(more)
        if log is not None or more is FAR:
            # A group's leader answers before it has dispatched.
            await until(lambda: names_in(replica) == names_of(*expected), lambda: f"{names_in(replica)}")
    state = replica.state
    await until(lambda: not state.transactions.without_op)
    await until(lambda: state.timers.waiting_count(replica.store.max_offset(TIMER_TOPIC, 0)) == 0)
    await until(lambda: state.delay_offsets == {1: 4, 4: 2, 18: 2})
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert names_in(replica) == names_of(*expected)
    assert state.transactions.open_count == 0
    assert state.unfit_effects_count == 0


async def _end_transactions(replica: Replica, ends: TransactionEnds) -> None:
    """End each open transaction, then once more."""
    table = replica.state.transactions
    halves = [half for half, _ in table.open_from(0, 100)]
    assert sorted(_half(replica, half).body.decode() for half in halves) == sorted(ENDINGS)
    for half in halves:
        message = _half(replica, half)
        name, key = message.body.decode(), message.properties["UNIQ_KEY"]
        row = table.find(half)
        assert row is not None
        # RocketMQ counts a check of an immune one, too, when it puts it again without a question.
        assert (row.checks > 0) == (name != "half-new")
        assert row.immunity_s == (600 if name == "half-immune" else 0)
        request = EndRequest(half, ENDINGS[name], message.physical_offset, "bills", GROUP, key)
        assert await ends.begin(request)
        assert not await ends.begin(request)


def _half(replica: Replica, half: int) -> StoredMessage:
    (message,) = replica.store.get(HALF_TOPIC, 0, half, 1).messages
    return message
