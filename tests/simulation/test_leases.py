"""Lease reads are safe as long as clocks keep the stated bound, and the checks detect stale reads if they do not."""

from dataclasses import replace

import pytest

from dledger.testing.network.network import NetworkOptions
from dledger.testing.options import NemesisOp, draw_options
from dledger.testing.runner import run_options

FIRST_SEED = 30_001
HOLDS_SEEDS = 12
NOTICED_SEEDS = 20


def with_lease_reads(seed: int, rates_ppm: tuple[int, ...], drift_ppm: int):
    """Set the options of a run in which leaders are partitioned repeatedly, and all clients use lease reads."""
    options = draw_options(seed, 3, is_focused=False)
    return replace(
        options,
        is_flush_sync=True,
        spare_count=0,
        admin_ops=(),
        clock_rates_ppm=rates_ppm,
        raft=replace(
            options.raft,
            heart_beat_time_interval_ms=15,
            min_election_timeout_ms=100,
            max_election_timeout_ms=120,
            max_clock_drift_ppm=drift_ppm,
            preferred_leader_ids=("n0",),
        ),
        tick_us=5_000,
        network=NetworkOptions(),
        turn_delay_max_us=0,
        bodies_max=1,
        nemesis_ops=(NemesisOp.ISOLATE, NemesisOp.SPLIT, NemesisOp.CUT_ONE_WAY),
        nemesis_interval_us=200_000,
        client_count=6,
        # A client at the partitioned leader must switch to the new one while the lease of the old one lasts.
        client_time_out_us=20_000,
        think_max_us=2_000,
        read_share=0.5,
        lease_share=1.0,
    )


@pytest.mark.slow
@pytest.mark.parametrize("rates_ppm", [(950_000, 1_050_000, 1_050_000), (1_050_000, 950_000, 1_000_000)])
def test_lease_holds_with_clocks_at_the_bound(rates_ppm):
    lease_reads = 0
    for seed in range(FIRST_SEED, FIRST_SEED + HOLDS_SEEDS):
        summary, failure = run_options(with_lease_reads(seed, rates_ppm, drift_ppm=50_000))
        assert failure == "", f"seed {seed}: {failure}"
        lease_reads += summary.work["lease_reads"]

    assert lease_reads > 5_000


@pytest.mark.slow
def test_stale_read_of_a_clock_beyond_the_bound_is_detected():
    """The lease of a leader with a slow clock is still valid on its clock when the others have elected a new leader."""
    for seed in range(FIRST_SEED, FIRST_SEED + NOTICED_SEEDS):
        options = with_lease_reads(seed, (600_000, 1_600_000, 1_600_000), drift_ppm=0)
        _, failure = run_options(options)
        if failure:
            print(f"seed {seed}")
            assert failure.startswith("Violation: linearizable read"), failure
            return
    pytest.fail(f"not noticed within {NOTICED_SEEDS} seeds")
