"""Shapes of simulated runs in which planted bugs can have an effect; without a bug, no such run may fail."""

from dataclasses import replace
from random import Random

from dledger.testing.choices import DIRECTORY_OPS
from dledger.testing.focus import FOCUSES
from dledger.testing.network.network import NetworkOptions
from dledger.testing.options import AdminOp, NemesisOp, with_short_terms


def with_nemesis(options, *nemesis_ops, interval_us=60_000):
    return replace(
        options,
        is_flush_sync=True,
        nemesis_ops=nemesis_ops,
        nemesis_interval_us=interval_us,
        downtime_max_us=200_000,
    )


def with_power_cuts(options):
    return with_nemesis(options, NemesisOp.CUT_POWER, NemesisOp.CUT_POWER_OF_ALL, NemesisOp.DIE_IN_STEP)


def with_elections(options):
    return with_nemesis(
        options, NemesisOp.KILL, NemesisOp.ISOLATE, NemesisOp.SPLIT, NemesisOp.PAUSE, NemesisOp.CUT_ONE_WAY
    )


def with_figure_8(options):
    calm = replace(options, is_flush_sync=True, bodies_max=1, body_size_max_bytes=40, network=NetworkOptions())
    return with_short_terms(calm, Random(options.seed))


def acknowledged_from_the_page_cache(options):
    """Durability is not guaranteed, and the power of all nodes is cut: the bug is visible only by its consequences."""
    shaped = with_nemesis(options, NemesisOp.CUT_POWER_OF_ALL, NemesisOp.KILL, interval_us=300_000)
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


def with_short_lives(options):
    """Nodes that run for a few reads, and requests that arrive after their sender was restarted."""
    shaped = with_nemesis(options, NemesisOp.KILL, NemesisOp.STOP, NemesisOp.PAUSE, interval_us=15_000)
    return replace(
        shaped,
        read_share=0.5,
        client_count=12,
        think_max_us=1_000,
        downtime_max_us=5_000,
        network=NetworkOptions(spike_rate=0.4, spike_latency_us=30_000, duplicate_rate=0.1),
    )


def with_leases(options):
    """Readers that trust leases, clocks that drift as far as they may, frequent changes and transfers of leadership."""
    rates_ppm = (950_000, 1_000_000, 1_050_000)
    random = Random(f"{options.seed}/clocks")
    shaped = with_readers(options)
    return replace(
        shaped,
        lease_share=1.0,
        client_count=8,
        client_time_out_us=15_000,
        clock_rates_ppm=tuple(random.choice(rates_ppm) for _ in options.clock_rates_ppm),
        raft=replace(shaped.raft, max_clock_drift_ppm=50_000),
        admin_ops=(AdminOp.TRANSFER,),
        admin_interval_us=100_000,
    )


def with_transfers(options):
    return replace(with_elections(options), admin_ops=(AdminOp.TRANSFER,), admin_interval_us=60_000)


def with_changes_of_members(options):
    return replace(
        with_elections(options),
        spare_count=2,
        clock_rates_ppm=(*options.clock_rates_ppm[: options.node_count], 1_000_000, 1_000_000),
        admin_ops=(AdminOp.CHANGE_MEMBERS,),
        admin_interval_us=40_000,
        is_founded_without_faults=True,
    )


def with_members_that_are_cut(options):
    """Members and leaders change often, so that memberships are truncated with their entries."""
    shaped = FOCUSES["members"](replace(options, is_flush_sync=True), Random(options.seed))
    # Nodes that die within a step restart late: fewer leader changes.
    return replace(shaped, nemesis_ops=tuple(each for each in shaped.nemesis_ops if each is not NemesisOp.DIE_IN_STEP))


def with_wipes(options):
    return replace(
        with_nemesis(options, NemesisOp.WIPE, NemesisOp.KILL, NemesisOp.ISOLATE, NemesisOp.CUT_ONE_WAY),
        is_founded_without_faults=True,
    )


def with_deleted_data_files(options):
    return replace(
        with_elections(options),
        data_file_size_bytes=1024,
        body_size_max_bytes=200,
        admin_ops=(AdminOp.DELETE_HEAD,),
        admin_interval_us=40_000,
        snapshot_threshold=20,
    )


def with_wrong_directories(options):
    """Directories of other groups, of other nodes, and without a name, one after the other."""
    shaped = with_nemesis(options, *DIRECTORY_OPS, NemesisOp.KILL)
    return replace(shaped, read_share=0.3, is_founded_without_faults=True)


def with_wrong_directories_from_the_founding(options):
    """The same, as soon as all founders have a leader of the group: its first commit may not be known yet."""
    return replace(with_wrong_directories(options), is_founded_without_faults=False)


def with_damaged_frames(options):
    """Bits of every hundredth message change in the network, in control frames and in payloads."""
    shaped = with_deleted_data_files(options)
    return replace(shaped, network=replace(shaped.network, damage_rate=0.01))


# Those in which production code must not fail; what is acknowledged from the page cache is lost in a power cut.
SOUND = (
    with_power_cuts,
    with_elections,
    with_figure_8,
    with_bursts_over_files,
    with_readers,
    with_short_lives,
    with_leases,
    with_transfers,
    with_changes_of_members,
    with_members_that_are_cut,
    with_wipes,
    with_deleted_data_files,
    with_wrong_directories,
    with_wrong_directories_from_the_founding,
    with_damaged_frames,
)
