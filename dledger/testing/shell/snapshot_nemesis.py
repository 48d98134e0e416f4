"""Faults around snapshots: nodes that need deleted files, interrupted installs, crashes during a save.

They are drawn from a separate random stream, in addition to the usual operations of a run.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from dledger.testing.shell.options import ShellFault
from dledger.testing.shell.state_options import SnapshotNemesisOp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dledger.testing.shell.clients import ClientProcess
    from dledger.testing.shell.directory_faults import DirectoryFaults
    from dledger.testing.shell.machines import ShellMachine
    from dledger.testing.shell.state_options import StateOptions
    from dledger.testing.shell.world import ShellWorld

_LOOK_US = 20_000
_STRAND_MAX_US = 1_800_000
_SLOW_MAX_US = 1_000_000
_APPLY_DELAYS_US = (300, 3_000, 20_000)
_INTERRUPT_RATE = 0.8
_INTERRUPT_WITHIN_US = 4_000
_CUT_MAX_US = 600_000
_DIE_IN_SAVE_RATE = 0.15
# Disk operations of saving a snapshot, or of a piece of an install.
_OPERATIONS_MAX = 8


class SnapshotNemesis:
    """Starts operations of the nemesis until it is stopped.

    Args:
        world: the shared state of the run.
        state: options of the state machine.
        machines: of the nodes.
        clients: one of them requests transfers.
        directory_faults: determines the node that may lose a snapshot.
    """

    def __init__(
        self,
        world: ShellWorld,
        state: StateOptions,
        machines: Mapping[str, ShellMachine],
        clients: Sequence[ClientProcess],
        directory_faults: DirectoryFaults,
    ) -> None:
        self._world = world
        self._state = state
        self._machines = machines
        self._clients = clients
        self._directory_faults = directory_faults
        self._random = Random(f"{world.options.seed}/snapshot troubles")
        self._is_stopped = False
        self._installing: set[str] = set()
        self._orders: dict[SnapshotNemesisOp, Callable[[], None]] = {
            SnapshotNemesisOp.STRAND: self._strand,
            SnapshotNemesisOp.DAMAGE_SNAPSHOT: directory_faults.flip_snapshot,
            SnapshotNemesisOp.SLOW_APPLY: self._slow_apply,
        }
        # The others have their own triggers: `saving`, and a running install.
        orderable = [each for each in state.nemesis_ops if each in self._orders]
        # A node is often down for too short a time to need an install.
        self._orderable = [*orderable, *(each for each in orderable if each is SnapshotNemesisOp.STRAND)]

    def start(self) -> None:
        """Schedule the first operation, and watch installs."""
        for machine in self._machines.values():
            machine.on_saving = self.saving
        if self._orderable:
            self._wait()
        if SnapshotNemesisOp.INTERRUPT_INSTALLS in self._state.nemesis_ops:
            self._world.scheduler.after(_LOOK_US, self._look_for_installs)

    def stop(self) -> None:
        """Schedule no further operations; the owner heals active faults."""
        self._is_stopped = True

    def saving(self, machine: ShellMachine) -> None:
        """Sometimes make a process die in the save that it begins."""
        if self._is_stopped or SnapshotNemesisOp.DIE_IN_SAVES not in self._state.nemesis_ops:
            return
        if self._random.random() < _DIE_IN_SAVE_RATE:
            machine.arm(self._random.randint(1, _OPERATIONS_MAX))

    def _wait(self) -> None:
        mean_us = self._state.nemesis_interval_us
        self._world.scheduler.after(int(self._random.expovariate(1 / mean_us)), self._order)

    def _order(self) -> None:
        if self._is_stopped:
            return
        op = self._random.choice(self._orderable)
        self._world.trace.note("nemesis", "%s", op.value)
        self._orders[op]()
        self._wait()

    # ---------------------------------------------------------------------------------------------- lagging nodes

    def _strand(self) -> None:
        """Keep a node down or isolated until the others have deleted entries that it lacks, or up to a time limit."""
        machine = self._random.choice(list(self._machines.values()))
        life = None if machine.process is None else machine.process.life
        if life is None or any(each.is_held for each in self._machines.values()):
            return
        last_index = life.store.last_index
        others = [each for each in self._machines if each != machine.node_id]
        pairs = [pair for each in others for pair in ((each, machine.node_id), (machine.node_id, each))]
        machine.is_held = True
        how = self._random.choice(("kill", "stop", "cut"))
        if how == "cut":
            self._world.network.cut(pairs)
        else:
            pairs = []
            (machine.kill if how == "kill" else machine.stop)()
        until_us = self._world.scheduler.now_us + _STRAND_MAX_US
        self._world.scheduler.after(_LOOK_US, self._look_at_stranded, machine, last_index, pairs, until_us)

    def _look_at_stranded(
        self, machine: ShellMachine, last_index: int, pairs: list[tuple[str, str]], until_us: int
    ) -> None:
        if self._is_stopped:
            return
        lives = [each.process.life for each in self._machines.values() if each.process is not None]
        begins = [each.store.begin_index for each in lives if each is not None and each.node.is_leader]
        is_stranded = max(begins, default=0) > last_index + 1
        if not is_stranded and self._world.scheduler.now_us < until_us:
            self._world.scheduler.after(_LOOK_US, self._look_at_stranded, machine, last_index, pairs, until_us)
            return
        if is_stranded:
            self._world.tally.add(ShellFault.STRANDED)
        machine.is_held = False
        self._world.network.heal(pairs)
        if machine.process is None:
            self._directory_faults.repair(machine)
            machine.boot()

    # ---------------------------------------------------------------------------------------------- installs

    def _look_for_installs(self) -> None:
        if self._is_stopped:
            return
        for machine in self._machines.values():
            if not machine.is_installing:
                self._installing.discard(machine.node_id)
            elif machine.node_id not in self._installing:
                self._installing.add(machine.node_id)
                if self._random.random() < _INTERRUPT_RATE:
                    within_us = int(self._random.random() * _INTERRUPT_WITHIN_US)
                    self._world.scheduler.after(within_us, self._interrupt, machine)
        self._world.scheduler.after(_LOOK_US // 20, self._look_for_installs)

    def _interrupt(self, machine: ShellMachine) -> None:
        """Inject a fault into the leader or the receiver of a running install."""
        leader = next((each for each in self._machines.values() if each.is_leading), None)
        if self._is_stopped or not machine.is_installing or leader is None:
            return
        self._world.tally.add(ShellFault.INSTALL_INTERRUPTED)
        random = self._random
        what = random.choice(("kill", "isolate", "transfer", "stop", "kill receiver", "arm receiver", "cut power"))
        self._world.trace.note("nemesis", "%s in the install on %s", what, machine.node_id)
        if what == "kill":
            leader.kill()
        elif what == "stop":
            leader.stop()
        elif what == "isolate":
            self._isolate(leader)
        elif what == "transfer":
            random.choice(self._clients).transfer(random.choice(list(self._machines)))
        elif what == "arm receiver":
            machine.arm(random.randint(1, _OPERATIONS_MAX))
        elif what == "cut power" and self._world.options.is_flush_sync:
            machine.cut_power()
        else:
            machine.kill()

    def _isolate(self, machine: ShellMachine) -> None:
        others = [each for each in self._machines if each != machine.node_id]
        pairs = [pair for each in others for pair in ((each, machine.node_id), (machine.node_id, each))]
        self._world.network.cut(pairs)
        self._later(_CUT_MAX_US, lambda: self._world.network.heal(pairs))

    # ---------------------------------------------------------------------------------------------- state machines

    def _slow_apply(self) -> None:
        machine = self._random.choice(list(self._machines.values()))
        machine.apply_delay_us = self._random.choice(_APPLY_DELAYS_US)

        def quicken() -> None:
            machine.apply_delay_us = 0

        self._later(_SLOW_MAX_US, quicken)

    def _later(self, duration_max_us: int, end: Callable[[], None]) -> None:
        self._world.scheduler.after(int(self._random.random() * duration_max_us), self._end, end)

    def _end(self, end: Callable[[], None]) -> None:
        if not self._is_stopped:
            end()
