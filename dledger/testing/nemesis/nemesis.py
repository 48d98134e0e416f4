"""The plan of a run's faults: starts operations drawn from the seed, one after another, and ends each of them later."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from dledger.testing.disk.disk import UNLIMITED_BYTES
from dledger.testing.machine.machine import STUCK_PERMANENTLY_US
from dledger.testing.nemesis.directories import DirectoryNemesis
from dledger.testing.nemesis.network import NetworkNemesis
from dledger.testing.options import NemesisOp
from dledger.types import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dledger.testing.disk.disk import IoFault
    from dledger.testing.machine.machine import SimMachine
    from dledger.testing.world import World

_DEATH_OPERATIONS_MAX = 60
_START_OPERATIONS_MAX = 12
_US_PER_HOUR = 3_600_000_000
_FAULT_MAX_US = 500_000
_STUCK_MIN_US = 2_000_000
_FAILING_OPERATIONS_MAX = 30


class Nemesis:
    """Starts operations of the nemesis until it is stopped.

    Args:
        world: the shared state of the run.
        machines: the machines of all nodes.
    """

    def __init__(self, world: World, machines: Mapping[str, SimMachine]) -> None:
        self._world = world
        self._machines = machines
        self._random = Random(f"{world.options.seed}/troubles")
        self._is_stopped = False
        network = NetworkNemesis(world, machines, self._random, self)
        self._directory_nemesis = DirectoryNemesis(world, machines, self._random, self)
        self._orders: dict[NemesisOp, Callable[[], None]] = {
            NemesisOp.KILL: lambda: self._any().kill(),
            NemesisOp.STOP: lambda: self._any().stop(),
            NemesisOp.CUT_POWER: lambda: self._any().cut_power(),
            NemesisOp.CUT_POWER_OF_ALL: self._cut_power_of_all,
            NemesisOp.DIE_IN_STEP: lambda: self._any().arm(self._random.randint(1, _DEATH_OPERATIONS_MAX)),
            NemesisOp.DIE_IN_START: lambda: self._any().kill(),
            NemesisOp.ISOLATE: lambda: network.isolate(self._any_id()),
            NemesisOp.SPLIT: network.split,
            NemesisOp.CUT_ONE_WAY: network.cut_one_way,
            NemesisOp.BRIDGE: network.bridge,
            NemesisOp.FLAP: network.flap,
            NemesisOp.CLOG: network.clog,
            NemesisOp.MUTE: lambda: network.mute(self._leader_id() or self._any_id()),
            NemesisOp.SWIZZLE_CLOG: network.swizzle_clog,
            NemesisOp.PAUSE: self._pause,
            NemesisOp.SLOW_DISK: self._slow_disk,
            NemesisOp.FILL_DISK: self._fill_disk,
            NemesisOp.STICK_SYNC: self._stick_sync,
            NemesisOp.FAIL_WRITE: lambda: self._fail_io(self._any().disk.write_fault),
            NemesisOp.FAIL_SYNC: lambda: self._fail_io(self._any().disk.sync_fault),
            NemesisOp.FAIL_READ: lambda: self._fail_io(self._any().disk.read_fault),
            NemesisOp.FLIP_BITS: self._flip_bits,
            NemesisOp.MISDIRECT_WRITE: self._misdirect_write,
            NemesisOp.CUT_HEAD: lambda: self._any().cut_head(),
            NemesisOp.STOP_CLOCK: self._stop_clock,
            NemesisOp.WIPE: self._wipe,
            NemesisOp.SET_CLOCK: self._set_clock,
            NemesisOp.EXCHANGE: lambda: self._directory_nemesis.exchange(self._any()),
            NemesisOp.LOSE_IDENTITY: lambda: self._directory_nemesis.lose_identity(self._any()),
            NemesisOp.PUT_FOREIGN: lambda: self._directory_nemesis.put_foreign(self._any()),
        }

    def start(self) -> None:
        """Schedule the first operation, if this run has any."""
        if self._world.options.nemesis_ops:
            self._wait()

    def stop(self) -> None:
        """Schedule no further operations, and end foreign directories; the owner heals all other active faults."""
        self._is_stopped = True
        for machine in self._machines.values():
            self._directory_nemesis.end_foreign(machine)

    def restart(self, machine: SimMachine) -> None:
        """Restart a machine after a while, sometimes with a crash during its start."""
        if not self._is_stopped:
            delay_us = int(self._random.random() * self._world.options.downtime_max_us)
            self._world.scheduler.after(delay_us, self._boot, machine)

    def _boot(self, machine: SimMachine) -> None:
        if self._is_stopped:
            return
        is_doomed = NemesisOp.DIE_IN_START in self._world.options.nemesis_ops and self._random.random() < 0.4
        machine.boot(die_after=self._random.randint(1, _START_OPERATIONS_MAX) if is_doomed else 0)

    def _wait(self) -> None:
        mean_us = self._world.options.nemesis_interval_us
        self._world.scheduler.after(int(self._random.expovariate(1 / mean_us)), self._order)

    def _order(self) -> None:
        if self._is_stopped:
            return
        op = self._random.choice(self._world.options.nemesis_ops)
        self._world.trace.note("nemesis", "%s", op.value)
        self._orders[op]()
        self._wait()

    def _any_id(self) -> str:
        """Choose a victim: every second time the leader, if there is one, because its faults affect all nodes."""
        leader_id = self._leader_id() if self._random.random() < 0.5 else None
        return leader_id or self._random.choice(self._world.options.all_ids)

    def _leader_id(self) -> str | None:
        processes = [machine.process for machine in self._machines.values()]
        leaders = [process for process in processes if process is not None and process.raft.role is Role.LEADER]
        return max(leaders, key=lambda process: process.raft.term).node_id if leaders else None

    def _any(self) -> SimMachine:
        return self._machines[self._any_id()]

    def later(self, duration_max_us: int, end: Callable[..., None], *arguments: object) -> None:
        """End a fault after a random time, unless all faults were healed before."""
        self.at(int(self._random.random() * duration_max_us), end, *arguments)

    def at(self, delay_us: int, act: Callable[..., None], *arguments: object) -> None:
        """Take the next step of a fault after `delay_us`, unless all faults were healed before."""
        self._world.scheduler.after(delay_us, self._end, act, arguments)

    def _end(self, end: Callable[..., None], arguments: Sequence[object]) -> None:
        if not self._is_stopped:
            end(*arguments)

    # ---------------------------------------------------------------------------------------------- machines

    def _cut_power_of_all(self) -> None:
        for machine in self._machines.values():
            machine.cut_power()

    def _pause(self) -> None:
        machine = self._any()
        machine.pause()
        self.later(_FAULT_MAX_US, machine.resume)

    def _slow_disk(self) -> None:
        machine = self._any()
        machine.sync_delay_us = self._random.choice((5_000, 50_000, 300_000))
        self.later(_FAULT_MAX_US, self._quicken_disk, machine)

    def _quicken_disk(self, machine: SimMachine) -> None:
        machine.sync_delay_us = 0

    def _fill_disk(self) -> None:
        machine = self._any()
        free_bytes = self._random.randint(0, 2 * self._world.options.data_file_size_bytes)
        machine.disk.capacity_bytes = machine.disk.used_bytes + free_bytes
        self.later(_FAULT_MAX_US, self._empty_disk, machine)

    def _empty_disk(self, machine: SimMachine) -> None:
        machine.disk.capacity_bytes = UNLIMITED_BYTES

    def _stick_sync(self) -> None:
        """Make the next sync take seconds or hang; the disk recovers before or after that."""
        machine = self._any()
        machine.sync_delay_us = self._random.choice((_STUCK_MIN_US, STUCK_PERMANENTLY_US))
        self.later(_FAULT_MAX_US, self._quicken_disk, machine)

    def _fail_io(self, fault: IoFault) -> None:
        """Make one operation fail, or all operations for a while."""
        fault.arm(self._random.randint(1, _FAILING_OPERATIONS_MAX), is_lasting=self._random.random() < 0.3)
        self.later(_FAULT_MAX_US, fault.heal)

    def _flip_bits(self) -> None:
        machine = self._any()
        damage = self._world.checks.damage
        is_cached = machine.process is None or self._random.random() < 0.5
        path = damage.flip(machine.node_id, self._random, self._world.counts, is_cached=is_cached)
        if path is not None:
            self._world.trace.note(machine.node_id, "has flipped bits in %s", path)
            if self._random.random() < 0.5:
                machine.kill()

    def _misdirect_write(self) -> None:
        machine = self._any()
        path = self._world.checks.damage.misdirect(machine.node_id, self._random, self._world.counts)
        if path is not None:
            self._world.trace.note(machine.node_id, "has another sector written into %s", path)
            if self._random.random() < 0.5:
                machine.kill()

    def _stop_clock(self) -> None:
        """Suspend the whole machine, as a hypervisor does: its monotonic clock stops meanwhile."""
        machine = self._any()
        machine.pause(is_clock_stopped=True)
        self.later(_FAULT_MAX_US, machine.resume)

    def _wipe(self) -> None:
        machine = self._any()
        if self._world.checks.damage.can_lose(machine.node_id):
            machine.wipe()

    def _set_clock(self) -> None:
        """Change the time of day of a machine by a second, by hours, or by years, in either direction."""
        size_us = self._random.choice((1_000_000, 10 * _US_PER_HOUR, 24 * 365 * 10 * _US_PER_HOUR))
        self._any().set_clock(self._random.choice((-1, 1)) * size_us)
