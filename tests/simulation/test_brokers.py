"""Simulated brokers: leaders are killed, cut off and paused while messages are due and transactions are open.

`make sim-brokers SEEDS=500 SEED=1` runs more. A failure names its seed; with it the run repeats event by event.
"""

import logging
import os

import pytest

from cluster.delivery.due import Due
from dledger.testing.faults import Violation
from tests.support.simulated_brokers.delays import DelayLoad
from tests.support.simulated_brokers.simulation import BrokerSimulation, options_of
from tests.support.simulated_brokers.transactions import TransactionLoad

FIRST = int(os.environ.get("DLEDGER_BROKER_SEED", "1"))
COUNT = int(os.environ.get("DLEDGER_BROKER_SEEDS", "6"))
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


def test_a_run_repeats():
    (first, first_summary), (second, second_summary) = run(FIRST), run(FIRST)

    assert first_summary == second_summary
    assert first.outcomes == second.outcomes


def test_the_check_finds_a_message_that_is_early(monkeypatch):
    monkeypatch.setattr("cluster.delivery.delay_levels.due_of", lambda times_ms, _now, _delay: Due(len(times_ms), None))

    with pytest.raises(Violation, match="never early"):
        run(FIRST)
