"""Messages as a pop consumer gets them: the record, its handle, and the number of attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitlog.record.compression import uncompressed_body
from store.model.message import KEYS, SHARDING_KEY, TAGS, UNIQUE_KEY

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from commitlog.record.properties import RawProperties
    from commitlog.record.record import Record


class PopMessage:
    """One message, until its deadline only of this consumer.

    Attributes:
        topic: its topic.
        broker: the broker that stores it.
        record: all fields, as stored.
        handle: by which it is acknowledged; `change_invisible` replaces it.
        attempt: number of times that the group was given the message, this one included.
        span: OpenTelemetry's span of its processing, while that lasts; None: the consumer has no `tracer_provider`.
    """

    __slots__ = ("attempt", "broker", "handle", "record", "span", "topic")

    def __init__(self, topic: str, broker: str, record: Record, handle: str, attempt: int) -> None:
        self.topic = topic
        self.broker = broker
        self.record = record
        self.handle = handle
        self.attempt = attempt
        self.span: Span | None = None

    def __repr__(self) -> str:
        place = f"{self.broker}/{self.topic}/{self.queue_id}@{self.queue_offset}"
        return f"PopMessage({place}, attempt {self.attempt}, {self.record.body_size} bytes)"

    @property
    def queue_id(self) -> int:
        """The number of its queue."""
        return self.record.queue_id

    @property
    def queue_offset(self) -> int:
        """Its offset in its queue."""
        return self.record.queue_offset

    @property
    def store_timestamp(self) -> int:
        """When it was stored, by the broker's clock, in milliseconds since 1970."""
        return self.record.store_timestamp

    @property
    def body(self) -> bytes:
        """The body as it was sent; a compressed one is decompressed at each access.

        Raises:
            commitlog.record.compression.UnreadableBody: its content does not match its flags; `record.body` has the
            stored bytes.
        """
        return uncompressed_body(self.record.sys_flag, self.record.body)

    @property
    def properties(self) -> RawProperties:
        """The properties: names and values; decoded at each access."""
        return self.record.properties

    @property
    def tags(self) -> str:
        """Its tag; empty if it has none."""
        return self.properties.get(TAGS, "")

    @property
    def message_group(self) -> str:
        """Its message group; empty if it has none. Groups that consume in order get one message of it at a time."""
        return self.properties.get(SHARDING_KEY, "")

    @property
    def keys(self) -> list[str]:
        """Its search keys."""
        return self.properties.get(KEYS, "").split()

    @property
    def unique_key(self) -> str:
        """The id that its producer assigned (UNIQ_KEY); empty if it has none."""
        return self.properties.get(UNIQUE_KEY, "")
