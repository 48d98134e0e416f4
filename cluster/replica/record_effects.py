"""The effects of message records on the state of a standalone broker, which follows its plain log.

In a group the state machine receives the entries with effects. A plain log has no entries, so dispatch, which passes
every durable record once and in order, finds the marked ones. The state's snapshot has the log offset up to which they
are applied, and so has each command in the journal: a start applies both in their original order.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cluster.state.commands import decode_command
from cluster.state.verdicts import CommandVerdict
from commitlog.record.effects import effects_of
from store.model.dispatch_batch import rows_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.replica.journal.format import JournalCommand
    from cluster.state.broker_state import BrokerState
    from commitlog.record.effects import MarkedRecord
    from store.model.commit_log import CommitLog
    from store.model.dispatch_batch import DispatchBatch

logger = logging.getLogger(__name__)

_SCAN_SIZE_BYTES: Final = 4 << 20


class RecordEffects:
    """Applies the effects of records.

    Args:
        log: the plain log.
        state: of the broker.
    """

    def __init__(self, log: CommitLog, state: BrokerState) -> None:
        self._log = log
        self._state = state

    def replay(self, changes: Sequence[JournalCommand], end_offset: int) -> bool:
        """Apply the commands after a snapshot and the effects before `end_offset`, in their original order.

        Args:
            changes: the commands.
            end_offset: from which on `dispatched` receives the records; of the log's end.

        Returns:
            whether the state had applied effects of records that the log has lost: with flush = async, a power cut
            takes the log's last records, but not a later snapshot or change. Then the caller saves a snapshot, because
            later records get the same offsets.

        Raises:
            cluster.state.compact_bytes.Unreadable: a command or an effect is one of a newer version; the process must
                stop.
        """
        state = self._state
        known = [state.effects_offset, *(change.effects_offset for change in changes)]
        state.effects_applied(min(state.effects_offset, end_offset))
        records = self._marked(end_offset)
        marked = next(records, None)
        unfit_count = 0
        for change in changes:
            while marked is not None and marked.offset < change.effects_offset:
                state.apply_effect(marked.effect, marked.record)
                marked = next(records, None)
            applied = state.apply_command(decode_command(change.body))
            unfit_count += applied.verdict is not CommandVerdict.CHANGED
        while marked is not None:
            state.apply_effect(marked.effect, marked.record)
            marked = next(records, None)
        if unfit_count:
            logger.warning("journal_unfit commands=%d of=%d", unfit_count, len(changes))
        return max(known) > end_offset

    def _marked(self, end_offset: int) -> Iterator[MarkedRecord]:
        """Yield the marked records from the state's offset on; raise that to `end_offset`."""
        offset = max(self._state.effects_offset, self._log.begin_offset)
        while offset < end_offset and (batch := self._log.scan(offset, _SCAN_SIZE_BYTES)) is not None:
            for marked in self._of(batch):
                if marked.offset < end_offset:
                    yield marked
            offset = min(batch.next_offset, end_offset)
            self._state.effects_applied(offset)

    def _of(self, batch: DispatchBatch) -> Iterator[MarkedRecord]:
        size = batch.next_offset - batch.begin_offset
        raw = self._log.raw(batch.begin_offset, batch.next_offset, size)
        if raw is not None:
            yield from effects_of(raw.data, batch)

    def dispatched(self, batch: DispatchBatch) -> None:
        """Apply the effects of dispatched records."""
        state = self._state
        if batch.next_offset <= state.effects_offset:
            return
        for marked in self._of(rows_from(batch, state.effects_offset)):
            state.apply_effect(marked.effect, marked.record)
        state.effects_applied(batch.next_offset)
