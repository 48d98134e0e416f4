"""Effects: changes of broker state that a message record carries.

Two entries of one proposal are not atomic: a change of leader may commit the first and lose the second. So where a
message changes the state of the broker (the copy of a delayed message, for example, ends the wait of the original), the
record itself says so, and every replica changes its state when it applies the entry.

| part of the record | content |
| --- | --- |
| sysFlag | both bits of `CARRIES_EFFECT`: how replicas find such records without decoding the others |
| last property | `__EFFECT`, with the effect as text (`cluster.state.effects`) |

The mark has two bits in two bytes, so that one which changed on a disk hides no effect: the record is read, and its
checksum is wrong. Brokers alone set it, and remove it from what clients send; without it the property has no meaning.
RocketMQ reads such a record as an ordinary message: it ignores the bits, and has no such property.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from commitlog.record.properties import RawProperties
from commitlog.record.record import SYS_FLAG_POSITION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.model.dispatch_batch import DispatchBatch

EFFECT_NAME: Final = "__EFFECT"
# Position in a record of the two bytes of the sysFlag that have the mark (`dledger.entries.format.codec.EFFECT_MARK`).
EFFECT_MARK_AT: Final = SYS_FLAG_POSITION
_HEAD: Final = f"{EFFECT_NAME}\x01".encode()
_PROPERTY = re.compile(rb"(?:\A|(?<=\x02))__EFFECT\x01[^\x02]*(?:\x02|\Z)")
_END: Final = b"\x02"
_MARK: Final = 0x40


class MarkedRecord(NamedTuple):
    """A record with the mark of an effect.

    Attributes:
        offset: in the log.
        effect: its text; None: the record has none.
        record: encoded.
    """

    offset: int
    effect: str | None
    record: bytes


def properties_with_effect(raw: bytes, effect: str) -> RawProperties:
    """Return the properties of a record that carries an effect; its sysFlag must have `CARRIES_EFFECT`, too.

    Args:
        raw: its other properties, encoded; an effect among them is that of an earlier record, and is removed.
        effect: text without 0x01 and 0x02.
    """
    kept = without_effect(raw)
    if kept and not kept.endswith(_END):
        kept += _END
    return RawProperties(kept + f"{EFFECT_NAME}\x01{effect}\x02".encode())


def effect_property(head: str) -> bytes:
    """Return the beginning of the property of an effect whose text begins like this."""
    return _HEAD + head.encode()


def without_effect(raw: bytes) -> bytes:
    """Return encoded properties without an effect."""
    begin = raw.find(_HEAD)
    if begin < 0:
        return raw
    # The usual case: one, at the end.
    if (not begin or raw[begin - 1 : begin] == _END) and raw.find(_END, begin) in (-1, len(raw) - 1):
        return raw[:begin]
    return _PROPERTY.sub(b"", raw)


def effect_of(record: bytes) -> str | None:
    """Return the effect of an encoded record with the mark; None if it has no such property at its end."""
    begin = record.rfind(_HEAD)
    if begin < 0 or record.find(_END, begin) != len(record) - 1:
        return None
    return record[begin + len(_HEAD) : -1].decode("utf-8", "replace")


def effects_of(data: memoryview, batch: DispatchBatch) -> Iterator[MarkedRecord]:
    """Yield the dispatched records that have the mark.

    Args:
        data: the bytes of the log from `batch.begin_offset` to `batch.next_offset`.
        batch: the records.
    """
    if not len(batch):
        return
    begins = batch.physical_offsets - batch.begin_offset
    content = np.frombuffer(data, np.uint8)
    marks = content[begins + EFFECT_MARK_AT] & content[begins + (EFFECT_MARK_AT + 1)] & _MARK
    for row in np.flatnonzero(marks).tolist():
        begin = int(begins[row])
        record = bytes(data[begin : begin + int(batch.sizes[row])])
        yield MarkedRecord(batch.begin_offset + begin, effect_of(record), record)
