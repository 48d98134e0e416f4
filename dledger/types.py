"""The nouns that every part of the Raft log shares: spans, term runs, durable state.

Not here: events and effects (`dledger.core.events`), bytes (`dledger.entries.format.entry`).

Indexes are inclusive on both ends where they are called *first* and *last*; a log without entries has
`last_index == begin_index - 1` (an empty new log: begin 0, last -1). Terms count from 0. Of the entry before a log's
begin there are two things to say besides its term: there is none (`NO_TERM`), or its term is not known
(`UNKNOWN_TERM`). In files and frames both are -1, and the index distinguishes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

NO_INDEX = -1
# There is no entry: before index 0, or where an answer names none.
NO_TERM = -1
# There was an entry, but its term is not known here: another program deleted the file that held it.
UNKNOWN_TERM = -2
NO_GROUP = 0
GROUP_ID_END = 1 << 63
# No term is above it, so that what is saved can be sent: fields on disk and on the wire are signed, of 64 bits.
TERM_MAX = 1 << 62
# A message's term is accepted if it is at most this much above ours: more elections than in a century.
TERM_JUMP_MAX = 1 << 32
# An index unit is stored at 32 times its index, a byte of the log at its position: both fit a signed 64-bit field.
INDEX_MAX = 1 << 56
POSITION_MAX = 1 << 62
# The greatest distance at which a leader's log may begin after ours: a million entries in each second of eight years,
# all of which a node that joins may lack. Fewer than a 200th of all indexes, so that one reset does not use them up.
INDEX_JUMP_MAX = 1 << 48
# Incarnations are drawn at random below this, so that two lives of a node hardly ever have the same; fits a signed
# 64-bit field.
INCARNATION_END = 1 << 62


class Role(StrEnum):
    """What a node is in its current term (Raft §5.1; DLedger `MemberState.Role`)."""

    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"


def decoded_term(index: int, stored: int) -> int:
    """Return the term of entry `index` from its value in a file or frame, where -1 means none, or unknown."""
    return UNKNOWN_TERM if stored == NO_TERM and index >= 0 else stored


def encoded_term(term: int) -> int:
    """Return the value of a term in a file or frame; `decoded_term` is the inverse."""
    return max(term, NO_TERM)


@dataclass(frozen=True, slots=True)
class Span:
    """A run of consecutive entries of one term, stored back to back in one data file.

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
    """What must survive a crash before any answer leaves (Raft figure 2), and whether the node may have lost state.

    Attributes:
        term, voted_for: the current term, and the node that got this node's vote in it.
        is_founding: the node began with nothing on its disk and has met no leader yet: either the group is new, or the
            disk was wiped. Its vote counts only together with those of all others (ADR 7).
        incarnation: 0 for a node that has kept its disk since the group was founded; else the random number that it
            drew when it began with nothing and met a group that had begun before, or when it cut a damaged tail. Its
            vote counts when the committed membership names this incarnation.
        founding_group_id: the id of the group that this node gave its vote to found. While the node is founding, each
            vote replaces it; once it has met the leader of that founding, the id is that of its group. 0: none.
    """

    term: int = 0
    voted_for: str | None = None
    is_founding: bool = False
    incarnation: int = 0
    founding_group_id: int = NO_GROUP


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the group.

    Attributes:
        id: unique in the group.
        address: host:port of its peer transport; empty where it is not needed (simulation).
        is_voter: False for a learner, which receives the log and neither votes nor counts.
        incarnation: see `HardState.incarnation`.
    """

    id: str
    address: str = ""
    is_voter: bool = True
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Membership:
    """The members of the group, in a fixed order (by id).

    Attributes:
        members: ascending by id.
        group_id: which group: the number that its first leader drew, in [1, 2^63), the same in all its memberships;
            0 while no leader has: in settings, in logs of Java and of versions that knew none.
    """

    members: tuple[Member, ...] = ()
    group_id: int = NO_GROUP

    @property
    def voters(self) -> tuple[str, ...]:
        """Ids of the members that vote."""
        return tuple(member.id for member in self.members if member.is_voter)

    def get(self, member_id: str) -> Member | None:
        """Return a member; None for an unknown id."""
        for member in self.members:
            if member.id == member_id:
                return member
        return None

    def with_member(self, changed: Member) -> Membership:
        """Return the membership with `changed` added, or in place of the member with its id."""
        others = [member for member in self.members if member.id != changed.id]
        return replace(self, members=tuple(sorted([*others, changed], key=lambda member: member.id)))

    def without(self, member_id: str) -> Membership:
        """Return the membership without a member."""
        return replace(self, members=tuple(member for member in self.members if member.id != member_id))


@dataclass(frozen=True, slots=True)
class MembershipEntry:
    """A membership and the index of the entry that brought it; -1 for the one that the settings gave the group."""

    index: int
    membership: Membership


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A saved state of the state machine.

    Attributes:
        index, term: of the last entry that went into it.
        size_bytes, checksum: of the file; CRC-32C.
    """

    index: int
    term: int
    size_bytes: int
    checksum: int


@dataclass(frozen=True, slots=True)
class LogState:
    """What recovery found of a log: the pure core starts from this.

    Attributes:
        begin_index: first retained index; 0 unless a prefix was deleted.
        begin_prev_term: term of the entry before `begin_index`; `NO_TERM` or `UNKNOWN_TERM` without one.
        last_index: last entry; `begin_index - 1` when there is none.
        term_runs: terms of all retained entries, ascending in index and term.
    """

    begin_index: int = 0
    begin_prev_term: int = NO_TERM
    last_index: int = NO_INDEX
    term_runs: tuple[TermRun, ...] = ()
