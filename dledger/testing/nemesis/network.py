"""Faults of links: each operation cuts, clogs or flaps some links, and undoes it after a while."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol

from dledger.testing.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dledger.testing.machine.machine import SimMachine
    from dledger.testing.world import World

Link = tuple[str, str]

_CUT_MAX_US = 800_000
_FLAPS_MAX = 12
_SWIZZLE_STEP_US = 30_000
_MUTE_AFTER_US = 150_000
_MUTE_PAUSE_MAX_US = 200_000
_MUTE_MAX_US = 400_000
_LATE_US = (20_000, 50_000, 150_000)


class Timer(Protocol):
    """Ends operations of the nemesis."""

    def later(self, duration_max_us: int, end: Callable[..., None], *arguments: object) -> None:
        """Call `end(*arguments)` after a random time, unless all faults were healed before."""

    def at(self, delay_us: int, act: Callable[..., None], *arguments: object) -> None:
        """Call `act(*arguments)` after `delay_us`, unless all faults were healed before."""


class NetworkNemesis:
    """Injects network faults.

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
        # Its own generator, so that runs without such reports are as before.
        self._end_random = Random(f"{world.options.seed}/reports of ended processes")
        self._timer = timer

    def isolate(self, alone: str) -> None:
        """Cut one node off from all others."""
        others = self._others(alone)
        self._cut([(alone, other) for other in others] + [(other, alone) for other in others])

    def split(self) -> None:
        """Partition the group into two parts."""
        side = {node_id: self._random.random() < 0.5 for node_id in self._world.options.all_ids}
        self._cut([link for link in self._links() if side[link[0]] != side[link[1]]])

    def cut_one_way(self) -> None:
        """Cut one direction between two nodes."""
        self._cut([self._random.choice(self._links())])

    def bridge(self) -> None:
        """Partition all nodes but one, which stays connected to all others: three single nodes, or two halves."""
        bridge = self._random.choice(self._world.options.all_ids)
        side = {node_id: number % 2 for number, node_id in enumerate(self._others(bridge))}
        self._cut([link for link in self._links() if bridge not in link and side[link[0]] != side[link[1]]])

    def flap(self) -> None:
        """Cut and open a link again and again, about as often as elections time out."""
        link = self._random.choice(self._links())
        period_us = self._world.options.raft.min_election_timeout_ms * 1_000
        for number in range(self._random.randint(2, _FLAPS_MAX)):
            self._timer.at(number * period_us, self._flap_once, link, period_us)

    def _flap_once(self, link: Link, period_us: int) -> None:
        self._world.network.block(*link)
        self._timer.later(period_us, self._world.network.unblock, *link)

    def clog(self) -> None:
        """Hold back messages from one node to another, or all messages to or from one node."""
        links = [self._random.choice(self._links())]
        if self._random.random() < 0.5:
            links = [link for link in self._links() if links[0][0] in link]
        for link in links:
            self._world.network.clog(*link)
        self._timer.later(_CUT_MAX_US, self._unclog, links)

    def _unclog(self, links: list[Link]) -> None:
        for link in links:
            self._world.network.unclog(*link)

    def swizzle_clog(self) -> None:
        """Clog the links of some nodes one after the other, then open them in another order (FoundationDB's trick)."""
        chosen = [link for link in self._links() if self._random.random() < 0.6]
        self._random.shuffle(chosen)
        for number, link in enumerate(chosen):
            self._timer.at(number * _SWIZZLE_STEP_US, self._clog_once, link)
        opened = list(chosen)
        self._random.shuffle(opened)
        for number, link in enumerate(opened, start=len(chosen)):
            self._timer.at(number * _SWIZZLE_STEP_US, self._world.network.unclog, *link)

    def _clog_once(self, link: Link) -> None:
        self._world.network.clog(*link)

    def mute(self, node_id: str) -> None:
        """Delay all messages to a node, then drop all messages from it, which it detects late.

        Meanwhile it acts on outdated messages, in particular answers to its heartbeats; sometimes its process stops,
        too.
        """
        others = self._others(node_id)
        late_us = self._random.choice(_LATE_US)
        for other in others:
            self._world.network.slow_down(other, node_id, late_us)
        self._timer.at(late_us + int(self._random.random() * _MUTE_AFTER_US), self._silence, node_id, others)

    def _silence(self, node_id: str, others: list[str]) -> None:
        links = [(node_id, other) for other in others]
        for link in links:
            self._world.network.block(*link)
        if self._random.random() < 0.5:
            self._machines[node_id].pause()
            self._timer.later(_MUTE_PAUSE_MAX_US, self._machines[node_id].resume)
        self._timer.later(_MUTE_MAX_US, self._open, links)
        self._timer.later(_MUTE_MAX_US, self._end_delays, node_id, others)

    def _end_delays(self, node_id: str, others: list[str]) -> None:
        for other in others:
            self._world.network.slow_down(other, node_id, 0)

    def _others(self, node_id: str) -> list[str]:
        return [other for other in self._world.options.all_ids if other != node_id]

    def _links(self) -> list[Link]:
        node_ids = self._world.options.all_ids
        return [(source, target) for source in node_ids for target in node_ids if source != target]

    def _cut(self, links: list[Link]) -> None:
        """Cut links for a while; some nodes get a connection error, others only time out.

        In some runs the other side is also reported as ended, as if a firewall refused new connections to it.
        """
        network = self._world.network
        for source, target in links:
            network.block(source, target)
            process = self._machines[source].process
            if process is not None and self._random.random() < 0.5:
                process.lose_connection(target)
            if process is not None and self._end_random.random() < self._world.options.false_end_share:
                self._world.counts.add(Fault.END_REPORTED_WRONGLY)
                process.report_end(target)
        self._timer.later(_CUT_MAX_US, self._open, links)

    def _open(self, links: list[Link]) -> None:
        for source, target in links:
            self._world.network.unblock(source, target)
