"""The options of one run of the shell's simulator, drawn from its seed, and the faults that it counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from dledger.core.config import RaftConfig
from dledger.testing.shell.state_options import SnapshotNemesisOp, StateOptions, draw_state

PEER_PORT = 7
CLIENT_PORT = 9
_INDEX_UNIT_SIZE_BYTES = 32


class ShellNemesisOp(StrEnum):
    """The operations of the nemesis; those that take effect are counted as `ShellFault`."""

    KILL = "kill"
    STOP = "stop"
    CUT_POWER = "cut_power"
    CUT_POWER_OF_ALL = "cut_power_of_all"
    DIE_IN_STEP = "die_in_step"
    ISOLATE = "isolate"
    CUT_ONE_WAY = "cut_one_way"
    SPLIT = "split"
    RESET_CONNECTIONS = "reset_connections"
    PAUSE = "pause"
    STOP_CLOCK = "stop_clock"
    SLOW_DISK = "slow_disk"
    FAIL_SYNC = "fail_sync"
    FILL_DISK = "fill_disk"
    TRANSFER = "transfer"
    FLIP_FRAMES = "flip_frames"
    CHANGE_MEMBERS = "change_members"
    WIPE = "wipe"
    FLIP_BYTES = "flip_bytes"
    PUT_FOREIGN = "put_foreign"
    PUT_OLD_COPY = "put_old_copy"
    EXCHANGE = "exchange"


class ShellFault(StrEnum):
    """A fault that took effect; the value is its name in the line of a run."""

    KILLED = "killed"
    STOPPED = "stopped"
    POWER_CUT = "power_cut"
    CRASHED_IN_STEP = "crashed_in_step"
    BLOCKED = "blocked"
    CONNECTION_RESET = "connection_reset"
    TIMED_OUT = "timed_out"
    PAUSED = "paused"
    CLOCK_STOPPED = "clock_stopped"
    SLOW_SYNC = "slow_sync"
    NODE_FAILED = "node_failed"
    TRANSFER_ASKED = "transfer_asked"
    CANCELLED = "cancelled"
    FRAME_FLIPPED = "frame_flipped"
    MEMBERS_CHANGED = "members_changed"
    WIPED = "wiped"
    BYTES_FLIPPED = "bytes_flipped"
    FOREIGN_DIRECTORY = "foreign_directory"
    OLD_COPY = "old_copy"
    EXCHANGED = "exchanged"
    REFUSED_BY_NAME = "refused_by_name"
    STRANDED = "stranded"
    INSTALL_INTERRUPTED = "install_interrupted"
    INSTALL_CHANGED_LEADER = "install_changed_leader"
    SNAPSHOT_DAMAGED = "snapshot_damaged"
    DIED_IN_SAVE = "died_in_save"
    SLOW_APPLY = "slow_apply"


# They take effect only in runs with state machines.
STATE_FAULTS = (
    ShellFault.STRANDED,
    ShellFault.INSTALL_INTERRUPTED,
    ShellFault.INSTALL_CHANGED_LEADER,
    ShellFault.SNAPSHOT_DAMAGED,
    ShellFault.DIED_IN_SAVE,
    ShellFault.SLOW_APPLY,
)


class FaultTally:
    """How often each fault took effect in one run."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = dict.fromkeys(ShellFault, 0)

    def add(self, fault: ShellFault) -> None:
        """Count an effect of `fault`."""
        self._counts[fault] += 1

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name, in the order of `ShellFault`."""
        return {fault.value: count for fault, count in self._counts.items()}


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The behaviour of the simulated network.

    Attributes:
        min_us, max_us: an ordinary delay, one way.
        spike_rate, spike_us: share of the delays that are longer, and the largest addition.
        cut_rate: share of the writes that are sent in pieces.
    """

    min_us: int
    max_us: int
    spike_rate: float
    spike_us: int
    cut_rate: float


