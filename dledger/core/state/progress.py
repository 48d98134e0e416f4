"""A leader's view of one follower, and its messages in flight (etcd/raft calls this Progress).

A follower is *probed*, with one empty push at a time, until an answer shows up to which index the logs are equal. Then
it is *replicated* to: pushes follow one another without waiting, up to a window of pushes and bytes. After a timeout, a
broken connection or a refusal it is probed again, from the last index that is known to match. A follower that lacks
entries that the leader has deleted is *reset*: it gets a snapshot, if there is one, and restarts its log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from dledger.types import NO_INDEX, SnapshotInfo

_MS_PER_S = 1_000
# Unused quota is kept for this time (milliseconds), so that a late tick does not lose it.
_QUOTA_KEPT_MS = 100
# A time before every other one.
_NEVER_MS = -(1 << 62)


@dataclass(slots=True)
class Installation:
    """The installation of a snapshot and a new log on a follower.

    Attributes:
        snapshot: sent first; None: there is no state machine, or it has saved no snapshot.
        sent_bytes: bytes of it that the follower has, according to its last answer.
        is_gone: the snapshot was deleted; the next attempt sends the newest one.
    """

    snapshot: SnapshotInfo | None
    # At most the snapshot's size; it decreases when the follower restarted or found damage.
    sent_bytes: int = 0
    is_gone: bool = False


@dataclass(slots=True)
class Progress:
    """One follower, as its leader sees it.

    At any time the follower is in one of three states: *probing* (`is_probing`), *replicating* (not `is_probing`), or
    *resetting* (`installation`, which implies `is_probing`).

    Attributes:
        next_index: first index of the next push.
        contact_ms: when it last answered in this term.
        match_index: last index known to be equal, and durable, there; -1 when nothing is known.
        incarnation: the latest incarnation that answered (`HardState.incarnation`); None while none has.
        incarnation_round: the leader's heartbeat round when the first answer of that incarnation arrived.
        is_healthy: it reports that its disk neither stalls nor is full.
        steady_since_ms: start of the current period of regular answers that report a healthy disk.
        is_probing: the follower's log has not been matched yet.
        is_waiting: probing or resetting, and a request is in flight.
        installation: set while it lacks entries that we have deleted.
        in_flight: last index and bytes of every push in flight, oldest first.
        in_flight_size_bytes: of all of them together.
        sent_ms: when the oldest unanswered probe or push was sent, or the last answer arrived.
        paused_until_ms: nothing is pushed before (a follower with a full disk, one that cannot verify pushes, or one
            whose messages overtake one another).
        window_refused_ms: when the follower last refused a push while it was replicated to.
        corrupt_count: pushes that the follower could not verify since it last accepted one.
        is_contradicting: its last answer was that entries other than the pushed ones are committed.
        quota_bytes, quota_ms: bytes that may still be sent to it while it catches up, and when that was computed.
        is_throttled: the quota, or the bytes in flight to all, prevented a push.
        round: the last heartbeat round that it answered.
        commit_sent: the last commit index that was sent to it.
        commit_due: the commit index that could have been sent at the last tick; usually a push carries it sooner.
        leaves_ms: time until which a removed member is sent messages, so that it learns of its removal; -1: a member.
    """

    # `match_index < next_index <= log.last_index + 1` of the leader; below its `begin_index` the follower is reset.
    next_index: int
    contact_ms: int
    # -1 while `incarnation` is None, and during an installation. It decreases only when the follower's disk was wiped.
    match_index: int = NO_INDEX
    incarnation: int | None = None
    # Each answer of an earlier incarnation is to this round or an earlier one (`voting_rights.recognise`).
    incarnation_round: int = 0
    is_healthy: bool = True
    steady_since_ms: int = 0
    # While it is set, only one request is in flight; only then `is_waiting` may be set.
    is_probing: bool = True
    is_waiting: bool = False
    installation: Installation | None = None
    # Last indexes ascend, all above `match_index`; the last one is `next_index - 1`.
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    in_flight_size_bytes: int = 0
    sent_ms: int = 0
    paused_until_ms: int = 0
    window_refused_ms: int = _NEVER_MS
    corrupt_count: int = 0
    is_contradicting: bool = False
    # Negative after an entry larger than the quota left: the next push waits until it is positive again.
    quota_bytes: int = 0
    quota_ms: int = 0
    is_throttled: bool = False
    # At most the leader's round: rounds of one term are counted by its only leader.
    round: int = 0
    # Both at most the leader's commit index. A heartbeat's is at most `match_index`, a push's at most its last index:
    # a follower must not commit entries that were not compared with this leader's log.
    commit_sent: int = NO_INDEX
    commit_due: int = NO_INDEX
    leaves_ms: int = -1

    def retry(self) -> None:
        """Treat all messages in flight as lost, and probe again from the match index."""
        self.probe(self.next_index if self.match_index == NO_INDEX else self.match_index + 1)

    def probe(self, next_index: int) -> None:
        """Forget the messages in flight and probe again from `next_index`."""
        self.is_probing = True
        self.is_waiting = False
        self.in_flight.clear()
        self.in_flight_size_bytes = 0
        self.next_index = next_index

    def install(self, snapshot: SnapshotInfo | None) -> None:
        """Begin to install a snapshot and a new log on the follower, or restart that installation."""
        self.probe(self.next_index)
        self.match_index = NO_INDEX
        self.installation = Installation(snapshot)

    def asked(self, now_ms: int) -> None:
        """Record a probe, a reset or a chunk that was sent."""
        self.is_waiting = True
        self.sent_ms = now_ms

    def sent_push(self, last_index: int, size_bytes: int, now_ms: int) -> None:
        """Record a push that was sent, ending with `last_index`."""
        if not self.in_flight:
            self.sent_ms = now_ms
        self.in_flight.append((last_index, size_bytes))
        self.in_flight_size_bytes += size_bytes
        self.next_index = last_index + 1

    def accepted(self, match_index: int, now_ms: int) -> None:
        """Record that the logs are equal, and durable there, up to `match_index`."""
        if match_index > self.match_index:
            self.corrupt_count = 0
            self.is_contradicting = False
        self.match_index = max(self.match_index, match_index)
        self.next_index = max(self.next_index, match_index + 1)
        self.is_probing = False
        self.is_waiting = False
        self.installation = None
        in_flight = self.in_flight
        while in_flight and in_flight[0][0] <= match_index:
            self.in_flight_size_bytes -= in_flight.popleft()[1]
        self.sent_ms = now_ms

    def note_contact(self, now_ms: int, gap_ms_max: int) -> None:
        """Record an answer; a gap of more than `gap_ms_max` restarts the steady period."""
        if now_ms - self.contact_ms > gap_ms_max:
            self.steady_since_ms = now_ms
        self.contact_ms = now_ms

    def has_quota(self, quota_per_s: int, now_ms: int) -> bool:
        """Return whether the quota allows a push to a follower that catches up; the sender reduces `quota_bytes`."""
        earned = (now_ms - self.quota_ms) * quota_per_s // _MS_PER_S
        # It may become negative, so that an entry larger than the whole quota can be sent.
        self.quota_bytes = min(self.quota_bytes + earned, quota_per_s * _QUOTA_KEPT_MS // _MS_PER_S)
        self.quota_ms = now_ms
        return self.quota_bytes > 0

    def is_overdue(self, now_ms: int, time_out_ms: int) -> bool:
        """Return whether the oldest message in flight has been without an answer for `time_out_ms`."""
        return (self.is_waiting or bool(self.in_flight)) and now_ms - self.sent_ms >= time_out_ms

    def is_live(self, now_ms: int, time_out_ms: int) -> bool:
        """Return whether the follower answered, in this term, less than `time_out_ms` ago."""
        return now_ms - self.contact_ms < time_out_ms
