"""Brings queues and index to what the log says when a store is opened: cuts them to what is certain, dispatches again.

Of each of the two it is decided by itself where its certain part ends (a place in the log), by the table `CASES`:

| files of it | last exit | its timestamp in the checkpoint | certain up to                                      |
| ----------- | --------- | ------------------------------- | -------------------------------------------------- |
| none        | any       | any                             | the log's begin: it is built anew                  |
| some        | clean     | any                             | where it ends itself                               |
| some        | unclean   | known                           | the first record stored at that time, or later     |
| some        | unclean   | not known                       | the log's begin: it is cut and built anew          |

and never behind the log's end. What lies behind is cut, durably; then dispatch goes on there, and what both lack is
read from the log once. The result equals queues and index that are built from nothing, byte for byte, but for what the
log does not hold any more.

A queue that lacks units below that place is found out by a gap: a message whose queue offset is not the next one of
its queue. Gaps have honest reasons, too (an append that failed), but who can tell: the queue is built anew, from the
log's begin. A Java store whose machine lost power needs that, for its checkpoint says more than was synced.

Source: RocketMQ `DefaultMessageStore.recover`, `ConsumeQueueStore.recover`, `IndexService.load`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from store.commit_log import CommitLog

# The clock of a Java store may have been set back a little while it ran. Source: `StoreCheckpoint.getMinTimestamp`.
CLOCK_MARGIN_MS: Final = 3000


class CutRule(Enum):
    """Up to where queues, or the index, are certain."""

    BEGIN = "the log's begin"
    OWN_END = "its own end"
    TIMESTAMP = "the first record stored at the time of the checkpoint, or later"


@dataclass(frozen=True, slots=True)
class LastState:
    """How the last process left the store, as the files beside the log tell.

    Attributes:
        is_clean: it stopped in order: there is no file `abort`.
        queues_timestamp: the queues hold, durably, every message stored before; 0: not known.
        index_timestamp: the index holds, durably, every message stored before; 0: not known.
    """

    is_clean: bool = False
    queues_timestamp: int = 0
    index_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of the queues, or of the index, before it is touched.

    Attributes:
        has_files: it has any.
        is_clean: the last process stopped in order.
        store_timestamp: everything stored before is durable in it, as the checkpoint says; 0: not known.
        own_end: where in the log it ends by what it holds.
    """

    has_files: bool
    is_clean: bool
    store_timestamp: int
    own_end: int


class CutCase(NamedTuple):
    """A row of the table: what is known (None: either), and the rule."""

    has_files: bool | None
    is_clean: bool | None
    is_timestamp_known: bool | None
    rule: CutRule

    def fits(self, evidence: Evidence) -> bool:
        """Return whether the row is for this evidence."""
        facts = (evidence.has_files, evidence.is_clean, evidence.store_timestamp > 0)
        return all(asked in (None, found) for asked, found in zip(self[:3], facts, strict=True))


# Exactly one row fits any evidence.
CASES: Final = (
    CutCase(False, None, None, CutRule.BEGIN),
    CutCase(True, True, None, CutRule.OWN_END),
    CutCase(True, False, True, CutRule.TIMESTAMP),
    CutCase(True, False, False, CutRule.BEGIN),
)


def rule_for(evidence: Evidence) -> CutRule:
    """Return the rule of the one row that fits."""
    (rule,) = [case.rule for case in CASES if case.fits(evidence)]
    return rule


def certain_end(evidence: Evidence, log: CommitLog) -> int:
    """Return the place in the log up to which queues, or index, are certain."""
    rule = rule_for(evidence)
    if rule is CutRule.BEGIN:
        return log.begin_offset
    end = evidence.own_end
    if rule is CutRule.TIMESTAMP:
        end = log.offset_at_timestamp(max(evidence.store_timestamp - CLOCK_MARGIN_MS, 0))
    return min(max(end, log.begin_offset), log.end_offset)
