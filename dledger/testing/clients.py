"""Simulated clients: each calls the presumed leader, waits for the answer, pauses, and repeats."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from dledger.testing.checks.clients import ID_SIZE_BYTES, Operation, OperationOutcome
from dledger.testing.work import SimWork
from dledger.types import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.testing.machine.machine import SimMachine
    from dledger.testing.machine.process import SimProcess
    from dledger.testing.world import World

_LATENCY_MAX_US = 500
_FOLLOWER_READ_SHARE = 0.4
_LAST_BYTE = b"\xff"
_STAMPED_SIZE_MIN_BYTES = 2 * ID_SIZE_BYTES


class Client:
    """One client with at most one operation in flight.

    Args:
        world: the shared state of the run.
        machines: the nodes that it can call.
        name: of its random stream.
        think_max_us: pause between an answer and the next operation.

    Attributes:
        is_stopped: it begins no further operation.
        appended_count: operations that were acknowledged as appended.
    """

    def __init__(self, world: World, machines: Mapping[str, SimMachine], name: str, think_max_us: int) -> None:
        self.is_stopped = False
        self.appended_count = 0
        self._world = world
        self._machines = machines
        self._node_ids = tuple(machines)
        self._random = Random(f"{world.options.seed}/client/{name}")
        self._think_max_us = think_max_us
        self._leader_id: str | None = None
        self._number = 0

    def start(self) -> None:
        """Begin the first operation soon."""
        self._think()

    def _think(self) -> None:
        self._world.scheduler.after(int(self._random.random() * self._think_max_us), self._act)

    def _act(self) -> None:
        if self.is_stopped:
            return
        self._number += 1
        random, options, after = self._random, self._world.options, self._world.scheduler.after
        target = self._leader_id or random.choice(self._node_ids)
        latency_us = int(random.random() * _LATENCY_MAX_US)
        if random.random() < options.read_share:
            if random.random() < _FOLLOWER_READ_SHARE:
                target = random.choice(self._node_ids)
            after(latency_us, self._read, self._number, target)
            after(options.client_time_out_us, self._time_out, self._number, None)
        else:
            operation = self._make_operation()
            self._world.checks.clients.issue(operation)
            after(latency_us, self._append, self._number, target, operation)
            after(options.client_time_out_us, self._time_out, self._number, operation)

    def _make_operation(self) -> Operation:
        random, options = self._random, self._world.options
        count = random.randint(1, options.bodies_max)
        first_id = self._world.checks.clients.reserve_ids(count)
        stamp_at = ID_SIZE_BYTES if random.random() < 0.3 else None
        size_min = ID_SIZE_BYTES if stamp_at is None else _STAMPED_SIZE_MIN_BYTES
        bodies = []
        for body_id in range(first_id, first_id + count):
            size = random.randint(size_min, options.body_size_max_bytes)
            pattern = body_id.to_bytes(ID_SIZE_BYTES, "big")
            body = (pattern * (size // ID_SIZE_BYTES + 1))[:size]
            # Zeros at the end that fill a sector look like a lost write: a damaged entry there costs no vote (ADR 21),
            # which the checks do not model.
            bodies.append(body if size == ID_SIZE_BYTES else body[:-1] + _LAST_BYTE)
        return Operation(first_id, tuple(bodies), stamp_at)

    def _append(self, number: int, target: str, operation: Operation) -> None:
        process = self._process_of(target)
        if process is None:
            self._world.checks.clients.refuse(operation)
            self._answer(number, OperationOutcome.NOT_APPENDED, None)
        else:
            process.propose(operation, partial(self._answer, number))

    def _process_of(self, node_id: str) -> SimProcess | None:
        """Return the running process of a node; None: it is down, or this client cannot reach it."""
        machine = self._machines.get(node_id)
        return None if machine is None else machine.process

    def _read(self, number: int, target: str) -> None:
        process = self._process_of(target)
        if process is None:
            self._answer(number, OperationOutcome.NOT_APPENDED, None)
        else:
            read_id = self._world.checks.clients.reserve_ids(1)
            self._world.checks.clients.begin_read(read_id)
            is_lease_allowed = self._random.random() < self._world.options.lease_share
            reply = partial(self._answer_read, number, process)
            process.read(read_id, reply, is_lease_allowed=is_lease_allowed)

    def _answer_read(self, number: int, process: SimProcess, is_served: bool) -> None:
        if is_served and process.raft.role is not Role.LEADER:
            self._world.work.add(SimWork.FOLLOWER_READ)
        self._answer(number, OperationOutcome.OPEN, process.raft.leader_id if is_served else None)

    def _answer(self, number: int, outcome: OperationOutcome, leader_id: str | None) -> None:
        """Send an answer back; the node calls this during its event batch, so the answer is only scheduled here."""
        latency_us = int(self._random.random() * _LATENCY_MAX_US)
        self._world.scheduler.after(latency_us, self._take_answer, number, outcome, leader_id)

    def _take_answer(self, number: int, outcome: OperationOutcome, leader_id: str | None) -> None:
        if outcome is OperationOutcome.APPENDED:
            self.appended_count += 1
        if number == self._number:
            self._number += 1
            self._leader_id = leader_id
            self._think()

    def _time_out(self, number: int, operation: Operation | None) -> None:
        if number != self._number:
            return
        if operation is not None and operation.outcome is OperationOutcome.OPEN:
            operation.outcome = OperationOutcome.UNKNOWN
        self._number += 1
        self._leader_id = None
        self._think()