@dataclass(frozen=True, slots=True)
class ShellOptions:
    """The options of a run.

    Attributes:
        seed: determines all random choices.
        node_count: members of the group.
        client_count: client processes.
        tasks_count: tasks of each client, each of which makes one call after another.
        raft: timings and limits of the core, for a run of seconds.
        data_file_size_bytes, index_file_size_bytes: small, so that files roll.
        is_flush_sync: acknowledge after the sync; without it there are no power cuts, and no sync fails.
        links: behaviour of the network.
        turn_max_us: longest wait of a ready handle for its loop's next step.
        sync_max_us: longest ordinary sync.
        think_max_us: pause of a task between an answer and its next call.
        body_size_max_bytes, batch_max: sizes of appends.
        pending_max: uncommitted entries that a leader accepts.
        read_share: share of reads among the calls.
        lease_share: share of the reads that use the leader's lease; 0 if clocks have no bound on drift.
        cancel_rate: share of the calls that the caller cancels.
        clock_rates_ppm: of each machine.
        nemesis_ops: possible operations of the nemesis.
        nemesis_interval_us: mean time between two of them.
        downtime_max_us: a dead node restarts within this time.
        safety_us: length of the phase with faults.
        liveness_us: time without faults within which an append must succeed and all logs must become equal.
        state: options of the state machines; None: the nodes have none.
    """

    seed: int
    node_count: int
    client_count: int
    tasks_count: int
    raft: RaftConfig
    data_file_size_bytes: int
    index_file_size_bytes: int
    is_flush_sync: bool
    links: LinkOptions
    turn_max_us: int
    sync_max_us: int
    think_max_us: int
    body_size_max_bytes: int
    batch_max: int
    pending_max: int
    read_share: float
    lease_share: float
    cancel_rate: float
    clock_rates_ppm: tuple[int, ...]
    nemesis_ops: tuple[ShellNemesisOp, ...]
    nemesis_interval_us: int
    downtime_max_us: int
    safety_us: int
    liveness_us: int
    state: StateOptions | None = None

    @property
    def node_ids(self) -> tuple[str, ...]:
        """Ids of the members: n0, n1, ..."""
        return tuple(f"n{number}" for number in range(self.node_count))

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Machines of the clients: c0, c1, ..."""
        return tuple(f"c{number}" for number in range(self.client_count))

    def describe(self) -> str:
        """Return the parameters of this run as text, for its line of output."""
        return (
            f"nodes={self.node_count} clients={self.client_count}x{self.tasks_count} "
            f"flush={'sync' if self.is_flush_sync else 'async'} "
            f"files={self.data_file_size_bytes}/{self.index_file_size_bytes} "
            f"bodies<={self.batch_max}x{self.body_size_max_bytes} pending={self.pending_max} "
            f"network={self.links.min_us}..{self.links.max_us}us spikes={self.links.spike_rate:g} "
            f"clocks={'/'.join(f'{rate / 1_000_000:g}' for rate in self.clock_rates_ppm)} "
            f"leases={self.lease_share:g} nemesis={','.join(self.nemesis_ops) or 'none'}"
            f"{'' if self.state is None else f' {self.state.describe()}'}"
        )


# One node's directory is lost, damaged, or a wrong one.
DIRECTORY_OPS = (
    ShellNemesisOp.WIPE,
    ShellNemesisOp.FLIP_BYTES,
    ShellNemesisOp.PUT_FOREIGN,
    ShellNemesisOp.PUT_OLD_COPY,
    ShellNemesisOp.EXCHANGE,
)
# Drawn separately: half of the runs have none of them, and there any warning of a program is unjustified.
RARE_OPS = (ShellNemesisOp.FLIP_FRAMES, ShellNemesisOp.CHANGE_MEMBERS, *DIRECTORY_OPS)
# Entries acknowledged from the page cache may be lost by these.
_DURABILITY_OPS = (ShellNemesisOp.CUT_POWER, ShellNemesisOp.CUT_POWER_OF_ALL, ShellNemesisOp.FAIL_SYNC)
_DRIFT_PPM = 50_000
_STATE_SHARE = 1 / 3
# Space for an entry's header and for the end of a file; a membership is not larger than a few bodies.
_ENTRY_HEAD_MAX_BYTES = 150
# Half of the time that a client waits for an answer.
_COMMIT_MAX_US = 750_000


def draw_shell_options(seed: int, *, may_have_state: bool = True) -> ShellOptions:
    """Draw the options of run `seed` of the shell.

    Args:
        seed: any integer.
        may_have_state: a third of the runs have state machines; False: none has one.
    """
    options = _draw(seed)
    options = replace(options, pending_max=min(options.pending_max, _pending_in_time(options)))
    if may_have_state and Random(f"{seed}/has state machines").random() < _STATE_SHARE:
        return with_state_machines(options)
    return options


def with_state_machines(options: ShellOptions) -> ShellOptions:
    """Return the same run with state machines, whose options are drawn from a separate random stream."""
    state = draw_state(Random(f"{options.seed}/state machines"))
    if ShellNemesisOp.CHANGE_MEMBERS in options.nemesis_ops:
        # While members are removed, no remaining member may lose data.
        nemesis_ops = tuple(each for each in state.nemesis_ops if each is not SnapshotNemesisOp.DAMAGE_SNAPSHOT)
        state = replace(state, nemesis_ops=nemesis_ops)
    return replace(
        options,
        state=state,
        raft=replace(options.raft, snapshot_chunk_size_bytes=state.chunk_size_bytes),
        data_file_size_bytes=state.file_entries * (options.body_size_max_bytes + _ENTRY_HEAD_MAX_BYTES),
        safety_us=state.safety_us,
    )


def _draw(seed: int) -> ShellOptions:
    random = Random(f"{seed}/shell options")
    node_count = random.choice((3, 3, 3, 5))
    is_flush_sync = random.random() < 0.85
    usual = [each for each in ShellNemesisOp if each not in RARE_OPS]
    possible = [each for each in usual if is_flush_sync or each not in _DURABILITY_OPS]
    nemesis_ops = tuple(each for each in possible if random.random() < 0.4)
    nemesis_ops += _draw_rare_ops(Random(f"{seed}/rare troubles"))
    rates = random.choice(((1_000_000,), (950_000, 1_000_000, 1_050_000)))
    is_bound_kept = ShellNemesisOp.STOP_CLOCK not in nemesis_ops
    data_file_size_bytes = random.choice((4_096, 16_384, 65_536))
    min_timeout_ms = random.choice((150, 250))
    return ShellOptions(
        seed=seed,
        node_count=node_count,
        client_count=random.choice((1, 2, 2)),
        tasks_count=random.choice((2, 4, 8)),
        raft=RaftConfig(
            heart_beat_time_interval_ms=random.choice((30, 50)),
            min_election_timeout_ms=min_timeout_ms,
            max_election_timeout_ms=2 * min_timeout_ms,
            max_push_size_bytes=random.choice((256, data_file_size_bytes, 1 << 20)),
            max_push_window=random.choice((1, 4, 32)),
            max_push_time_out_ms=random.choice((100, 400)),
            max_clock_drift_ppm=_DRIFT_PPM,
        ),
        data_file_size_bytes=data_file_size_bytes,
        index_file_size_bytes=_INDEX_UNIT_SIZE_BYTES * random.choice((16, 64, 1_024)),
        is_flush_sync=is_flush_sync,
        links=LinkOptions(
            min_us=100,
            max_us=random.choice((300, 2_000, 10_000)),
            spike_rate=random.choice((0.0, 0.01, 0.05)),
            spike_us=random.choice((50_000, 300_000)),
            cut_rate=random.choice((0.0, 0.05, 0.3)),
        ),
        turn_max_us=random.choice((20, 200, 1_000)),
        sync_max_us=random.choice((300, 1_500, 8_000)),
        think_max_us=random.choice((20_000, 80_000)),
        body_size_max_bytes=random.choice((40, 200, 900)),
        batch_max=random.choice((1, 4, 12)),
        pending_max=random.choice((24, 200, 10_000)),
        read_share=random.choice((0.1, 0.3, 0.5)),
        lease_share=random.choice((0.0, 0.5)) if is_bound_kept else 0.0,
        cancel_rate=random.choice((0.0, 0.02, 0.1)),
        clock_rates_ppm=tuple(random.choice(rates) for _ in range(node_count)),
        nemesis_ops=nemesis_ops,
        nemesis_interval_us=random.choice((100_000, 250_000, 600_000)),
        downtime_max_us=random.choice((100_000, 500_000, 1_500_000)),
        safety_us=random.choice((1_500_000, 2_500_000)),
        liveness_us=20_000_000,
    )


def _pending_in_time(options: ShellOptions) -> int:
    """Return the number of pending entries that the group commits before clients time out.

    If a leader accepts more than its pushes carry, all clients time out and append again, and the entries of the failed
    calls fill the pushes. Such settings are an error of the operator, not a defect.
    """
    round_us = 2 * options.links.max_us + options.sync_max_us
    pushed_entries = max(1, options.raft.max_push_size_bytes // options.body_size_max_bytes)
    return _COMMIT_MAX_US // round_us * options.raft.max_push_window * pushed_entries


def _draw_rare_ops(random: Random) -> tuple[ShellNemesisOp, ...]:
    """Draw the operations that need special runs; while members are removed, no other member may lose data."""
    if random.random() < 0.5:
        return ()
    frames = (ShellNemesisOp.FLIP_FRAMES,) if random.random() < 0.4 else ()
    if random.random() < 0.3:
        return (*frames, ShellNemesisOp.CHANGE_MEMBERS)
    return (*frames, *(each for each in DIRECTORY_OPS if random.random() < 0.5))
