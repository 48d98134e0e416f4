"""The commands by which delayed messages, messages for a time and half messages of a RocketMQ store continue.

| derived | as |
| --- | --- |
| offsets of the delay levels | `SetDelayOffsets` |
| units of the timer queue that do not wait | `PassTimers` |
| open transactions, and those whose op message is missing | `ImportPart` |

One search in the log shows what was delivered or committed after the progress that RocketMQ noted. It begins where the
first copy can be, so that it is short after a clean stop.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from cluster.replica.old.copies import Copies, find_copies
from cluster.replica.old.delays import find_delays
from cluster.replica.old.halves import TRANSACTION_GROUP, find_halves
from cluster.replica.old.timers import done_units, find_timers, read_progress
from cluster.state.commands import ResetOffsets
from cluster.state.old.commands import imports_of
from cluster.state.waiting_commands import PassTimers, SetDelayOffsets
from store.model.topics import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cluster.state.commands import Command
    from cluster.state.timers import DoneTimers
    from store.access.message_store import MessageStore
    from store.steps import Steps

logger = logging.getLogger(__name__)

_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC})
_TRANSACTIONS: Final = 3
# Each of at most `CHUNK_UNITS` units, so that their sum is within that of a command.
_RANGES_PER_COMMAND: Final = 2_048


def has_waiting(store: MessageStore) -> bool:
    """Return whether messages wait, or have waited, in an old store."""
    return any(key.topic in _TOPICS and store.max_offset(*key) > 0 for key in store.derived.queues)


def waiting_commands(root: Path, store: MessageStore, imported: Sequence[Command]) -> Steps[list[Command]]:
    """Return the commands of an old store of RocketMQ for what waits in it, in steps of some milliseconds.

    Args:
        root: directory of the store.
        store: the same, opened.
        imported: commands of RocketMQ's configuration, of which those with its progress are read.
    """
    offsets = {
        (command.group, each.topic): each.offset
        for command in imported
        if isinstance(command, ResetOffsets) and command.group == TRANSACTION_GROUP
        for each in command.offsets
        if each.queue_id == 0
    }
    known = dict(pair for command in imported if isinstance(command, SetDelayOffsets) for pair in command.offsets)
    log, log_end, last_ms = store.log, store.log.end_offset, store.log.last_store_timestamp
    half_offset, op_offset = (offsets.get((TRANSACTION_GROUP, topic), 0) for topic in (HALF_TOPIC, OP_HALF_TOPIC))
    halves = yield from find_halves(store, half_offset, op_offset, log_end)
    timers = yield from find_timers(store, read_progress(root), last_ms, log_end)
    delays = yield from find_delays(store, known, last_ms, log_end)
    copies = Copies({*halves.keys.values()})
    copies.wanted |= {key for key in timers.units.values() if key is not None}
    copies.wanted |= {key for keys in delays.keys.values() for key in keys if key is not None}
    begin = log.offset_at_timestamp(min(timers.begin_ms, delays.begin_ms))
    yield from find_copies(log, min(begin, halves.begin) if halves.open else begin, log_end, copies)
    table, waiting = halves.table(copies.committed), list(timers.waiting(copies))
    if halves.left_count:
        logger.error("half_messages_left count=%d: there are too many open transactions", halves.left_count)
    logger.info(
        "old_store_waiting timers=%d recalled=%d open_transactions=%d without_op=%d",
        len(waiting),
        timers.recall_count,
        table.open_count,
        len(table.without_op),
    )
    levels = {level: offset for level, offset in delays.delivered(copies).items() if offset}
    commands: list[Command] = [SetDelayOffsets(tuple(sorted(levels.items())))] if levels else []
    commands += timer_commands(done_units(timers.end, waiting))
    commands += imports_of({_TRANSACTIONS: table})
    return commands


def timer_commands(timers: DoneTimers) -> Iterator[PassTimers]:
    """Yield the commands after which the same units of the timer queue are done."""
    if not timers.is_empty:
        ranges = timers.done_ranges()
        yield PassTimers(timers.floor)
        while passed := tuple(islice(ranges, _RANGES_PER_COMMAND)):
            yield PassTimers(0, passed)
