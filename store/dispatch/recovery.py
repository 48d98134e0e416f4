"""Brings queues and index to what the log says when a store is opened: cuts them to what is certain, dispatches again.

Of each of the two it is decided by itself where its certain part ends (a place in the log), by the table `CASES`:

| files of it | last exit | its timestamp in the checkpoint | certain up to                                      |
| ----------- | --------- | ------------------------------- | -------------------------------------------------- |
| none        | any       | any                             | the log's begin: it is rebuilt                  |
| some        | clean     | any                             | where it ends itself                               |
| some        | unclean   | known                           | the first record stored at that time, or later     |
| some        | unclean   | not known                       | the log's begin: it is cut and built again         |

and never after the log's end; queues also never after where the last of them ends, for a message without a unit is rare
and one whose unit is missing would be lost. What lies after that place is cut, durably; then dispatch continues there,
and what both lack is read from the log once. The result equals queues and index that are built from nothing, byte for
byte, but for what the log does not hold any more.

The timestamp is *known* only if the checkpoint has a seal that fits (`store.dispatch.checkpoint`). RocketMQ's
checkpoint notes units that were dispatched and not synced, so after a power cut it promises too much, and a flipped bit
in it can promise anything: messages below a place so found would be in no queue, and their queue offsets would be
given out again. Therefore queues and index of an unclean Java store are built again from the log, once; then the
checkpoint is sealed.

Likewise, files of a store that was closed cleanly may be removed, emptied or zeroed while it is closed. The checkpoint
then has digests of where queues and index ended (`DerivedDigests`): if what is loaded has another one, it is not
believed, and built again from the log.

A queue that lacks units below that place is also found by a gap: a message whose queue offset is not the next one of
its queue. A failed append also leaves a gap, and the two cases cannot be distinguished: the queue is rebuilt from the
log's begin.

Source: RocketMQ `DefaultMessageStore.recover`, `ConsumeQueueStore.recover`, `IndexService.load`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from store.dispatch.checkpoint import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.model.commit_log import CommitLog

# The clock of a Java store may have been set back a little while it ran. Source: `StoreCheckpoint.getMinTimestamp`.
CLOCK_MARGIN_MS: Final = 3000


class CutRule(Enum):
    """Up to where queues, or the index, are certain."""

    BEGIN = "the log's begin"
    OWN_END = "its own end"
    TIMESTAMP = "the first record stored at the time of the checkpoint, or later"


@dataclass(frozen=True, slots=True)
class DerivedDigests:
    """Checksums of where queues and index end; `NO_DIGEST`: not known.

    Attributes:
        queues: of every queue with units, and where it ends.
        index: of every file of the index, and how many items it has.
    """

    queues: int = NO_DIGEST
    index: int = NO_DIGEST


UNKNOWN_DIGESTS: Final = DerivedDigests()


def _withdraw_nothing() -> None:
    """Do nothing: nothing was promised."""


@dataclass(frozen=True, slots=True)
class LastState:
    """How the last process left the store, according to the files beside the log.

    Attributes:
        is_clean: it stopped in order: there is no file `abort`.
        queues_timestamp: the queues hold, durably, every message stored before; 0: not known.
        index_timestamp: the index holds, durably, every message stored before; 0: not known.
        digests: of queues and index as they were closed; they count only if `is_clean`.
        withdraw: takes back, durably, what the checkpoint promises of queues and index. It must be called before units
            or items below that are removed or appended again: a crash in between would leave the old promise.
    """

    is_clean: bool = False
    queues_timestamp: int = 0
    index_timestamp: int = 0
    digests: DerivedDigests = UNKNOWN_DIGESTS
    withdraw: Callable[[], None] = _withdraw_nothing


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


def promised_end(store_timestamp: int, log: CommitLog) -> int:
    """Return the place in the log up to which a timestamp of the checkpoint promises everything."""
    return log.offset_at_timestamp(max(store_timestamp - CLOCK_MARGIN_MS, 0))


def certain_end(evidence: Evidence, log: CommitLog) -> int:
    """Return the place in the log up to which queues, or index, are certain."""
    rule = rule_for(evidence)
    if rule is CutRule.BEGIN:
        return log.begin_offset
    end = evidence.own_end
    if rule is CutRule.TIMESTAMP:
        end = promised_end(evidence.store_timestamp, log)
    return min(max(end, log.begin_offset), log.end_offset)
