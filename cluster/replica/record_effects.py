"""The effects of message records on the state of a standalone broker, which follows its plain log.

In a group the state machine receives the entries with effects. A plain log has no entries, so dispatch, which passes
every durable record once and in order, finds the marked ones. The state's snapshot has the log offset up to which they
are applied; a start applies those after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commitlog.record.effects import effects_of
from store.model.dispatch_batch import rows_from

if TYPE_CHECKING:
    from cluster.state.broker_state import BrokerState
    from store.model.commit_log import CommitLog
    from store.model.dispatch_batch import DispatchBatch

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

    def load(self, end_offset: int) -> None:
        """Apply the effects before `end_offset`, from which on `dispatched` receives the records.

        Raises:
            cluster.state.compact_bytes.Unreadable: one is of a newer version; the process must stop.
        """
        # A power cut may have taken the log's last records, but not a later snapshot (flush = async).
        self._state.effects_applied(min(self._state.effects_offset, self._log.end_offset))
        offset = max(self._state.effects_offset, self._log.begin_offset)
        while offset < end_offset and (batch := self._log.scan(offset, _SCAN_SIZE_BYTES)) is not None:
            self.dispatched(batch)
            offset = batch.next_offset

    def dispatched(self, batch: DispatchBatch) -> None:
        """Apply the effects of dispatched records."""
        state = self._state
        if batch.next_offset <= state.effects_offset:
            return
        rows = rows_from(batch, state.effects_offset)
        raw = self._log.raw(rows.begin_offset, rows.next_offset, rows.next_offset - rows.begin_offset)
        if raw is not None:
            for effect, record in effects_of(raw.data, rows):
                state.apply_effect(effect, record)
        state.effects_applied(batch.next_offset)
