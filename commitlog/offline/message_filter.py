"""A filter of messages by topic, queue, key, and by time or queue offset."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from store.model.message import KEYS, UNIQUE_KEY

if TYPE_CHECKING:
    from commitlog.record.record import Record
    from store.model.dispatch_batch import Bools, DispatchBatch

# In a replicated log, timestamps are assigned slightly before positions, so files are chosen with this margin.
_DISORDER_MS = 60_000


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range: a queue offset, or a time.

    Attributes:
        value: the offset, or milliseconds since 1970.
        is_time: whether it is a time.
    """

    value: int
    is_time: bool


def parse_bound(text: str) -> Bound:
    """Return the bound in `--from` or `--to`: digits are a queue offset, `@` and digits milliseconds, else ISO 8601.

    A time without a zone is UTC.

    Raises:
        ValueError: it has none of these forms.
    """
    if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        return Bound(int(text), is_time=False)
    if re.fullmatch(r"@[0-9]{1,18}", text, re.ASCII):
        return Bound(int(text[1:]), is_time=True)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"expected a queue offset (42), a time (2026-11-21T09:00:00, UTC) or milliseconds (@1795227552330), "
            f"found {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Bound(round(moment.timestamp() * 1000), is_time=True)


def parse_time(text: str) -> int:
    """Return a time, as `parse_bound` reads it, in milliseconds since 1970.

    Raises:
        ValueError: it is not a time.
    """
    what = f"a time is 2026-11-21T09:00:00 (UTC) or, in milliseconds, @1795227552330; found {text!r}"
    try:
        bound = parse_bound(text)
    except ValueError:
        raise ValueError(what) from None
    if not bound.is_time:
        raise ValueError(what)
    return bound.value


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """The conditions of a filter; None: every message.

    Attributes:
        topic: its name.
        queue_id: number of a queue.
        key: one of the message's KEYS, or its UNIQ_KEY.
        begin: of the range.
        end: of the range, exclusive.
    """

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    begin: Bound | None = None
    end: Bound | None = None

    def rows(self, batch: DispatchBatch) -> Bools:
        """Return a mask of the messages of a batch that match the filter, except for the key."""
        is_wanted = np.array([self._fits_queue(topic, queue_id) for topic, queue_id in batch.queues], np.bool_)
        chosen: Bools = is_wanted[batch.queue_numbers] if len(batch) else np.zeros(0, np.bool_)
        if self.begin is not None:
            chosen &= _values(batch, self.begin) >= self.begin.value
        if self.end is not None:
            chosen &= _values(batch, self.end) < self.end.value
        return chosen

    def has_key(self, record: Record) -> bool:
        """Return whether a message has the wanted key."""
        if self.key is None:
            return True
        properties = record.properties
        return self.key == properties.get(UNIQUE_KEY) or self.key in properties.get(KEYS, "").split(" ")

    def begins_after(self, store_timestamp: int) -> bool:
        """Return whether all matching messages were stored after this time."""
        return self.begin is not None and self.begin.is_time and self.begin.value > store_timestamp + _DISORDER_MS

    def ends_before(self, store_timestamp: int) -> bool:
        """Return whether all matching messages were stored before this time."""
        return self.end is not None and self.end.is_time and self.end.value < store_timestamp - _DISORDER_MS

    def _fits_queue(self, topic: str, queue_id: int) -> bool:
        return self.topic in (None, topic) and self.queue_id in (None, queue_id)


def _values(batch: DispatchBatch, bound: Bound) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return batch.store_timestamps if bound.is_time else batch.queue_offsets
