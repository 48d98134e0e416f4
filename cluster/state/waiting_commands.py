"""The commands about messages that wait: delayed ones, messages for a time, half messages of transactions.

Most changes of what waits are effects of message records (`cluster.state.effects`); these are the others: messages that
are passed over, and checks of transactions. `cluster.state.commands` has the frame of a command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cluster.state.transactions import CHECKS_MAX
from store.errors import IllegalMessage
from store.model.topics import DELAY_LEVELS_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cluster.state.compact_bytes import Reader, Writer

OFFSET_MAX: Final = (1 << 63) - 1
CHECKS_PER_COMMAND_MAX: Final = 4_096
_RANGES_PER_COMMAND_MAX: Final = 4_096
# Units in the ranges of one command: two thousand kilobytes of bits.
_PASSED_UNITS_MAX: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class SetDelayOffsets:
    """Set the delivered offsets of delay levels: pairs of level (1, 2, …) and offset, which only grow."""

    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PassTimers:
    """Mark messages for a time as done without a delivery: unreadable, without a topic, or no messages.

    Attributes:
        floor: all units of the timer queue before it.
        ranges: begin and end of further units, ascending.
    """

    floor: int = 0
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class CountChecks:
    """Note, before producers are asked, that they are: for each open transaction, the number of its check.

    Attributes:
        time_ms: when, milliseconds since 1970.
        counts: pairs of the half message's offset, and the number of the check from 1 on; ascending.
    """

    time_ms: int
    counts: tuple[tuple[int, int], ...]


WaitingCommand = SetDelayOffsets | PassTimers | CountChecks


def check_waiting_command(command: WaitingCommand) -> None:
    """Raise unless a command is valid.

    Raises:
        IllegalMessage: a field is invalid.
    """
    match command:
        case SetDelayOffsets(delays):
            levels = [level for level, _ in delays]
            if len(set(levels)) < len(levels) or not all(1 <= level <= len(DELAY_LEVELS_MS) for level in levels):
                expected = f"1 to {len(DELAY_LEVELS_MS)}, each once"
                raise IllegalMessage("delay levels", expected, repr(levels)[:200])
            for _, offset in delays:
                check_offset(offset)
        case PassTimers(floor, ranges):
            check_offset(floor)
            _check_ranges(ranges)
        case CountChecks():
            _check_counts(command)


def check_offset(offset: int) -> None:
    """Raise unless a number is an offset of a queue.

    Raises:
        IllegalMessage: it is not.
    """
    if not 0 <= offset <= OFFSET_MAX:
        raise IllegalMessage("offset", "0 to 2^63 - 1", str(offset))


def _check_ranges(ranges: tuple[tuple[int, int], ...]) -> None:
    if len(ranges) > _RANGES_PER_COMMAND_MAX:
        raise IllegalMessage("ranges", f"at most {_RANGES_PER_COMMAND_MAX}", str(len(ranges)))
    last = 0
    for begin, end in ranges:
        if not last <= begin < end <= OFFSET_MAX:
            raise IllegalMessage("ranges", f"ascending ones from {last} on", f"{begin} to {end}")
        last = end
    if sum(end - begin for begin, end in ranges) > _PASSED_UNITS_MAX:
        raise IllegalMessage("ranges", f"at most {_PASSED_UNITS_MAX} units", "more")


def _check_counts(command: CountChecks) -> None:
    halves = [half for half, _ in command.counts]
    check_offset(command.time_ms)
    if not 1 <= len(halves) <= CHECKS_PER_COMMAND_MAX or halves != sorted(set(halves)):
        expected = f"1 to {CHECKS_PER_COMMAND_MAX} half messages, ascending"
        raise IllegalMessage("checks", expected, repr(halves)[:80])
    for half, count in command.counts:
        check_offset(half)
        if not 1 <= count <= CHECKS_MAX:
            raise IllegalMessage("number of a check", f"1 to {CHECKS_MAX}", str(count))


# -------------------------------------------------------------------------------------------------------------- bytes


def write_delays(writer: Writer, offsets: Iterable[tuple[int, int]]) -> None:
    """Append offsets of delay levels, in order."""
    pairs = sorted(offsets)
    writer.number(len(pairs))
    for level, offset in pairs:
        writer.number(level)
        writer.number(offset)


def read_delays(reader: Reader) -> tuple[tuple[int, int], ...]:
    """Read offsets of delay levels."""
    return tuple((reader.number(), reader.number()) for _ in range(reader.count()))


def _write_timers(writer: Writer, command: PassTimers) -> None:
    writer.number(command.floor)
    writer.number(len(command.ranges))
    for begin, end in command.ranges:
        writer.number(begin)
        writer.number(end - begin)


def _read_timers(reader: Reader) -> PassTimers:
    floor, ranges = reader.number(), []
    for _ in range(reader.count()):
        begin = reader.number()
        ranges.append((begin, begin + reader.number()))
    return PassTimers(floor, tuple(ranges))


def _write_counts(writer: Writer, command: CountChecks) -> None:
    writer.number(command.time_ms)
    write_delays(writer, command.counts)


WAITING_WRITERS: Final[dict[type[Any], tuple[int, Callable[[Writer, Any], None]]]] = {
    SetDelayOffsets: (7, lambda writer, command: write_delays(writer, command.offsets)),
    PassTimers: (17, _write_timers),
    CountChecks: (19, _write_counts),
}
WAITING_READERS: Final[dict[int, Callable[[Reader], WaitingCommand]]] = {
    7: lambda reader: SetDelayOffsets(read_delays(reader)),
    17: _read_timers,
    19: lambda reader: CountChecks(reader.number(), read_delays(reader)),
}
