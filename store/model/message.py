"""Messages, queues and hosts as plain values.

Not here: bytes. A message is encoded and decoded by its log (`commitlog.record.record`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

# Names of properties that the store itself understands (RocketMQ `MessageConst`).
TAGS = "TAGS"
KEYS = "KEYS"
UNIQUE_KEY = "UNIQ_KEY"
DELAY = "DELAY"
# Of copies of messages that a consumer returned: where they came from.
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
# The message group of a FIFO message.
SHARDING_KEY = "__SHARDINGKEY"
# Of the copy of a compacted topic's message (`store.compaction`): the queue offset of the message, which it keeps.
COMPACTED_OFFSET = "__COMPACTED_OFFSET"
# Of half messages: what makes a message one, its producer group, and how long its producer is not asked.
TRANSACTION = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_ID = "__transactionId__"

QUEUE_ID_MAX = (1 << 31) - 1

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class QueueKey(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int


class Host(NamedTuple):
    """The origin of a message, or the node that stored it: 4 or 16 address bytes and a port (0 to 65535)."""

    address: bytes
    port: int


LOOPBACK = Host(b"\x7f\x00\x00\x01", 0)


class Message(NamedTuple):
    """A message to put. Limits are checked when it is encoded.

    Attributes:
        topic: its name.
        body: the payload; may be empty.
        queue_id: of the topic.
        properties: names and values, in the order in which they are stored; TAGS, KEYS and UNIQ_KEY among them.
        flag: for applications, not interpreted; 32 bits, signed.
        sys_flag: the bits of RocketMQ's `MessageSysFlag`; those for IPv6 hosts are set by the encoder.
        born_timestamp: milliseconds since 1970 by the client's clock.
        born_host: the client.
        reconsume_times: number of redeliveries to a consumer group.
        prepared_transaction_offset: physical offset of the half message that this one commits or rolls back.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    properties: Mapping[str, str] = NO_PROPERTIES
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = LOOPBACK
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class StoredMessage(Protocol):
    """A message in the log: its fields are decoded on access, and it is valid as long as its file is mapped.

    `commitlog.record.record.Record` is the one implementation.
    """

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        ...

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    @property
    def queue_id(self) -> int:
        """Number of the queue."""
        ...

    @property
    def queue_offset(self) -> int:
        """Offset in the queue; 0 for prepared and rolled-back messages, which are in no queue."""
        ...

    def is_at_queue_offset(self, topic: bytes, queue_id: int, queue_offset: int) -> bool:
        """Return whether its fields have this topic, queue and queue offset; the topic is UTF-8."""
        ...

    @property
    def physical_offset(self) -> int:
        """The offset of the record, from its own field."""
        ...

    @property
    def store_timestamp(self) -> int:
        """Time of the append: milliseconds since 1970."""
        ...

    @property
    def store_host(self) -> Host:
        """Address of the node that stored it."""
        ...

    @property
    def message_id(self) -> str:
        """The offset message id: store host and physical offset (`store.model.message_id`)."""
        ...

    @property
    def body(self) -> bytes:
        """A copy of the body."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """Names and values, as decoded by RocketMQ."""
        ...

    @property
    def properties_raw(self) -> bytes:
        """The same, as stored: name, 0x01, value, 0x02, and so on."""
        ...

    @property
    def properties_size(self) -> int:
        """Bytes of them, as stored."""
        ...
