"""Shapes of simulated runs in which planted bugs have a chance to bite; production code must hold in each of them."""

from dataclasses import replace
from random import Random

from dledger.testing.options import Trouble, with_short_reigns
from dledger.testing.sim_network import NetworkOptions


def with_troubles(options, *troubles, interval_us=60_000):
    return replace(
        options,
        is_flush_sync=True,
        troubles=troubles,
        trouble_interval_us=interval_us,
        downtime_max_us=200_000,
    )


def with_power_cuts(options):
    return with_troubles(options, Trouble.CUT_POWER, Trouble.CUT_POWER_OF_ALL, Trouble.DIE_IN_STEP)


def with_elections(options):
    return with_troubles(options, Trouble.KILL, Trouble.ISOLATE, Trouble.SPLIT, Trouble.PAUSE, Trouble.CUT_ONE_WAY)


def with_figure_8(options):
    calm = replace(options, is_flush_sync=True, bodies_max=1, body_size_max_bytes=40, network=NetworkOptions())
    return with_short_reigns(calm, Random(options.seed))


def acknowledged_from_the_page_cache(options):
    """Nothing is promised to be durable, and then the power of all nodes is cut: only its consequences can tell."""
    shaped = with_troubles(options, Trouble.CUT_POWER_OF_ALL, Trouble.KILL, interval_us=300_000)
    return replace(shaped, is_flush_sync=False)


def with_bursts_over_files(options):
    """Few checkpoints, batches that span files, slow syncs."""
    return replace(
        with_power_cuts(options),
        data_file_size_bytes=1024,
        body_size_max_bytes=256,
        bodies_max=16,
        sync_max_us=20_000,
        checkpoint_interval_us=10_000_000,
    )


def with_readers(options):
    return replace(with_elections(options), read_share=0.5, client_count=4, think_max_us=2_000)


# Those in which production code must hold; what is acknowledged from the page cache is lost in a power cut.
SOUND = (with_power_cuts, with_elections, with_figure_8, with_bursts_over_files, with_readers)
