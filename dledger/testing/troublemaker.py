"""The plan of a run's faults: orders one trouble after the other, drawn from the seed, and ends each of them later."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from dledger.testing.options import Trouble
from dledger.testing.sim_disk import UNLIMITED_BYTES
from dledger.types import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dledger.testing.sim_machine import SimMachine
    from dledger.testing.sim_process import World

_DEATH_OPERATIONS_MAX = 60
_START_OPERATIONS_MAX = 12
_CUT_MAX_US = 800_000
_SICK_MAX_US = 500_000
_FLAPS_MAX = 12


class Troublemaker:
    """Orders troubles until it is stopped.

    Args:
        world: what the run shares.
        machines: all nodes' machines.
    """

    def __init__(self, world: World, machines: Mapping[str, SimMachine]) -> None:
        self._world = world
        self._machines = machines
        self._random = Random(f"{world.options.seed}/troubles")
        self._is_stopped = False
        self._orders: dict[Trouble, Callable[[], None]] = {
            Trouble.KILL: lambda: self._any().kill(),
            Trouble.STOP: lambda: self._any().stop(),
            Trouble.CUT_POWER: lambda: self._any().cut_power(),
            Trouble.CUT_POWER_OF_ALL: self._cut_power_of_all,
            Trouble.DIE_IN_STEP: lambda: self._any().arm(self._random.randint(1, _DEATH_OPERATIONS_MAX)),
            Trouble.DIE_IN_START: lambda: self._any().kill(),
            Trouble.ISOLATE: self._isolate,
            Trouble.SPLIT: self._split,
            Trouble.CUT_ONE_WAY: self._cut_one_way,
            Trouble.BRIDGE: self._bridge,
            Trouble.FLAP: self._flap,
            Trouble.PAUSE: self._pause,
            Trouble.SLOW_DISK: self._slow_disk,
            Trouble.FILL_DISK: self._fill_disk,
        }

    def start(self) -> None:
        """Order the first trouble after a while, if this run has any."""
        if self._world.options.troubles:
            self._wait()

    def stop(self) -> None:
        """Order nothing any more; what is under way is for the owner to heal."""
        self._is_stopped = True

    def restart(self, machine: SimMachine) -> None:
        """Bring a machine that has gone down back after a while, perhaps to die while it starts."""
        if not self._is_stopped:
            delay_us = int(self._random.random() * self._world.options.downtime_max_us)
            self._world.scheduler.after(delay_us, self._boot, machine)

    def _boot(self, machine: SimMachine) -> None:
        if self._is_stopped:
            return
        is_doomed = Trouble.DIE_IN_START in self._world.options.troubles and self._random.random() < 0.4
        machine.boot(die_after=self._random.randint(1, _START_OPERATIONS_MAX) if is_doomed else 0)

    def _wait(self) -> None:
        mean_us = self._world.options.trouble_interval_us
        self._world.scheduler.after(int(self._random.expovariate(1 / mean_us)), self._order)

    def _order(self) -> None:
        if self._is_stopped:
            return
        trouble = self._random.choice(self._world.options.troubles)
        self._world.trace.note("trouble", "%s", trouble.value)
        self._orders[trouble]()
        self._wait()

    def _any_id(self) -> str:
        """Choose a victim: every second time the leader, if there is one, for its troubles are everybody's."""
        if self._random.random() < 0.5:
            processes = [machine.process for machine in self._machines.values()]
            leaders = [process for process in processes if process is not None and process.raft.role is Role.LEADER]
            if leaders:
                return max(leaders, key=lambda process: process.raft.term).node_id
        return self._random.choice(self._world.options.node_ids)

    def _any(self) -> SimMachine:
        return self._machines[self._any_id()]

    def _later(self, duration_max_us: int, end: Callable[..., None], *arguments: object) -> None:
        """End a trouble after a random while, unless all was healed meanwhile."""
        delay_us = int(self._random.random() * duration_max_us)
        self._world.scheduler.after(delay_us, self._end, end, arguments)

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
        self._later(_SICK_MAX_US, machine.resume)

    def _slow_disk(self) -> None:
        machine = self._any()
        machine.sync_delay_us = self._random.choice((5_000, 50_000, 300_000))
        self._later(_SICK_MAX_US, self._quicken_disk, machine)

    def _quicken_disk(self, machine: SimMachine) -> None:
        machine.sync_delay_us = 0

    def _fill_disk(self) -> None:
        machine = self._any()
        room_bytes = self._random.randint(0, 2 * self._world.options.data_file_size_bytes)
        machine.disk.capacity_bytes = machine.disk.used_bytes + room_bytes
        self._later(_SICK_MAX_US, self._empty_disk, machine)

    def _empty_disk(self, machine: SimMachine) -> None:
        machine.disk.capacity_bytes = UNLIMITED_BYTES

    # ---------------------------------------------------------------------------------------------- network

    def _isolate(self) -> None:
        alone = self._any_id()
        others = self._others(alone)
        self._cut([(alone, other) for other in others] + [(other, alone) for other in others])

    def _split(self) -> None:
        side = {node_id: self._random.random() < 0.5 for node_id in self._world.options.node_ids}
        self._cut([link for link in self._links() if side[link[0]] != side[link[1]]])

    def _cut_one_way(self) -> None:
        self._cut([self._random.choice(self._links())])

    def _bridge(self) -> None:
        """Leave one node that sees all others, which do not see one another (three nodes), or two halves around it."""
        bridge = self._random.choice(self._world.options.node_ids)
        side = {node_id: number % 2 for number, node_id in enumerate(self._others(bridge))}
        self._cut([link for link in self._links() if bridge not in link and side[link[0]] != side[link[1]]])

    def _flap(self) -> None:
        """Cut and open a link again and again, about as often as elections time out."""
        link = self._random.choice(self._links())
        period_us = self._world.options.raft.min_election_timeout_ms * 1_000
        for number in range(self._random.randint(2, _FLAPS_MAX)):
            self._world.scheduler.after(number * period_us, self._end, self._flap_once, (link, period_us))

    def _flap_once(self, link: tuple[str, str], period_us: int) -> None:
        self._world.network.block(*link)
        self._later(period_us, self._world.network.unblock, *link)

    def _others(self, node_id: str) -> list[str]:
        return [other for other in self._world.options.node_ids if other != node_id]

    def _links(self) -> list[tuple[str, str]]:
        node_ids = self._world.options.node_ids
        return [(source, target) for source in node_ids for target in node_ids if source != target]

    def _cut(self, links: list[tuple[str, str]]) -> None:
        """Cut links for a while; the ends of some hear that their connection broke, others see only silence."""
        network = self._world.network
        for source, target in links:
            network.block(source, target)
            process = self._machines[source].process
            if process is not None and self._random.random() < 0.5:
                process.lose_connection(target)
        self._later(_CUT_MAX_US, self._open, links)

    def _open(self, links: list[tuple[str, str]]) -> None:
        for source, target in links:
            self._world.network.unblock(source, target)
