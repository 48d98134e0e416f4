"""Administrators of a running group: transfers, membership changes, deletion of old files. Drawn from the seed.

Requests are sent at arbitrary times and also to wrong nodes; refusals are counted, too.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from dledger.core.events import MembershipAction
from dledger.testing.options import AdminOp
from dledger.types import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.testing.machine.machine import SimMachine
    from dledger.testing.machine.process import SimProcess
    from dledger.testing.world import World

_VOTERS_MIN = 3
_VOTERS_MAX = 5


class Administrator:
    """Schedules operations of administrators until it is stopped.

    Args:
        world: the shared state of the run.
        machines: the machines of all nodes.
    """

    def __init__(self, world: World, machines: Mapping[str, SimMachine]) -> None:
        self._world = world
        self._machines = machines
        self._random = Random(f"{world.options.seed}/chores")
        self._is_stopped = False
        self._number = 0
        self._orders = {
            AdminOp.TRANSFER: self._transfer,
            AdminOp.CHANGE_MEMBERS: self._change_members,
            AdminOp.DELETE_HEAD: self._delete_head,
            AdminOp.CONFUSE_MEMBERS: self._confuse_members,
        }

    def start(self) -> None:
        """Schedule the first operation, if this run has any."""
        if self._world.options.admin_ops:
            self._wait()

    def stop(self) -> None:
        """Schedule no further operations."""
        self._is_stopped = True

    def _wait(self) -> None:
        mean_us = self._world.options.admin_interval_us
        self._world.scheduler.after(int(self._random.expovariate(1 / mean_us)), self._order)

    def _order(self) -> None:
        if self._is_stopped:
            return
        op = self._random.choice(self._world.options.admin_ops)
        process = self._choose()
        if process is not None:
            self._world.trace.note("admin", "%s at %s", op.value, process.node_id)
            self._orders[op](process)
        self._wait()

    def _choose(self) -> SimProcess | None:
        """Return the leader in most cases, else a random running node."""
        running = [machine.process for machine in self._machines.values() if machine.process is not None]
        leaders = [process for process in running if process.raft.role is Role.LEADER]
        if leaders and self._random.random() < 0.9:
            return max(leaders, key=lambda process: process.raft.term)
        return self._random.choice(running) if running else None

    def _transfer(self, process: SimProcess) -> None:
        process.transfer(self._request_id(is_transfer=True), self._random.choice(self._world.options.all_ids))

    def _change_members(self, process: SimProcess) -> None:
        membership = process.raft.membership
        others = [node_id for node_id in self._world.options.all_ids if membership.get(node_id) is None]
        learners = [member.id for member in membership.members if not member.is_voter]
        possible = [(MembershipAction.ADD, node_id) for node_id in others]
        possible += [(MembershipAction.REMOVE, node_id) for node_id in learners]
        if len(membership.voters) < _VOTERS_MAX:
            # An administrator repeats the promotion of learners until it succeeds.
            possible += [(MembershipAction.PROMOTE, node_id) for node_id in learners for _ in range(5)]
        # No voter is removed while others have lost data: too few voters might be left.
        if len(membership.voters) > _VOTERS_MIN and not self._world.checks.damage.lost:
            possible += [(MembershipAction.REMOVE, node_id) for node_id in membership.voters]
        if possible:
            self._change(process, *self._random.choice(possible))

    def _confuse_members(self, process: SimProcess) -> None:
        """Request arbitrary changes: redundant ones, invalid ones, and the removal of all voters but one.

        Some members get an address, unlike the founders, so that addresses are compared, too.
        """
        action = self._random.choice(tuple(MembershipAction))
        if action is not MembershipAction.REMOVE or not self._world.checks.damage.lost:
            address = self._random.choice(("", "", "127.0.0.1:1"))
            self._change(process, action, self._random.choice(self._world.options.all_ids), address)

    def _change(self, process: SimProcess, action: MembershipAction, node_id: str, address: str = "") -> None:
        self._world.trace.note("admin", "%s %s", action.value, node_id)
        process.change(self._request_id(is_transfer=False), action, node_id, address)

    def _delete_head(self, process: SimProcess) -> None:
        others = [machine.process for machine in self._machines.values() if machine.process is not None]
        chosen = process if self._random.random() < 0.5 else self._random.choice(others)
        floor = chosen.retention_floor
        # In most cases everything that may be deleted, so that a lagging node must reset its log.
        chosen.delete_before(floor if self._random.random() < 0.7 else self._random.randint(0, max(0, floor)))

    def _request_id(self, *, is_transfer: bool) -> int:
        """Return a new number: even for transfers, odd for changes."""
        self._number += 2
        return self._number + (0 if is_transfer else 1)
