"""Shapes of runs for rare situations: half of all seeds draw one of these in addition to their own.

Independent draws rarely combine the ingredients of a rare situation: a transfer during a membership change, a snapshot
in flight while the leader's log advances, a lease with delayed answers. A focus combines the ingredients of one such
situation, and often. All other options stay as drawn.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from dledger.testing.choices import AdminOp, NemesisOp
from dledger.testing.network.network import NetworkOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.testing.options import SimOptions

_TRUE_PPM = 1_000_000
_DRIFT_PPM = 50_000
_FOCUS_SHARE = 0.5
_SMALL_FILE_SIZE_BYTES = 1_024
_SMALL_INDEX_FILE_SIZE_BYTES = 32 * 16


def with_focus(options: SimOptions, random: Random) -> SimOptions:
    """Return `options` with a focus, if this run draws one."""
    if random.random() >= _FOCUS_SHARE:
        return options
    name = random.choice(tuple(FOCUSES))
    return replace(FOCUSES[name](replace(options, is_flush_sync=True), random), focus=name)


def _leases(options: SimOptions, random: Random) -> SimOptions:
    """Use leases, on clocks with the largest permitted drift, with delayed answers and suspended processes.

    Clients soon try another node, so that they reach the new leader, and the old one while its lease may last.
    """
    rates_ppm = (_TRUE_PPM - _DRIFT_PPM, _TRUE_PPM, _TRUE_PPM + _DRIFT_PPM)
    timeout_ms = random.choice((60, 100))
    clocks = Random(f"{options.seed}/clocks of leases")
    return replace(
        options,
        nemesis_ops=(*[NemesisOp.MUTE] * 4, NemesisOp.PAUSE, NemesisOp.ISOLATE, NemesisOp.SPLIT),
        nemesis_interval_us=250_000,
        admin_ops=(AdminOp.TRANSFER,),
        admin_interval_us=200_000,
        lease_share=1.0,
        read_share=0.6,
        client_count=8,
        client_time_out_us=15_000,
        think_max_us=4_000,
        bodies_max=1,
        sync_max_us=500,
        turn_delay_max_us=0,
        clock_rates_ppm=tuple(clocks.choice(rates_ppm) for _ in options.clock_rates_ppm),
        raft=replace(
            options.raft,
            heart_beat_time_interval_ms=random.choice((10, 30)),
            min_election_timeout_ms=timeout_ms,
            max_election_timeout_ms=timeout_ms + random.choice((20, timeout_ms)),
            max_push_time_out_ms=50,
            max_clock_drift_ppm=_DRIFT_PPM,
            preferred_leader_ids=(),
        ),
        tick_us=5_000,
        network=NetworkOptions(max_latency_us=1_000, spike_rate=random.choice((0.0, 0.02)), spike_latency_us=80_000),
        is_founded_without_faults=True,
    )


def _snapshots(options: SimOptions, random: Random) -> SimOptions:
    """Save snapshots and delete the entries before them all the time, so that a lagging node must reset its log."""
    return replace(
        _with_small_files(options),
        snapshot_threshold=random.choice((3, 8)),
        admin_ops=(AdminOp.DELETE_HEAD, AdminOp.TRANSFER),
        admin_interval_us=30_000,
        nemesis_ops=(
            NemesisOp.ISOLATE,
            NemesisOp.KILL,
            NemesisOp.DIE_IN_STEP,
            NemesisOp.WIPE,
            NemesisOp.FLIP_BITS,
            NemesisOp.CLOG,
        ),
        nemesis_interval_us=60_000,
        downtime_max_us=400_000,
        raft=replace(options.raft, snapshot_chunk_size_bytes=16, peer_push_quota=random.choice((3_000, 100 << 20))),
        network=replace(
            options.network,
            replay_rate=0.05,
            duplicate_rate=0.1,
            drop_rate=0.01,
            damage_rate=random.choice((0.0, 0.0, 0.05)),
        ),
        is_founded_without_faults=True,
    )


def _members(options: SimOptions, random: Random) -> SimOptions:
    """Change the members all the time, also by invalid requests, down to one voter, while leaders change.

    With few client requests, a membership is often the first entry that only the leader has, and that the next leader
    truncates.
    """
    rates_ppm = (*options.clock_rates_ppm[: options.node_count], _TRUE_PPM, _TRUE_PPM)
    return replace(
        options,
        spare_count=2,
        clock_rates_ppm=rates_ppm,
        admin_ops=(
            AdminOp.CHANGE_MEMBERS,
            AdminOp.CHANGE_MEMBERS,
            AdminOp.CONFUSE_MEMBERS,
            AdminOp.TRANSFER,
            AdminOp.DELETE_HEAD,
        ),
        admin_interval_us=15_000,
        # A leader that dies between saving the file and writing the entry leaves a membership that is not in its log.
        nemesis_ops=(NemesisOp.ISOLATE, NemesisOp.CUT_ONE_WAY, NemesisOp.KILL, NemesisOp.SPLIT, NemesisOp.DIE_IN_STEP),
        nemesis_interval_us=random.choice((60_000, 150_000)),
        downtime_max_us=200_000,
        think_max_us=random.choice((options.think_max_us, 400_000)),
        # Messages from and to a removed node arrive late.
        network=replace(options.network, replay_rate=0.05, spike_rate=0.05, spike_latency_us=200_000),
        is_founded_without_faults=True,
    )


def _deposed(options: SimOptions, random: Random) -> SimOptions:
    """Depose leaders with entries that no other node has, let them return, and replace disks in between."""
    return replace(
        options,
        nemesis_ops=(NemesisOp.WIPE, NemesisOp.ISOLATE, NemesisOp.BRIDGE, NemesisOp.SPLIT, NemesisOp.KILL),
        nemesis_interval_us=random.choice((40_000, 80_000)),
        downtime_max_us=100_000,
        client_count=3,
        client_time_out_us=50_000,
        think_max_us=4_000,
        safety_us=2_000_000,
        bodies_max=4,
        raft=replace(options.raft, max_push_size_bytes=random.choice((64, 256)), max_push_window=1),
        is_founded_without_faults=True,
    )


def _foreign_heads(options: SimOptions, random: Random) -> SimOptions:
    """Delete old files as other programs do (Java), so that the terms before the log's start are not known."""
    return replace(
        _with_small_files(options),
        snapshot_threshold=random.choice((0, 0, 5)),
        admin_ops=(AdminOp.DELETE_HEAD,),
        admin_interval_us=100_000,
        nemesis_ops=(
            NemesisOp.CUT_HEAD,
            NemesisOp.CUT_HEAD,
            NemesisOp.ISOLATE,
            NemesisOp.ISOLATE,
            NemesisOp.KILL,
            NemesisOp.WIPE,
        ),
        nemesis_interval_us=60_000,
        downtime_max_us=50_000,
        client_count=4,
        client_time_out_us=100_000,
        think_max_us=5_000,
        bodies_max=4,
        is_founded_without_faults=True,
    )


