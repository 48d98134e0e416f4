"""One whole run of the shell: clients, network, nodes and disks; first the safety phase, then the liveness phase.

Safety: faults according to the options, checks after every step of a node and at every answer to a client. Liveness:
all faults are healed and all nodes started; within a bound of simulated time each client must complete an append, and
all logs must become equal. At the end the power of all machines is cut once more, and the restarted nodes must have all
committed entries.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

from dledger.testing.faults import FaultCounts, SimulatedCrash, Violation
from dledger.testing.scheduler import Scheduler
from dledger.testing.shell.clients import ClientProcess
from dledger.testing.shell.history import History
from dledger.testing.shell.machines import ShellMachine
from dledger.testing.shell.nemesis import ShellNemesis
from dledger.testing.shell.network import Network
from dledger.testing.shell.options import DIRECTORY_OPS, PEER_PORT, STATE_FAULTS, FaultTally, ShellNemesisOp
from dledger.testing.shell.state import StateChecks
from dledger.testing.shell.world import ShellWorld
from dledger.testing.simulation import SimulationSummary
from dledger.testing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dledger.testing.shell.options import ShellOptions

_LOGGER = logging.getLogger("dledger")
# The operations that justify a warning; without them there is no reason, because all nodes have equal settings and
# correct addresses.
_UNJUSTIFIED = {
    "distrust": (),
    "BadFrame": (ShellNemesisOp.FLIP_FRAMES,),
    "corrupt_push": (ShellNemesisOp.FLIP_FRAMES, ShellNemesisOp.FLIP_BYTES),
    "refused (we dialled): 4": DIRECTORY_OPS,
    "refused (it dialled): 4": DIRECTORY_OPS,
}
_FOUNDING_US = 10_000_000
# Each node dials every other one twice, and is dialled as often.
_CONNECTIONS_PER_PEER = 4


class ShellSimulation:
    """A simulated group and its clients.

    Args:
        options: of the run.
        emit: receives the trace line by line; None: only its last lines are kept, in `trace`.
    """

    def __init__(self, options: ShellOptions, emit: Callable[[str], None] | None = None) -> None:
        scheduler, tally, history = Scheduler(), FaultTally(), History()
        self._network_random = Random(f"{options.seed}/network")
        self.trace = Trace(scheduler, emit)
        self._options = options
        self._world = ShellWorld(
            options=options,
            scheduler=scheduler,
            network=Network(scheduler, self._network_random, tally, options.links),
            history=history,
            states=StateChecks(history.committed, tally),
            tally=tally,
            disk_counts=FaultCounts(),
            trace=self.trace,
        )
        self._machines = {
            node_id: ShellMachine(self._world, node_id, number, self._on_process_end)
            for number, node_id in enumerate(options.node_ids)
        }
        self._clients: list[ClientProcess] = []
        self._nemesis: ShellNemesis | None = None

    def run(self) -> SimulationSummary:
        """Run all phases.

        Raises:
            Violation: a guarantee was violated.
            Exception: an unexpected exception of the code under test.
        """
        with _logged_to(self._world):
            try:
                self._run()
            finally:
                self._end_processes()
        return self._summarize()

    def _run(self) -> None:
        for machine in self._machines.values():
            machine.boot()
        self._clients += [ClientProcess(self._world, client_id) for client_id in self._options.client_ids]
        self._until(_FOUNDING_US, lambda: all(client.appended_count for client in self._clients), "the group begins")
        self._nemesis = ShellNemesis(self._world, self._machines, self._clients)
        self._nemesis.start()
        self._pass(self._options.safety_us)
        self._heal()
        self._await_liveness()
        self._world.history.check_appends()
        self._compare_stores()
        self._cut_power_once_more()

    @property
    def event_count(self) -> int:
        """Actions of the scheduler so far."""
        return self._world.scheduler.event_count

    # ---------------------------------------------------------------------------------------------- phases

    def _heal(self) -> None:
        self.trace.note("all", "is healed")
        assert self._nemesis is not None, "faults were on"
        self._nemesis.stop()
        self._world.network.heal()
        self._nemesis.directory_faults.end()
        for machine in self._machines.values():
            machine.heal()
        if ShellNemesisOp.CHANGE_MEMBERS in self._options.nemesis_ops:
            restored = self._clients[0].restore_members()
            self._until(self._options.liveness_us, restored.done, "all nodes are voters again")

    def _await_liveness(self) -> None:
        before = {client.client_id: client.appended_count for client in self._clients}
        liveness_us = self._options.liveness_us
        self._until(
            liveness_us,
            lambda: all(client.appended_count > before[client.client_id] for client in self._clients),
            "each client gets an append through",
        )
        for client in self._clients:
            client.is_stopping = True
        for machine in self._machines.values():
            machine.stop_calls()
        self._until(liveness_us, lambda: all(client.has_ended for client in self._clients), "clients end")
        self._until(liveness_us, self._has_converged, "all nodes know all to be committed")
        for machine in self._machines.values():
            node = machine.process.node if machine.process is not None else None
            errors = [] if machine.process is None else machine.process.loop.lost_errors()
            if errors:
                raise Violation("no error gets lost", f"{machine.node_id}: a task has ended: {errors}") from errors[0]
            if node is not None and node.pending_appends_count:
                raise Violation("liveness", f"{machine.node_id} never ends {node.pending_appends_count} appends")
            count = self._peer_connections(machine.node_id)
            expected = _CONNECTIONS_PER_PEER * (len(self._machines) - 1)
            if count != expected:
                raise Violation("connections", f"{machine.node_id}: expected {expected} connections, found {count}")

    def _has_converged(self) -> bool:
        """Return whether all nodes run, count, have equal logs and state, and are connected."""
        lives = [machine.process.life if machine.process is not None else None for machine in self._machines.values()]
        expected = _CONNECTIONS_PER_PEER * (len(self._machines) - 1)
        last_index = max((life.store.last_index for life in lives if life is not None), default=-1)
        return all(
            machine.is_counted and machine.links_count == expected for machine in self._machines.values()
        ) and all(
            life is not None
            and life.node.commit_index == life.store.last_index == last_index
            and (self._options.state is None or life.node.applied_index == last_index)
            and self._peer_connections(life.node_id) == expected
            for life in lives
        )

    def _compare_stores(self) -> None:
        for machine in self._machines.values():
            process = machine.process
            assert process is not None, machine.node_id
            assert process.life is not None, machine.node_id
            self._world.history.check_store(machine.node_id, process.life.store)
            if process.state is not None:
                self._world.states.check_end(machine.node_id, process.state)

    def _cut_power_once_more(self) -> None:
        """Kill all nodes at once, by a power cut if appends are synced; each must then have all committed entries."""
        for machine in self._machines.values():
            if self._options.is_flush_sync:
                machine.cut_power()
            else:
                machine.kill()
        for machine in self._machines.values():
            machine.boot()
        self._until(self._options.liveness_us, self._has_converged, "all nodes come back after a power cut")
        self._compare_stores()

    # ---------------------------------------------------------------------------------------------- time

    def _pass(self, duration_us: int) -> None:
        scheduler = self._world.scheduler
        scheduler.run_until(scheduler.now_us + duration_us, self._is_violated)
        self._raise_violation()

    def _until(self, within_us: int, is_done: Callable[[], bool], what: str) -> None:
        """Advance simulated time until a condition holds.

        Raises:
            Violation: it does not hold within the bound, or a guarantee was violated.
        """
        scheduler = self._world.scheduler
        end_us = scheduler.now_us + within_us
        while not is_done():
            if scheduler.now_us >= end_us:
                raise Violation("liveness", f"not within {within_us} us: {what}; {self._described()}")
            scheduler.run_until(scheduler.now_us + 10_000, self._is_violated)
            self._raise_violation()

    def _described(self) -> str:
        lives = [machine.process.life for machine in self._machines.values() if machine.process is not None]
        return "; ".join(
            f"{life.node_id}: {life.node.role.value} of term {life.node.term}, last {life.store.last_index}, "
            f"committed {life.node.commit_index}, applied {life.node.applied_index}, "
            f"{self._peer_connections(life.node_id)} connections"
            for life in lives
            if life is not None and life.node.is_running
        )

    def _peer_connections(self, node_id: str) -> int:
        return len(self._world.network.connections_to(node_id, PEER_PORT))

    def _is_violated(self) -> bool:
        if self._nemesis is not None and self._world.violation is None:
            try:
                self._nemesis.directory_faults.check()
            except Violation as violation:
                self._world.violate(violation)
        return self._world.violation is not None

    def _raise_violation(self) -> None:
        if self._world.violation is not None:
            raise self._world.violation

    def _on_process_end(self, machine: ShellMachine) -> None:
        if self._nemesis is not None:
            self._nemesis.restart(machine)

    # ---------------------------------------------------------------------------------------------- the end

    def _end_processes(self) -> None:
        """End all processes and close their remaining coroutines, after the run."""
        for machine in self._machines.values():
            if machine.process is not None:
                machine.process.files.crash_point.is_dead = True
                machine.process.saver.cut()
                self._world.left += machine.process.loop.kill()
        for client in self._clients:
            client.kill()
        # The unwinding of a dead process may raise anything; such errors are ignored.
        hook, sys.unraisablehook = sys.unraisablehook, _ignore
        try:
            self._close_left()
        finally:
            sys.unraisablehook = hook

    def _close_left(self) -> None:
        for task in self._world.left:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - else it complains
            try:
                coroutine = task.get_coro()
                assert coroutine is not None, "a task runs a coroutine"
                coroutine.close()
            except (RuntimeError, SimulatedCrash):
                # It awaited something while it unwound, or used its dead disk.
                continue
        self._world.left.clear()

    def _summarize(self) -> SimulationSummary:
        world, history = self._world, self._world.history
        return SimulationSummary(
            event_count=world.scheduler.event_count,
            simulated_us=world.scheduler.now_us,
            work={
                "committed": len(history.committed),
                "acknowledged": history.appended_count,
                "refused": history.refused_count,
                "unknown": history.unknown_count,
                "read": history.read_count,
                "elected": history.election_count,
                **{name.value: count for name, count in world.states.work.items()},
            },
            faults=world.tally.as_dict(),
            state_hash=self._hash(),
        )

    def _hash(self) -> str:
        """Hash every file of every disk, the counts, and the next random number (which depends on all before it)."""
        digest = hashlib.sha256()
        for machine in self._machines.values():
            machine.disk.add_to(digest, machine.node_id)
        world = self._world
        counters = (world.scheduler.event_count, world.scheduler.now_us, self._network_random.random())
        has_state = self._options.state is not None
        faults = {name: count for name, count in world.tally.as_dict().items() if has_state or name not in STATE_FAULTS}
        digest.update(repr((counters, faults, world.disk_counts.as_dict())).encode())
        return digest.hexdigest()[:16]


def _ignore(_error: object) -> None:
    """Ignore an error of an ended process."""


class _LogReader(logging.Handler):
    """Writes the program's log to the trace, and detects warnings without a cause in this run."""

    def __init__(self, world: ShellWorld) -> None:
        super().__init__()
        self._world = world
        nemesis_ops = world.options.nemesis_ops
        self._unjustified = [
            warning for warning, reasons in _UNJUSTIFIED.items() if not any(each in nemesis_ops for each in reasons)
        ]

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._world.trace.note("log", "%s", text)
        # The result of a run must not depend on whether its trace is printed.
        if record.levelno >= logging.WARNING and any(warning in text for warning in self._unjustified):
            self._world.violate(Violation("no unjustified warning", text))


@contextmanager
def _logged_to(world: ShellWorld) -> Iterator[None]:
    """Capture the program's log; lines below a warning only if the trace is printed during the run."""
    level, propagate = _LOGGER.level, _LOGGER.propagate
    handler = _LogReader(world)
    _LOGGER.setLevel(logging.INFO if world.trace.is_emitting else logging.WARNING)
    _LOGGER.propagate = False
    _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(level)
        _LOGGER.propagate = propagate
