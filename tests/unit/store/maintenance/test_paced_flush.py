"""Flushes in steps: the length of pauses, when there are none, and the work of a step."""

import pytest

from store.errors import StorageFailed
from store.maintenance.paced_flush import PacedFlush
from store.queues.unit_writer import GROUP_FILES_MAX

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
    """Takes `STEPS` steps of `STEP_S`."""

    def __init__(self, machine, failing_step=-1):
        self.machine = machine
        self.steps_count = 0
        self.failing_step = failing_step

    @property
    def left_count(self):
        return (STEPS - 1 - self.steps_count) * GROUP_FILES_MAX

    def step(self):
        self.machine.pass_time(STEP_S)
        self.steps_count += 1
        if self.steps_count == self.failing_step:
            raise StorageFailed("queue", "sync", OSError(5, "I/O error"))
        return self.steps_count < STEPS


def begin(machine, ticket, spread_s):
    ends = []
    flush = PacedFlush(machine, machine, ticket, spread_s, ends.append, lambda: machine.now_s)
    return flush, ends


@pytest.mark.parametrize(
    ("spread_s", "took_s"),
    [
        pytest.param(0, STEPS * STEP_S, id="no pause where there is no time"),
        pytest.param(0.5, 0.5, id="spread over the time that there is"),
        pytest.param(1000, STEPS * STEP_S + (STEPS - 1) * 9 * STEP_S, id="no longer than nine times the steps"),
    ],
)
def test_flush_is_spread_over_the_time_that_it_may_take(spread_s, took_s):
    machine = Machine()
    ticket = Ticket(machine)
    _, ends = begin(machine, ticket, spread_s)
    while machine.jobs:
        machine.turn()
    assert ends == [None]
    assert ticket.steps_count == STEPS
    # The last pause is before the step of the index.
    assert machine.now_s - 100 == pytest.approx(took_s, abs=2 * STEP_S)


def test_urgent_flush_ends_its_pause_and_makes_no_more():
    machine = Machine()
    flush, ends = begin(machine, Ticket(machine), 1000)
    machine.turn()
    assert len(machine.pauses_s) == 1

    flush.skip_pauses()
    while machine.jobs:
        machine.turn()

    assert ends == [None]
    assert len(machine.pauses_s) == 1
    assert machine.now_s - 100 == pytest.approx(STEPS * STEP_S)


@pytest.mark.parametrize("is_in_pause", [False, True])
def test_cancelled_flush_begins_no_more_steps_and_does_not_report(is_in_pause):
    machine = Machine()
    ticket = Ticket(machine)
    flush, ends = begin(machine, ticket, 1000)
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
    _, ends = begin(machine, ticket, 0.5)
    while machine.jobs:
        machine.turn()
    assert [type(end) for end in ends] == [StorageFailed]
    assert ticket.steps_count == 3
