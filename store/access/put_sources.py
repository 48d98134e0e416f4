"""Where the messages of one put are: stored already, or in puts whose outcomes are open; and the outcome of them all.

Not here: how earlier messages are found (`dedupe`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.errors import Certainty
from store.model.commit_log import PendingPut, Place, PutOutcome, PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.model.message import Host


class UndispatchedPut:
    """A put that is not dispatched yet.

    Attributes:
        pending: its outcome, when it is known.
        keys: of each message: `store.model.unique_keys.unique_key`; empty without one.
        queue_ids: of each message.
    """

    __slots__ = ("_rows", "keys", "pending", "queue_ids")

    def __init__(self, pending: PendingPut, keys: Sequence[bytes], queue_ids: Sequence[int]) -> None:
        self.pending = pending
        self.keys = keys
        self.queue_ids = queue_ids
        # Rows by key; None: no retry has asked for one.
        self._rows: dict[bytes, int] | None = None

    def row_of(self, key: bytes) -> int:
        """Return the row of a key; no two rows have the same one."""
        if self._rows is None:
            self._rows = {key: row for row, key in enumerate(self.keys)}
        return self._rows[key]


class StoredPlace(NamedTuple):
    """A message of the log."""

    place: Place
    queue_id: int
    # None: this process put it.
    store_host: Host | None = None


class WaitingRow(NamedTuple):
    """One message of a put."""

    put: UndispatchedPut
    row: int


MessageSource = StoredPlace | WaitingRow


def joined_put(sources: Sequence[MessageSource], repeated_count: int) -> PendingPut:
    """Return one pending append for messages that are stored already, or are in several puts.

    Args:
        sources: of each message, in the order of the put.
        repeated_count: messages of them that an earlier put has.
    """
    puts = {id(source.put): source.put for source in sources if isinstance(source, WaitingRow)}
    joined = PendingPut()
    waiting = len(puts)

    def end() -> None:
        outcomes = {number: _outcome_of(put) for number, put in puts.items()}
        certainties = {outcome.certainty for outcome in outcomes.values()}
        if certainties <= {Certainty.APPENDED}:
            stored = [
                source
                if isinstance(source, StoredPlace)
                else StoredPlace(outcomes[id(source.put)].places[source.row], source.put.queue_ids[source.row])
                for source in sources
            ]
            places, queue_ids, store_hosts = map(list, zip(*stored, strict=True))
            joined.end(
                PutOutcome(PutStatus.PUT_OK, Certainty.APPENDED, places, "", repeated_count, queue_ids, store_hosts)
            )
            return
        failed = next(outcome for outcome in outcomes.values() if outcome.certainty is not Certainty.APPENDED)
        has_put = Certainty.APPENDED in certainties or any(isinstance(source, StoredPlace) for source in sources)
        is_unknown = has_put or Certainty.UNKNOWN in certainties
        certainty = Certainty.UNKNOWN if is_unknown else Certainty.NOT_APPENDED
        joined.end(PutOutcome(failed.status, certainty, (), failed.detail))

    def one_done(_outcome: PutOutcome) -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            end()

    if not puts:
        end()
    for put in puts.values():
        put.pending.when_done(one_done)
    return joined


def _outcome_of(put: UndispatchedPut) -> PutOutcome:
    assert put.pending.outcome is not None
    return put.pending.outcome
