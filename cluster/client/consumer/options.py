"""The options of a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from cluster.client.consumer.allocation import ALLOCATIONS, AllocationName

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.protocol.skipped_messages import SkippedMessages

Start = Literal["first", "last"] | int
Mode = Literal["cluster", "broadcast"]


class ConsumerSettings(TypedDict, total=False):
    """The fields of `ConsumerOptions`, each of which a `Consumer` takes by name; a test holds the two together."""

    mode: Mode
    start: Start
    allocation: AllocationName
    is_orderly: bool
    is_auto_acknowledged: bool
    prefetch_messages: int
    prefetch_size_bytes: int
    commit_interval_s: float
    handover_limit_s: float
    rebalance_interval_s: float
    no_route_limit_s: float
    on_skipped: Callable[[SkippedMessages], None] | None


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How a consumer reads.

    Attributes:
        mode: `cluster`: the consumers of a group share the queues, and the group's offsets are kept by the brokers;
            `broadcast`: each reads all queues, from `start` on, and nothing is kept.
        start: where to begin in a queue of which the group has no offset: with the `first` message that is kept, after
            the `last`, or with the first one stored at that time (milliseconds since 1970) or later.
        allocation: which member gets which queues: contiguous runs (`average`), or round-robin (`circle`).
        is_orderly: a queue is read only under the broker's lock, so that no two consumers ever work on it at once.
        is_auto_acknowledged: asking for more messages says that those before are done with; else only `acknowledge`
            does.
        prefetch_messages: no more is requested while this many of one queue wait in the client.
        prefetch_size_bytes: bytes of one queue that may wait in the client.
        commit_interval_s: how often offsets are committed: of a consumer that dies, what it was done with since then
            comes again.
        handover_limit_s: how long a queue that goes to another consumer of the group waits until the messages that were
            handed out are done with, so that they are committed and not repeated.
        rebalance_interval_s: how often queues are reassigned, if nothing requires it earlier.
        no_route_limit_s: when nothing of a topic can be read for this long, because no broker has it, none answers, or
            none lets the consumer into its group, `poll` raises why, and again each time it has been so for as long; it
            is tried on all the same.
        on_skipped: called for messages that this consumer does not get: damaged ones, and those that were deleted by
            age before it read them. Called in the consumer's event loop (the blocking interface runs one), before the
            messages after them are delivered, and again when they are read again. If it raises an exception, reading
            of that queue ends, and `poll` raises the exception. Without it they are logged.
    """

    mode: Mode = "cluster"
    start: Start = "last"
    allocation: AllocationName = "average"
    is_orderly: bool = False
    is_auto_acknowledged: bool = True
    prefetch_messages: int = 1_000
    prefetch_size_bytes: int = 8 << 20
    commit_interval_s: float = 1.0
    handover_limit_s: float = 10.0
    rebalance_interval_s: float = 20.0
    no_route_limit_s: float = 60.0
    on_skipped: Callable[[SkippedMessages], None] | None = None

    def __post_init__(self) -> None:
        """Check that all of it can be.

        Raises:
            ValueError: what cannot.
        """
        if self.mode not in ("cluster", "broadcast"):
            raise ValueError(f"mode: expected cluster or broadcast, found {self.mode!r}")
        if self.start not in ("first", "last") and not isinstance(self.start, int):
            raise ValueError(f"start: expected first, last or milliseconds since 1970, found {self.start!r}")
        if self.allocation not in ALLOCATIONS:
            raise ValueError(f"allocation: expected average or circle, found {self.allocation!r}")
        if self.mode == "broadcast" and self.is_orderly:
            raise ValueError("is_orderly: locks are for queues that a group shares, not for broadcast")
        if min(self.prefetch_messages, self.prefetch_size_bytes) < 1:
            raise ValueError("expected prefetch bounds of at least 1")
        if min(self.commit_interval_s, self.handover_limit_s, self.rebalance_interval_s, self.no_route_limit_s) <= 0:
            raise ValueError("expected intervals above 0")
