"""A process that is stopped by a signal handles no request until it is resumed, and does not refuse requests either."""

from dataclasses import replace

from dledger.testing.checks.clients import Operation, OperationOutcome
from dledger.testing.machine.machine import SimMachine
from dledger.testing.options import draw_options
from dledger.testing.simulation import Simulation

# More than a leader accepts at a time.
APPENDS = 60


def test_paused_leader_refuses_nothing_before_it_is_resumed(monkeypatch):
    """Seed 4484: a paused leader with a full queue refused each append at once, so its client called no other node."""
    answers: list[OperationOutcome] = []
    machines: dict[str, SimMachine] = {}
    boot = SimMachine.boot

    def note_and_boot(machine: SimMachine) -> None:
        machines[machine.node_id] = machine
        boot(machine)

    monkeypatch.setattr(SimMachine, "boot", note_and_boot)
    options = replace(draw_options(1, 3, is_focused=False), client_count=0, nemesis_ops=(), admin_ops=(), safety_us=1)
    Simulation(options).run()
    machine = next(iter(machines.values()))
    process = machine.process
    assert process is not None
    machine.pause()

    for number in range(APPENDS):
        operation = Operation(10_000_000 + number, (b"x" * 8,), None)
        process.propose(operation, lambda outcome, _leader_id: answers.append(outcome))

    assert answers == []

    machine.resume()

    assert answers.count(OperationOutcome.NOT_APPENDED) > 0
