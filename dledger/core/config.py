"""Timings and limits of the consensus core."""

from __future__ import annotations

from dataclasses import dataclass

_POSITIVE = (
    "max_push_size_bytes",
    "max_push_window",
    "max_push_time_out_ms",
    "max_in_flight_size_bytes",
    "max_in_flight_total_size_bytes",
    "peer_push_quota",
    "snapshot_chunk_size_bytes",
    "max_leadership_transfer_wait_index",
    "preferred_leader_interval_ms",
)
_DRIFT_PPM_END = 500_000


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Timings and limits of the consensus core; relations are checked at construction.

    Attributes:
        heart_beat_time_interval_ms: time between a leader's heartbeats. DLedger: 2000; lower here for fast failover.
        min_election_timeout_ms: a follower without a leader becomes a candidate after a random time from here ...
        max_election_timeout_ms: ... up to here (exclusive). Must be several heartbeats, so that one lost heartbeat does
            not depose a leader; also the time after which a leader without a quorum steps down.
        max_push_size_bytes: encoded entries in one push (at least one entry is sent, whatever its size).
        max_push_window: pushes in flight to one peer without an answer.
        max_push_time_out_ms: a push without an answer for this time is considered lost (DLedger `maxPushTimeOutMs`).
        max_in_flight_size_bytes: pushed bytes in flight to one peer; the window is full when either bound is reached.
        max_in_flight_total_size_bytes: the same over all peers; one push to each peer is always allowed.
        peer_push_quota: bytes per second to a follower that catches up (DLedger: 20 MiB/s; higher here, so that a wiped
            node is re-synced soon). A follower is catching up while it lacks more than
            `max_leadership_transfer_wait_index`.
        snapshot_chunk_size_bytes: of a snapshot in one message.
        max_leadership_transfer_wait_index: the most entries that a follower may lack to become the leader.
        preferred_leader_ids: nodes that should lead when they can; earlier ones first.
        preferred_leader_interval_ms: how often a leader that is not preferred checks for a preferred one (DLedger:
            1000).
        max_clock_drift_ppm: how much any node's monotonic clock may run faster or slower than true time, in parts per
            million; a leader's lease is shortened by it. Below 500,000.
    """

    heart_beat_time_interval_ms: int = 100
    min_election_timeout_ms: int = 500
    max_election_timeout_ms: int = 1_000
    max_push_size_bytes: int = 1 << 20
    max_push_window: int = 32
    max_push_time_out_ms: int = 1_000
    max_in_flight_size_bytes: int = 32 << 20
    max_in_flight_total_size_bytes: int = 64 << 20
    peer_push_quota: int = 100 << 20
    snapshot_chunk_size_bytes: int = 1 << 20
    max_leadership_transfer_wait_index: int = 1_000
    preferred_leader_ids: tuple[str, ...] = ()
    preferred_leader_interval_ms: int = 1_000
    max_clock_drift_ppm: int = 10_000

    def __post_init__(self) -> None:
        if not 0 < self.heart_beat_time_interval_ms < self.min_election_timeout_ms:
            raise ValueError(
                f"heart_beat_time_interval_ms ({self.heart_beat_time_interval_ms}) must be positive and below "
                f"min_election_timeout_ms ({self.min_election_timeout_ms})"
            )
        if self.min_election_timeout_ms >= self.max_election_timeout_ms:
            raise ValueError(
                f"min_election_timeout_ms ({self.min_election_timeout_ms}) must be below "
                f"max_election_timeout_ms ({self.max_election_timeout_ms})"
            )
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, found {getattr(self, name)}")
        if not 0 <= self.max_clock_drift_ppm < _DRIFT_PPM_END:
            raise ValueError(f"max_clock_drift_ppm must be in [0, {_DRIFT_PPM_END}), found {self.max_clock_drift_ppm}")
