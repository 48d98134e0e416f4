"""Faults of directories: flipped bits, replaced disks, directories of other nodes.

One node of a run is the victim: the others are a majority without losses, so the group must keep all acknowledged
entries. A process on a damaged or wrong directory is refused with the reason, or has no vote; its log and term are
never adopted:

| fault | required outcome |
| --- | --- |
| replaced by an empty disk | the node is readmitted in the end |
| flipped bytes | the node names the file and stops, has no vote, or does not serve them; then it is repaired |
| of another group, with a higher term | no peer adopts its term or an entry |
| an older copy of its own, or of the disk before it | a peer that knows a later life refuses it, and the node stops |
| exchanged for that of another node | neither starts |
| flipped bytes of a snapshot | it is neither loaded nor sent; the node saves another one, or reports it and stops |

At the end of a run damaged directories are replaced by empty disks, and exchanged ones are exchanged back.
"""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING

from dledger.entries.store import EntryStoreConfig
from dledger.testing.disk.disk import UNLIMITED_BYTES
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import Violation
from dledger.testing.machine import wrong_directories
from dledger.testing.shell.options import ShellFault
from dledger.types import Member

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.storage.identity import Identity
    from dledger.testing.disk.disk import Directory
    from dledger.testing.shell.machines import ShellMachine
    from dledger.testing.shell.world import ShellWorld

_FOREIGN_GROUP = 7
# Far above every term of a run, and within the bounds of terms.
_FOREIGN_TERM = 1_000_000
_FLIPPED_BYTES_MAX = 3
_LOCK_NAME = "lock"
_SNAPSHOT_DIRECTORY = "/snapshot"
_LOOK_AGAIN_US = 20_000
# Share of the copies after which the disk is replaced by an empty one.
_REPLACED_RATE = 0.3
# Descriptions of the damage.
_FOREIGN = "a directory of another group"
_OLD_COPY = "an old copy of its directory"
_FLIPPED = "a directory with flipped bytes"
_EXCHANGED = "the directory of another node"


