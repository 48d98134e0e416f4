"""A simulated group of brokers: a phase with faults, then one without, in which all that is due must happen."""

from dataclasses import replace
from random import Random
from unittest.mock import patch

from dledger.testing.shell.nemesis import ShellNemesis
from dledger.testing.shell.options import ShellNemesisOp, draw_shell_options
from dledger.testing.shell.simulation import ShellSimulation
from tests.support.simulated_brokers.broker import LoopTime
from tests.support.simulated_brokers.process import BrokerMachine

# Without those that need a client process, or damage a directory.
_OPS = (
    ShellNemesisOp.KILL,
    ShellNemesisOp.STOP,
    ShellNemesisOp.CUT_POWER,
    ShellNemesisOp.CUT_POWER_OF_ALL,
    ShellNemesisOp.DIE_IN_STEP,
    ShellNemesisOp.ISOLATE,
    ShellNemesisOp.CUT_ONE_WAY,
    ShellNemesisOp.SPLIT,
    ShellNemesisOp.RESET_CONNECTIONS,
    ShellNemesisOp.PAUSE,
    ShellNemesisOp.STOP_CLOCK,
    ShellNemesisOp.SLOW_DISK,
    ShellNemesisOp.FAIL_SYNC,
    ShellNemesisOp.FILL_DISK,
)

# A leader whose clock is ahead by more holds delayed messages up for as long: time in the log does not go back.
_CLOCK_JUMP_MAX_US = 2_000_000
_CLOCK_INTERVAL_US = 700_000
# Messages with a time of their own are put again at this age. Not half messages: three times, and they are given up.
_TIMERS_KEPT_MS = 2_600


def options_of(seed, safety_us):
    """Draw the options of a run: those of the shell's simulator, with three nodes and files that hold messages."""
    drawn = draw_shell_options(seed, may_have_state=False)
    ops = tuple(each for each in drawn.nemesis_ops if each in _OPS) or (ShellNemesisOp.KILL,)
    return replace(
        drawn,
        node_count=3,
        client_count=0,
        clock_rates_ppm=drawn.clock_rates_ppm[:3],
        data_file_size_bytes=max(drawn.data_file_size_bytes, 16_384),
        is_flush_sync=True,
        nemesis_ops=ops,
        safety_us=safety_us,
        liveness_us=60_000_000,
    )


class BrokerSimulation(ShellSimulation):
    """One run.

    Args:
        options: of the run.
        load: what the brokers do; see `tests.support.simulated_brokers.delays`.
        emit: receives the trace line by line.
    """

    def __init__(self, options, load, emit=None):
        super().__init__(options, emit)
        self.load = load
        self._machines = {
            node_id: BrokerMachine(self._world, node_id, number, self._on_process_end, load.tasks)
            for number, node_id in enumerate(options.node_ids)
        }

    @property
    def machines(self):
        """The machines, in the order of their numbers."""
        return list(self._machines.values())

    def run(self):
        """Run all phases; see `ShellSimulation.run`.

        Dispatch measures its steps by the real clocks of a thread, and adapts their size, and coroutines with many
        steps yield by them: here they take no time. Consumers wait by the clock of their machine. The log's retention
        is far away, but messages that wait for a time are put again as if it were near.
        """
        with (
            patch.multiple("store.dispatch.dispatcher", monotonic=float, thread_time=float),
            patch("cluster.process.cooperative.monotonic", float),
            patch("cluster.delivery.timers.kept_ms", lambda _replica: _TIMERS_KEPT_MS),
            patch("cluster.broker.core.time", LoopTime),
            patch("cluster.pop.receiving.time", LoopTime),
        ):
            return super().run()

    def _run(self):
        for machine in self.machines:
            machine.boot()
        self._until(self._options.liveness_us, lambda: self.load.has_begun, "the first message is stored")
        self._nemesis = ShellNemesis(self._world, self._machines, self._clients)
        self._nemesis.start()
        clocks = Random(f"{self._options.seed}/times of day")
        if clocks.random() < 0.5:
            self._set_clocks(clocks)
        self._pass(self._options.safety_us)
        self._heal()
        self.load.is_stopping = True
        self._until(self._options.liveness_us, self._is_over, "all that is due has happened on all nodes")
        self.load.check(self.replicas())

    def _set_clocks(self, random):
        """Set the time of day of one machine, again and again until the load stops."""
        if not self.load.is_stopping:
            random.choice(self.machines).clock.set_wall(random.randint(-_CLOCK_JUMP_MAX_US, _CLOCK_JUMP_MAX_US))
            self._world.scheduler.after(int(random.random() * _CLOCK_INTERVAL_US), self._set_clocks, random)

    def replicas(self):
        """Return the open replicas."""
        return [each.process.replica for each in self.machines if each.process and each.process.replica]

    def _is_over(self):
        replicas = self.replicas()
        return (
            len(replicas) == len(self.machines)
            and all(each.node.is_running for each in replicas)
            and len({each.node.commit_index for each in replicas}) == 1
            and all(
                each.node.applied_index == each.node.commit_index
                and each.store.derived.dispatcher.offset >= each.store.log.end_offset
                for each in replicas
            )
            and any(each.status().is_serving_puts for each in replicas)
            and self.load.is_over(replicas)
        )

    def _described(self):
        return "; ".join(
            f"{replica.node.config.self_id}: {replica.status()}, committed {replica.node.commit_index}, applied "
            f"{replica.node.applied_index}, dispatched {replica.store.derived.dispatcher.offset}"
            for replica in self.replicas()
            if replica.node.is_running
        )
