"""Which messages of the timer queue are done: delivered, put again, recalled, or passed over.

A unit of the queue waits until a record or a command says that it is done; so what waits is a pure function of the log.
Units become done in any order. The done ones are kept as a floor, below which all are, and as one bit for each unit
above it, in chunks; a chunk without a waiting unit, and all that touch the floor, take next to nothing. Ten million
units that wait need some megabytes at most; a chunk is an immutable number, so a copy of all is a copy of the table.

| snapshot of the part | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| floor | a number |
| chunks above the floor, ascending | a count; of each its number, and its bits, little-endian; no bytes: all are set |

The end of the queue is not part of the state: dispatch knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cluster.state.compact_bytes import Reader, Writer

# Units of one chunk: a change of one bit copies a kilobyte.
CHUNK_UNITS: Final = 8_192
_CHUNK: Final = CHUNK_UNITS
_FULL: Final = (1 << _CHUNK) - 1
# Chunks that are written, or copied, in one step of a snapshot.
_CHUNKS_PER_STEP: Final = 256
_UNIT_END: Final = 1 << 63


class DoneTimers:
    """The done units of the timer queue; a `cluster.state.parts.StatePart`."""

    def __init__(self) -> None:
        self._floor = 0
        # Bits of done units by the number of their chunk; only chunks from that of the floor on.
        self._chunks: dict[int, int] = {}
        self._above_count = 0

    @property
    def floor(self) -> int:
        """The first unit that waits, or will: all before it are done."""
        return self._floor

    @property
    def above_count(self) -> int:
        """The number of done units from the floor on."""
        return self._above_count

    def is_done(self, unit: int) -> bool:
        """Return whether a unit is done."""
        if unit < self._floor:
            return True
        chunk, bit = divmod(unit, _CHUNK)
        return bool(self._chunks.get(chunk, 0) >> bit & 1)

    def waiting_count(self, end: int) -> int:
        """Return the number of units before `end`, the end of the queue, that wait."""
        return max(end - self._floor - self._above_count, 0)

    def waiting(self, begin: int, end: int, count_max: int) -> list[int]:
        """Return the first units from `begin` on and before `end` that wait; it examines one chunk at least.

        Fewer than `count_max` do not mean that no further ones wait: `next_chunk` is where to continue.
        """
        unit = max(begin, self._floor)
        last = min(end, self.next_chunk(unit))
        bits = self._chunks.get(unit // _CHUNK, 0) >> unit % _CHUNK
        if not bits:
            return list(range(unit, min(last, unit + count_max)))
        return [unit + at for at in range(last - unit) if not bits >> at & 1][:count_max]

    def done_bits(self, chunk: int) -> bytes:
        """Return the bits of the done units of a chunk of `CHUNK_UNITS`, the lowest bit of the first byte first."""
        is_below = (chunk + 1) * _CHUNK <= self._floor
        bits = _FULL if is_below else self._chunks.get(chunk, self._below_floor(chunk))
        return bits.to_bytes(_CHUNK // 8, "little")

    def next_chunk(self, unit: int) -> int:
        """Return the first unit of the chunk after that of `unit`, or of the floor's."""
        return (max(unit, self._floor) // _CHUNK + 1) * _CHUNK

    def done_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of done units from the floor on, each within one chunk, ascending."""
        for chunk, bits in sorted(self._chunks.items()):
            unit, rest = chunk * _CHUNK, bits & ~self._below_floor(chunk)
            while rest:
                zeros = (rest & -rest).bit_length() - 1
                rest >>= zeros
                ones = _ones(rest)
                yield unit + zeros, unit + zeros + ones
                rest >>= ones
                unit += zeros + ones

    # -------------------------------------------------------------------------------------------------------- changing

    def add(self, unit: int) -> bool:
        """Mark a unit as done; return False if it was already."""
        if self.is_done(unit):
            return False
        chunk, bit = divmod(unit, _CHUNK)
        self._set(chunk, self._chunks.get(chunk, self._below_floor(chunk)) | 1 << bit)
        self._above_count += 1
        self._raise_floor()
        return True

    def pass_over(self, floor: int, ranges: Iterable[tuple[int, int]]) -> bool:
        """Mark all units before `floor`, and those of some ranges, as done; return whether that changed anything."""
        before = self._floor, self._above_count
        if floor > self._floor:
            first = floor // _CHUNK
            for chunk in [each for each in self._chunks if each < first]:
                del self._chunks[chunk]
            self._floor = floor
            if first in self._chunks:
                self._chunks[first] |= self._below_floor(first)
            self._above_count = self._count()
        for begin, end in ranges:
            self._add_range(max(begin, self._floor), end)
        self._raise_floor()
        return before != (self._floor, self._above_count)

    def _add_range(self, begin: int, end: int) -> None:
        while begin < end:
            chunk, bit = divmod(begin, _CHUNK)
            count = min(end - begin, _CHUNK - bit)
            bits = self._chunks.get(chunk, self._below_floor(chunk))
            more = bits | ((1 << count) - 1) << bit
            self._set(chunk, more)
            self._above_count += more.bit_count() - bits.bit_count()
            begin += count

    def _raise_floor(self) -> None:
        chunk, bit = divmod(self._floor, _CHUNK)
        while (bits := self._chunks.get(chunk, 0)) >> bit & 1:
            ones = _ones(bits >> bit)
            self._floor += ones
            self._above_count -= ones
            if bits == _FULL:
                del self._chunks[chunk]
            chunk, bit = divmod(self._floor, _CHUNK)
        # Equal states have equal tables.
        if chunk in self._chunks and self._chunks[chunk] == self._below_floor(chunk):
            del self._chunks[chunk]

    def _set(self, chunk: int, bits: int) -> None:
        # All full chunks share one number.
        self._chunks[chunk] = _FULL if bits == _FULL else bits

    def _below_floor(self, chunk: int) -> int:
        """Return the bits of a chunk that are below the floor: its chunk counts them as done."""
        return (1 << max(self._floor - chunk * _CHUNK, 0)) - 1

    def _count(self) -> int:
        first = self._floor // _CHUNK
        all_count = sum(bits.bit_count() for bits in self._chunks.values())
        return all_count - (self._floor % _CHUNK if first in self._chunks else 0)

    # ------------------------------------------------------------------------------------------------------- snapshots

    @property
    def is_empty(self) -> bool:
        """Whether no unit is done."""
        return not self._floor and not self._chunks

    def frozen(self) -> FrozenTimers:
        """Return a copy that later changes do not affect."""
        return FrozenTimers(self._floor, dict(self._chunks))

    def loading(self, reader: Reader) -> Iterator[None]:
        """Load what `FrozenTimers.write` wrote, in steps.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is invalid.
        """
        self._floor = reader.number_up_to(_UNIT_END - 1, "the first waiting unit")
        last = self._floor // _CHUNK - 1
        for number in range(reader.count()):
            chunk = reader.number_up_to(_UNIT_END // _CHUNK, "a chunk after the one before", last + 1)
            bits = int.from_bytes(reader.raw(), "little") or _FULL
            below = self._below_floor(chunk)
            if bits > _FULL or bits & below != below or bits == below:
                raise reader.fault("the done units of a chunk", f"{bits.bit_length()} bits")
            self._set(chunk, bits)
            last = chunk
            if number % _CHUNKS_PER_STEP == _CHUNKS_PER_STEP - 1:
                yield
        self._above_count = self._count()
        if self.is_done(self._floor):
            raise reader.fault("a floor that waits", str(self._floor))


@dataclass(frozen=True, slots=True)
class FrozenTimers:
    """An immutable copy of `DoneTimers`; a `cluster.state.parts.FrozenPart`."""

    floor: int
    chunks: Mapping[int, int]

    def write(self, writer: Writer) -> Iterator[None]:
        """Write the content in steps."""
        writer.number(self.floor)
        writer.number(len(self.chunks))
        for number, (chunk, bits) in enumerate(sorted(self.chunks.items())):
            writer.number(chunk)
            writer.raw(b"" if bits == _FULL else bits.to_bytes((bits.bit_length() + 7) // 8, "little"))
            if number % _CHUNKS_PER_STEP == _CHUNKS_PER_STEP - 1:
                yield


def _ones(bits: int) -> int:
    """Return the number of the lowest bits that are set."""
    return (~bits & (bits + 1)).bit_length() - 1
