"""Messages as a consumer gets them: views of the records that a broker sent, decoded lazily."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from commitlog.record.compression import uncompressed_body
from commitlog.record.record import BadRecord, Record, decode
from store.errors import CorruptData
from store.model.message import KEYS, TAGS, UNIQUE_KEY, Host

if TYPE_CHECKING:
    from cluster.client.consumer.queue_reader import QueueReader
    from commitlog.record.properties import RawProperties


class ReceivedMessage:
    """One message of one queue.

    Attributes:
        topic: its topic.
        broker: the broker that stores it.
        record: all fields, as stored.
        queue_offset: its offset in its queue.
        reader: the reader of its queue; internal.
    """

    def __init__(self, topic: str, broker: str, record: Record, reader: QueueReader) -> None:
        self.topic = topic
        self.broker = broker
        self.record = record
        self.reader = reader
        self.queue_offset = record.queue_offset

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

    @cached_property
    def properties(self) -> RawProperties:
        """The properties: names and values."""
        return self.record.properties

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
    view = memoryview(records)
    messages = []
    position, end = 0, len(view)
    while position < end:
        try:
            record = decode(view, position, end)
        except BadRecord as error:
            raise error.in_file(source) from None
        fault = record.check()
        if fault is not None:
            raise CorruptData(source, *fault)
        messages.append(ReceivedMessage(topic, broker, record, reader))
        position += record.size
    return messages
