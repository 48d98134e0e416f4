"""The plan of a run's faults: starts operations drawn from the seed, one after another, and ends each of them later."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from dledger.testing.disk.disk import UNLIMITED_BYTES
from dledger.testing.shell.directory_faults import DirectoryFaults
from dledger.testing.shell.options import RARE_OPS, ShellNemesisOp
from dledger.testing.shell.snapshot_nemesis import SnapshotNemesis

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dledger.testing.shell.clients import ClientProcess
    from dledger.testing.shell.machines import ShellMachine
    from dledger.testing.shell.world import ShellWorld

_DEATH_OPERATIONS_MAX = 80
_SOON_US = 10_000
_FAULT_MAX_US = 1_000_000
# Sometimes longer than any time limit of a connection.
_CUT_MAX_US = (300_000, 1_500_000, 9_000_000)


class ShellNemesis:
    """Starts operations of the nemesis until it is stopped.

    Args:
        world: the shared state of the run.
        machines: of the nodes.
        clients: one of them requests transfers and changes of members.

    Attributes:
        directory_faults: the faults of directories.
    """

    def __init__(
        self, world: ShellWorld, machines: Mapping[str, ShellMachine], clients: Sequence[ClientProcess]
    ) -> None:
        self._world = world
        self._machines = machines
        self._clients = clients
        self._random = Random(f"{world.options.seed}/troubles")
        self._is_stopped = False
        self.directory_faults = DirectoryFaults(world, machines)
        state = world.options.state
        self._snapshot_nemesis = (
            None if state is None else SnapshotNemesis(world, state, machines, clients, self.directory_faults)
        )
        self._orders: dict[ShellNemesisOp, Callable[[], None]] = {
            ShellNemesisOp.KILL: lambda: self._any().kill(),
            ShellNemesisOp.STOP: lambda: self._any().stop(),
            ShellNemesisOp.CUT_POWER: lambda: self._any().cut_power(),
            ShellNemesisOp.CUT_POWER_OF_ALL: self._cut_power_of_all,
            ShellNemesisOp.DIE_IN_STEP: lambda: self._any().arm(self._random.randint(1, _DEATH_OPERATIONS_MAX)),
            ShellNemesisOp.ISOLATE: self._isolate,
            ShellNemesisOp.CUT_ONE_WAY: self._cut_one_way,
            ShellNemesisOp.SPLIT: self._split,
            ShellNemesisOp.RESET_CONNECTIONS: self._reset_connections,
            ShellNemesisOp.PAUSE: lambda: self._pause(is_clock_stopped=False),
            ShellNemesisOp.STOP_CLOCK: lambda: self._pause(is_clock_stopped=True),
            ShellNemesisOp.SLOW_DISK: self._slow_disk,
            ShellNemesisOp.FAIL_SYNC: self._fail_sync,
            ShellNemesisOp.FILL_DISK: self._fill_disk,
            ShellNemesisOp.TRANSFER: self._transfer,
            ShellNemesisOp.FLIP_FRAMES: self._flip_frames,
            ShellNemesisOp.CHANGE_MEMBERS: self._change_members,
            ShellNemesisOp.WIPE: self.directory_faults.wipe,
            ShellNemesisOp.FLIP_BYTES: self.directory_faults.flip,
            ShellNemesisOp.PUT_FOREIGN: self.directory_faults.put_foreign,
            ShellNemesisOp.PUT_OLD_COPY: self.directory_faults.put_old_copy,
            ShellNemesisOp.EXCHANGE: self.directory_faults.exchange,
        }

    def start(self) -> None:
        """Schedule the first operation, if this run has any."""
        if self._world.options.nemesis_ops:
            self._wait()
        if self._snapshot_nemesis is not None:
            self._snapshot_nemesis.start()

    def stop(self) -> None:
        """Schedule no further operations; the owner heals active faults."""
        self._is_stopped = True
        if self._snapshot_nemesis is not None:
            self._snapshot_nemesis.stop()

    def restart(self, machine: ShellMachine) -> None:
        """Restart a machine after a while, or soon if all faults are healed."""
        after = self._world.scheduler.after
        if self._is_stopped:
            after(_SOON_US, machine.boot)
        else:
            after(
                int(self._random.random() * self._world.options.downtime_max_us),
                self._end,
                self._bring_back,
                (machine,),
            )

    def _bring_back(self, machine: ShellMachine) -> None:
        if machine.process is None and not machine.is_held:
            self.directory_faults.repair(machine)
            machine.boot()

    def _wait(self) -> None:
        mean_us = self._world.options.nemesis_interval_us
        self._world.scheduler.after(int(self._random.expovariate(1 / mean_us)), self._order)

    def _order(self) -> None:
        if self._is_stopped:
            return
        nemesis_ops = self._world.options.nemesis_ops
        # Most of these are skipped, because the group cannot tolerate a loss yet, so they are drawn twice as often.
        op = self._random.choice([*nemesis_ops, *(each for each in nemesis_ops if each in RARE_OPS)])
        self._world.trace.note("nemesis", "%s", op.value)
        self._orders[op]()
        self._wait()

    def _later(self, duration_max_us: int, end: Callable[..., None], *arguments: object) -> None:
        self._world.scheduler.after(int(self._random.random() * duration_max_us), self._end, end, arguments)

    def _end(self, end: Callable[..., None], arguments: tuple[object, ...]) -> None:
        if not self._is_stopped:
            end(*arguments)

    def _any(self) -> ShellMachine:
        """Choose a victim: every second time the leader, if there is one, because its faults affect all nodes."""
        machines = list(self._machines.values())
        if self._random.random() < 0.5:
            for machine in machines:
                if machine.process is not None and machine.process.node.is_leader:
                    return machine
        return self._random.choice(machines)

    # ---------------------------------------------------------------------------------------------- network

    def _all_addresses(self) -> list[str]:
        return [*self._machines, *(client.client_id for client in self._clients)]

    def _cut(self, pairs: list[tuple[str, str]]) -> None:
        self._world.network.cut(pairs)
        self._later(self._random.choice(_CUT_MAX_US), self._world.network.heal, pairs)

    def _isolate(self) -> None:
        """Cut a node off from all other nodes, and sometimes from the clients."""
        victim = self._any().node_id
        others = self._all_addresses() if self._random.random() < 0.5 else list(self._machines)
        self._cut([pair for each in others if each != victim for pair in ((each, victim), (victim, each))])

    def _cut_one_way(self) -> None:
        """Drop all data from one machine to another; the other direction works."""
        victim, other = self._any().node_id, self._random.choice(self._all_addresses())
        pairs = [(victim, other), (other, victim)]
        self._cut([self._random.choice(pairs)] if victim != other else [])

    def _split(self) -> None:
        """Partition the machines into two sides."""
        sides = {each: self._random.random() < 0.5 for each in self._all_addresses()}
        self._cut([(one, other) for one in sides for other in sides if sides[one] != sides[other]])

    def _reset_connections(self) -> None:
        victim = self._random.choice(self._all_addresses())
        self._world.network.reset_connections(victim, share=self._random.choice((0.3, 1.0)))

    def _flip_frames(self) -> None:
        self._world.network.flip_rate = self._random.choice((0.01, 0.1, 0.3))
        self._later(_FAULT_MAX_US, self._carry_unchanged)

    def _carry_unchanged(self) -> None:
        self._world.network.flip_rate = 0.0

    # ---------------------------------------------------------------------------------------------- machines

    def _cut_power_of_all(self) -> None:
        for machine in self._machines.values():
            machine.cut_power()

    def _pause(self, *, is_clock_stopped: bool) -> None:
        machine = self._any()
        machine.pause(is_clock_stopped=is_clock_stopped)
        self._later(self._random.choice((_FAULT_MAX_US, 5 * _FAULT_MAX_US)), machine.resume)

    def _slow_disk(self) -> None:
        machine = self._any()
        machine.sync_delay_us = self._random.choice((5_000, 50_000, 400_000))
        self._later(_FAULT_MAX_US, self._quicken_disk, machine)

    def _quicken_disk(self, machine: ShellMachine) -> None:
        machine.sync_delay_us = 0

    def _fail_sync(self) -> None:
        fault = self._any().disk.sync_fault
        fault.arm(self._random.randint(1, _DEATH_OPERATIONS_MAX), is_lasting=False)
        self._later(_FAULT_MAX_US, fault.heal)

    def _fill_disk(self) -> None:
        machine = self._any()
        free_bytes = self._random.randint(0, 2 * self._world.options.data_file_size_bytes)
        machine.disk.capacity_bytes = machine.disk.used_bytes + free_bytes
        self._later(_FAULT_MAX_US, self._empty_disk, machine)

    def _empty_disk(self, machine: ShellMachine) -> None:
        machine.disk.capacity_bytes = UNLIMITED_BYTES

    def _transfer(self) -> None:
        self._random.choice(self._clients).transfer(self._random.choice(list(self._machines)))

    def _change_members(self) -> None:
        """Replace one member at a time: two that are replaced at once could leave too few."""
        self._clients[0].replace_member(self._random.choice(list(self._machines)))
