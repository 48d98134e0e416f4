"""The command that takes over a part of the state of an old store: of a standalone broker, or derived from RocketMQ.

| field | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| number of the part (`cluster.state.parts`) | a number |
| piece of its content | bytes, as in a snapshot |

The other command sets the delays of the delay levels, which a broker of RocketMQ reads from its configuration.

A piece is added to what the group knows already, which wins: so the command is idempotent, and an import that was
interrupted starts over. `cluster.state.commands` has the frame of a command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cluster.state.compact_bytes import Reader, Writer
from cluster.state.old.delay_table import check_levels, read_levels, write_levels
from store.errors import IllegalMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cluster.state.parts import FrozenPart, MovablePart

# Far above a piece, and below what an entry may have.
PIECE_SIZE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ImportPart:
    """Take over a piece of a part.

    Attributes:
        part: its number.
        content: the piece.
    """

    part: int
    content: bytes


@dataclass(frozen=True, slots=True)
class SetDelayLevels:
    """Set the delays of the delay levels (`cluster.state.old.delay_table`).

    Attributes:
        levels_ms: delay of level 1, 2, … in milliseconds; empty: the default ones.
    """

    levels_ms: tuple[int, ...]


OldCommand = ImportPart | SetDelayLevels


def check_old_command(command: OldCommand) -> None:
    """Raise unless a command is valid.

    Raises:
        IllegalMessage: the piece is too large, or a delay is out of its range.
    """
    if isinstance(command, SetDelayLevels):
        check_levels(command.levels_ms)
    elif len(command.content) > PIECE_SIZE_BYTES_MAX:
        expected = f"at most {PIECE_SIZE_BYTES_MAX} bytes of a part"
        raise IllegalMessage("content", expected, str(len(command.content)))


def import_of(part: int, piece: FrozenPart) -> ImportPart:
    """Return the command for a piece of a part."""
    writer = Writer()
    for _ in piece.write(writer):
        continue
    return ImportPart(part, bytes(writer.data))


def imports_of(parts: Mapping[int, MovablePart]) -> Iterator[ImportPart]:
    """Yield the commands that take over parts, by their numbers."""
    for number, part in parts.items():
        if not part.is_empty:
            for piece in part.pieces():
                yield import_of(number, piece)


def take_over(command: ImportPart, parts: Mapping[int, MovablePart], empty: Mapping[int, MovablePart]) -> bool:
    """Apply a command; return whether it changed anything.

    Args:
        command: from a committed entry.
        parts: of the state, by their numbers.
        empty: the same parts without content.

    Raises:
        cluster.state.compact_bytes.Unreadable: it is one of a newer version. The node must stop.
    """
    reader = Reader(command.content, "a part of an old store")
    if command.part not in parts:
        raise reader.fault(f"one of the parts {list(parts)}", str(command.part), 0)
    piece = empty[command.part]
    for _ in piece.loading(reader):
        continue
    reader.end()
    return parts[command.part].take_over(piece)


def _write(writer: Writer, command: ImportPart) -> None:
    writer.number(command.part)
    writer.raw(command.content)


OLD_WRITERS: Final[dict[type[Any], tuple[int, Callable[[Writer, Any], None]]]] = {
    ImportPart: (25, _write),
    SetDelayLevels: (26, lambda writer, command: write_levels(writer, command.levels_ms)),
}
OLD_READERS: Final[dict[int, Callable[[Reader], OldCommand]]] = {
    25: lambda reader: ImportPart(reader.number(), reader.raw()),
    26: lambda reader: SetDelayLevels(read_levels(reader)),
}
