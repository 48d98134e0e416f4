"""Faults of directories: exchanged directories, a missing `identity` file, and the directory of another group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.storage.identity import FILE_NAME
from dledger.testing.checks.all_checks import node_directory
from dledger.testing.disk.disk import UNLIMITED_BYTES
from dledger.testing.faults import Fault
from dledger.testing.machine.foreign_node import ForeignNode
from dledger.testing.machine.wrong_directories import exchange

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from dledger.testing.machine.machine import SimMachine
    from dledger.testing.nemesis.network import Timer
    from dledger.testing.world import World

_STAY_MAX_US = 500_000


class DirectoryNemesis:
    """Injects operators' mistakes with directories.

    Args:
        world: the shared state of the run.
        machines: the machines of all nodes.
        random: of the plan.
        timer: schedules the end of each fault.
    """

    def __init__(self, world: World, machines: Mapping[str, SimMachine], random: Random, timer: Timer) -> None:
        self._world = world
        self._machines = machines
        self._random = random
        self._timer = timer

    def exchange(self, machine: SimMachine) -> None:
        """Exchange the directories of two nodes, check that both refuse to start, then exchange them back."""
        other = self._random.choice([other for other in self._machines.values() if other is not machine])
        if not (_is_sound(machine) and _is_sound(other)):
            return
        machine.kill()
        other.kill()
        exchange(machine.disk, machine.node_id, other.disk, other.node_id)
        for each in (machine, other):
            if each.disk.lookup(_identity_path(each)) is not None:
                each.must_refuse()
        exchange(machine.disk, machine.node_id, other.disk, other.node_id)

    def lose_identity(self, machine: SimMachine) -> None:
        """Delete the file `identity`: the node must refuse to start until the operator adopts the directory."""
        inode = machine.disk.lookup(_identity_path(machine))
        if inode is None or not _is_sound(machine) or self._world.checks.damage.is_damaged(machine.node_id):
            return
        process = machine.process
        if process is None or process.store.last_index < process.store.begin_index:
            return
        machine.kill()
        directory = machine.disk.directories[node_directory(machine.node_id)]
        directory.cached.pop(FILE_NAME)
        directory.durable.pop(FILE_NAME, None)
        for change in directory.pending:
            change.pop(FILE_NAME, None)
        machine.must_refuse()
        machine.is_adopting = True

    def put_foreign(self, machine: SimMachine) -> None:
        """Start the node on a directory of another group for a while, if the group can work without it."""
        damage = self._world.checks.damage
        if machine.foreign_node is not None or not (damage.is_group_known() and damage.take_away(machine.node_id)):
            return
        machine.kill()
        self._world.counts.add(Fault.FOREIGN_DIRECTORY)
        machine.foreign_node = ForeignNode(self._world, machine.node_id, self._random)
        self._timer.later(_STAY_MAX_US, self.end_foreign, machine)

    def end_foreign(self, machine: SimMachine) -> None:
        """Restore the node's own directory, if it uses another one."""
        foreign_node, machine.foreign_node = machine.foreign_node, None
        if foreign_node is None:
            return
        machines = self._machines.values()
        foreign_node.dismiss([each.process for each in machines if each.process is not None])
        self._world.checks.damage.give_back(machine.node_id)
        machine.boot()


def _identity_path(machine: SimMachine) -> str:
    return f"{node_directory(machine.node_id)}/{FILE_NAME}"


def _is_sound(machine: SimMachine) -> bool:
    """Return whether the directory is the only reason why this machine's node cannot start."""
    disk = machine.disk
    faults = (disk.read_fault, disk.write_fault, disk.sync_fault)
    is_disk_well = disk.capacity_bytes == UNLIMITED_BYTES and not any(fault.is_armed for fault in faults)
    return machine.foreign_node is None and is_disk_well
