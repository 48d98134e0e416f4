"""Checks the next write to a log and reserves its space, before the core decides on it.

The driver checks a push, or reserves space, before the core may accept entries, so that a refusal changes nothing. The
write reuses the results. They are valid for the current end of the log: every change of the end drops them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.entries.errors import CorruptPush, EntryTooLarge
from dledger.entries.format.placement import EntryRun, lay_out
from dledger.entries.push_check import CheckedPush, Predecessor, check_follows, check_payload
from dledger.storage.membership_codec import MembershipUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.entries.format.codec import EntryCodec
    from dledger.entries.space import EntrySpace
    from dledger.types import MembershipEntry, Span


class NextWrite:
    """Checks pushes and reserves space for one log, and keeps the results until the log's end changes.

    Args:
        space: of the log's files.
        codec: distinguishes a leader's own entries from those of clients.
        data_file_size: bytes of each data file.
        max_body_bytes: the largest body of an entry of this log.
    """

    __slots__ = (
        "_checked",
        "_checked_after",
        "_codec",
        "_data_file_size",
        "_max_body_bytes",
        "_reserved",
        "_reserved_span",
        "_space",
    )

    def __init__(self, space: EntrySpace, codec: EntryCodec, data_file_size: int, max_body_bytes: int) -> None:
        self._space = space
        self._codec = codec
        self._data_file_size = data_file_size
        self._max_body_bytes = max_body_bytes
        # A checked push, and the local entry that it was found to follow; None: that was not checked.
        self._checked: CheckedPush | None = None
        self._checked_after: Predecessor | None = None
        # Sizes of bodies for which space was reserved, with the positions of their entries; and a push with space.
        self._reserved: tuple[Sequence[int], list[EntryRun]] | None = None
        self._reserved_span: Span | None = None

    def reserve(self, sizes_of_bodies: Sequence[int], end_position: int, last_index: int) -> list[EntryRun]:
        """Reserve space for entries at the end of the log; return their positions.

        Args:
            sizes_of_bodies: at least one; must not change afterwards, because `runs_of` compares them.
            end_position: of the log.
            last_index: of the log.

        Raises:
            EntryTooLarge: refuse the batch.
            store.errors.DiskFull: refuse the batch; the log is unchanged.
        """
        if (size_max := max(sizes_of_bodies)) > self._max_body_bytes:
            raise EntryTooLarge(size_max, self._max_body_bytes)
        runs = lay_out(sizes_of_bodies, end_position, self._data_file_size)
        self._space.reserve(end_position, runs[-1].end_position, last_index + 1, last_index + len(sizes_of_bodies))
        self._reserved = sizes_of_bodies, runs
        return runs

    def runs_of(self, sizes: Sequence[int], end_position: int, last_index: int) -> list[EntryRun]:
        """Return the positions of entries with bodies of these sizes; reserves space unless `reserve` did."""
        reserved = self._reserved
        if reserved is not None and reserved[0] == sizes:
            return reserved[1]
        return self.reserve(sizes, end_position, last_index)

    def check_push(
        self, span: Span, payload: bytes, predecessor: Callable[[], Predecessor | None]
    ) -> tuple[MembershipEntry, ...]:
        """Check entries of a peer; return the memberships in them.

        Args:
            span: the peer's description of them.
            payload: their bytes.
            predecessor: returns the local entry before them; None: it may differ from the peer's.

        Raises:
            CorruptPush: drop the push.
            MembershipUnreadable: the entries follow the local log, and one has a membership that this version cannot
                read; stop the node.
        """
        self._checked = push = check_payload(span, payload, self._data_file_size, self._codec)
        before = predecessor()
        if before is not None:
            check_follows(push, span.first_index, before, self._data_file_size)
        self._checked_after = before
        try:
            return push.memberships(self._codec) if push.special else ()
        except MembershipUnreadable as error:
            if before is not None:
                raise
            # The chain checksum of the first entry, which covers its magic, could not be checked: one bit may have made
            # a no-op a membership.
            raise CorruptPush(span.first_index, error.expected, error.found) from error

    def pushed(self, span: Span, payload: bytes, first_index: int, before: Predecessor) -> CheckedPush:
        """Return a push whose entries from `first_index` on follow `before`, the last entry of the log.

        Checks that `check_push` did not make are made here.

        Raises:
            CorruptPush: append none of its entries.
        """
        push = self._checked
        if push is None or push.payload is not payload or push.span != span:
            push = check_payload(span, payload, self._data_file_size, self._codec)
            self._checked_after = None
        # A push that begins within the log, or replaces a suffix, was checked against another entry.
        if first_index != span.first_index or before != self._checked_after:
            check_follows(push, first_index, before, self._data_file_size)
        return push

    def reserve_span(self, span: Span, log_begin: tuple[int, int], log_end: tuple[int, int]) -> None:
        """Reserve space for entries of a peer.

        Args:
            span: of the entries.
            log_begin: index and position of the log's first entry.
            log_end: index and position of the entry after its last one.

        Raises:
            store.errors.DiskFull: refuse the push; the log is unchanged.
        """
        self._space.reserve_span(span, log_begin, log_end)
        self._reserved_span = span

    def has_space_for(self, span: Span) -> bool:
        """Return whether `reserve_span` was called with this span."""
        return span is self._reserved_span

    def drop(self) -> None:
        """Drop all results, because the log's end has changed."""
        self._checked = self._checked_after = self._reserved = self._reserved_span = None
