"""Messages as a consumer gets them: views of the records that a broker sent, decoded lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitlog.record.compression import uncompressed_body
from commitlog.record.record import find_fault
from commitlog.record.record_runs import split_records
from store.errors import CorruptData
from store.model.message import KEYS, RETRY_TOPIC, TAGS, UNIQUE_KEY, Host
from store.model.topics import is_retry_topic

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from cluster.client.consumer.queue_reader import QueueReader
    from cluster.client.tracing.trace_sender import DeliveryTrace
    from commitlog.record.properties import RawProperties
    from commitlog.record.record import Record


class ReceivedMessage:
    """One message of one queue.

    Attributes:
        topic: the topic in which it was read.
        broker: the broker that stores it.
        record: all fields, as stored.
        queue_offset: its offset in its queue.
        reader: the reader of its queue; internal.
        delivery: of a message whose trace is recorded; internal.
        span: OpenTelemetry's span of its processing, while that lasts; None: the consumer has no `tracer_provider`.
    """

    # Of the class, so that they cost nothing without a trace.
    delivery: DeliveryTrace | None = None
    span: Span | None = None

    def __init__(self, topic: str, broker: str, record: Record, reader: QueueReader) -> None:
        self.topic = topic
        self.broker = broker
        self.record = record
        self.reader = reader
        self.queue_offset = record.queue_offset
        self._properties: RawProperties | None = None

    def __repr__(self) -> str:
        place = f"{self.broker}/{self.topic}/{self.queue_id}@{self.queue_offset}"
        return f"ReceivedMessage({place}, {self.record.body_size} bytes)"

    @property
    def queue_id(self) -> int:
        """The number of its queue."""
        return self.record.queue_id

    @property
    def physical_offset(self) -> int:
        """The offset of its record in the broker's log, in bytes."""
        return self.record.physical_offset

    @property
    def store_timestamp(self) -> int:
        """When it was stored, by the broker's clock, in milliseconds since 1970."""
        return self.record.store_timestamp

    @property
    def born_timestamp(self) -> int:
        """When it was created, by its producer's clock, in milliseconds since 1970."""
        return self.record.born_timestamp

    @property
    def born_host(self) -> Host:
        """The address of its producer."""
        return self.record.born_host

    @property
    def reconsume_times(self) -> int:
        """How often it was redelivered."""
        return self.record.reconsume_times

    @property
    def attempts(self) -> int:
        """Deliveries of the message to the group, this one included; from 1."""
        return self.record.reconsume_times + 1

    @property
    def origin_topic(self) -> str:
        """The topic to which it was sent: another one than `topic` if it was returned by a consumer."""
        return self.properties.get(RETRY_TOPIC, self.topic) if is_retry_topic(self.topic) else self.topic

    @property
    def message_id(self) -> str:
        """The offset message id."""
        return self.record.message_id

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
        """The properties: names and values."""
        # Kept with what was decoded; `cached_property` takes a lock.
        found = self._properties
        if found is None:
            found = self._properties = self.record.properties
        return found

    @property
    def tags(self) -> str:
        """Its tag; empty if it has none."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> list[str]:
        """Its search keys."""
        return self.properties.get(KEYS, "").split()

    @property
    def unique_key(self) -> str:
        """The id that its producer assigned (UNIQ_KEY); empty if it has none."""
        return self.properties.get(UNIQUE_KEY, "")


def messages_of(records: bytes, reader: QueueReader, source: str) -> list[ReceivedMessage]:
    """Return the messages that a broker sent, each checked against its checksum.

    Args:
        records: whole records, back to back.
        reader: the reader of the queue.
        source: the node that sent them, for errors.

    Raises:
        CorruptData: a record does not match its checksum.
    """
    topic, broker = reader.queue.topic, reader.queue.broker
    return [ReceivedMessage(topic, broker, record, reader) for record in records_of(records, source)]


def records_of(records: bytes, source: str) -> list[Record]:
    """Return the records that a broker sent back to back, each checked against its checksum.

    Raises:
        CorruptData: a record does not match its checksum.
    """
    view = memoryview(records)
    found = split_records(view)
    end = found[-1].end if found else 0
    if end < len(view):
        fault = find_fault(view, end, len(view), physical_offset=None)
        assert fault is not None, (source, end)
        raise CorruptData(source, *fault)
    return found
