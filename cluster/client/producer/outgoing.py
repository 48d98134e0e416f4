"""Messages as a caller passes them, and their encoding."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.client.producer.batch import Encoded, SendItem
from cluster.client.producer.body_compression import compressed_body
from cluster.client.producer.unique_keys import UniqueKeys
from commitlog.record.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, encode_properties
from commitlog.record.timer_properties import DELAY_MS as TIMER_DELAY_MS
from commitlog.record.timer_properties import DELIVER_MS as TIMER_DELIVER_MS
from store.errors import IllegalMessage
from store.model.message import DELAY, KEYS, NO_PROPERTIES, SHARDING_KEY, TAGS, UNIQUE_KEY
from store.model.topics import DELAY_LEVELS_MAX, check_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.client.producer.options import ProducerOptions

BODY_SIZE_MAX: Final = 4 << 20
_TOPICS_KEPT: Final = 10_000
_GROUP_LENGTH_MAX: Final = 64
_SECONDS_MAX: Final = 10**14
# A message without properties from its caller has only this one; the general encoder takes five times as long.
_NEW_KEY_NAME: Final = f"{UNIQUE_KEY}{NAME_VALUE_SEPARATOR}"


class OutgoingMessage(NamedTuple):
    """A message to send.

    Attributes:
        topic: its topic.
        body: the payload; may be empty.
        tags: its tag, by which consumers can filter.
        keys: search keys, by which queries find it.
        properties: further names and values. A UNIQ_KEY among them is kept, so that a message whose outcome was unknown
            can be sent again and deduplicated.
        flag: free for the client's use; 32 bits, signed.
        delay_level: consumers get it after the delay of this level, 1 (1 s) to 18 (2 h), of
            `store.model.topics.DELAY_LEVELS_MS`; 0: at once.
        delay_s: consumers get it after this many seconds, counted by the broker; 0: at once.
        deliver_at: consumers get it at this time, seconds since 1970 or a datetime with a time zone; None: at once.
            At most one of the three may be given.
        message_group: messages of one group go to one queue, in the order of their sends; topics of type FIFO take only
            messages with one. 1 to 64 characters; empty: none.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = NO_PROPERTIES
    flag: int = 0
    delay_level: int = 0
    delay_s: float = 0
    deliver_at: float | datetime | None = None
    message_group: str = ""


_AT_ONCE: Final = (0, 0, None)
# The fields after the body of a message that has only a body.
_PLAIN: Final = OutgoingMessage("", b"")[2:]


def queue_key_of(messages: Sequence[OutgoingMessage], queue_key: str | None) -> str | None:
    """Return the key that chooses the queue of messages: their group has precedence over `queue_key`."""
    return next((message.message_group for message in messages if message.message_group), queue_key)


def _delivery_of(message: OutgoingMessage) -> dict[str, str]:
    """Return the properties for the delivery of a message at another time.

    Raises:
        IllegalMessage: the time is none, or several are given.
    """
    level, delay_s, at = message.delay_level, message.delay_s, message.deliver_at
    if not 0 <= level <= DELAY_LEVELS_MAX:
        raise IllegalMessage("delay_level", f"0 to {DELAY_LEVELS_MAX}", str(level))
    if (level > 0) + (delay_s != 0) + (at is not None) > 1:
        raise IllegalMessage("delivery", "one of delay_level, delay_s and deliver_at", "several")
    if level:
        return {DELAY: str(level)}
    if at is None:
        return {TIMER_DELAY_MS: str(_milliseconds("delay_s", delay_s))} if delay_s else {}
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise IllegalMessage("deliver_at", "a datetime with a time zone", repr(at))
        at = at.timestamp()
    return {TIMER_DELIVER_MS: str(_milliseconds("deliver_at", at))}


def _milliseconds(name: str, seconds: float) -> int:
    if not 0 <= seconds < _SECONDS_MAX:
        raise IllegalMessage(name, f"0 to {_SECONDS_MAX} seconds", str(seconds))
    return math.ceil(seconds * 1_000)


