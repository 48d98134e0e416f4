"""A leader's own entries in a log of messages: records of a system topic, marked by the entry's channel.

Java's DLedger 0.3 accepts entries of magic 1 only, and RocketMQ reads every body as a message record. So these entries
have magic 1, and their bodies are records; their kind is in the `channel` field of the entry's header, which Java
writes as 0 and never reads:

| channel | entry | body of its record |
| ------: | ----- | ------------------ |
|       0 | of a client | the message's |
|       2 | no-op of a new leader | empty |
|       3 | membership | a JSON object (`dledger.storage.membership_codec`) |
|       4 | broker state | a command of the broker |

Their records have the topic `rmq_sys_dledger`, queue 0, and the transaction type *prepared*: so they are in no queue
and have no queue offset, here and in Java, and Java does not index them, because they have no keys. Like all others
they have the physical offset entry position + 48.

No checksum covers the channel. An entry counts as a leader's own only if its channel *and* its record mark it, and the
record's body fits the channel; any other combination is corruption, including a record of the system topic in an entry
with channel 0. A no-op of DLedger 0.4 (magic 2, empty body) is also accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commitlog.record.effects import EFFECT_MARK_AT
from commitlog.record.encoder import RecordEncoder
from commitlog.record.record import PHYSICAL_OFFSET_POSITION, SYS_FLAG_POSITION, BadRecord, Record, decode
from dledger.entries.format.codec import SystemEntry, decode_membership
from dledger.entries.format.entry import ENTRY_NOOP, ENTRY_NORMAL, HEADER_SIZE
from dledger.storage.membership_codec import MembershipUnreadable, membership_to_object, to_json
from store.model.message import LOOPBACK, Host, Message
from store.model.sys_flag import TRANSACTION_PREPARED_TYPE, transaction_type
from store.model.topics import DLEDGER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.types import Membership

NO_OP_CHANNEL: Final = 2
MEMBERSHIP_CHANNEL: Final = 3
STATE_CHANNEL: Final = 4
SYSTEM_CHANNELS: Final = frozenset({NO_OP_CHANNEL, MEMBERSHIP_CHANNEL, STATE_CHANNEL})
# Position at which a store writes the physical offset into a record.
STAMP_AT: Final = PHYSICAL_OFFSET_POSITION
_JSON_OBJECT: Final = b"{"
_LOST_CHANNEL: Final = f"one of topic {DLEDGER_TOPIC}"


class MessageEntryCodec:
    """`dledger.entries.format.codec.EntryCodec` of a log of messages.

    Args:
        clock: milliseconds since 1970; stamps the records.
        store_host: this node's address in records.
    """

    kinds: frozenset[tuple[int, int]] = frozenset(
        {(ENTRY_NOOP, 0), *((ENTRY_NORMAL, channel) for channel in SYSTEM_CHANNELS)}
    )
    applied_channel = STATE_CHANNEL
    effect_at = EFFECT_MARK_AT
    # The low byte of the sysFlag, which contains the transaction type.
    marker_at = SYS_FLAG_POSITION + 3

    def __init__(self, clock: Callable[[], int], store_host: Host = LOOPBACK) -> None:
        self._clock = clock
        self._encoder = RecordEncoder(store_host, check_topic=lambda _: None)
        self._last_timestamp = 0

    def no_op(self) -> SystemEntry:
        """Return the no-op with which a leader begins its term: a record of `DLEDGER_TOPIC` without a body."""
        return SystemEntry(ENTRY_NORMAL, NO_OP_CHANNEL, self.record(b""), STAMP_AT)

    def membership(self, membership: Membership) -> SystemEntry:
        """Return the entry for `membership`: a record of `DLEDGER_TOPIC` whose body is JSON."""
        body = to_json(membership_to_object(membership)).encode()
        return SystemEntry(ENTRY_NORMAL, MEMBERSHIP_CHANNEL, self.record(body), STAMP_AT)

    def record(self, body: bytes) -> bytes:
        """Return a leader's record with this body; its physical offset is stamped at `STAMP_AT`.

        Raises:
            store.errors.IllegalMessage: it is too long.
        """
        # Timestamps never decrease along the log, as far as this node knows.
        now = self._last_timestamp = max(self._clock(), self._last_timestamp)
        message = Message(DLEDGER_TOPIC, body, sys_flag=TRANSACTION_PREPARED_TYPE, born_timestamp=now)
        return self._encoder.prepare([message]).encode_each([0], now)[0]

    def decode(self, magic: int, channel: int, body: bytes) -> Membership | None:
        """Return the membership in an entry; None for others. A membership whose channel was lost raises an error."""
        if magic != ENTRY_NORMAL or channel not in (0, MEMBERSHIP_CHANNEL):
            return None
        try:
            record = decode(memoryview(body), 0)
        except BadRecord as error:
            if channel:
                raise MembershipUnreadable("an entry of channel 3", error.fault.expected, error.fault.found) from error
            return None
        if channel:
            return decode_membership(record.body, "an entry of channel 3")
        if record.topic == DLEDGER_TOPIC:
            raise MembershipUnreadable("an entry of channel 0", "a client's message", _LOST_CHANNEL)
        return None

    def find_fault(self, magic: int, channel: int, position: int, body: memoryview) -> tuple[str, str] | None:
        """Return (expected, found) if the body of an entry at `position` contradicts its header; None if it agrees."""
        if magic != ENTRY_NORMAL:
            return ("an empty body", f"one of {len(body)} bytes") if len(body) else None
        try:
            record = decode(body, 0)
        except BadRecord as error:
            return (error.fault.expected, error.fault.found) if channel else None
        if not channel:
            return ("a client's message in channel 0", _LOST_CHANNEL) if record.topic == DLEDGER_TOPIC else None
        fault = record.check(physical_offset=position + HEADER_SIZE)
        if fault is not None:
            return fault.expected, fault.found
        if not is_system_record(record):
            return f"a record of topic {DLEDGER_TOPIC} for channel {channel}", f"one of topic {record.topic!r}"
        meant = _channel_of(record.body)
        return None if meant == channel else (f"a body for channel {channel}", f"one for channel {meant}")


def is_system_record(record: Record) -> bool:
    """Return whether a record is a leader's own, which no client can write."""
    return record.topic == DLEDGER_TOPIC and transaction_type(record.sys_flag) == TRANSACTION_PREPARED_TYPE


def _channel_of(body: bytes) -> int:
    """Return the channel for the body of a leader's record.

    A no-op is empty, a membership is a JSON object, and a command of the broker begins with its version, 1.
    """
    if not body:
        return NO_OP_CHANNEL
    return MEMBERSHIP_CHANNEL if body.startswith(_JSON_OBJECT) else STATE_CHANNEL


def system_body(body: bytes) -> bytes:
    """Return the body of the record in a leader's own entry.

    Raises:
        commitlog.record.record.BadRecord: it is not a record.
    """
    return decode(memoryview(body), 0).body
