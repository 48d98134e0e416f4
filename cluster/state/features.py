"""Feature levels: which kinds of commands and effects the nodes of a group may write.

A node stops at a command that it does not know, because replicas would diverge if it were skipped. So a leader writes
kinds of a newer program only after every member has reported, in its greeting, that its program knows them: then the
leader raises the level, which is part of the broker state. From then on no older program can take part: it stops at the
entry that raised the level.

| level | kinds |
| ----: | --- |
| 0 | commands 1 to 15 |
| 1 | command 16; records with effects (`cluster.state.effects`); delayed messages |
| 2 | commands 17, 19, 20, 21, 23, 25, 26, 30, 31; effects of retries (`b`, `x`), timers (`t`, `r`, `c`), |
| | transactions (`h`, `e`, `g`, `n`), pop consumption (`p`); compacted topics (`store.compaction`); |
| | the journal of a standalone broker (`cluster.replica.journal`) |
"""

from __future__ import annotations

from typing import Final

from store.errors import IllegalMessage

# The level up to which this program knows all kinds.
FEATURE_LEVEL: Final = 2
WITH_EFFECTS: Final = 1
WITH_JOURNAL: Final = 2
WITH_RETRIES: Final = 2
WITH_TIMERS: Final = 2
WITH_TRANSACTIONS: Final = 2
WITH_POP: Final = 2
WITH_DELAY_TABLE: Final = 2
WITH_COMPACTION: Final = 2
WITH_OWNERS: Final = 2
WITH_ACCESS_KEYS: Final = 2


def check_level(level: int) -> None:
    """Raise unless this program knows a level, which its node must not pass.

    Raises:
        IllegalMessage: it does not.
    """
    if not 1 <= level <= FEATURE_LEVEL:
        raise IllegalMessage("feature level", f"1 to {FEATURE_LEVEL}", str(level))
