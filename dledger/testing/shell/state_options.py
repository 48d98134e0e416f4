"""Options of the state machine in the shell's simulator, and of the faults around its snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_OP_RATE = 0.7


class SnapshotNemesisOp(StrEnum):
    """Operations of a run with a state machine, in addition to every `ShellNemesisOp`."""

    STRAND = "strand"
    INTERRUPT_INSTALLS = "interrupt_installs"
    DIE_IN_SAVES = "die_in_saves"
    DAMAGE_SNAPSHOT = "damage_snapshot"
    SLOW_APPLY = "slow_apply"


@dataclass(frozen=True, slots=True)
class StateOptions:
    """The options of a run whose nodes have a state machine.

    Attributes:
        snapshot_threshold: entries applied between two snapshots.
        chunk_size_bytes: of a snapshot in one message.
        save_max_us: longest duration of saving a snapshot, without its syncs.
        pieces_count: number of pieces in which a snapshot is loaded.
        retention_interval_us: time between two checks for old data files; the disks are always so full that each file
            is deleted as soon as it is not needed.
        file_entries: entries of the largest size that fill a data file: few, so that there are old files.
        safety_us: length of the phase with faults.
        think_max_us: pause of the program around a node between two calls.
        nemesis_ops: possible operations of the nemesis.
        nemesis_interval_us: mean time between two of them.
    """

    snapshot_threshold: int
    chunk_size_bytes: int
    save_max_us: int
    pieces_count: int
    retention_interval_us: int
    file_entries: int
    safety_us: int
    think_max_us: int
    nemesis_ops: tuple[SnapshotNemesisOp, ...]
    nemesis_interval_us: int

    def describe(self) -> str:
        """Return the parameters of this run as text, for its line of output."""
        return (
            f"snapshots={self.snapshot_threshold} chunks={self.chunk_size_bytes} save<={self.save_max_us}us "
            f"pieces={self.pieces_count} "
            f"snapshot-nemesis={','.join(self.nemesis_ops) or 'none'}"
        )


def draw_state(random: Random) -> StateOptions:
    """Draw the options of a state machine and of its faults."""
    return StateOptions(
        snapshot_threshold=random.choice((4, 12, 25)),
        chunk_size_bytes=random.choice((64, 400, 1 << 20)),
        save_max_us=random.choice((500, 20_000, 300_000)),
        pieces_count=random.choice((1, 3, 30)),
        retention_interval_us=random.choice((20_000, 100_000)),
        file_entries=random.choice((4, 4, 12)),
        safety_us=random.choice((2_500_000, 4_000_000)),
        think_max_us=random.choice((20_000, 80_000)),
        nemesis_ops=tuple(each for each in SnapshotNemesisOp if random.random() < _OP_RATE),
        nemesis_interval_us=random.choice((60_000, 200_000)),
    )
