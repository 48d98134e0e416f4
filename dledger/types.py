"""The nouns that every part of the Raft log shares: spans, term runs, durable state.

Not here: events and effects (`dledger.core.events`), bytes (`dledger.entry`).

Indexes are inclusive on both ends where they are called *first* and *last*; a log without entries has
`last_index == begin_index - 1` (an empty new log: begin 0, last -1). Terms count from 0; -1 means "none".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NO_INDEX = -1
NO_TERM = -1


class Role(StrEnum):
    """What a node is in its current term (Raft §5.1; DLedger `MemberState.Role`)."""

    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"


@dataclass(frozen=True, slots=True)
class Span:
    """A run of consecutive entries of one term that stand back to back in one data file.

    `position` is the byte position of the first entry, `length` the bytes from there to the end of the last.
    """

    first_index: int
    last_index: int
    term: int
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class TermRun:
    """Entries from `first_index` up to the next run (or the log's end) are of `term`."""

    first_index: int
    term: int


@dataclass(frozen=True, slots=True)
class HardState:
    """What must survive a crash before any answer leaves (Raft figure 2): the term, and whom it was voted for."""

    term: int = 0
    voted_for: str | None = None


@dataclass(frozen=True, slots=True)
class LogState:
    """What recovery found of a log: the pure core starts from this.

    Attributes:
        begin_index: first retained index; 0 unless a prefix was deleted.
        begin_prev_term: term of the entry before `begin_index`; -1 when there is none or it is not known.
        last_index: last entry; `begin_index - 1` when there is none.
        term_runs: terms of all retained entries, ascending in index and term.
    """

    begin_index: int = 0
    begin_prev_term: int = NO_TERM
    last_index: int = NO_INDEX
    term_runs: tuple[TermRun, ...] = ()
