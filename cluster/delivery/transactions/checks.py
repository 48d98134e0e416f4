"""Asks producers about transactions that they have not ended, and gives up those that no producer decides.

One task on each node; only the leader's works. A transaction is due `timeout_ms` after its put, or after the immunity
that its producer has set if that is longer, and again `interval_ms` after each check:

| a due transaction | what follows |
| --- | --- |
| its half message cannot be read: deleted with its log file, or damaged | it is rolled back, with a line in the log |
| it was checked `checks_max` times | it is given up (`cluster.delivery.transactions.ends`) |
| a producer of its group has a stream | the check is counted by a command, then the producer is asked |
| otherwise | nothing: a check without a question does not count |

Whether due or not, a half message whose record the log will delete soon is put again, at most three times, and then
given up: so that a transaction whose producers never return ends some time, and its message is not lost.

A new leader begins `timeout_ms` after it accepts puts, so that producers can connect first. Counts are in the state, so
they never decrease. What is due is found by blocks of the table: one without changes is examined again only when its
earliest transaction is due.

Source: RocketMQ `TransactionalMessageServiceImpl.check`, which puts each half message again to count a check.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.delivery.leader_task import kept_ms
from cluster.delivery.transactions.ends import EndRequest, TransactionEnds, read_half
from cluster.delivery.transactions.producers import AskedProducers
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import PERMISSION_READ, TopicConfig
from cluster.state.commands import SetTopic
from cluster.state.effects import Ending
from cluster.state.features import WITH_TRANSACTIONS
from cluster.state.waiting_commands import CHECKS_PER_COMMAND_MAX, CountChecks
from dledger.errors import DLedgerError
from store.errors import StoreError
from store.model.topics import CHECK_MAX_TIME_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.delivery.transactions.producers import AskedProducer
    from cluster.replica.port import Replica
    from cluster.state.transactions import OpenTransaction

# Transactions that are ended, or read to be asked about, before other work of the loop.
_STEP: Final = 64
# Times that a half message is put again before its transaction is given up.
RENEWALS_MAX: Final = 3
# Ends that wait together.
_ENDS_MAX: Final = 256
# Until a transaction whose group has no producer is examined again; a producer that joins ends this pause.
_ABSENT_MS: Final = 10_000
# Until a transaction that is due, and that no producer has space for, is examined again.
_RETRY_MS: Final = 1_000
# After a failure: its cause may persist, for example a full disk.
_PAUSE_S: Final = 0.1
# The longest sleep: the wall clock may be set, and new transactions are noticed only when this task is awake.
_SLEEP_MAX_S: Final = 1.0
_MS_PER_S: Final = 1_000

logger = logging.getLogger(__name__)


class CheckSettings(NamedTuple):
    """When producers are asked.

    Attributes:
        timeout_ms: from the put to the first check.
        interval_ms: from one check to the next.
        checks_max: checks after which a transaction is given up.
    """

    timeout_ms: int = 6_000
    interval_ms: int = 30_000
    checks_max: int = 15

    def due_ms(self, row: OpenTransaction) -> int:
        """Return when a transaction is to be checked next, milliseconds since 1970."""
        first_ms = row.store_timestamp + max(row.immunity_s * _MS_PER_S, self.timeout_ms)
        return max(row.checked_ms + self.interval_ms, first_ms) if row.checks else first_ms


class _Found(NamedTuple):
    """What is due: offsets of half messages and their transactions; and offsets of those to put again."""

    due: list[tuple[int, OpenTransaction]]
    to_give_up: list[tuple[int, OpenTransaction]]
    expiring: list[int]


class TransactionChecks:
    """The checks on one node. Must be created inside the running loop.

    Args:
        replica: the node's.
        ends: ends transactions.
        settings: when producers are asked.
        clock_ms: the wall clock, milliseconds since 1970.
        on_asked: called with the number of transactions that producers were asked about.

    Attributes:
        producers: those that can be asked.
    """

    def __init__(
        self,
        replica: Replica,
        ends: TransactionEnds,
        settings: CheckSettings,
        clock_ms: Callable[[], int],
        on_asked: Callable[[int], None],
    ) -> None:
        self.producers = AskedProducers(self._joined)
        self._replica = replica
        self._ends = ends
        self._settings = settings
        self._clock_ms = clock_ms
        self._on_asked = on_asked
        self._keep_ms = kept_ms(replica)
        self._woken = asyncio.Event()
        # By a monotonic clock; None: this node does not serve puts.
        self._serving_since_s: float | None = None
        # Change count of each examined block, and when a transaction of it is due next.
        self._examined: dict[int, tuple[int, int]] = {}
        replica.when_status_changes(self._woken.set)

    def _joined(self) -> None:
        self._examined.clear()
        self._woken.set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            self._woken.clear()
            try:
                sleep_s = await self._check_due()
            except (RequestFailed, StoreError, DLedgerError) as error:
                logger.warning("checks_interrupted error=%r", str(error))
                await asyncio.sleep(_PAUSE_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(sleep_s):
                    await self._woken.wait()

    async def _check_due(self) -> float | None:
        """Check what is due; return the seconds to sleep; None: until the status changes.

        Raises:
            RequestFailed, StoreError, DLedgerError: it continues later.
        """
        replica, settings = self._replica, self._settings
        if not replica.status().is_serving_puts:
            self._serving_since_s = None
            self._examined.clear()
            return None
        now_s = asyncio.get_running_loop().time()
        if self._serving_since_s is None:
            self._serving_since_s = now_s
        quiet_s = self._serving_since_s + settings.timeout_ms / _MS_PER_S - now_s
        if quiet_s > 0 or replica.state.feature_level < WITH_TRANSACTIONS:
            return min(max(quiet_s, _PAUSE_S), _SLEEP_MAX_S)
        # The time is never before that of a stored message.
        now_ms = max(self._clock_ms(), replica.store.log.last_store_timestamp)
        found = await self._find(now_ms)
        if found.expiring:
            self._ends.put_again(found.expiring)
        await self._give_up(found.to_give_up)
        await self._ask(found.due, now_ms)
        next_ms = min((due_ms for _, due_ms in self._examined.values()), default=now_ms + settings.timeout_ms)
        sleep_s = (next_ms - now_ms) / _MS_PER_S
        return min(max(sleep_s, settings.timeout_ms / _MS_PER_S / 10, 1 / _MS_PER_S), _SLEEP_MAX_S)

    async def _find(self, now_ms: int) -> _Found:
        """Find transactions that are due, at most as many as one command counts."""
        found, before, table = _Found([], [], []), self._examined, self._replica.state.transactions
        self._examined = {}
        for number, changes in list(table.block_changes()):
            known = before.get(number)
            if len(found.due) >= CHECKS_PER_COMMAND_MAX or len(found.to_give_up) >= CHECKS_PER_COMMAND_MAX:
                self._examined[number] = (-1, now_ms)
            elif known is not None and known[0] == changes and known[1] > now_ms:
                self._examined[number] = known
            else:
                self._examined[number] = (changes, self._examine(number, now_ms, found))
                # One block takes about a millisecond.
                await asyncio.sleep(0)
        return found

    def _examine(self, number: int, now_ms: int, found: _Found) -> int:
        """Add what is due of one block; return when to examine it again."""
        settings, next_ms = self._settings, now_ms + self._settings.interval_ms
        table, begin_offset = self._replica.state.transactions, self._replica.store.log.begin_offset
        for half, row in table.open_in(number):
            due_ms = settings.due_ms(row)
            place = table.renewed(half)
            expires_ms = (place or row).store_timestamp + self._keep_ms
            is_old = expires_ms <= now_ms
            if is_old and place is not None and place.times >= RENEWALS_MAX:
                found.to_give_up.append((half, row))
                next_ms = now_ms
                continue
            if is_old:
                found.expiring.append(half)
                expires_ms = now_ms + _RETRY_MS
            next_ms = min(next_ms, expires_ms)
            if due_ms > now_ms:
                next_ms = min(next_ms, due_ms)
            elif row.checks >= settings.checks_max or (place or row).physical_offset < begin_offset:
                found.to_give_up.append((half, row))
                next_ms = now_ms
            elif self.producers.has_group(row.group_hash):
                found.due.append((half, row))
                # If it is asked about, its block changes.
                next_ms = min(next_ms, now_ms + _RETRY_MS)
            else:
                next_ms = min(next_ms, now_ms + _ABSENT_MS)
        return next_ms

    # --------------------------------------------------------------------------------------------------------- asking

    async def _ask(self, due: list[tuple[int, OpenTransaction]], now_ms: int) -> None:
        """Count the checks, then ask a producer about each transaction.

        Raises:
            RequestFailed, StoreError, DLedgerError: they are not counted, or it is not known.
        """
        chosen: list[tuple[int, int, AskedProducer]] = []
        lost: list[tuple[int, OpenTransaction]] = []
        for position, (half, row) in enumerate(due[:CHECKS_PER_COMMAND_MAX]):
            if position % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            message = read_half(self._replica, half, row)
            if message is None:
                lost.append((half, row))
                continue
            producer = self.producers.next_of(message.group, message.topic)
            if producer is not None:
                chosen.append((half, row.checks + 1, producer))
        await self._give_up(lost)
        if not chosen:
            return
        chosen.sort(key=lambda each: each[0])
        await self._replica.change(CountChecks(now_ms, tuple((half, count) for half, count, _ in chosen)))
        for half, _, producer in chosen:
            producer.ask(half)
        self._on_asked(len(chosen))

    # --------------------------------------------------------------------------------------------------------- ending

    async def _give_up(self, rows: list[tuple[int, OpenTransaction]]) -> None:
        """End transactions that no producer decided, or whose half message is lost."""
        for begin in range(0, len(rows), _ENDS_MAX):
            part = rows[begin : begin + _ENDS_MAX]
            ends = [self._give_up_one(half, row) for half, row in part]
            results = await asyncio.gather(*ends, return_exceptions=True)
            for result in results:
                # A producer may have ended it meanwhile.
                is_ended = isinstance(result, RequestFailed) and result.reason in (
                    Reason.TRANSACTION_ENDED,
                    Reason.NO_TRANSACTION,
                )
                if isinstance(result, BaseException) and not is_ended:
                    raise result

    async def _give_up_one(self, half: int, row: OpenTransaction) -> None:
        if read_half(self._replica, half, row) is None:
            logger.error("half_message_lost half=%d physical_offset=%d: it is rolled back", half, row.physical_offset)
            await self._ends.begin(EndRequest(half, Ending.ROLLED_BACK, is_own=True))
            return
        if CHECK_MAX_TIME_TOPIC not in self._replica.state.topics:
            await self._replica.change(SetTopic(TopicConfig(CHECK_MAX_TIME_TOPIC, 1, 1, PERMISSION_READ)))
        logger.warning("transaction_given_up half=%d checks=%d", half, row.checks)
        await self._ends.begin(EndRequest(half, Ending.GIVEN_UP, is_own=True))
