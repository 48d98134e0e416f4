"""The options of a producer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict

from cluster.client.producer.body_compression import COMPRESS_ABOVE_BYTES, CompressionKind
from cluster.client.routing.queue_choice import fixed_queues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.trace import TracerProvider


class ProducerSettings(TypedDict, total=False):
    """The fields of `ProducerOptions`, each a keyword argument of `Producer`; a test keeps the two in step."""

    deadline_s: float
    answer_timeout_s: float
    linger_ms: float
    batch_messages_max: int
    batch_size_bytes_max: int
    batches_in_flight_max: int
    queue_messages_max: int
    queue_size_bytes_max: int
    compression: CompressionKind | None
    compress_above_bytes: int
    is_unknown_retried: bool
    may_use_frames: bool
    trace: bool
    ordered_topics: Mapping[str, str]
    tracer_provider: TracerProvider | Literal["global"] | None


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The settings of a producer.

    Attributes:
        deadline_s: time limit of a message in seconds, retries included.
        answer_timeout_s: how long to wait for an answer; after it the outcome is unknown, and the stream is closed.
        linger_ms: how long a batch that is not full waits for more messages; 0: a single message is sent at once.
        batch_messages_max: messages in one batch, 1 to 4,096; 1: no batching.
        batch_size_bytes_max: bytes in one batch.
        batches_in_flight_max: batches in flight to one broker, twice as many while they are full. Four keep network,
            disk and followers busy; 1 preserves the order of a queue even when a message is refused and retried.
        queue_messages_max: messages pending in the client, those in flight included.
        queue_size_bytes_max: bytes pending in the client.
        compression: compression of bodies above `compress_above_bytes`; None: off.
        compress_above_bytes: smaller bodies are sent uncompressed.
        is_unknown_retried: whether a message whose outcome is unknown is sent again with the same UNIQ_KEY until its
            deadline. Safe only if brokers deduplicate (`dedupe_window_count`) for longer than `deadline_s`; otherwise
            messages may be stored twice.
        may_use_frames: whether messages go to the brokers' frame ports, if they have some; otherwise, and without it,
            to gRPC.
        trace: whether the outcome of each message is recorded in the topic RMQ_SYS_TRACE_TOPIC, which the broker must
            have (`trace_topic_enable`). It is written in the background; records that cannot be are dropped.
        ordered_topics: topics with a fixed list of queues, of which a key selects one, whichever brokers are there:
            `{"orders": "broker-a:4;broker-b:4"}`. A message for a broker that is away waits until its deadline. All
            producers of a topic need the same list.
        tracer_provider: makes a span of OpenTelemetry for each send, whose context travels with the messages: a
            provider, or `global`: that of the program. None: no spans. Needs the package opentelemetry-api.
    """

    deadline_s: float = 10.0
    answer_timeout_s: float = 4.0
    linger_ms: float = 0.0
    batch_messages_max: int = 1_000
    batch_size_bytes_max: int = 256 << 10
    batches_in_flight_max: int = 4
    queue_messages_max: int = 10_000
    queue_size_bytes_max: int = 64 << 20
    compression: CompressionKind | None = "zlib"
    compress_above_bytes: int = COMPRESS_ABOVE_BYTES
    is_unknown_retried: bool = False
    may_use_frames: bool = True
    trace: bool = False
    ordered_topics: Mapping[str, str] = field(default_factory=dict)
    tracer_provider: TracerProvider | Literal["global"] | None = None

    def __post_init__(self) -> None:
        """Check the values and their relations.

        Raises:
            ValueError: an option is out of range.
        """
        if not 1 <= self.batch_messages_max <= 4_096:
            raise ValueError(f"batch_messages_max: expected 1 to 4096, found {self.batch_messages_max}")
        if self.linger_ms < 0 or self.deadline_s <= 0 or self.answer_timeout_s <= 0:
            raise ValueError("expected linger_ms of at least 0, deadline_s and answer_timeout_s above 0")
        bounds = (
            self.batches_in_flight_max,
            self.queue_messages_max,
            self.queue_size_bytes_max,
            self.batch_size_bytes_max,
        )
        if min(bounds) < 1:
            raise ValueError("expected bounds of at least 1")
        if self.compression not in (None, "zlib", "lz4", "zstd"):
            raise ValueError(f"compression: expected zlib, lz4, zstd or None, found {self.compression!r}")
        for topic, text in self.ordered_topics.items():
            fixed_queues(topic, text)
