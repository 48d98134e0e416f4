"""Entries of a backup as spans, the form in which a follower writes the entries of its leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.backup.chain import encoded
from dledger.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dledger.entries.format.entry import Entry

# As in a push of a leader.
SPAN_SIZE_BYTES: Final = 1 << 20


def spans_of(entries: Sequence[Entry]) -> Iterator[tuple[Span, bytes]]:
    """Yield (span, its bytes) for consecutive entries: each of one term, back to back in one data file, about 1 MiB."""
    begin = 0
    while begin < len(entries):
        first = entries[begin]
        end, position = begin, first.position
        while end < len(entries):
            entry = entries[end]
            is_next = entry.term == first.term and entry.position == position
            if not is_next or (end > begin and position + entry.size - first.position > SPAN_SIZE_BYTES):
                break
            position += entry.size
            end += 1
        payload = b"".join(map(encoded, entries[begin:end]))
        yield Span(first.index, entries[end - 1].index, first.term, first.position, len(payload)), payload
        begin = end
