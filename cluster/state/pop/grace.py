"""The command by which a new leader gives leases the time in which no leader served.

Consumers could neither acknowledge nor extend meanwhile. No lease is changed: deadlines are times of a clock that
is paused for that time, *lease time*, which is log time minus all graces so far (`PopState.pause_ms`). So the
command takes the same time whatever the number of leases. What had ended before stays ended, because a grace is at most
the log time since the last command of pop consumption; so a repeated command gives hardly anything more, either.

| field | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| time, grace | numbers: milliseconds since 1970; milliseconds |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store.errors import IllegalMessage

if TYPE_CHECKING:
    from cluster.state.compact_bytes import Reader, Writer

GRACE_MS_MAX: Final = 30_000
_NUMBER_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LeaseGrace:
    """Let all leases end later.

    Attributes:
        time_ms: the leader's time, milliseconds since 1970.
        grace_ms: for how long no leader served, at most `GRACE_MS_MAX`.
    """

    time_ms: int
    grace_ms: int


def check_lease_grace(command: LeaseGrace) -> None:
    """Raise unless a command is valid.

    Raises:
        IllegalMessage: a field is out of its range.
    """
    for name, value, high in (("time", command.time_ms, _NUMBER_MAX), ("grace", command.grace_ms, GRACE_MS_MAX)):
        if not 0 <= value <= high:
            raise IllegalMessage(name, f"0 to {high}", str(value))


def write_lease_grace(writer: Writer, command: LeaseGrace) -> None:
    """Append a command."""
    writer.number(command.time_ms)
    writer.number(command.grace_ms)


def read_lease_grace(reader: Reader) -> LeaseGrace:
    """Read a command.

    Raises:
        cluster.state.compact_bytes.Unreadable: there is none.
    """
    return LeaseGrace(reader.number(), reader.number())
