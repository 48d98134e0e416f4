"""The entries in a part, checked and decoded, and the store times of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitlog.record.record import BadRecord, decode
from dledger.client.reading import decode_chunk
from dledger.entries.format.entry import ENTRY_NORMAL, HEADER, HEADER_SIZE
from dledger.entries.format.walk import UNKNOWN, WalkState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dledger.entries.format.codec import EntryChecks
    from dledger.entries.format.entry import Entry


def decode_part(content: bytes, checks: EntryChecks, state: WalkState | None = None) -> tuple[list[Entry], WalkState]:
    """Return the entries of a part, and the state with which the next part must agree; checksums are checked.

    Args:
        content: whole entries, at least one, of one or more data files.
        checks: which entries may be a leader's own.
        state: after the part before; None: not known.

    Raises:
        dledger.client.reading.DamagedBytesError: they are not such entries.
    """
    entries: list[Entry] = []
    state = WalkState(index=UNKNOWN, term=0, chain_crc=UNKNOWN) if state is None else state
    for begin, end in runs_of(content):
        found, state = decode_chunk(content[begin:end], state, 0, checks)
        entries += found
    return entries, state


def runs_of(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of the runs of entries that are back to back in one data file, as their positions say.

    Nothing is checked: a damaged header ends in a run that `decode_chunk` refuses.
    """
    begin, offset, expected = 0, 0, -1
    while offset + HEADER_SIZE <= len(content):
        fields = HEADER.unpack_from(content, offset)
        size, position = fields[1], fields[4]
        if size < HEADER_SIZE or offset + size > len(content):
            break
        if position != expected and offset > begin:
            yield begin, offset
            begin = offset
        offset, expected = offset + size, position + size
    yield begin, len(content)


def store_time_of(entry: Entry) -> int | None:
    """Return the time at which a message was stored, in milliseconds since 1970; None: the entry is no message.

    Whether a log has messages is not known to a client. A body is a message if it is a record whose physical offset
    is the entry's.
    """
    if entry.magic != ENTRY_NORMAL or entry.channel:
        return None
    try:
        record = decode(memoryview(entry.body), 0)
    except BadRecord:
        return None
    is_own = record.physical_offset == entry.position + HEADER_SIZE and record.size == len(entry.body)
    return record.store_timestamp if is_own else None