def _full_disks(options: SimOptions, random: Random) -> SimOptions:
    """Fill disks and slow them down while leaders change."""
    return replace(
        _with_small_files(options),
        snapshot_threshold=random.choice((0, 5, 20)),
        nemesis_ops=(
            NemesisOp.FILL_DISK,
            NemesisOp.FILL_DISK,
            NemesisOp.SLOW_DISK,
            NemesisOp.STICK_SYNC,
            NemesisOp.ISOLATE,
        ),
        nemesis_interval_us=50_000,
        admin_ops=(AdminOp.DELETE_HEAD,),
        admin_interval_us=100_000,
    )


def _handovers(options: SimOptions, random: Random) -> SimOptions:
    """Transfer the leadership all the time, while earlier messages are replayed."""
    return replace(
        options,
        admin_ops=(AdminOp.TRANSFER,),
        admin_interval_us=10_000,
        nemesis_ops=(NemesisOp.STICK_SYNC, NemesisOp.SLOW_DISK, NemesisOp.KILL, NemesisOp.WIPE, NemesisOp.CUT_ONE_WAY),
        nemesis_interval_us=random.choice((60_000, 150_000)),
        raft=replace(
            options.raft,
            preferred_leader_ids=("n1", "s0"),
            max_leadership_transfer_wait_index=random.choice((2, 1_000)),
        ),
        # TimeoutNow is delayed, too: by then another node leads, or the target does.
        network=replace(
            options.network, replay_rate=0.05, duplicate_rate=0.1, spike_rate=0.1, spike_latency_us=150_000
        ),
        is_founded_without_faults=True,
    )


def _damage(options: SimOptions, random: Random) -> SimOptions:
    """Flip bits, misdirect writes, fail reads and damage messages, one after the other."""
    return replace(
        options,
        snapshot_threshold=random.choice((0, 5, 20)),
        nemesis_ops=(
            NemesisOp.FLIP_BITS,
            NemesisOp.MISDIRECT_WRITE,
            NemesisOp.FAIL_READ,
            NemesisOp.KILL,
            NemesisOp.CUT_POWER,
        ),
        nemesis_interval_us=60_000,
        downtime_max_us=100_000,
        checkpoint_interval_us=random.choice((100_000, 2_000_000)),
        admin_ops=(AdminOp.DELETE_HEAD,),
        is_founded_without_faults=True,
    )


def _with_small_files(options: SimOptions) -> SimOptions:
    return replace(
        options,
        data_file_size_bytes=_SMALL_FILE_SIZE_BYTES,
        index_file_size_bytes=_SMALL_INDEX_FILE_SIZE_BYTES,
        body_size_max_bytes=200,
    )


FOCUSES: dict[str, Callable[[SimOptions, Random], SimOptions]] = {
    "leases": _leases,
    "snapshots": _snapshots,
    "members": _members,
    "deposed": _deposed,
    "foreign heads": _foreign_heads,
    "full disks": _full_disks,
    "handovers": _handovers,
    "damage": _damage,
}
