"""Finds messages by key, unique key, message id, physical offset or time.

The index has only hashes, and seconds: its candidates are read and compared with the actual key and time, so that no
message with another key is returned.

Source: RocketMQ `DefaultMessageStore.queryMessage`, `lookMessageByOffset`, `getOffsetInQueueByTime`; there the client
compares keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.access.skipped_messages import damaged_record
from store.errors import CorruptData, IllegalMessage, IllegalRequest
from store.model.java_hash import key_hash
from store.model.message import KEYS, UNIQUE_KEY, StoredMessage
from store.model.message_id import decode_message_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.index.key_index import KeyIndex
    from store.model.commit_log import CommitLog
    from store.model.dispatch_batch import Skipped
    from store.steps import Steps

FOREVER_MS = (1 << 63) - 1
# Candidates of one query. Hash collisions are rare, but a damaged index must not make a query endless.
_CANDIDATES_MAX = 4096
# Damaged records reported by one query.
DAMAGED_MAX = 64


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a query by key.

    Attributes:
        messages: in the order of the log; the newest ones, if there are more than requested.
        is_complete: False: there may be more.
        damaged: unreadable records, each of which may have the key; at most `DAMAGED_MAX`.
    """

    messages: Sequence[StoredMessage]
    is_complete: bool
    damaged: Sequence[Skipped] = ()


class MessageQuery:
    """Finds messages of one store.

    Args:
        log: of the messages.
        index: None: keys are not indexed.
        count_max: largest number of messages that a query by key returns.
    """

    __slots__ = ("_count_max", "_index", "_log")

    def __init__(self, log: CommitLog, index: KeyIndex | None, count_max: int) -> None:
        self._log = log
        self._index = index
        self._count_max = count_max

    def by_key(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> Steps[QueryResult]:
        """Return the messages of a topic that have `key` among their KEYS or as UNIQ_KEY, stored in [begin, end].

        In steps of about a millisecond and one record: texts with one hash are easily found on purpose.
        """
        return self._query(topic, key, count_max, begin_ms, end_ms, has_key)

    def by_unique_key(self, topic: str, key: str, count_max: int) -> Steps[QueryResult]:
        """Return the messages of a topic that have `key` as UNIQ_KEY, of any store time."""
        return self._query(topic, key, count_max, 0, FOREVER_MS, has_unique_key)

    def _query(
        self,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        is_meant: Callable[[StoredMessage, str], bool],
    ) -> Steps[QueryResult]:
        if count_max < 1:
            raise IllegalRequest("count of messages", "at least 1", str(count_max))
        count_max = min(count_max, self._count_max)
        if self._index is None or not key or " " in key:
            return QueryResult((), is_complete=True)
        found: dict[int, StoredMessage] = {}
        damaged: list[Skipped] = []
        cuts = self._index.cuts
        hits = yield from self._index.query_steps(key_hash(topic, key), begin_ms, end_ms, _CANDIDATES_MAX)
        offsets = hits.physical_offsets
        for offset in offsets:
            yield
            if self._index.cuts != cuts:
                # The log may have been cut, too, or closed.
                return QueryResult(_ascending(found), is_complete=False, damaged=damaged)
            if offset in found:
                continue
            message = self._readable(offset, damaged)
            if (
                message is not None
                and message.topic == topic
                and begin_ms <= message.store_timestamp <= end_ms
                and is_meant(message, key)
            ):
                if len(found) == count_max:
                    return QueryResult(_ascending(found), is_complete=False, damaged=damaged)
                found[offset] = message
        is_complete = hits.is_complete and len(offsets) < _CANDIDATES_MAX
        return QueryResult(_ascending(found), is_complete=is_complete, damaged=damaged)

    def _readable(self, physical_offset: int, damaged: list[Skipped]) -> StoredMessage | None:
        """Return a record to which the index points; None if it is deleted, or damaged (which is recorded)."""
        try:
            return self._log.find(physical_offset)
        except CorruptData as error:
            if len(damaged) < DAMAGED_MAX:
                damaged.append(damaged_record(physical_offset, 0, error))
            return None

    def by_message_id(self, message_id: str) -> StoredMessage | None:
        """Return the message of an offset message id; None when it is not in this store.

        Raises:
            IllegalRequest: it is not an offset message id.
            store.errors.CorruptData: there is no valid record at that offset.
        """
        try:
            place = decode_message_id(message_id)
        except IllegalMessage as error:
            raise IllegalRequest(error.field, error.expected, error.found) from error
        message = self._log.find(place.physical_offset)
        if message is None or message.message_id != message_id.upper():
            return None
        return message


def has_key(message: StoredMessage, key: str) -> bool:
    """Return whether `key` is the message's unique key, or one of its keys."""
    properties = message.properties
    return properties.get(UNIQUE_KEY) == key or key in properties.get(KEYS, "").split(" ")


def has_unique_key(message: StoredMessage, key: str) -> bool:
    """Return whether `key` is the message's unique key."""
    return message.properties.get(UNIQUE_KEY) == key


def _ascending(found: dict[int, StoredMessage]) -> Sequence[StoredMessage]:
    return tuple(found[offset] for offset in sorted(found))
