"""Flushes in steps: pauses, when there are none, and the size of a step."""

import pytest

from store.errors import StorageFailed
from store.maintenance.paced_flush import QUEUES_PER_STEP, STEP_INTERVAL_S, PacedFlush
from store.queues.unit_writer import GROUP_TAILS_MAX

STEPS = 10
STEP_S = 0.01


class Machine:
    """A loop, a worker and a clock in one: steps and pauses take their nominal time, one after the other."""

    def __init__(self):
        self.now_s = 100.0
        self.pauses_s = []
        self.jobs = []

    def run(self, job, finished):
        self.jobs.append((job, finished))

    def call_later(self, delay_s, callback):
        self.pauses_s.append(delay_s)
        self.jobs.append((lambda: self.pass_time(delay_s), lambda _: callback()))
        return self

    def cancel(self):
        self.jobs.pop()

    def pass_time(self, seconds):
        self.now_s += seconds

    def turn(self):
        job, finished = self.jobs.pop(0)
        error = None
        try:
            job()
        except StorageFailed as raised:
            error = raised
        finished(error)


class Ticket:
    """Takes `STEPS` steps."""

    def __init__(self, machine, step_s=STEP_S, failing_step=-1):
        self.machine = machine
        self.step_s = step_s
        self.queues_max = []
        self.steps_count = 0
        self.failing_step = failing_step

    def step(self, queues_max):
        self.queues_max.append(queues_max)
        self.machine.pass_time(self.step_s)
        self.steps_count += 1
        if self.steps_count == self.failing_step:
            raise StorageFailed("queue", "sync", OSError(5, "I/O error"))
        return self.steps_count < STEPS


def begin(machine, ticket, *, is_urgent=False):
    ends = []
    flush = PacedFlush(machine, machine, ticket, ends.append, is_urgent=is_urgent, now_s=lambda: machine.now_s)
    return flush, ends


@pytest.mark.parametrize(
    ("step_s", "pause_s"),
    [
        pytest.param(STEP_INTERVAL_S / 4, STEP_INTERVAL_S * 3 / 4, id="a step every interval"),
        pytest.param(STEP_INTERVAL_S * 5, STEP_INTERVAL_S * 5, id="a slow disk rests half of the time"),
    ],
)
def test_flush_writes_few_queues_a_second(step_s, pause_s):
    machine = Machine()
    ticket = Ticket(machine, step_s)
    _, ends = begin(machine, ticket)
    while machine.jobs:
        machine.turn()
    assert ends == [None]
    assert ticket.queues_max == [QUEUES_PER_STEP] * STEPS
    assert machine.pauses_s == pytest.approx([pause_s] * (STEPS - 1))


def test_urgent_flush_makes_no_pause_and_larger_steps():
    machine = Machine()
    ticket = Ticket(machine)
    _, ends = begin(machine, ticket, is_urgent=True)
    while machine.jobs:
        machine.turn()
    assert ends == [None]
    assert machine.pauses_s == []
    assert ticket.queues_max == [GROUP_TAILS_MAX] * STEPS


def test_flush_that_becomes_urgent_ends_its_pause_and_makes_no_more():
    machine = Machine()
    flush, ends = begin(machine, Ticket(machine))
    machine.turn()
    assert len(machine.pauses_s) == 1

    flush.hurry()
    while machine.jobs:
        machine.turn()

    assert ends == [None]
    assert len(machine.pauses_s) == 1
    assert machine.now_s - 100 == pytest.approx(STEPS * STEP_S)


@pytest.mark.parametrize("is_in_pause", [False, True])
def test_cancelled_flush_begins_no_more_steps_and_does_not_report(is_in_pause):
    machine = Machine()
    ticket = Ticket(machine)
    flush, ends = begin(machine, ticket)
    if is_in_pause:
        machine.turn()

    flush.give_up()
    flush.give_up()
    while machine.jobs:
        machine.turn()

    assert ends == []
    assert ticket.steps_count == 1


def test_step_that_fails_is_the_last_one():
    machine = Machine()
    ticket = Ticket(machine, failing_step=3)
    _, ends = begin(machine, ticket)
    while machine.jobs:
        machine.turn()
    assert [type(end) for end in ends] == [StorageFailed]
    assert ticket.steps_count == 3
