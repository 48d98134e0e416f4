"""Timings and limits of the consensus core."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Timings and limits of the consensus core; relations are checked at construction.

    Attributes:
        heart_beat_time_interval_ms: a leader shows itself this often. DLedger: 2000; ours is lower for fast failover.
        min_election_timeout_ms: a follower that hears no leader stands for election after a random time from here ...
        max_election_timeout_ms: ... up to here (exclusive). Must be several heartbeats, so that one lost heartbeat
            does not depose a leader; also the time after which a leader without a quorum steps down.
        max_push_size_bytes: encoded entries in one push (at least one entry goes, whatever its size).
        max_push_window: pushes under way to one peer without an answer.
        max_push_time_out_ms: a push without an answer for so long is taken for lost (DLedger `maxPushTimeOutMs`).
    """

    heart_beat_time_interval_ms: int = 100
    min_election_timeout_ms: int = 500
    max_election_timeout_ms: int = 1_000
    max_push_size_bytes: int = 1 << 20
    max_push_window: int = 32
    max_push_time_out_ms: int = 1_000

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
        for name in ("max_push_size_bytes", "max_push_window", "max_push_time_out_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, found {getattr(self, name)}")
