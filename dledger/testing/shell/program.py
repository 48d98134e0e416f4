"""The program around a simulated node with a state machine: it appends commands, and reads the state.

gRPC clients get no results of a state machine. A program that embeds a node calls it directly, like
docs/examples/key_value.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dledger.client.outcomes import Appended
from dledger.errors import Outcome, RequestRefused, outcome_of
from dledger.testing.faults import Violation
from dledger.testing.shell.state import StateWork

if TYPE_CHECKING:
    from random import Random

    from dledger.node.node import Node
    from dledger.pending.appends import AppendResult
    from dledger.testing.shell.history import Append
    from dledger.testing.shell.world import ShellWorld

_APPEND_SHARE = 0.5
# Most nodes do not lead and refuse appends at once, so a program pauses before a retry.
_BATCH_MAX = 4


class StateProgram:
    """Runs in the loop of one process of a node.

    Args:
        world: the shared state of the run.
        node: a started node.
        random: draws the calls.

    Attributes:
        is_stopping: it begins no further calls.
    """

    def __init__(self, world: ShellWorld, node: Node, random: Random) -> None:
        assert world.options.state is not None, "the run has state machines"
        self.is_stopping = False
        self._world = world
        self._node = node
        self._node_id = node.config.self_id
        self._random = random
        self._think_max_us = world.options.state.think_max_us
        self._open: Append | None = None

    async def run(self) -> None:
        """Make calls one after another until `is_stopping`."""
        try:
            while not self.is_stopping:
                await asyncio.sleep(self._random.random() * self._think_max_us / 1e6)
                await (self._append() if self._random.random() < _APPEND_SHARE else self._read())
        except Violation as violation:
            self._world.violate(violation)

    def died(self) -> None:
        """Record that the process ended: its pending calls have no answer."""
        if self._open is not None:
            self._world.history.unknown(self._open)
            self._open = None

    async def _append(self) -> None:
        if self.is_stopping or not self._node.is_leader:
            return
        options, random, history = self._world.options, self._random, self._world.history
        count = random.randint(1, _BATCH_MAX)
        append = self._open = history.begin([random.randint(8, options.body_size_max_bytes) for _ in range(count)])
        result = await self._node.append(append.bodies)
        self._open = None
        outcome = outcome_of(result.code)
        if outcome is Outcome.NOT_APPENDED:
            history.refused(append)
        elif outcome is Outcome.UNKNOWN:
            history.unknown(append)
        else:
            self._appended(append, result)

    def _appended(self, append: Append, result: AppendResult) -> None:
        indexes = range(result.first_index, result.first_index + len(append.bodies))
        places = [
            Appended(index, result.term, position) for index, position in zip(indexes, result.positions, strict=True)
        ]
        self._world.history.appended(append, places)
        if len(result.results) not in (0, len(places)):
            raise Violation("result", f"{len(result.results)} results of {len(places)} entries")
        self._world.states.check_results(result.first_index, result.results)
        if self._node.is_running and self._node.applied_index < places[-1].index:
            text = f"{self._node_id} acknowledged {places[-1].index} and has applied {self._node.applied_index}"
            raise Violation("acknowledged is applied", text)

    async def _read(self) -> None:
        if self.is_stopping:
            return
        history = self._world.history
        floor, is_lease_allowed = history.floor, self._random.random() < self._world.options.lease_share
        try:
            await self._node.wait_applied(await self._node.read_index(is_lease_allowed=is_lease_allowed))
        except RequestRefused:
            return
        if self._node.is_running:
            history.state_read(self._node_id, self._node.applied_index, floor)
            self._world.states.add(StateWork.STATE_READ)
