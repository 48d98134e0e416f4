"""One whole run: a cluster, its clients and its nemesis; first the safety phase, then the liveness phase.

Safety: faults according to the options, checks after every event batch. Liveness: all faults end and all nodes start;
within a bound of simulated time a write must be accepted, and all logs must be equal, byte for byte. At the end the
power of all machines is cut once more, and all logs must still be complete after the restart.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from dledger.testing.administrator import Administrator
from dledger.testing.checks.all_checks import make_checks, node_directory
from dledger.testing.clients import Client
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import Fault, FaultCounts, Violation
from dledger.testing.machine.machine import SimMachine
from dledger.testing.machine.membership_checks import check_equal
from dledger.testing.nemesis.nemesis import Nemesis
from dledger.testing.network.network import SimNetwork
from dledger.testing.scheduler import Scheduler
from dledger.testing.trace import Trace
from dledger.testing.work import SimWork, WorkCounts
from dledger.testing.world import Parts, World
from dledger.types import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.core.messages import Message
    from dledger.testing.machine.process import SimProcess
    from dledger.testing.options import SimOptions

_PROBE_THINK_MAX_US = 20_000
_PROGRESS_US = 2_000_000
# A node waits half a second before it deletes the next data file; its clock may be slow.
_DELETION_US = 5_000_000
_READ_SIZE_BYTES = 1_000
# Messages are already lost in this phase, and a founding needs the votes of all voters in one election.
_FOUNDING_FACTOR = 4


@dataclass(frozen=True, slots=True)
class SimulationSummary:
    """The result of a run.

    Attributes:
        event_count: actions of the scheduler.
        simulated_us: simulated time.
        work: counts of completed operations, by name.
        faults: faults that took effect, by name.
        state_hash: of the final state of everything; equal for equal runs.
    """

    event_count: int
    simulated_us: int
    work: dict[str, int]
    faults: dict[str, int]
    state_hash: str


class Simulation:
    """A simulated cluster.

    Args:
        options: of the run.
        parts: the production code; tests use faulty parts.
        emit: receives the trace line by line; None: only its last lines are kept, in `trace`.
    """

    def __init__(
        self, options: SimOptions, parts: Parts | None = None, emit: Callable[[str], None] | None = None
    ) -> None:
        seed = options.seed
        counts = FaultCounts()
        scheduler = Scheduler()
        disks = {node_id: SimDisk(Random(f"{seed}/disk/{node_id}"), counts) for node_id in options.all_ids}
        self._network_random = Random(f"{seed}/network")
        self._end_random = Random(f"{seed}/ended processes")
        network = SimNetwork(scheduler, self._network_random, counts, options.network, self._deliver)
        self.trace = Trace(scheduler, emit)
        self._options = options
        self._world = World(
            options=options,
            scheduler=scheduler,
            network=network,
            checks=make_checks(options, disks),
            counts=counts,
            work=WorkCounts(),
            trace=self.trace,
            parts=parts or Parts(),
        )
        self._machines = {
            node_id: SimMachine(self._world, node_id, disk, self._on_process_end) for node_id, disk in disks.items()
        }
        # Machines that take part in the liveness phase.
        self._living = dict(self._machines)
        self._nemesis = Nemesis(self._world, self._machines)
        self._administrator = Administrator(self._world, self._machines)
        self._clients = [
            Client(self._world, self._machines, str(number), options.think_max_us)
            for number in range(options.client_count)
        ]

    def run(self) -> SimulationSummary:
        """Run both phases.

        Raises:
            Violation: an invariant does not hold.
            Exception: an unexpected exception of the code under test.
        """
        for machine in self._machines.values():
            machine.boot()
        for client in self._clients:
            client.start()
        scheduler, committed = self._world.scheduler, self._world.checks.log.committed
        founding_us = _FOUNDING_FACTOR * self._options.liveness_us
        if self._options.is_founded_without_faults and not scheduler.run_until(founding_us, lambda: bool(committed)):
            raise Violation("liveness", f"no group was founded within {founding_us} us")
        self._nemesis.start()
        self._administrator.start()
        scheduler.run_until(scheduler.now_us + self._options.safety_us)
        self._heal()
        self._await_liveness()
        self._await_deletions()
        # An election in between is possible, after which not all members have the leader's first entry yet.
        self._await_equal_logs()
        self._world.checks.clients.check_log()
        self._compare_files()
        check_equal(self._members)
        members = [process.node_id for process in self._members]
        self._read_everything(members)
        self._cut_power_once_more()
        self._read_everything(members)
        return self._summarize()

    # ---------------------------------------------------------------------------------------------- phases

    def _heal(self) -> None:
        self.trace.note("all", "is healed")
        self._nemesis.stop()
        self._administrator.stop()
        self._world.network.heal()
        for client in self._clients:
            client.is_stopped = True
        self._leave_some_dead()
        for machine in self._living.values():
            machine.heal()

    def _leave_some_dead(self) -> None:
        """Leave some nodes dead or stalled for the rest of the run, at most a minority of the voters."""
        chosen = Random(f"{self._options.seed}/the dead")
        dead = chosen.sample(list(self._machines), min(self._options.dead_max, len(self._machines)))
        for node_id in dead:
            if self._world.checks.damage.take_away(node_id):
                self._living.pop(node_id).leave_dead()

    def _await_liveness(self) -> None:
        scheduler = self._world.scheduler
        prober = Client(self._world, self._machines, "prober", _PROBE_THINK_MAX_US)
        prober.start()
        end_us = scheduler.now_us + self._options.liveness_us
        if not scheduler.run_until(end_us, lambda: prober.appended_count > 0):
            raise Violation("liveness", f"no append was accepted within {self._options.liveness_us} us without faults")
        prober.is_stopped = True
        self._await_equal_logs()

    def _await_equal_logs(self) -> None:
        scheduler, reached = self._world.scheduler, -1
        end_us = scheduler.now_us + self._options.liveness_us
        while not scheduler.run_until(end_us, self._has_converged):
            ends = {process.node_id: (process.raft.last_index, process.raft.commit_index) for process in self._running}
            before, reached = reached, sum(last_index for last_index, _ in ends.values())
            if reached <= before:
                non_voting = self._world.checks.damage.non_voting
                raise Violation(
                    "liveness",
                    f"no equal logs after the faults ended: (last, commit) {ends}, not readmitted {non_voting}",
                )
            # A long log may take long, as long as there is progress.
            end_us += _PROGRESS_US

    def _await_deletions(self) -> None:
        """Wait until the logs that resets replaced are deleted, where the new ones have caught up."""
        scheduler = self._world.scheduler
        # A log may have hundreds of files, and a node deletes one at a time.
        while left := self._overdue():
            if not scheduler.run_until(scheduler.now_us + _DELETION_US, partial(self._has_deleted, left)):
                raise Violation("aside", f"files of old logs are not deleted although the new ones caught up: {left}")

    def _has_deleted(self, left: dict[str, int]) -> bool:
        """Return whether one of these nodes deleted a file since `left` was counted; others may have become due."""
        now = self._overdue()
        return any(now.get(node_id, 0) < count for node_id, count in left.items())

    def _overdue(self) -> dict[str, int]:
        """Return, for each member that has not deleted a log aside although it should have, the number of its files."""
        return {
            process.node_id: max(1, process.store.aside.files_count)
            for process in self._members
            if process.store.aside.is_due(min(process.raft.commit_index, process.store.durable_index))
        }

    def _has_converged(self) -> bool:
        """Return whether all members have equal, completely committed logs, and count as voters."""
        members = self._members
        last_index = max(process.raft.last_index for process in members)
        if any(not process.raft.last_index == last_index == process.raft.commit_index for process in members):
            return False
        voters = members[0].raft.membership.voters
        non_voting = self._world.checks.damage.non_voting
        return not any(node_id in voters and node_id in self._living for node_id in non_voting)

    @property
    def _members(self) -> list[SimProcess]:
        """Processes of the members according to the newest leader, or else the node with the highest commit index."""
        knowing = max(
            self._running,
            key=lambda process: (process.raft.role is Role.LEADER, process.raft.term, process.raft.commit_index),
        )
        membership = knowing.raft.membership
        return [process for process in self._running if membership.get(process.node_id) is not None]

    @property
    def _running(self) -> list[SimProcess]:
        return [machine.process for machine in self._living.values() if machine.process is not None]

    def _compare_files(self) -> None:
        """Compare the data files of all members from where the shortest log begins to the end."""
        members = self._members
        begin = max(process.store.begin_position for process in members)
        expected = self._data_of(members[0], begin)
        for process in members[1:]:
            if self._data_of(process, begin) != expected:
                raise Violation("equal logs", f"{process.node_id} and {members[0].node_id} hold different bytes")

    def _data_of(self, process: SimProcess, begin: int) -> bytes:
        directory = f"{node_directory(process.node_id)}/data"
        names = self._machines[process.node_id].disk.directories[directory].cached
        joined = b"".join(bytes(names[name].cache) for name in sorted(names))
        offset = int(min(names)) if names else 0
        return joined[begin - offset : process.store.end_position - offset]

    def _read_everything(self, node_ids: list[str]) -> None:
        """Read the whole log of each of these nodes through its store, by index and by position."""
        for process in self._running:
            if process.node_id not in node_ids:
                continue
            store, served = process.store, self._world.checks.log.served
            index = store.begin_index
            while index <= store.last_index:
                span = store.fit(index, store.last_index, _READ_SIZE_BYTES)
                for entry in store.read_entries(index, span.last_index):
                    served(process.node_id, entry)
                assert store.index_at_position(span.position) == index, (process.node_id, span)
                index = span.last_index + 1

    def _cut_power_once_more(self) -> None:
        for machine in self._machines.values():
            if self._options.is_flush_sync:
                machine.cut_power()
            else:
                machine.kill()
        for machine in self._living.values():
            machine.boot()

    # ---------------------------------------------------------------------------------------------- what nodes cause

    def _deliver(self, target: str, sender: str, message: Message) -> None:
        process = self._machines[target].listener
        if process is not None:
            process.receive(sender, message)

    def _on_process_end(self, machine: SimMachine) -> None:
        """Break the connections of some other nodes; restart the machine later."""
        for process in self._running:
            if self._network_random.random() < 0.5:
                delay_us = int(self._network_random.random() * self._options.network.max_latency_us)
                self._world.scheduler.after(delay_us, self._lose_connection, process, machine.node_id)
            if self._end_random.random() < self._options.reported_end_share:
                delay_us = int(self._end_random.random() * self._options.network.max_latency_us)
                self._world.scheduler.after(delay_us, self._report_end, process, machine)
        self._nemesis.restart(machine)

    def _report_end(self, process: SimProcess, machine: SimMachine) -> None:
        if not process.is_dead and machine.process is None:
            self._world.counts.add(Fault.END_REPORTED)
            process.report_end(machine.node_id)

    def _lose_connection(self, process: SimProcess, peer: str) -> None:
        if not process.is_dead:
            process.lose_connection(peer)

    # ---------------------------------------------------------------------------------------------- summary

    def _summarize(self) -> SimulationSummary:
        world, checks = self._world, self._world.checks
        world.work.add(SimWork.COMMITTED, len(checks.log.committed))
        world.work.add(SimWork.ELECTED, checks.elections.election_count)
        world.work.add(SimWork.ACKNOWLEDGED, checks.clients.acknowledged_count)
        world.work.add(SimWork.READ, checks.clients.read_count)
        return SimulationSummary(
            event_count=world.scheduler.event_count,
            simulated_us=world.scheduler.now_us,
            work=world.work.as_dict(),
            faults=world.counts.as_dict(),
            state_hash=self._hash(),
        )

    def _hash(self) -> str:
        """Hash every file of every disk, the counts, and the next random number (which depends on all before it)."""
        digest = hashlib.sha256()
        for machine in self._machines.values():
            machine.disk.add_to(digest, machine.node_id)
        world = self._world
        counters = (world.scheduler.event_count, world.scheduler.now_us, self._network_random.random())
        digest.update(repr((counters, world.counts.as_dict())).encode())
        return digest.hexdigest()[:16]
