"""Runs with a log of messages and the production codec: elections, membership changes and crashes, as for raw logs."""

from dataclasses import replace

import pytest

from commitlog.record.system_records import MessageEntryCodec
from dledger.testing.options import draw_options
from dledger.testing.runner import run_options
from dledger.testing.work import SimWork
from dledger.testing.world import Parts

SEEDS = range(60_000, 60_020)


class ForClients(MessageEntryCodec):
    """Passes the bodies that simulated clients write, which are not records, to the state machine."""

    applied_channel = 0


PARTS = Parts(make_message_codec=lambda: ForClients(clock=lambda: 1_700_000_000_000))


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(SEEDS.start, SEEDS.stop, 10))
def test_no_invariant_is_violated(begin):
    committed = 0
    for seed in range(begin, begin + 10):
        summary, failure = run_options(replace(draw_options(seed), is_message_log=True), PARTS)
        assert failure == "", f"seed {seed}: {failure}"
        committed += summary.work[SimWork.COMMITTED]

    assert committed > 0


def test_raw_and_message_logs_are_both_drawn():
    kinds = [draw_options(seed).is_message_log for seed in range(200)]

    assert 50 < sum(kinds) < 150
