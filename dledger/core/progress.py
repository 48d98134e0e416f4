"""What a leader knows of one follower, and what it has under way to it (etcd/raft calls this Progress).

A follower is *probed* until an answer shows where its log meets ours: one empty push at a time. Then it is
*replicated* to: pushes follow one another without waiting, up to a window. Silence, a broken connection or a refusal
bring it back to probing from the last index that is known to match.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from dledger.types import NO_INDEX


@dataclass(slots=True)
class Progress:
    """One follower, as its leader sees it.

    Attributes:
        next_index: first index of the next push.
        match_index: last index known to be equal, and durable, there; -1 when nothing is known.
        is_probing: the follower's log has not been matched yet.
        is_waiting: probing, and a probe is under way.
        in_flight: last index of every push under way, oldest first.
        sent_ms: when the oldest unanswered probe or push left, or the last answer came.
        paused_until_ms: nothing is pushed before (a follower with a full disk).
        contact_ms: when it last answered in this term.
        round: the last heartbeat round that it answered.
        commit_sent: the last commit index that it was told.
        commit_due: what it could have been told at the last tick; pushes mostly tell it before the next one.
    """

    next_index: int
    contact_ms: int
    match_index: int = NO_INDEX
    is_probing: bool = True
    is_waiting: bool = False
    in_flight: deque[int] = field(default_factory=deque)
    sent_ms: int = 0
    paused_until_ms: int = 0
    round: int = 0
    commit_sent: int = NO_INDEX
    commit_due: int = NO_INDEX

    def retry(self) -> None:
        """Take what is under way for lost and ask anew where the logs meet, from what is known to match."""
        self.probe(self.next_index if self.match_index == NO_INDEX else self.match_index + 1)

    def probe(self, next_index: int) -> None:
        """Forget what is under way and ask anew, from `next_index`."""
        self.is_probing = True
        self.is_waiting = False
        self.in_flight.clear()
        self.next_index = next_index

    def sent_probe(self, now_ms: int) -> None:
        """Take note of a probe that left."""
        self.is_waiting = True
        self.sent_ms = now_ms

    def sent_push(self, last_index: int, now_ms: int) -> None:
        """Take note of a push that left, ending with `last_index`."""
        if not self.in_flight:
            self.sent_ms = now_ms
        self.in_flight.append(last_index)
        self.next_index = last_index + 1

    def accepted(self, match_index: int, now_ms: int) -> None:
        """Take note that the logs are equal, and durable there, up to `match_index`."""
        self.match_index = max(self.match_index, match_index)
        self.next_index = max(self.next_index, match_index + 1)
        self.is_probing = False
        self.is_waiting = False
        while self.in_flight and self.in_flight[0] <= match_index:
            self.in_flight.popleft()
        self.sent_ms = now_ms

    def is_overdue(self, now_ms: int, time_out_ms: int) -> bool:
        """Say whether what is under way has been without an answer for too long."""
        return (self.is_waiting or bool(self.in_flight)) and now_ms - self.sent_ms >= time_out_ms

    def is_live(self, now_ms: int, time_out_ms: int) -> bool:
        """Say whether the follower answered, in this term, less than `time_out_ms` ago."""
        return now_ms - self.contact_ms < time_out_ms
