"""Which messages of push consumers are renewed, and when. Pure.

A message is taken for `INVISIBLE_MS`, and renewed while its consumer lives, for `RENEWED_MS_MAX` in all:

| why its renewal ends | it is given again |
| --- | --- |
| its consumer says that it ends, or is silent for `SILENCE_MS_MAX` | after 1 s |
| it was renewed for 3 h | after the pause that follows its number of attempts |
| its handle is stale; or it had no place, because its address has its share of the table | when its time has passed |

A renewal changes the handle of the message. Clients keep the one that they got, so the table has the current one.

Times are milliseconds of a monotonic clock. Source: RocketMQ `ReceiptHandleProcessor`, `DefaultReceiptHandleManager`,
`RenewStrategyPolicy`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.service.limits.fair_shares import FairShares
from store.model.topics import DELAY_LEVELS_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.authentication.front_tokens import FrontClient

INVISIBLE_MS: Final = 60_000
# Renewed when half of its time is left: a change of the leader fits in the rest.
_LEFT_MS: Final = 30_000
RENEWED_MS_MAX: Final = 3 * 3_600_000
# Clients send a heartbeat each 10 s, some each 30 s.
SILENCE_MS_MAX: Final = 90_000
_GONE_MS: Final = 1_000
# Of one front, in fair shares of addresses: one alone has half. A client may invent any number of ids.
RENEWED_MAX: Final = 20_000


class FrontConsumer(NamedTuple):
    """A consumer: the id that its client chose, and in whose name it calls; None: the broker has no users."""

    id: str
    caller: FrontClient | None = None


class Key(NamedTuple):
    """A message as its consumer names it: stored names of group and topic, and the handle that it got."""

    group: str
    topic: str
    handle: str


@dataclass(slots=True)
class RenewedMessage:
    """One message.

    Attributes:
        key: its name.
        consumer: that has got it.
        holder: the address by which it is counted.
        attempt: number of times that it was given.
        taken_ms: when it was given.
        due_ms: of its next change; or, if it is over, when the handle may be forgotten.
        handle: the current one.
        invisible_ms: of its next change.
        is_ending: whether the next change is the last one.
        is_over: whether its renewal has ended.
    """

    key: Key
    consumer: FrontConsumer
    holder: str
    attempt: int
    taken_ms: int
    due_ms: int
    handle: str
    invisible_ms: int = INVISIBLE_MS
    is_ending: bool = False
    is_over: bool = False


@dataclass(slots=True)
class _Client:
    seen_ms: int
    keys: set[Key] = field(default_factory=set)


class RenewalTable:
    """The messages of the push consumers of one front, at most `RENEWED_MAX`.

    Args:
        clock_ms: a monotonic clock.
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._shares = FairShares(RENEWED_MAX)
        self._rows: dict[Key, RenewedMessage] = {}
        # Those with messages.
        self._clients: dict[FrontConsumer, _Client] = {}

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._rows)

    def add(self, key: Key, consumer: FrontConsumer, attempt: int, holder: str) -> None:
        """Renew a message that its consumer has just got, unless its holder has its share of the table."""
        self.remove(key)
        if not self._shares.take(holder, 1):
            return
        now_ms = self._clock_ms()
        due_ms = now_ms + INVISIBLE_MS - _LEFT_MS
        self._rows[key] = RenewedMessage(key, consumer, holder, attempt, now_ms, due_ms, key.handle)
        self._clients.setdefault(consumer, _Client(now_ms)).keys.add(key)

    def remove(self, key: Key) -> None:
        """Renew a message no longer: it is done, or its handle is stale."""
        row = self._rows.pop(key, None)
        if row is None:
            return
        self._shares.give_back(row.holder, 1)
        owner = self._clients[row.consumer]
        owner.keys.discard(key)
        if not owner.keys:
            del self._clients[row.consumer]

    def has(self, row: RenewedMessage) -> bool:
        """Return whether a message is still renewed."""
        return self._rows.get(row.key) is row

    def current(self, key: Key) -> str:
        """Return the current handle of a message; of one that is not renewed its own."""
        row = self._rows.get(key)
        return key.handle if row is None else row.handle

    def seen(self, consumer: FrontConsumer) -> None:
        """Note that a consumer lives."""
        if consumer in self._clients:
            self._clients[consumer].seen_ms = self._clock_ms()

    def ended(self, consumer: FrontConsumer) -> None:
        """Note that a consumer has ended: its messages are due, for the last time."""
        known = self._clients.get(consumer)
        for key in () if known is None else known.keys:
            row = self._rows[key]
            if not row.is_ending:
                row.is_ending, row.invisible_ms, row.due_ms = True, _GONE_MS, self._clock_ms()

    def due(self) -> list[tuple[RenewedMessage, int]]:
        """Return the messages to change now, each with its new invisible time in milliseconds."""
        now_ms = self._clock_ms()
        for consumer in [key for key, each in self._clients.items() if now_ms - each.seen_ms >= SILENCE_MS_MAX]:
            self.ended(consumer)
        changes = []
        for row in [each for each in self._rows.values() if each.due_ms <= now_ms]:
            if row.is_over:
                self.remove(row.key)
                continue
            if not row.is_ending and now_ms - row.taken_ms >= RENEWED_MS_MAX:
                row.is_ending = True
                row.invisible_ms = DELAY_LEVELS_MS[min(max(row.attempt, 1), len(DELAY_LEVELS_MS)) - 1]
            changes.append((row, row.invisible_ms))
        return changes

    def changed(self, row: RenewedMessage, handle: str, invisible_ms: int) -> None:
        """Note that a message was changed.

        Args:
            row: as `due` returned it.
            handle: the new one; empty: the message is done, or another consumer has it.
            invisible_ms: as `due` returned it.
        """
        if not self.has(row):
            return
        row.handle = handle
        if not handle:
            self.remove(row.key)
        elif invisible_ms != row.invisible_ms:
            # The client has ended meanwhile: it is still due.
            return
        elif not row.is_ending:
            row.due_ms = self._clock_ms() + INVISIBLE_MS - _LEFT_MS
        else:
            # A late acknowledgement finds the handle until the message is given again.
            row.is_over, row.due_ms = True, self._clock_ms() + invisible_ms
