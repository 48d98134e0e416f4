"""The rules for the trusted part of queues and index when a store is opened.

Both are truncated to their *certain part*, and the log after it is dispatched again.

The end of the certain part (an offset of the log) is decided separately for queues and index, by the table `CASES`:

| files of it | last exit | its timestamp in the checkpoint | certain up to                                      |
| ----------- | --------- | ------------------------------- | -------------------------------------------------- |
| none        | any       | any                             | the log's start: it is rebuilt                     |
| some        | clean     | any                             | its own end                                        |
| some        | unclean   | known                           | the first record stored at that time, or later     |
| some        | unclean   | unknown                         | the log's start: it is rebuilt                     |

and never after the log's end; for queues also never after the end of the longest one, because a message without a unit
is rare, and a missing unit would lose its message. The part after that offset is truncated durably; then dispatch
continues there, reading messages missing in both only once. The result equals a full rebuild of queues and index, byte
for byte, except for messages that are no longer in the log.

An index without files counts as one with files if the checkpoint records that it has none: no message had a key.

The timestamp is *known* only if the checkpoint has a matching seal (`store.dispatch.checkpoint`). RocketMQ's checkpoint
covers units that were dispatched but not synced, so after a power cut its time may be too high, and a flipped bit can
change it to any value: messages before that offset would be in no queue, and their queue offsets would be assigned
again. Therefore queues and index of an unclean Java store are rebuilt from the log, once; then the checkpoint is
sealed.

Likewise, files of a store that was closed cleanly may be removed, emptied or zeroed while it is closed. The checkpoint
then has digests of the ends of queues and index (`DerivedDigests`); if those of the loaded files differ, they are
rebuilt from the log.

Missing units before that offset are also detected by a gap: a message whose queue offset is not the next one of its
queue. A failed append also leaves a gap, and the two cases cannot be distinguished, so the queue is rebuilt from the
log's start.

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


class TruncationRule(Enum):
    """The end of the certain part of queues, or of the index."""

    BEGIN = "the log's start"
    OWN_END = "its own end"
    TIMESTAMP = "the first record stored at the time of the checkpoint, or later"


@dataclass(frozen=True, slots=True)
class DerivedDigests:
    """Checksums of the ends of queues and index; `NO_DIGEST`: unknown.

    Attributes:
        queues: of every queue with units, and its end.
        index: of every file of the index, and the number of its items.
    """

    queues: int = NO_DIGEST
    index: int = NO_DIGEST


UNKNOWN_DIGESTS: Final = DerivedDigests()


def _withdraw_nothing() -> None:
    """Do nothing: there is no checkpoint to withdraw."""


@dataclass(frozen=True, slots=True)
class LastState:
    """The state left by the last process, according to the files next to the log.

    Attributes:
        is_clean: it stopped cleanly: there is no file `abort`.
        queues_timestamp: every message stored before this time is durable in the queues; 0: unknown.
        index_timestamp: the same for the index; 0: unknown.
        digests: of queues and index when they were closed, used only if `is_clean`; that of an index
            without files also if not.
        withdraw: sets the checkpoint's times of queues and index to 0, durably. It must be called before units or items
            below them are removed or rewritten, because a crash may happen in between.
    """

    is_clean: bool = False
    queues_timestamp: int = 0
    index_timestamp: int = 0
    digests: DerivedDigests = UNKNOWN_DIGESTS
    withdraw: Callable[[], None] = _withdraw_nothing


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts about the queues, or the index, before they are changed.

    Attributes:
        has_files: it has any, or the checkpoint records that it had none.
        is_clean: the last process stopped cleanly.
        store_timestamp: every message stored before this time is durable in it, according to the checkpoint; 0:
            unknown.
        own_end: the log offset after its last message.
    """

    has_files: bool
    is_clean: bool
    store_timestamp: int
    own_end: int


class TruncationCase(NamedTuple):
    """A row of the table: the facts (None: any), and the rule."""

    has_files: bool | None
    is_clean: bool | None
    is_timestamp_known: bool | None
    rule: TruncationRule

    def fits(self, evidence: Evidence) -> bool:
        """Return whether the row matches the facts."""
        facts = (evidence.has_files, evidence.is_clean, evidence.store_timestamp > 0)
        return all(asked in (None, found) for asked, found in zip(self[:3], facts, strict=True))


# Exactly one row matches any facts.
CASES: Final = (
    TruncationCase(False, None, None, TruncationRule.BEGIN),
    TruncationCase(True, True, None, TruncationRule.OWN_END),
    TruncationCase(True, False, True, TruncationRule.TIMESTAMP),
    TruncationCase(True, False, False, TruncationRule.BEGIN),
)


def rule_for(evidence: Evidence) -> TruncationRule:
    """Return the rule of the matching row."""
    (rule,) = [case.rule for case in CASES if case.fits(evidence)]
    return rule


def guaranteed_end(store_timestamp: int, log: CommitLog) -> int:
    """Return the log offset up to which all messages are durable according to a timestamp of the checkpoint."""
    return log.offset_at_timestamp(max(store_timestamp - CLOCK_MARGIN_MS, 0))


def certain_end(evidence: Evidence, log: CommitLog) -> int:
    """Return the log offset up to which queues, or index, are certain."""
    rule = rule_for(evidence)
    if rule is TruncationRule.BEGIN:
        return log.begin_offset
    end = evidence.own_end
    if rule is TruncationRule.TIMESTAMP:
        end = guaranteed_end(evidence.store_timestamp, log)
    return min(max(end, log.begin_offset), log.end_offset)
