"""Takes the facts that metrics under RocketMQ's names show, on the event loop and in steps."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cluster.broker.core import wall_clock_ms
from cluster.broker.group_lag import lag_steps
from cluster.broker.rocketmq_metrics import BrokerFacts
from cluster.process.cooperative import run_cooperatively
from store.errors import StoreError

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.broker.group_members import GroupMembers
    from store.access.message_store import MessageStore


async def taken_facts(core: BrokerCore, members: GroupMembers) -> BrokerFacts:
    """Return the facts now; only a leader has the lag of groups, so that a sum over nodes counts each once."""
    traffic, state, store = core.traffic, core.replica.state, core.replica.store
    assert traffic is not None
    traffic.forget(traffic.topics() - state.topics.keys(), traffic.groups() - state.groups.keys())
    status, now_ms = core.replica.status(), wall_clock_ms()
    lags = await run_cooperatively(lag_steps(state, store, traffic, now_ms)) if status.is_leading else []
    return BrokerFacts(
        is_serving_puts=status.is_serving_puts,
        topics=len(state.topics),
        groups=len(state.groups),
        puts=dict(traffic.puts),
        reads=dict(traffic.reads),
        calls=dict(traffic.calls),
        members=members.counts(),
        streams=traffic.streams,
        lags=lags,
        log_bytes=store.log.end_offset - store.log.begin_offset,
        behind_bytes=store.derived.dispatcher.behind_bytes,
        reserve_ms=_reserve_ms(store, now_ms),
    )


def _reserve_ms(store: MessageStore, now_ms: int) -> int:
    """Return the age of the first record of the log; -1 without one."""
    with suppress(StoreError):
        first = store.log.find(store.log.begin_offset)
        if first is not None:
            return max(now_ms - first.store_timestamp, 0)
    return -1
