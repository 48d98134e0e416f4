"""The options of one run, drawn from its seed: number of nodes, speeds, sizes, faults.

Each seed enables only some faults and draws their rates ("swarm testing"): if everything fails all the time, the
cluster makes little progress, and few defects are found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from dledger.core.config import RaftConfig
from dledger.testing.choices import DIRECTORY_OPS, LATER_ADMIN_OPS, LATER_OPS, AdminOp, NemesisOp
from dledger.testing.focus import with_focus
from dledger.testing.network.network import NetworkOptions

__all__ = ["AdminOp", "NemesisOp", "SimOptions", "draw_options", "with_short_terms"]

_INDEX_UNIT_SIZE_BYTES = 32
# The share of runs without faults until the first commit: founding a group needs all its voters, so with faults many
# runs would never begin.
_QUIET_SHARE = 0.8
_MESSAGE_LOG_SHARE = 0.4
_STRANGE_SHARE = 0.15
_DAMAGED_FRAMES_SHARE = 0.15
_REPORTED_ENDS_SHARE = 0.4
_TRUE_PPM = 1_000_000
_DRIFT_MAX_PPM = 60_000
# Exact clocks, clocks with the error of bad hardware, and arbitrarily wrong ones.
_CLOCK_RATES_PPM = (
    (1_000_000,),
    (950_000, 1_000_000, 1_050_000),
    (950_000, 1_000_000, 1_050_000),
    (600_000, 1_000_000, 1_600_000),
)


# Entries acknowledged from the page cache may be lost by these.
_DURABILITY_OPS = (NemesisOp.CUT_POWER, NemesisOp.CUT_POWER_OF_ALL, NemesisOp.FAIL_SYNC)


@dataclass(frozen=True, slots=True)
class SimOptions:
    """The options of a run.

    Attributes:
        seed: determines all random choices.
        node_count: founding members.
        spare_count: further nodes, to be added later.
        snapshot_threshold: entries between two snapshots of the state machine; 0: there is no state machine.
        admin_ops: operations of administrators.
        admin_interval_us: mean time between two of them.
        is_message_log: leaders' entries are as in a log of messages: magic 1 and a special channel.
        is_founded_without_faults: no faults until the first leader has committed an entry.
        lease_share: part of the reads that may use the lease; 0 if clocks have no bound on drift.
        is_flush_sync: acknowledge after the sync; without it there are no power cuts, and no sync fails.
        data_file_size_bytes, index_file_size_bytes: tiny, so that files roll all the time.
        raft: timings of the core, about ten times faster than in production, so that idle time is short.
        tick_us: interval of a node's ticks.
        turn_delay_max_us: events of a node are batched for up to this time; 0: each is a batch.
        sync_min_us, sync_max_us: how long an ordinary sync takes.
        checkpoint_interval_us: how often a node saves its checkpoint.
        clock_rates_ppm: each node's clock against true time, in parts per million.
        network: its behaviour during faults.
        client_count, think_max_us, bodies_max, body_size_max_bytes, read_share: the load of the clients.
        client_time_out_us: time after which a client stops waiting; the outcome is then unknown.
        nemesis_ops: possible operations of the nemesis.
        nemesis_interval_us: mean time between two of them.
        downtime_max_us: a dead node restarts within this time.
        safety_us: length of the phase with faults.
        liveness_us: time without faults within which a write must be accepted and all logs must be equal.
        focus: the rare situation of the run (`dledger.testing.focus`); "": none.
        dead_max: number of voters, a minority, that may stay down or faulty permanently: the others must work without
            them.
        reported_end_share: part of the other processes to which the end of a process is reported.
        false_end_share: part of the cut links whose target is reported as ended although it lives.
    """

    seed: int
    node_count: int
    is_flush_sync: bool
    data_file_size_bytes: int
    index_file_size_bytes: int
    raft: RaftConfig
    tick_us: int
    turn_delay_max_us: int
    sync_min_us: int
    sync_max_us: int
    checkpoint_interval_us: int
    clock_rates_ppm: tuple[int, ...]
    network: NetworkOptions
    client_count: int
    think_max_us: int
    bodies_max: int
    body_size_max_bytes: int
    read_share: float
    client_time_out_us: int
    nemesis_ops: tuple[NemesisOp, ...]
    nemesis_interval_us: int
    downtime_max_us: int
    safety_us: int
    liveness_us: int
    spare_count: int = 0
    snapshot_threshold: int = 0
    admin_ops: tuple[AdminOp, ...] = ()
    admin_interval_us: int = 200_000
    lease_share: float = 0.0
    is_founded_without_faults: bool = False
    is_message_log: bool = False
    focus: str = ""
    dead_max: int = 0
    reported_end_share: float = 0.0
    false_end_share: float = 0.0

    @property
    def node_ids(self) -> tuple[str, ...]:
        """Ids of the founders: n0, n1, ..."""
        return tuple(f"n{number}" for number in range(self.node_count))

    @property
    def all_ids(self) -> tuple[str, ...]:
        """Ids of all nodes; those of spare ones are s0, s1, ..."""
        return (*self.node_ids, *(f"s{number}" for number in range(self.spare_count)))

    def describe(self) -> str:
        """Return the parameters of this run as text, for its line of output."""
        network = self.network
        rates = ",".join(
            f"{name}={rate:g}"
            for name, rate in (
                ("drop", network.drop_rate),
                ("duplicate", network.duplicate_rate),
                ("spike", network.spike_rate),
                ("replay", network.replay_rate),
                ("damage", network.damage_rate),
            )
            if rate
        )
        return (
            f"{f'focus={self.focus} ' if self.focus else ''}"
            f"nodes={self.node_count}+{self.spare_count} log={'messages' if self.is_message_log else 'raw'} "
            f"flush={'sync' if self.is_flush_sync else 'async'} "
            f"files={self.data_file_size_bytes}/{self.index_file_size_bytes} clients={self.client_count} "
            f"bodies<={self.bodies_max}x{self.body_size_max_bytes} "
            f"order={'kept' if network.is_ordered else 'free'} network={rates or 'calm'} "
            f"clocks={'/'.join(f'{rate / 1_000_000:g}' for rate in self.clock_rates_ppm)} "
            f"nemesis={','.join(self.nemesis_ops) or 'none'} admin={','.join(self.admin_ops) or 'none'} "
            f"snapshots={self.snapshot_threshold or 'none'} leases={self.lease_share:g} "
            f"founding={'calm' if self.is_founded_without_faults else 'rough'} "
            f"preferred={','.join(self.raft.preferred_leader_ids) or 'none'} dead<={self.dead_max} "
            f"ends={self.reported_end_share:g}/{self.false_end_share:g}"
        )


def draw_options(seed: int, node_count: int | None = None, *, is_focused: bool = True) -> SimOptions:
    """Draw the options of run `seed`.

    Args:
        seed: any integer.
        node_count: overrides the drawn number of founders; the other options stay as drawn.
        is_focused: the run may have a focus, and some nodes may stay dead.
    """
    random = Random(f"{seed}/options")
    options = _with_admin_ops(_draw(seed, random, node_count), Random(f"{seed}/options of chores"))
    options = replace(options, is_message_log=Random(f"{seed}/options of the log").random() < _MESSAGE_LOG_SHARE)
    options = with_short_terms(options, random) if random.random() < 0.15 else options
    if not is_focused:
        return options
    options = replace(options, dead_max=Random(f"{seed}/options of the dead").choice((0, 0, 1, 2)))
    options = with_focus(options, Random(f"{seed}/options of focus"))
    options = _with_reported_ends(options, Random(f"{seed}/options of ended processes"))
    return _with_directory_faults(options, Random(f"{seed}/options of strangeness"))


def _with_reported_ends(options: SimOptions, random: Random) -> SimOptions:
    """Report the end of processes to other nodes, in some runs also where it is not true."""
    if random.random() >= _REPORTED_ENDS_SHARE:
        return options
    return replace(
        options, reported_end_share=random.choice((0.5, 1.0)), false_end_share=random.choice((0.0, 0.3, 1.0))
    )


def _with_directory_faults(options: SimOptions, random: Random) -> SimOptions:
    """Enable wrong directories and damaged messages, each in some runs."""
    if random.random() < _STRANGE_SHARE:
        options = replace(options, nemesis_ops=(*options.nemesis_ops, *DIRECTORY_OPS))
    if random.random() < _DAMAGED_FRAMES_SHARE:
        options = replace(options, network=replace(options.network, damage_rate=random.choice((0.001, 0.01))))
    return options


def _with_admin_ops(options: SimOptions, random: Random) -> SimOptions:
    """Add administration: spare nodes, snapshots, retention, transfers, leases."""
    spare_count = random.choice((0, 0, 1, 2))
    admin_ops = tuple(op for op in AdminOp if op not in LATER_ADMIN_OPS and random.random() < 0.4)
    drift_ppm = max(abs(rate_ppm - _TRUE_PPM) for rate_ppm in options.clock_rates_ppm)
    is_bound_kept = drift_ppm <= _DRIFT_MAX_PPM and NemesisOp.STOP_CLOCK not in options.nemesis_ops
    lease_share = random.choice((0.0, 0.5)) if is_bound_kept else 0.0
    preferred = random.choice(((), (), (), ("n1",), ("n2", "n0")))
    raft = replace(
        options.raft,
        max_in_flight_size_bytes=random.choice((1_000, 32 << 20)),
        max_in_flight_total_size_bytes=random.choice((2_000, 64 << 20)),
        peer_push_quota=random.choice((3_000_000, 100 << 20)),
        snapshot_chunk_size_bytes=random.choice((64, 1_000)),
        max_leadership_transfer_wait_index=random.choice((2, 20, 1_000)),
        preferred_leader_ids=preferred,
        preferred_leader_interval_ms=100,
        max_clock_drift_ppm=min(drift_ppm, _DRIFT_MAX_PPM),
    )
    return replace(
        options,
        raft=raft,
        spare_count=spare_count,
        snapshot_threshold=random.choice((0, 5, 20, 100)),
        admin_ops=admin_ops,
        admin_interval_us=random.choice((30_000, 100_000, 400_000)),
        lease_share=lease_share,
        is_founded_without_faults=random.random() < _QUIET_SHARE,
        clock_rates_ppm=(
            *options.clock_rates_ppm,
            *(random.choice(options.clock_rates_ppm) for _ in range(spare_count)),
        ),
    )


def quick_elections(raft: RaftConfig) -> RaftConfig:
    """Return a configuration with very short election timeouts, and small pushes, one at a time."""
    return replace(
        raft,
        heart_beat_time_interval_ms=20,
        min_election_timeout_ms=60,
        max_election_timeout_ms=180,
        max_push_size_bytes=64,
        max_push_window=1,
        max_push_time_out_ms=60,
    )


def with_short_terms(options: SimOptions, random: Random) -> SimOptions:
    """Make most leaders die shortly after their election.

    Entries then stay uncommitted over many terms, on changing nodes: the situation of Raft's figure 8.
    """
    return replace(
        options,
        raft=quick_elections(options.raft),
        network=replace(options.network, min_latency_us=3_000, max_latency_us=15_000, is_ordered=True),
        tick_us=5_000,
        nemesis_ops=(NemesisOp.KILL, NemesisOp.DIE_IN_STEP),
        nemesis_interval_us=random.choice((20_000, 60_000)),
        downtime_max_us=random.choice((50_000, 200_000)),
        safety_us=2 * options.safety_us,
    )


def _draw(seed: int, random: Random, node_count: int | None) -> SimOptions:
    drawn_count = random.choice((3, 3, 5))
    is_flush_sync = random.random() < 0.85
    data_file_size_bytes = random.choice((1024, 4096, 4096, 16384))
    count = drawn_count if node_count is None else node_count
    clock_rates_ppm = random.choice(_CLOCK_RATES_PPM)
    return SimOptions(
        seed=seed,
        node_count=count,
        is_flush_sync=is_flush_sync,
        data_file_size_bytes=data_file_size_bytes,
        index_file_size_bytes=_INDEX_UNIT_SIZE_BYTES * random.choice((4, 16, 16, 64)),
        raft=_draw_raft(random, data_file_size_bytes),
        tick_us=random.choice((5_000, 10_000)),
        turn_delay_max_us=random.choice((0, 0, 50, 500)),
        sync_min_us=100,
        sync_max_us=random.choice((200, 1_000, 5_000)),
        checkpoint_interval_us=random.choice((100_000, 500_000)),
        network=_draw_network(random),
        client_count=random.choice((1, 2, 4)),
        think_max_us=random.choice((2_000, 10_000, 50_000)),
        bodies_max=random.choice((1, 4, 16)),
        body_size_max_bytes=random.choice((40, 200, data_file_size_bytes // 4)),
        read_share=random.choice((0.0, 0.1, 0.3)),
        client_time_out_us=500_000,
        nemesis_ops=_draw_nemesis_ops(random, is_flush_sync=is_flush_sync),
        nemesis_interval_us=random.choice((50_000, 150_000, 400_000)),
        downtime_max_us=random.choice((50_000, 400_000, 1_500_000)),
        safety_us=3_000_000,
        liveness_us=5_000_000,
        clock_rates_ppm=_draw_each(clock_rates_ppm, random, seed, drawn_count, count),
    )


def _draw_each(possible: tuple[int, ...], random: Random, seed: int, drawn_count: int, count: int) -> tuple[int, ...]:
    """Draw a clock rate for each of `count` nodes; their number does not affect the other draws."""
    drawn = [random.choice(possible) for _ in range(drawn_count)]
    more = Random(f"{seed}/clocks")
    return (*drawn[:count], *(more.choice(possible) for _ in range(count - drawn_count)))


def _draw_raft(random: Random, data_file_size_bytes: int) -> RaftConfig:
    min_timeout_ms = random.choice((80, 150))
    return RaftConfig(
        heart_beat_time_interval_ms=random.choice((15, 30)),
        min_election_timeout_ms=min_timeout_ms,
        max_election_timeout_ms=2 * min_timeout_ms,
        max_push_size_bytes=random.choice((256, data_file_size_bytes, 1 << 20)),
        max_push_window=random.choice((1, 4, 32)),
        max_push_time_out_ms=random.choice((50, 200)),
    )


def _draw_network(random: Random) -> NetworkOptions:
    is_calm = random.random() < 0.2
    return NetworkOptions(
        min_latency_us=100,
        max_latency_us=random.choice((300, 2_000, 10_000)),
        is_ordered=random.random() < 0.5,
        drop_rate=0.0 if is_calm else random.choice((0.0, 0.01, 0.1)),
        duplicate_rate=0.0 if is_calm else random.choice((0.0, 0.01, 0.1)),
        spike_rate=0.0 if is_calm else random.choice((0.0, 0.01, 0.05)),
        spike_latency_us=random.choice((50_000, 300_000)),
        replay_rate=0.0 if is_calm else random.choice((0.0, 0.01, 0.05)),
    )


def _draw_nemesis_ops(random: Random, *, is_flush_sync: bool) -> tuple[NemesisOp, ...]:
    excluded = LATER_OPS if is_flush_sync else (*LATER_OPS, *_DURABILITY_OPS)
    return tuple(op for op in NemesisOp if op not in excluded and random.random() < 0.4)