class OutgoingEncoder:
    """Encodes the messages of one producer: adds UNIQ_KEYs, compresses bodies. Must be created in its event loop."""

    def __init__(self, options: ProducerOptions) -> None:
        self._loop = asyncio.get_running_loop()
        self._compression = options.compression
        self._compress_above_bytes = options.compress_above_bytes
        self._unique_keys = UniqueKeys()
        self._checked_topics: set[str] = set()

    def item(self, messages: Sequence[OutgoingMessage], deadline: float, sequence: int) -> SendItem:
        """Return the encoded messages; all must have the same topic.

        Raises:
            IllegalMessage: a message violates a limit of the store.
            TypeError: a body is not bytes.
        """
        if not messages:
            raise IllegalMessage("messages", "at least one", "none")
        topic = messages[0].topic
        self._check_topic(topic)
        now_ms = time.time_ns() // 1_000_000
        if len(messages) == 1:
            key, sent = self._encode(messages[0], self._unique_keys.next(), now_ms)
            return SendItem(topic, (sent,), (key,), deadline, sequence, self._loop.create_future())
        group = messages[0].message_group
        encoded, unique_keys = [], []
        for message, new_key in zip(messages, self._unique_keys.take(len(messages)), strict=True):
            if message.topic != topic:
                raise IllegalMessage("messages", "one topic for all messages of a call", f"{topic}, {message.topic}")
            if message.message_group != group:
                expected, found = "one message group for all messages of a call", f"{group}, {message.message_group}"
                raise IllegalMessage("messages", expected, repr(found[:80]))
            key, sent = self._encode(message, new_key, now_ms)
            unique_keys.append(key)
            encoded.append(sent)
        return SendItem(topic, encoded, tuple(unique_keys), deadline, sequence, self._loop.create_future())

    def _encode(self, message: OutgoingMessage, new_key: str, now_ms: int) -> tuple[str, Encoded]:
        body = message.body
        if not isinstance(body, bytes):
            raise TypeError(f"expected a body of bytes, found {type(body).__name__}")
        if len(body) > BODY_SIZE_MAX:
            raise IllegalMessage("body", f"at most {BODY_SIZE_MAX} bytes", f"{len(body)}")
        if message[2:] == _PLAIN:
            unique_key, properties = new_key, (_NEW_KEY_NAME + new_key + PROPERTY_SEPARATOR).encode()
        else:
            unique_key, properties = _encode_named(message, new_key)
        sys_flag = 0
        if self._compression is not None and len(body) > self._compress_above_bytes:
            body, sys_flag = compressed_body(body, self._compression)
        return unique_key, Encoded(body, properties, message.flag, sys_flag, now_ms)

    def _check_topic(self, topic: str) -> None:
        if topic in self._checked_topics:
            return
        check_topic(topic)
        if len(self._checked_topics) < _TOPICS_KEPT:
            self._checked_topics.add(topic)


def _encode_named(message: OutgoingMessage, new_key: str) -> tuple[str, bytes]:
    """Return the UNIQ_KEY of a message and its encoded properties.

    Raises:
        IllegalMessage: a property, the group or the delivery violates a limit.
    """
    _, _, tags, keys, more, _, *later, message_group = message
    unique_key = more.get(UNIQUE_KEY) or new_key
    named = {UNIQUE_KEY: unique_key}
    if tags:
        named[TAGS] = tags
    if keys:
        named[KEYS] = keys if isinstance(keys, str) else " ".join(keys)
    named |= more
    if message_group:
        named[SHARDING_KEY] = _checked_group(message_group)
    delivery = {} if tuple(later) == _AT_ONCE else _delivery_of(message)
    return unique_key, encode_properties(named | delivery)


def _checked_group(message_group: str) -> str:
    if len(message_group) > _GROUP_LENGTH_MAX or not message_group.isprintable():
        expected = f"1 to {_GROUP_LENGTH_MAX} printable characters"
        raise IllegalMessage("message_group", expected, repr(message_group)[:80])
    return message_group
