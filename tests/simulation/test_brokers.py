"""Simulated brokers: leaders are killed, cut off and paused while messages are due and transactions are open.

`make sim-brokers SEEDS=500 SEED=1` runs more. A failure names its seed; with it the run repeats event by event.
"""

import logging
import os

import pytest

from cluster.delivery.due import Due
from dledger.testing.faults import Violation
from tests.support.simulated_brokers.delays import DelayLoad
from tests.support.simulated_brokers.pops import PopLoad
from tests.support.simulated_brokers.returns import ReturnLoad
from tests.support.simulated_brokers.simulation import BrokerSimulation, options_of
from tests.support.simulated_brokers.transactions import TransactionLoad

FIRST = int(os.environ.get("DLEDGER_BROKER_SEED", "1"))
COUNT = int(os.environ.get("DLEDGER_BROKER_SEEDS", "6"))
# A run with pop consumers takes two to five seconds of processor time, the others one or two.
POP_COUNT = int(os.environ.get("DLEDGER_BROKER_SEEDS", "3"))
SAFETY_US = 6_000_000


@pytest.fixture(autouse=True)
def without_log():
    """Discard the log of the nodes: a run writes thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed, load_type=DelayLoad):
    """Run a seed; return the load and the summary of the run."""
    load = load_type()
    return load, BrokerSimulation(options_of(seed, SAFETY_US), load).run()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_messages_that_wait_are_delivered_once_and_never_early(seed):
    load, _ = run(seed)

    assert load.delivered_count


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_transactions_end_once_and_as_answered_and_none_is_forgotten(seed):
    load, _ = run(seed, TransactionLoad)

    assert load.answers


@pytest.mark.parametrize("seed", range(FIRST, FIRST + POP_COUNT))
def test_popped_messages_are_with_one_consumer_at_a_time_until_they_are_acknowledged(seed):
    load, _ = run(seed, PopLoad)

    assert load.history.acknowledged_count


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_each_return_makes_one_copy_however_often_it_is_requested(seed):
    load, _ = run(seed, ReturnLoad)

    assert load.repeated_count


@pytest.mark.parametrize("load_type", [DelayLoad, PopLoad, ReturnLoad])
def test_a_run_repeats(load_type):
    # Short ones.
    (first, first_summary), (second, second_summary) = run(FIRST + 3, load_type), run(FIRST + 3, load_type)

    assert first_summary == second_summary
    assert first.outcomes == second.outcomes


def test_messages_that_are_due_while_others_are_put_again_are_delivered():
    """In this run a leader chose a message while it put others again, twice in a row, and forgot it."""
    load, _ = run(9)

    assert load.delivered_count


def test_the_check_finds_a_message_that_is_early(monkeypatch):
    monkeypatch.setattr("cluster.delivery.delay_levels.due_of", lambda times_ms, _now, _delay: Due(len(times_ms), None))

    with pytest.raises(Violation, match="never early"):
        run(FIRST)
