"""The options of a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from cluster.client.consumer.allocation import ALLOCATIONS, AllocationName

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import TracerProvider

    from cluster.protocol.skipped_messages import SkippedMessages

Start = Literal["first", "last"] | int
Mode = Literal["cluster", "broadcast"]


class ConsumerSettings(TypedDict, total=False):
    """The fields of `ConsumerOptions`, each a keyword argument of `Consumer`; a test keeps the two in step."""

    mode: Mode
    start: Start
    allocation: AllocationName
    is_orderly: bool
    is_auto_acknowledged: bool
    has_retries: bool
    max_attempts: int
    prefetch_messages: int
    prefetch_size_bytes: int
    commit_interval_s: float
    handover_limit_s: float
    rebalance_interval_s: float
    no_route_limit_s: float
    on_skipped: Callable[[SkippedMessages], None] | None
    trace: bool
    tracer_provider: TracerProvider | Literal["global"] | None


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The settings of a consumer.

    Attributes:
        mode: `cluster`: the consumers of a group share the queues, and brokers store the group's offsets; `broadcast`:
            each consumer reads all queues, beginning at `start`, and no offsets are stored.
        start: where to begin in a queue without an offset of the group: at the `first` stored message, after the
            `last`, or at the first one stored at or after a time (milliseconds since 1970).
        allocation: how queues are assigned to members: contiguous runs (`average`), or round robin (`circle`).
        is_orderly: whether a queue is read only under the broker's lock, so that two consumers never process it
            concurrently.
        is_auto_acknowledged: whether a request for more messages acknowledges those before; otherwise only
            `acknowledge` does.
        has_retries: whether the group's retry topic is read, too: the messages that its consumers returned by `nack`.
        max_attempts: deliveries after which a returned message becomes a dead letter; 0: as many as the group's
            settings say, which are 17 by default.
        prefetch_messages: maximum number of prefetched messages per queue.
        prefetch_size_bytes: maximum number of prefetched bytes per queue.
        commit_interval_s: how often offsets are committed; if a consumer crashes, the messages processed since the
            last commit are delivered again.
        handover_limit_s: how long a queue that is reassigned waits until its delivered messages are processed and
            committed, so that they are not delivered twice.
        rebalance_interval_s: how often queues are reassigned, if nothing requires it earlier.
        no_route_limit_s: if nothing of a topic can be read for this long, because no broker has it, none answers, or
            none admits the consumer to its group, `poll` raises the cause, and again after each such period; reading
            is still retried.
        on_skipped: called for messages that this consumer does not get: damaged ones, and those deleted by retention
            before it read them. Called in the consumer's event loop (the blocking interface runs one), before the
            messages after them are delivered, and again when they are read again. If it raises an exception, reading
            of that queue ends, and `poll` raises the exception. Without it skipped messages are logged.
        trace: whether deliveries and acknowledgements are recorded in the topic RMQ_SYS_TRACE_TOPIC, which the broker
            must have (`trace_topic_enable`). They are written in the background; records that cannot be are dropped.
        tracer_provider: makes a span of OpenTelemetry for each message, from its delivery until it is acknowledged or
            returned: a provider, or `global`: that of the program. None: no spans. Needs the package opentelemetry-api.
    """

    mode: Mode = "cluster"
    start: Start = "last"
    allocation: AllocationName = "average"
    is_orderly: bool = False
    is_auto_acknowledged: bool = True
    has_retries: bool = False
    max_attempts: int = 0
    prefetch_messages: int = 1_000
    prefetch_size_bytes: int = 8 << 20
    commit_interval_s: float = 1.0
    handover_limit_s: float = 10.0
    rebalance_interval_s: float = 20.0
    no_route_limit_s: float = 60.0
    on_skipped: Callable[[SkippedMessages], None] | None = None
    trace: bool = False
    tracer_provider: TracerProvider | Literal["global"] | None = None

    def __post_init__(self) -> None:
        """Check the values and their relations.

        Raises:
            ValueError: an option is out of range.
        """
        if self.mode not in ("cluster", "broadcast"):
            raise ValueError(f"mode: expected cluster or broadcast, found {self.mode!r}")
        if self.start not in ("first", "last") and not isinstance(self.start, int):
            raise ValueError(f"start: expected first, last or milliseconds since 1970, found {self.start!r}")
        if self.allocation not in ALLOCATIONS:
            raise ValueError(f"allocation: expected average or circle, found {self.allocation!r}")
        if self.mode == "broadcast" and self.is_orderly:
            raise ValueError("is_orderly: expected False in broadcast mode, whose queues are not shared")
        if self.mode == "broadcast" and self.has_retries:
            raise ValueError("has_retries: expected False in broadcast mode, where each consumer reads all messages")
        if self.max_attempts < 0:
            raise ValueError(f"max_attempts: expected at least 0, found {self.max_attempts}")
        if min(self.prefetch_messages, self.prefetch_size_bytes) < 1:
            raise ValueError("expected prefetch bounds of at least 1")
        if min(self.commit_interval_s, self.handover_limit_s, self.rebalance_interval_s, self.no_route_limit_s) <= 0:
            raise ValueError("expected intervals above 0")