class DirectoryFaults:
    """Injects faults into directories, and repairs them.

    Args:
        world: the shared state of the run.
        machines: of the nodes; one of them is the victim.
    """

    def __init__(self, world: ShellWorld, machines: Mapping[str, ShellMachine]) -> None:
        self._world = world
        self._machines = machines
        self._random = Random(f"{world.options.seed}/mishaps")
        self._random_of_snapshots = Random(f"{world.options.seed}/mishaps of snapshots")
        self._victim = machines[self._random.choice(list(machines))]
        self._copy: dict[str, Directory] | None = None
        # The copied directory, the nodes that have recorded it, and those that have recorded a later start or
        # directory.
        self._copied: Identity | None = None
        self._recorded_copy: set[str] = set()
        self._recorded_later: set[str] = set()
        self._is_ended = False
        self._exchanged: tuple[ShellMachine, ShellMachine] | None = None

    # ---------------------------------------------------------------------------------------------- operations

    def wipe(self) -> None:
        """Replace the victim's disk by an empty one."""
        if self._may_lose():
            self._world.tally.add(ShellFault.WIPED)
            self._victim.kill()
            self._victim.replace_disk()

    def flip(self) -> None:
        """Flip some bytes of one of the victim's files."""
        victim, random = self._victim, self._random
        if not self._may_be_damaged():
            return
        victim.kill()
        # Each directory is chosen equally often, whatever its number of files.
        kinds = [
            [inode for name, inode in directory.durable.items() if name != _LOCK_NAME and any(inode.durable)]
            for directory in victim.disk.directories.values()
        ]
        kinds = [files for files in kinds if files]
        if not kinds:
            # It was replaced and has not started yet.
            return
        inode = random.choice(random.choice(kinds))
        used = len(bytes(inode.durable).rstrip(b"\0"))
        for _ in range(random.randint(1, _FLIPPED_BYTES_MAX)):
            inode.flip(random.randrange(used), 1 << random.randrange(8), is_cached=True)
        self._world.tally.add(ShellFault.BYTES_FLIPPED)
        victim.directory_fault = _FLIPPED

    def flip_snapshot(self) -> None:
        """Flip a byte of one of the victim's snapshots, often of the newest, and perhaps while the node runs."""
        victim, random = self._victim, self._random_of_snapshots
        snapshots = [
            inode
            for path, directory in victim.disk.directories.items()
            for name, inode in sorted(directory.durable.items())
            if path.endswith(_SNAPSHOT_DIRECTORY) and name.isdigit() and any(inode.durable)
        ]
        if not snapshots or not self._may_be_damaged():
            return
        if random.random() < 0.5:
            victim.kill()
        inode = snapshots[-1] if random.random() < 0.7 else random.choice(snapshots)
        inode.flip(random.randrange(len(inode.durable)), 1 << random.randrange(8), is_cached=True)
        self._world.tally.add(ShellFault.SNAPSHOT_DAMAGED)
        victim.directory_fault = _FLIPPED

    def put_foreign(self) -> None:
        """Replace the victim's directory by one of another group."""
        if not self._may_be_damaged():
            return
        victim, options = self._victim, self._world.options
        victim.kill()
        victim.replace_disk()
        members = tuple(Member(peer.id, str(peer.address)) for peer in victim.config.peers)
        bodies = [b"foreign %d" % number for number in range(self._random.randint(0, 9))]
        sizes = EntryStoreConfig(options.data_file_size_bytes, options.index_file_size_bytes)
        foreign = wrong_directories.Foreign(members, _FOREIGN_GROUP, _FOREIGN_TERM, bodies)
        files = SimFiles(victim.disk, self._random, self._world.disk_counts, victim.clock)
        wrong_directories.put_foreign(files, victim.node_id, sizes, foreign, group=victim.config.group)
        self._world.tally.add(ShellFault.FOREIGN_DIRECTORY)
        victim.directory_fault = _FOREIGN

    def put_old_copy(self) -> None:
        """Copy the victim's directory, and restore the copy when all peers have recorded a later life of the victim.

        The later life may be on an empty disk that replaced the copied one.
        """
        victim = self._victim
        if not self._may_be_damaged() or not victim.is_counted or victim.life is None:
            return
        self._copied, self._recorded_copy, self._recorded_later = victim.life.peer_directories.own, set(), set()
        self._look_at_records()
        victim.kill()
        self._copy = deepcopy(victim.disk.directories)
        if len(self._recorded_copy) == len(self._others) and self._random.random() < _REPLACED_RATE:
            # Only the copy of that disk is left.
            self._world.tally.add(ShellFault.WIPED)
            victim.replace_disk()
        self._put_back_later()

    def _put_back_later(self) -> None:
        self._world.scheduler.after(_LOOK_AGAIN_US, self._put_back)

    def _put_back(self) -> None:
        victim = self._victim
        if self._is_ended or self._copy is None:
            return
        self._look_at_records()
        if not self._may_lose() or len(self._recorded_later) < len(self._others):
            self._put_back_later()
            return
        victim.kill()
        victim.replace_disk()
        victim.disk.directories.update(self._copy)
        self._copy = None
        self._world.tally.add(ShellFault.OLD_COPY)
        victim.directory_fault = _OLD_COPY

    def _look_at_records(self) -> None:
        """Determine the nodes that have recorded the copied directory, and those that have a later record."""
        assert self._copied is not None, "nothing was copied"
        for machine in self._others:
            met = () if machine.life is None else machine.life.peer_directories.met(self._victim.node_id)
            if met and met[0].directory_id == self._copied.directory_id:
                self._recorded_copy.add(machine.node_id)
                if met[0].starts > self._copied.starts:
                    self._recorded_later.add(machine.node_id)
            elif met and machine.node_id in self._recorded_copy:
                self._recorded_later.add(machine.node_id)

    def exchange(self) -> None:
        """Exchange two directories; the next such operation exchanges them back."""
        if self._exchanged is not None:
            self._exchange_back()
            return
        one, other = self._victim, self._random.choice(self._others)
        if self._may_be_damaged() and one.is_counted:
            for machine in (one, other):
                machine.kill()
            wrong_directories.exchange(one.disk, one.node_id, other.disk, other.node_id)
            one.directory_fault = other.directory_fault = _EXCHANGED
            self._world.tally.add(ShellFault.EXCHANGED)
            self._exchanged = one, other

    # ---------------------------------------------------------------------------------------------- repairs

    def repair(self, machine: ShellMachine) -> None:
        """Repair a node that is down because of its directory, as an operator would."""
        if machine.directory_fault is None or self._exchanged is not None or not machine.is_refused:
            return
        if machine.directory_fault == _FLIPPED and self._random.random() < 0.5:
            # As if restored from a backup.
            machine.disk.unflip()
            machine.directory_fault = None
        else:
            machine.replace_disk()

    def end(self) -> None:
        """Repair everything and inject no further faults."""
        self._is_ended = True
        if self._exchanged is not None:
            self._exchange_back()
        for machine in self._machines.values():
            if machine.directory_fault is not None:
                machine.kill()
                machine.replace_disk()

    def check(self) -> None:
        """Check that no node has accepted or obeyed a process on a wrong directory.

        Raises:
            Violation: a node of the group has the term of the foreign directory, or is connected to a process on a
                wrong directory.
        """
        for machine in self._machines.values():
            life = machine.life
            if machine.directory_fault is None:
                if life is not None and life.node.term >= _FOREIGN_TERM:
                    raise Violation("foreign directory", f"{machine.node_id} is in term {life.node.term}")
                continue
            is_accepted = machine.directory_fault in (_FOREIGN, _OLD_COPY) and machine.has_met_any
            if is_accepted or (machine.directory_fault == _EXCHANGED and life is not None):
                raise Violation(
                    "directory identity", f"{machine.node_id} takes part, and runs on {machine.directory_fault}"
                )

    def _exchange_back(self) -> None:
        assert self._exchanged is not None, "nothing was exchanged"
        (one, other), self._exchanged = self._exchanged, None
        for machine in (one, other):
            machine.kill()
        wrong_directories.exchange(one.disk, one.node_id, other.disk, other.node_id)
        one.directory_fault = other.directory_fault = None

    @property
    def _others(self) -> list[ShellMachine]:
        return [machine for machine in self._machines.values() if machine is not self._victim]

    def _may_be_damaged(self) -> bool:
        """Return whether the victim may get a wrong directory; a pending copy has priority."""
        return self._copy is None and self._may_lose()

    def _may_lose(self) -> bool:
        """Return whether the victim may lose its data: all others must be founded and counted.

        Before that, a founding node could forget a vote, and a node without the group id cannot recognise a foreign
        directory (ADR 19).
        """
        if self._victim.directory_fault is not None or self._exchanged is not None:
            return False
        if self._victim.disk.capacity_bytes < UNLIMITED_BYTES:
            return False
        return all(machine.is_counted for machine in self._others)
