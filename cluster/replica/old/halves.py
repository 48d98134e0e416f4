"""Which half messages of a RocketMQ store are open: their transactions continue, and the others are over.

| a half message | is |
| --- | --- |
| before the offset of CID_RMQ_SYS_TRANS in the half topic | over: RocketMQ has passed it |
| in the body of an op message from the group's offset in the op topic on | over |
| with a committed message in the log | committed; its op message, which a crash of RocketMQ took, is written again |
| put again by RocketMQ, to count a check or to wait | over: the last one of the same id counts |
| another one of an ended transaction (same producer group, topic and id) | over, even if the group has passed the op |
| any other | open |

RocketMQ may check a transaction, and put its half message again, before the op message of its end is written: it asks
about that one again, because the op message names the first one. Here the op messages since its first one was sent
count.

RocketMQ collects op messages in memory for up to three seconds. A rollback among those is forgotten, as by RocketMQ:
the producer is asked again. Nothing that may be open is left out: without the group's offsets all of both queues is
read.

Source: RocketMQ `TransactionalMessageServiceImpl.check`, `TransactionalMessageBridge`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.replica.old.records import properties_of, records_of, transaction_key
from cluster.state.effects import IMMUNITY_S_MAX, Ending
from cluster.state.transactions import CHECKS_MAX, OPEN_MAX, OpenTransaction, TransactionTable, name_hash
from store.model.message import IMMUNITY, PRODUCER_GROUP, TRANSACTION_ID, UNIQUE_KEY
from store.model.topics import HALF_TOPIC, OP_HALF_TOPIC, REAL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from commitlog.record.record import Record
    from store.access.message_store import MessageStore
    from store.steps import Steps

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_UNITS_PER_STEP: Final = 200
# Between the clocks of a producer and its broker.
_CLOCKS_MS: Final = 60_000


@dataclass(slots=True)
class OldHalves:
    """The half messages without an op message.

    Attributes:
        open: by offset of the half message, ascending.
        keys: of those that have an id.
        begin: log offset of the first one; 0: there is none.
        left_count: half messages beyond the limit of open transactions.
        begin_ms: when the first one of those that were put again was sent, milliseconds since 1970.
    """

    open: dict[int, OpenTransaction] = field(default_factory=dict)
    keys: dict[int, int] = field(default_factory=dict)
    begin: int = 0
    left_count: int = 0
    begin_ms: int = 1 << 62

    def drop(self, half: int) -> None:
        """Forget a half message, if it is known."""
        self.open.pop(half, None)
        self.keys.pop(half, None)

    def table(self, committed: set[int]) -> TransactionTable:
        """Return the transactions that continue, and those whose op message is missing.

        Args:
            committed: keys of the transactions that have a committed message.
        """
        table = TransactionTable()
        for half, row in self.open.items():
            if self.keys.get(half) in committed:
                table.end_old(half, row.physical_offset, Ending.COMMITTED)
            else:
                table.open_old(half, row)
        return table


def find_halves(store: MessageStore, half_offset: int, op_offset: int, log_end: int) -> Steps[OldHalves]:
    """Return the half messages that may be open, in steps of some milliseconds.

    Args:
        store: the old store.
        half_offset: offset of the group in the half topic; 0: unknown.
        op_offset: of the group in the op topic.
        log_end: end of the old store in the log.
    """
    found = OldHalves()
    ended = yield from _ended_halves(store, op_offset, log_end)
    by_key: dict[int, int] = {}
    for unit, record in records_of(store, HALF_TOPIC, 0, half_offset, log_end):
        if unit % _UNITS_PER_STEP == 0:
            yield
        if record is None or unit in ended:
            continue
        properties = properties_of(record)
        if REAL_TOPIC not in properties:
            continue
        key = transaction_key(properties)
        if key is not None and key in by_key:
            found.drop(by_key[key])
        if len(found.open) >= OPEN_MAX:
            found.left_count += 1
            continue
        found.open[unit] = _open_transaction(record, properties)
        if key is not None:
            found.keys[unit], by_key[key] = key, unit
            if found.open[unit].checks:
                found.begin_ms = min(found.begin_ms, record.born_timestamp)
    passed = store.offset_by_time(OP_HALF_TOPIC, 0, found.begin_ms - _CLOCKS_MS)
    if passed < op_offset:
        ended |= yield from _ended_halves(store, passed, log_end)
    if found.open:
        yield from _drop_ended(store, ended, by_key, found, log_end)
    found.begin = min((row.physical_offset for row in found.open.values()), default=0)
    return found


def _ended_halves(store: MessageStore, op_offset: int, log_end: int) -> Steps[set[int]]:
    """Return the offsets of half messages in op messages."""
    ended: set[int] = set()
    for unit, record in records_of(store, OP_HALF_TOPIC, 0, op_offset, log_end):
        if record is not None:
            texts = record.body.decode("ascii", "replace").split(",")
            ended.update(int(text) for text in texts if _NUMBER.fullmatch(text))
        if unit % _UNITS_PER_STEP == 0:
            yield
    return ended


def _drop_ended(
    store: MessageStore, ended: set[int], by_key: Mapping[int, int], found: OldHalves, log_end: int
) -> Steps[None]:
    """Drop other copies of transactions that an op message ends."""
    for number, half in enumerate(sorted(ended)):
        if number % _UNITS_PER_STEP == 0:
            yield
        unit, record = next(records_of(store, HALF_TOPIC, 0, half, log_end), (-1, None))
        key = None if record is None or unit != half else transaction_key(properties_of(record))
        if key is not None and key in by_key:
            found.drop(by_key[key])


def _open_transaction(record: Record, properties: Mapping[str, str]) -> OpenTransaction:
    checks = min(_number(properties, _CHECK_TIMES), CHECKS_MAX)
    transaction_id = properties.get(TRANSACTION_ID) or properties.get(UNIQUE_KEY, "")
    return OpenTransaction(
        record.physical_offset,
        record.store_timestamp,
        # RocketMQ puts a half message again when it checks.
        record.store_timestamp if checks else 0,
        record.size,
        name_hash(properties.get(PRODUCER_GROUP, "")),
        name_hash(transaction_id),
        min(_number(properties, IMMUNITY), IMMUNITY_S_MAX),
        checks,
    )


def _number(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else 0
