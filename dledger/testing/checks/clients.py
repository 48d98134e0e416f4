"""Checks of the answers to clients.

An acknowledged append stays at the index of its answer (I3, I5), a refused one is not in the log (I13), none is in the
log twice (I7), and no linearizable read misses an entry that was acknowledged or read before it began (I6).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from dledger.testing.checks.log_view import HEADER_SIZE_BYTES
from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from dledger.testing.checks.log_view import LogEntry

ID_SIZE_BYTES = 8
_STAMP_SIZE_BYTES = 8


class OperationOutcome(Enum):
    """The known outcome of an append."""

    OPEN = "open"
    APPENDED = "appended"
    NOT_APPENDED = "not appended"
    UNKNOWN = "unknown"


@dataclass(eq=False, slots=True)
class Operation:
    """An append of one client: `bodies[i]` begins with `first_id + i`: so each entry is unique.

    Attributes:
        first_id: id of the first body.
        bodies: what the client sent.
        stamp_at: position in each body at which the store writes the physical offset; None: nowhere.
        outcome: known to the client.
    """

    first_id: int
    bodies: tuple[bytes, ...]
    stamp_at: int | None
    outcome: OperationOutcome = OperationOutcome.OPEN


class ClientChecks:
    """All operations of a run and their outcomes.

    Args:
        committed: the committed entries, as `LogChecks` collects them.
    """

    def __init__(self, committed: list[LogEntry]) -> None:
        self._committed = committed
        self._operations: dict[int, tuple[Operation, int]] = {}
        self._read_floors: dict[int, int] = {}
        self._next_id = 1
        # The greatest read index served by any node.
        self._read_index = -1
        self.acknowledged_index = -1
        self.acknowledged_count = 0
        self.read_count = 0

    def reserve_ids(self, count: int) -> int:
        """Return the first of `count` ids that no other operation has."""
        first_id = self._next_id
        self._next_id += count
        return first_id

    def issue(self, operation: Operation) -> None:
        """Record an append that a client is about to send."""
        for offset in range(len(operation.bodies)):
            self._operations[operation.first_id + offset] = (operation, offset)

    def acknowledge(self, operation: Operation, *, first_index: int, term: int, positions: list[int]) -> None:
        """Check that a node may answer "appended" to a client."""
        if operation.outcome is OperationOutcome.NOT_APPENDED:
            raise Violation("outcome", f"append {operation.first_id} is acknowledged after it was refused")
        operation.outcome = OperationOutcome.APPENDED
        for offset, position in enumerate(positions):
            index = first_index + offset
            if index >= len(self._committed):
                raise Violation("acknowledged is committed", f"{index} is acknowledged, but not committed")
            record = self._committed[index]
            if record.term != term or record.position != position:
                raise Violation(
                    "acknowledged is committed", f"{index} of term {term} at {position}: the log holds {record}"
                )
            self._check_body(record, operation, offset)
        self.acknowledged_index = max(self.acknowledged_index, first_index + len(positions) - 1)
        self.acknowledged_count += len(positions)

    def refuse(self, operation: Operation) -> None:
        """Check that a node may answer "not appended" to a client."""
        if operation.outcome is OperationOutcome.APPENDED:
            raise Violation("outcome", f"append {operation.first_id} is refused after it was acknowledged")
        operation.outcome = OperationOutcome.NOT_APPENDED

    def begin_read(self, read_id: int) -> None:
        """Record the start of a linearizable read: it must see every entry acknowledged or read before."""
        self._read_floors[read_id] = max(self.acknowledged_index, self._read_index)

    def end_read(self, read_id: int, index: int) -> None:
        """Record a served read up to `index`; later reads must see at least that."""
        floor = self._read_floors.pop(read_id)
        if index < floor:
            detail = f"a read sees up to {index}; {floor} was acknowledged or read before it began"
            raise Violation("linearizable read", detail)
        self._read_index = max(self._read_index, index)
        self.read_count += 1

    def refuse_read(self, read_id: int) -> None:
        """Forget a read that was not served."""
        self._read_floors.pop(read_id)

    def check_log(self) -> None:
        """Check the whole committed log, at the end of a run."""
        seen: dict[int, int] = {}
        for record in self._committed:
            if not record.is_of_client:
                # A leader's own entry: a no-op or a membership.
                continue
            body_id = int.from_bytes(record.body[:ID_SIZE_BYTES], "big")
            operation, offset = self._operations.get(body_id, (None, 0))
            if operation is None:
                raise Violation("log content", f"{record.index} holds id {body_id}, which no client sent")
            if operation.outcome is OperationOutcome.NOT_APPENDED:
                raise Violation(
                    "outcome", f"append {operation.first_id} was refused, but is committed at {record.index}"
                )
            if body_id in seen:
                raise Violation("log content", f"id {body_id} is at {seen[body_id]} and at {record.index}")
            seen[body_id] = record.index
            self._check_body(record, operation, offset)

    def _check_body(self, record: LogEntry, operation: Operation, offset: int) -> None:
        body = operation.bodies[offset]
        stamp_at = operation.stamp_at
        if stamp_at is not None:
            stamp = (record.position + HEADER_SIZE_BYTES).to_bytes(_STAMP_SIZE_BYTES, "big")
            body = body[:stamp_at] + stamp + body[stamp_at + _STAMP_SIZE_BYTES :]
        if record.body != body:
            raise Violation("log content", f"{record.index} does not hold what the client sent ({operation.first_id})")
