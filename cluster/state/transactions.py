"""The transactions of a broker: which are open, how often their producers were asked, and how the last ones ended.

A part of the broker state (`cluster.state.parts`). Message records change it by the effects that they carry:

| record | effect | changes |
| --- | --- | --- |
| half message | `h` | the transaction is open |
| committed message (its sysFlag says so) | `e` with `c` | the transaction is committed |
| op message | `e` with `r` | the transaction is rolled back, if it is open |
| … | `e` with `c` or `g` | nothing but a note: RocketMQ's programs read from the op that the half message is done |
| copy of a half message that is given up | `g` | the transaction is given up |
| half message that is put again | `n` | this record has the message of the open transaction from now on |

So an op message alone never commits: no committed message would exist. A transaction ends once; another end of it does
not fit, and changes nothing. The only command is `CountChecks`. `decided` has the last 200,000 ends, from which END is
answered again.

A transaction is known by the offset of its half message in the half topic, which has one queue. Memory: some 170 bytes
for each open transaction.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from cluster.state.effects import Ended, Ending, GivenUp, Prepared, Renewed
from commitlog.record.record import BadRecord, decode, sys_flag_of
from store.model.sys_flag import TRANSACTION_COMMIT_TYPE, transaction_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cluster.state.compact_bytes import Reader, Writer

OPEN_MAX: Final = 1_000_000
# Ends that are kept: from 200,000 on a whole block of the oldest is forgotten.
_BLOCK_ENDS: Final = 5_000
_BLOCKS_MAX: Final = 41
# Consecutive half messages whose open transactions are in one block, which is copied as a whole.
_BLOCK_SHIFT: Final = 10
CHECKS_MAX: Final = 255
# physical offset, store timestamp, time of the last check; size, hashes of group and key; immunity, checks
_ROW: Final = struct.Struct("<qqqIIIHB")
_CODES: Final = {Ending.COMMITTED: 1, Ending.ROLLED_BACK: 2, Ending.GIVEN_UP: 3}
_ENDINGS: Final = {code: ending for ending, code in _CODES.items()}
_CODE_BITS: Final = 2
_CODE_MASK: Final = 3
_NUMBER_SIZE: Final = 8


def name_hash(name: str) -> int:
    """Return the hash by which the state has a producer group or the id of a transaction."""
    return crc32(name.encode())


class OpenTransaction(NamedTuple):
    """An open transaction.

    Attributes:
        physical_offset: of the half message.
        store_timestamp: of the half message, milliseconds since 1970.
        checked_ms: when its producers were asked last, milliseconds since 1970; 0: never.
        size: bytes of the half message's record.
        group_hash: CRC-32 of the name of the producer group.
        key_hash: CRC-32 of the id of the transaction.
        immunity_s: seconds from the put in which the producer is not asked.
        checks: times its producers were asked.
    """

    physical_offset: int
    store_timestamp: int
    checked_ms: int
    size: int
    group_hash: int
    key_hash: int
    immunity_s: int
    checks: int


class HalfPlace(NamedTuple):
    """Where the half message of an open transaction is since it was put again.

    Attributes:
        queue_offset: of the record in the half topic.
        physical_offset: of the record.
        size: bytes of the record.
        store_timestamp: of the record, milliseconds since 1970.
        times: that it was put again.
    """

    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int
    times: int


class EndedTransaction(NamedTuple):
    """The end of a transaction.

    Attributes:
        physical_offset: of the half message.
        ending: how it ended.
    """

    physical_offset: int
    ending: Ending


@dataclass(slots=True, eq=False)
class _Block:
    """Open transactions of consecutive half messages, packed.

    Attributes:
        epoch: the freeze count at its creation.
        rows: by offset of the half message.
        changed: number of its last change among those of the table: a reader knows by it whether its copy is current.
    """

    epoch: int
    rows: dict[int, bytes]
    changed: int = 0


class FrozenTransactions:
    """An immutable copy of a `TransactionTable`."""

    __slots__ = ("_blocks", "_decided", "_renewed", "_without_op")

    def __init__(
        self,
        blocks: dict[int, _Block],
        decided: list[dict[int, int]],
        without_op: dict[int, Ending],
        renewed: dict[int, HalfPlace],
    ) -> None:
        self._blocks = blocks
        self._decided = decided
        self._without_op = without_op
        self._renewed = renewed

    def write(self, writer: Writer) -> Iterator[None]:
        """Write, with their counts: open transactions; the last ends, in blocks; those without an op; places."""
        blocks = sorted(self._blocks.items())
        writer.number(sum(len(block.rows) for _, block in blocks))
        for _, block in blocks:
            for half, row in sorted(block.rows.items()):
                writer.number(half)
                writer.raw(row)
            yield
        writer.number(len(self._decided))
        for ends in self._decided:
            # All numbers of a block at once: one by one they take ten times as long, while nothing is applied.
            writer.raw(struct.pack(f"<{2 * len(ends)}q", *ends, *ends.values()))
            yield
        writer.number(len(self._without_op))
        for half, ending in sorted(self._without_op.items()):
            writer.number(half)
            writer.number(_CODES[ending])
        writer.number(len(self._renewed))
        for half, place in sorted(self._renewed.items()):
            for value in (half, *place):
                writer.number(value)


class TransactionTable:
    """The transactions of one replica; a `cluster.state.parts.StatePart`. Pure: records and commands change it.

    Attributes:
        open_count: open transactions.
    """

    def __init__(self) -> None:
        self.open_count = 0
        self._epoch = 0
        # One counter for all blocks, so that a recreated block never has an earlier number.
        self._changes_count = 0
        self._blocks: dict[int, _Block] = {}
        # The oldest block first; each but the last has `_BLOCK_ENDS` ends: physical offset and code in one number.
        self._decided: list[dict[int, int]] = [{}]
        self._without_op: dict[int, Ending] = {}
        # No half message from this offset on is known.
        self._halves_end = 0
        # Of open transactions whose half message was put again.
        self._renewed: dict[int, HalfPlace] = {}

    # ------------------------------------------------------------------------------------------------------- reading

    def find(self, half: int) -> OpenTransaction | None:
        """Return an open transaction; None: it has ended, or there is none.

        Args:
            half: offset of the half message in its queue.
        """
        block = self._blocks.get(half >> _BLOCK_SHIFT)
        row = None if block is None else block.rows.get(half)
        return None if row is None else OpenTransaction._make(_ROW.unpack(row))

    def renewed(self, half: int) -> HalfPlace | None:
        """Return the place of a half message that was put again, of an open transaction; None: it was not."""
        return self._renewed.get(half)

    def ended(self, half: int) -> EndedTransaction | None:
        """Return how a transaction ended; None: it is open, unknown, or its end was forgotten."""
        for block in reversed(self._decided):
            found = block.get(half)
            if found is not None:
                return EndedTransaction(found >> _CODE_BITS, _ENDINGS[found & _CODE_MASK])
        return None

    @property
    def without_op(self) -> Mapping[int, Ending]:
        """Ended transactions whose op message is not in the log yet, by offset of the half message."""
        return self._without_op

    def block_changes(self) -> Iterator[tuple[int, int]]:
        """Yield each block of open transactions: its number, for `open_in`, and that of its last change; unordered."""
        for number, block in self._blocks.items():
            yield number, block.changed

    def open_in(self, number: int) -> Iterator[tuple[int, OpenTransaction]]:
        """Yield the open transactions of a block by offset of the half message, ascending; none if it is gone."""
        block = self._blocks.get(number)
        if block is not None:
            for half in sorted(block.rows):
                yield half, OpenTransaction._make(_ROW.unpack(block.rows[half]))

    def open_from(self, half: int, count_max: int) -> list[tuple[int, OpenTransaction]]:
        """Return the first open transactions whose half messages have this offset or a higher one."""
        found: list[tuple[int, OpenTransaction]] = []
        for number in sorted(each for each in self._blocks if each >= half >> _BLOCK_SHIFT):
            found += [pair for pair in self.open_in(number) if pair[0] >= half]
            if len(found) >= count_max:
                break
        return found[:count_max]

    # ------------------------------------------------------------------------------------------------------ changing

    def apply(self, effect: Prepared | Ended | GivenUp | Renewed, record: bytes) -> bool:
        """Apply the effect of a record; return whether it fits: otherwise nothing is changed.

        Args:
            effect: of the record.
            record: encoded, with its offsets.
        """
        if isinstance(effect, Prepared):
            return self._prepare_by(effect, record)
        if isinstance(effect, GivenUp):
            return self._end(effect.half, Ending.GIVEN_UP)
        if isinstance(effect, Renewed):
            return self._renew_by(effect, record)
        if transaction_type(sys_flag_of(record)) == TRANSACTION_COMMIT_TYPE:
            half, ending = effect.ends[0]
            return len(effect.ends) == 1 and ending is Ending.COMMITTED and self._end(half, ending)
        # Each is applied, whether others fit or not.
        fits = [self._note(half, ending) for half, ending in effect.ends]
        return all(fits)

    def _prepare_by(self, effect: Prepared, record: bytes) -> bool:
        """Open the transaction of a half message."""
        try:
            found = decode(memoryview(record), 0)
        except BadRecord:
            return False
        place = (found.physical_offset, found.store_timestamp, 0, found.size)
        immunity_s, group_hash, key_hash = effect
        return self._prepare(found.queue_offset, OpenTransaction(*place, group_hash, key_hash, immunity_s, 0))

    def _prepare(self, half: int, row: OpenTransaction) -> bool:
        # A new one has the highest offset: the window of ends, forty blocks, need not be searched for it.
        if half < self._halves_end and (self.find(half) is not None or self.ended(half) is not None):
            return False
        self._halves_end = max(self._halves_end, half + 1)
        self._own_block(half).rows[half] = _ROW.pack(*row)
        self.open_count += 1
        return True

    def _renew_by(self, effect: Renewed, record: bytes) -> bool:
        """Note the new place of the half message of an open transaction."""
        half = effect.half
        if self.find(half) is None:
            return False
        try:
            found = decode(memoryview(record), 0)
        except BadRecord:
            return False
        before = self._renewed.get(half)
        place = (found.queue_offset, found.physical_offset, found.size, found.store_timestamp)
        self._renewed[half] = HalfPlace(*place, 1 if before is None else before.times + 1)
        # So that readers of the block notice it.
        self._own_block(half)
        return True

    def _own_block(self, half: int) -> _Block:
        """Return the block of a half message, which no frozen copy shares, after one more change."""
        number = half >> _BLOCK_SHIFT
        block = self._blocks.get(number)
        if block is None or block.epoch != self._epoch:
            block = self._blocks[number] = _Block(self._epoch, {} if block is None else dict(block.rows))
        self._changes_count += 1
        block.changed = self._changes_count
        return block

    def _end(self, half: int, ending: Ending) -> bool:
        """End an open transaction by its message; the op is still missing."""
        if not self._close(half, ending):
            return False
        self._without_op[half] = ending
        return True

    def _note(self, half: int, ending: Ending) -> bool:
        """Apply one end of an op message."""
        if ending is Ending.ROLLED_BACK and self._close(half, ending):
            return True
        if self._without_op.get(half) is ending:
            del self._without_op[half]
            return True
        # A second op of the same end changes nothing.
        ended = self.ended(half)
        return ended is not None and ended.ending is ending

    def _close(self, half: int, ending: Ending) -> bool:
        row = self.find(half)
        if row is None:
            return False
        block = self._own_block(half)
        del block.rows[half]
        if not block.rows:
            del self._blocks[half >> _BLOCK_SHIFT]
        self.open_count -= 1
        self._renewed.pop(half, None)
        self._decide(half, row.physical_offset << _CODE_BITS | _CODES[ending])
        return True

    def _decide(self, half: int, code: int) -> None:
        if len(self._decided[-1]) >= _BLOCK_ENDS:
            self._decided.append({})
            if len(self._decided) > _BLOCKS_MAX:
                del self._decided[0]
        self._decided[-1][half] = code

    def count_checks(self, counts: Iterable[tuple[int, int]], time_ms: int) -> bool:
        """Note checks of open transactions; return whether any is new.

        Args:
            counts: offset of each half message, and the number of the check.
            time_ms: when, milliseconds since 1970.
        """
        # Each, not only until one is new.
        are_new = [self.count_check(half, count, time_ms) for half, count in counts]
        return any(are_new)

    def count_check(self, half: int, checks: int, time_ms: int) -> bool:
        """Note that the producers of a transaction are asked for the `checks`-th time; return whether that is new."""
        row = self.find(half)
        if row is None or checks <= row.checks:
            return False
        self._own_block(half).rows[half] = _ROW.pack(*row._replace(checks=checks, checked_ms=time_ms))
        return True

    # ----------------------------------------------------------------------------------------------------- snapshots

    @property
    def is_empty(self) -> bool:
        """Whether there has been no transaction."""
        return not (self._blocks or self._decided[0] or self._without_op)

    def pieces(self) -> Iterator[FrozenTransactions]:
        """Yield the content in pieces for a command each: what is open, then the ends in their order."""
        for number, block in sorted(self._blocks.items()):
            renewed = {half: self._renewed[half] for half in block.rows.keys() & self._renewed.keys()}
            yield FrozenTransactions({number: block}, [{}], {}, renewed)
        for ends in filter(None, self._decided):
            without_op = {half: self._without_op[half] for half in ends.keys() & self._without_op.keys()}
            yield FrozenTransactions({}, [ends], without_op, {})

    def take_over(self, piece: TransactionTable) -> bool:
        """Add the transactions of an old store; return whether anything is new. What has ended here stays so."""
        before = self.open_count, sum(map(len, self._decided))
        for block in piece._blocks.values():
            for half, row in block.rows.items():
                if self._prepare(half, OpenTransaction._make(_ROW.unpack(row))) and half in piece._renewed:
                    self._renewed[half] = piece._renewed[half]
        for ends in piece._decided:
            for half, code in ends.items():
                if self.ended(half) is None and self.find(half) is None:
                    self._decide_old(half, code)
                    if half in piece._without_op:
                        self._without_op[half] = piece._without_op[half]
        return before != (self.open_count, sum(map(len, self._decided)))

    def open_old(self, half: int, row: OpenTransaction) -> None:
        """Note an open transaction of an old store, whose half message carries no effect."""
        self._prepare(half, row)

    def end_old(self, half: int, physical_offset: int, ending: Ending) -> None:
        """Note how a transaction of an old store ended whose op message is missing there."""
        self._decide_old(half, physical_offset << _CODE_BITS | _CODES[ending])
        self._without_op[half] = ending

    def _decide_old(self, half: int, code: int) -> None:
        self._decide(half, code)
        self._halves_end = max(self._halves_end, half + 1)

    def frozen(self) -> FrozenTransactions:
        """Return a copy; it shares all blocks, and copies some thousand ends."""
        self._epoch += 1
        *full, last = self._decided
        return FrozenTransactions(dict(self._blocks), [*full, dict(last)], dict(self._without_op), dict(self._renewed))

    def loading(self, reader: Reader) -> Iterator[None]:
        """Load what `FrozenTransactions.write` wrote, in steps.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is invalid.
        """
        for _ in range(reader.count()):
            half, row = reader.number(), reader.raw()
            if len(row) != _ROW.size:
                raise reader.fault(f"{_ROW.size} bytes of an open transaction", str(len(row)))
            self._own_block(half).rows[half] = row
            self._halves_end = max(self._halves_end, half + 1)
            self.open_count += 1
            if reader.ends_piece():
                yield
        self._decided = []
        for _ in range(reader.number_up_to(_BLOCKS_MAX, "blocks of ends", 1)):
            if self._decided and len(self._decided[-1]) < _BLOCK_ENDS:
                raise reader.fault(f"{_BLOCK_ENDS} ends of transactions", str(len(self._decided[-1])))
            self._decided.append(_read_ends(reader))
            yield
        known = (max(ends, default=-1) for ends in self._decided)
        self._halves_end = max(self._halves_end, max(known) + 1)
        for _ in range(reader.count()):
            half = reader.number()
            self._without_op[half] = _ENDINGS[reader.number_up_to(max(_ENDINGS), "end of a transaction", 1)]
        for _ in range(reader.count()):
            half = reader.number()
            place = HalfPlace(*(reader.number() for _ in HalfPlace._fields))
            if self.find(half) is None:
                raise reader.fault("the place of an open transaction", str(half))
            self._renewed[half] = place
            if reader.ends_piece():
                yield


def _read_ends(reader: Reader) -> dict[int, int]:
    """Read a block of ends: offsets of half messages, then as many codes.

    Raises:
        cluster.state.compact_bytes.Unreadable: it is none.
    """
    raw = reader.raw()
    count, rest = divmod(len(raw), 2 * _NUMBER_SIZE)
    numbers = [] if rest or count > _BLOCK_ENDS else struct.unpack(f"<{2 * count}q", raw)
    ends = dict(zip(numbers[:count], numbers[count:], strict=True))
    is_valid = len(numbers) == 2 * len(ends) and all(
        code > 0 and code & _CODE_MASK in _ENDINGS for code in ends.values()
    )
    if len(ends) != count or not is_valid or min(ends, default=0) < 0:
        raise reader.fault("ends of transactions", f"{len(raw)} bytes")
    return ends
